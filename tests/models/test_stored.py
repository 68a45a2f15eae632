"""Modules as plain tensors with a header: the same numbers come back, and a file of a stranger runs nothing."""

from __future__ import annotations

import contextlib
import json
import os

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from csst.errors import InputError
from csst.fitting.model_file import unpack_working
from csst.models.stored import FORMAT, StoredModule, pack

EXAMPLE = torch.zeros(2, 3)


class Layer(StoredModule):
    matrix: Tensor
    scale: float

    def forward(self, x):
        return self.scale * x @ self.matrix


class Stack(StoredModule):
    layers: list[Layer]
    first: Layer
    names: list[str]

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture
def stack():
    rng = np.random.default_rng(0)
    layers = [Layer(matrix=rng.normal(size=(3, 3)).astype(np.float32), scale=0.1 * k) for k in (1, 2, 3)]
    return Stack(layers=layers, first=layers[0], names=["ä", "b"])


def test_a_module_comes_back_to_the_bit(stack):
    content = pack(stack)
    stored = unpack_working(content, "a file", EXAMPLE)
    x = torch.randn(5, 3)
    assert torch.equal(stored(x), stack(x))
    assert stored.names == ["ä", "b"]
    assert not stored.training
    assert pack(stored) == content


def test_parts_are_those_that_the_class_declares():
    with pytest.raises(TypeError, match=r"Layer is made of \['matrix', 'scale'\]; found \['matrix'\]"):
        Layer(matrix=torch.zeros(3, 3))
    with pytest.raises(TypeError, match="found"):
        Layer(matrix=torch.zeros(3, 3), scale=1.0, forward=None)


def test_the_file_is_plain_tensors_with_a_header(stack, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(pack(stack))
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        header = json.loads(file.metadata()["csst"])
        assert set(file.keys()) == {"first.matrix", *(f"layers.{k}.matrix" for k in range(3))}
    assert header["format"] == FORMAT
    assert header["modules"][""] == {"class": f"{__name__}:Stack", "values": {"names": ["ä", "b"]}}
    assert header["modules"]["layers"]["class"] == "list"


def test_other_modules_cannot_be_stored(stack):
    stack.first = torch.nn.Linear(3, 3)
    with pytest.raises(InputError, match="Linear cannot be stored"):
        pack(stack)


def test_a_truncated_file_is_refused(stack):
    content = pack(stack)
    header = 8 + int.from_bytes(content[:8], "little")
    for size in (0, 1, 7, 8, 9, 100, header - 1, header, header + 1, len(content) // 2, len(content) - 1):
        with pytest.raises(InputError, match="my file cannot be read as a stored model"):
            unpack_working(content[:size], "my file", EXAMPLE)
    with pytest.raises(InputError, match="my file cannot be read"):
        unpack_working(content + b"\0", "my file", EXAMPLE)


def test_a_flipped_byte_of_the_header_raises_nothing_but_an_input_error(stack):
    """A flipped digit may change a number: the checksum in metrics.json notices it (`FittedModel.load`)."""
    content = pack(stack)
    for place in range(8 + int.from_bytes(content[:8], "little")):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        with contextlib.suppress(InputError):
            unpack_working(bytes(damaged), "my file", EXAMPLE)


def repack(stack, change):
    """Return the file of a stack whose header was changed by a stranger."""
    content = pack(stack)
    size = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["csst"])
    change(header)
    return save(stack.state_dict() | {"first.matrix": torch.ones(3, 3)}, metadata={"csst": json.dumps(header)})


def name_class(key):
    return lambda header: header["modules"]["first"].update({"class": key})


HOSTILE = {
    "format": (lambda header: header.update(format=2), "has format 2, and this csst reads 3: fit the model again"),
    "no modules": (lambda header: header.pop("modules"), "modules"),
    "a function": (name_class("os:mkdir"), "holds a os:mkdir, which is not loaded: import its module first"),
    "a torch class": (name_class("torch.nn:Linear"), "torch.nn:Linear, which is not loaded"),
    "not a text": (name_class(["csst"]), "unhashable"),
    "another class": (name_class(f"{__name__}:Stack"), "Stack is made of"),
    "a value too many": (lambda header: header["modules"]["first"]["values"].update(evil=1), "evil"),
    "a value of another kind": (lambda header: header["modules"]["first"]["values"].update(scale="x"), ""),
    "a missing module": (lambda header: header["modules"].pop("first"), "first"),
    "a list with a gap": (lambda header: header["modules"].pop("layers.1"), "1"),
    "numbers that are not finite": (lambda header: header["modules"]["first"]["values"].update(scale=1e400), "finite"),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_hostile_header_is_refused_in_a_sentence(stack, attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change, reason = HOSTILE[attack]
    with pytest.raises(InputError, match=rf"^my file cannot be read as a stored model: .*{reason}"):
        unpack_working(repack(stack, change), "my file", EXAMPLE)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"\x80\x04K\x01.", b"PK\x03\x04 and so on", b"\xff" * 64, b"\0" * 64, save({"x": torch.zeros(1)})],
)
def test_other_files_are_refused(content):
    with pytest.raises(InputError, match="x cannot be read as a stored model"):
        unpack_working(content, "x", EXAMPLE)

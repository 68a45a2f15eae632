"""Build stored modules again (`csst.models.stored`), without running code from the file.

Only classes that have been imported already are looked up: a file cannot import anything.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor

from csst.errors import InputError
from csst.models.stored import FORMAT, LIST, METADATA, StoredModule


def read_header(content: bytes) -> dict[str, Any] | None:
    """Return the header in the bytes of `pack`; None for a safetensors file without one."""
    size = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + size]).get("__metadata__", {})
    return json.loads(metadata[METADATA]) if METADATA in metadata else None


def unpack(content: bytes, what: str, example: Tensor) -> StoredModule:
    """Return the module in the bytes of `pack`.

    Args:
        content: content of the file, possibly from a stranger.
        what: name of the file in errors.
        example: inputs that the module must take.
    """
    try:
        header = read_header(content)
        if header is None:
            raise ValueError("it has no header")
        if header["format"] != FORMAT:
            raise ValueError(f"it has format {header['format']}, and this csst reads {FORMAT}: fit the model again")
        tensors = load(content)
        module = build("", header["modules"], tensors).eval()
        surplus = tensors.keys() - module.state_dict().keys()
        if surplus:
            raise ValueError(f"no module takes the tensors {sorted(surplus)[:5]}")
        with torch.no_grad():
            outputs = module(example)
        if outputs.ndim != 2 or not torch.isfinite(outputs).all():
            raise ValueError("its outputs are not finite scores of classes")
    except Exception as error:  # a damaged file can make its reader raise anything
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"{what} cannot be read as a stored model: {reason}") from None
    return module


def build(path: str, modules: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """Return the module at a path of the header, with the modules and tensors below it."""
    prefix = f"{path}." if path else ""

    def list_names(paths: dict[str, Any]) -> list[str]:
        """Return the last parts of the paths that lie directly below this one."""
        names = [entry.removeprefix(prefix) for entry in paths if entry != path and entry.startswith(prefix)]
        return [name for name in names if "." not in name]

    children = {name: build(prefix + name, modules, tensors) for name in list_names(modules)}
    key = modules[path]["class"]
    if key == LIST:
        return [children[str(place)] for place in range(len(children))]
    if key not in StoredModule.classes:
        raise ValueError(f"it holds a {key}, which is not loaded: import its module first")
    own_tensors = {name: tensors[prefix + name] for name in list_names(tensors)}
    return StoredModule.classes[key](**modules[path]["values"], **children, **own_tensors)

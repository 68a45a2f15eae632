"""Modules that are stored as plain tensors with a small header, and built again without running code from the file.

    class Centroids(StoredModule):
        centers: Tensor

        def forward(self, x):
            return torch.log_softmax(-torch.cdist(x, self.centers), 1)

    content = pack(Centroids(centers=centers))
    module = unpack(content, "model.safetensors")

The file is a safetensors file of the `state_dict`. Its header names the class and the plain values of each module. Only
classes that have been imported already are looked up: a file cannot import anything.
"""

from __future__ import annotations

import inspect
import json
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from csst.errors import InputError

#: version of the header
FORMAT = 3
#: entry of a safetensors file's metadata that holds the header
METADATA = "csst"
#: name of a list of modules in the header
LIST = "list"


class StoredModule(nn.Module):
    """A module made of the parts that its class declares: tensors, modules, lists of modules, and values for JSON.

    Args:
        **parts: all declared attributes by name; arrays become tensors.
    """

    classes: ClassVar[dict[str, type[StoredModule]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        StoredModule.classes[cls.get_key()] = cls

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        fields = self.list_fields()
        if parts.keys() != fields:
            raise TypeError(f"{type(self).__name__} is made of {sorted(fields)}; found {sorted(parts)}")
        self.plain_values: dict[str, Any] = {}
        for name, part in parts.items():
            if isinstance(part, np.ndarray):
                self.register_buffer(name, torch.from_numpy(np.array(part, order="C")))
            elif isinstance(part, Tensor):
                self.register_buffer(name, part)
            elif isinstance(part, nn.Module):
                self.add_module(name, part)
            elif isinstance(part, list) and part and isinstance(part[0], nn.Module):
                self.add_module(name, nn.ModuleList(part))
            else:
                self.plain_values[name] = part
                setattr(self, name, part)

    @classmethod
    def get_key(cls) -> str:
        """Return the name of this class in a header."""
        return f"{cls.__module__}:{cls.__qualname__}"

    @classmethod
    def list_fields(cls) -> set[str]:
        """Return the names of the declared parts."""
        subclasses = cls.__mro__[: cls.__mro__.index(StoredModule)]
        return {name for subclass in subclasses for name in inspect.get_annotations(subclass)}

    def describe_parts(self) -> dict[str, Any]:
        """Return this module's entry in the header; a module that cannot be stored raises an error."""
        return {"class": self.get_key(), "values": self.plain_values}


def refuse_foreign(module: nn.Module) -> None:
    """Raise an error if a part of the module can be neither stored nor exported."""
    for part in module.modules():
        if isinstance(part, StoredModule):
            part.describe_parts()


def pack(module: StoredModule) -> bytes:
    """Return the module as the content of a safetensors file."""
    modules: dict[str, Any] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        if isinstance(part, nn.ModuleList):
            modules[path] = {"class": LIST, "values": {}}
        elif isinstance(part, StoredModule):
            modules[path] = part.describe_parts()
        else:
            raise InputError(f"{type(part).__name__} cannot be stored: make it a csst.models.stored.StoredModule")
    header = json.dumps({"format": FORMAT, "modules": modules})
    # Modules may share a tensor, which safetensors refuses: each gets its own copy.
    tensors = {name: tensor.cpu().contiguous().clone() for name, tensor in module.state_dict().items()}
    return save(tensors, metadata={METADATA: header})


def read_header(content: bytes) -> dict[str, Any] | None:
    """Return the header in the bytes of `pack`; None for a safetensors file without one."""
    size = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + size]).get("__metadata__", {})
    return json.loads(metadata[METADATA]) if METADATA in metadata else None


def unpack(content: bytes, what: str) -> StoredModule:
    """Return the module in the bytes of `pack`; whether it can be called is for the caller to see.

    Args:
        content: content of the file, possibly from a stranger.
        what: name of the file in errors.
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
    except Exception as error:  # a damaged file can make its reader raise anything
        raise describe_damage(what, error) from None
    return module


def describe_damage(what: str, error: Exception) -> InputError:
    """Return the error of a file that is no stored model.

    Args:
        what: name of the file.
        error: what went wrong.
    """
    reason = " ".join(str(error).split())[:300]
    return InputError(f"{what} cannot be read as a stored model: {reason}")


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

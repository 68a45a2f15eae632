"""The one loader of Hugging Face models: from a folder, from the local cache, or downloaded once from the hub.

`transformers` is an extra (pip install csst-learn[hf]), imported when first used. Code that comes with a model is
never run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from csst.errors import InputError
from csst.plugins import first_line, import_extra, load_from_hub

Loaded = TypeVar("Loaded")
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


@dataclass(frozen=True)
class Source:
    """A folder, or a name of the hub, from which the parts of a model are loaded.

    Args:
        transformers: the package.
        location: the folder or name.
        is_local: whether nothing may be downloaded.
    """

    transformers: Any
    location: str
    is_local: bool

    def has_weights(self) -> bool:
        folder = Path(self.location)
        return not folder.is_dir() or any((folder / name).is_file() for name in WEIGHTS)

    def load_config(self, classes: int) -> Any:
        """Return the configuration for this number of classes."""
        config = self.transformers.AutoConfig.from_pretrained(
            self.location, trust_remote_code=False, local_files_only=self.is_local
        )
        set_classes(config, classes)
        return config

    def load_network(
        self, auto: str, config: Any = None, new_head: bool = False, optional: str = ""
    ) -> tuple[nn.Module, list[str]]:
        """Return the network with its weights, which must fit, and the names of tensors that are new.

        Args:
            auto: name of the class of `transformers`, such as AutoModel.
            config: a configuration that differs from the stored one; None for the stored one.
            new_head: whether everything outside the network's body may be new, with random weights.
            optional: a part of the body that may be new too, by name.
        """
        options = {} if config is None else {"config": config}
        network, info = getattr(self.transformers, auto).from_pretrained(
            self.location,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            trust_remote_code=False,
            local_files_only=self.is_local,
            **options,
        )
        new_tensors = sorted({*info["missing_keys"], *(key[0] for key in info["mismatched_keys"])})
        misfits = [key for key in new_tensors if not (optional and optional in key)]
        if new_head:
            misfits = [key for key in misfits if key.startswith(f"{network.base_model_prefix}.")]
        if misfits:
            raise InputError(
                f"the weights of hf:{self.location} do not fit its config.json: {len(misfits)} tensors of the "
                f"network's body are missing or of another shape, such as {misfits[0]}"
            )
        return network, new_tensors

    def load_tokenizer(self) -> Any:
        try:
            tokenizer = self.transformers.AutoTokenizer.from_pretrained(
                self.location, trust_remote_code=False, local_files_only=self.is_local
            )
        except ImportError as error:
            reason = first_line(error).partition(". ")[0]
            raise InputError(
                f"the tokenizer of hf:{self.location} needs another package ({reason}): pip install csst-learn[hf]"
            ) from None
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"hf:{self.location} has no tokenizer that can be loaded: {first_line(error)}") from error
        if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):  # what the library makes of a missing file
            raise InputError(f"hf:{self.location} has no tokenizer: save one beside the model with save_pretrained")
        return tokenizer


def load_pretrained(spec: str, load: Callable[[Source], Loaded], what: str) -> Loaded:
    """Return load(source) of "hf:FOLDER" or "hf:OWNER/NAME"; any failure is one sentence.

    Args:
        spec: the folder or name.
        load: function from the source to the loaded parts.
        what: the kind of model with its article, "an image classifier", for the error.
    """
    name = parse_spec(spec)
    transformers = import_extra("transformers", spec)
    folder = Path(name).expanduser()
    with silence(transformers):
        if not folder.is_dir():
            return load_from_hub(name, lambda is_local: load(Source(transformers, name, is_local)), what)
        if not (folder / "config.json").is_file():
            raise InputError(f"{spec} has no config.json; save a model there with save_pretrained, or name another")
        try:
            return load(Source(transformers, str(folder), True))
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{spec} cannot be loaded as {what}: {first_line(error)}") from error


def parse_spec(spec: str) -> str:
    """Return the folder or name of "hf:FOLDER" or "hf:OWNER/NAME"."""
    kind, _, name = spec.partition(":")
    if kind != "hf" or not name:
        raise InputError(f"a Hugging Face model is hf:FOLDER or hf:OWNER/NAME; found {spec!r}")
    return name


def set_classes(config: Any, classes: int) -> None:
    config.num_labels = classes
    config.architectures = config.architectures or []  # None breaks a type with two kinds of head, such as deit


@contextmanager
def silence(transformers: Any) -> Iterator[None]:
    """Silence progress bars and the report of a head that is replaced on purpose."""
    log = transformers.utils.logging
    verbosity = log.get_verbosity()
    has_bars = log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if has_bars:
            log.enable_progress_bar()

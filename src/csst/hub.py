"""Load from the Hugging Face hub, with a one-sentence error if it cannot be reached or lacks the data.

Its client retries a failed connection for half a minute; here one quick attempt decides.
"""

from __future__ import annotations

import importlib
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from csst.errors import InputError

Loaded = TypeVar("Loaded")
_CONNECT_SECONDS = 5


def import_extra(package: str, wanted_by: str) -> Any:
    """Import a package of the extra csst-learn[hf]; `wanted_by` names what needs it in the error."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        name = package.partition(".")[0]
        raise InputError(f"{wanted_by} needs the package {name} ({error}): pip install csst-learn[hf]") from None


def load_from_hub(name: str, load: Callable[[bool], Loaded], what: str) -> Loaded:
    """Return load(True), from the local cache, if all files are there; else load(False), from the hub.

    Args:
        name: OWNER/NAME, as on the hub.
        load: the loader; its argument is whether to use the cache only, and then it raises OSError for a missing file.
        what: kind of the model or data, with its article, such as "an image classifier", for the error.
    """
    if name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1:
        raise InputError(f"hf:{name}: there is no such folder")
    try:
        try:
            return load(True)
        except OSError:  # not in the cache
            reason = find_obstacle()
            if reason:
                raise InputError(
                    f"hf:{name} is not a folder, not in the local cache, and the Hugging Face hub is out of reach "
                    f"({reason}): download it elsewhere and use hf:FOLDER"
                ) from None
        return load(False)
    except InputError:
        raise
    except Exception as error:  # the hub's client raises errors of many kinds
        raise InputError(
            f"hf:{name} is neither a folder nor {what} that the Hugging Face hub gives: {first_line(error)}"
        ) from error


def read_datasets_folder(datasets: Any, folder: Path) -> Any:
    """Read the data sets in a folder: written by `save_to_disk`, else files that `load_dataset` reads.

    Args:
        datasets: the package.
        folder: the folder of hf:FOLDER, with texts or images.
    """
    is_saved = any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))
    try:
        return datasets.load_from_disk(str(folder)) if is_saved else datasets.load_dataset(str(folder))
    except Exception as error:  # a missing, empty or damaged file raises errors of many kinds
        raise InputError(
            f"{folder} is not a folder of rows that datasets' save_to_disk wrote, nor of files that its load_dataset "
            f"reads, such as train.csv and test.csv: {type(error).__name__}"
        ) from None


def find_obstacle() -> str:
    """Return why the hub cannot be reached; "" if it answers."""
    constants = importlib.import_module("huggingface_hub.constants")
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=_CONNECT_SECONDS)
    except urllib.error.HTTPError:
        pass  # it answered
    except (OSError, ValueError) as error:
        return f"{constants.ENDPOINT} cannot be reached: {getattr(error, 'reason', error)}"
    return ""


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, at most 300 characters, for use inside a sentence."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__

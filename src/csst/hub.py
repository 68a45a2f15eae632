"""The Hugging Face hub: whether it can be asked, and one sentence where it cannot or does not give what is wanted.

Its own client repeats a failed connection for half a minute; here it is tried once, and quickly.
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
    """A package of the extra csst-learn[hf], imported when first used."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        name = package.partition(".")[0]
        raise InputError(f"{wanted_by} needs the package {name} ({error}): pip install csst-learn[hf]") from None


def load_from_hub(name: str, load: Callable[[bool], Loaded], what: str) -> Loaded:
    """load(local_only) from the local cache if it is all there; else from the hub, if it can be reached.

    Args:
        name: OWNER/NAME, as on the hub.
        load: the loader; True means from the cache only, which raises OSError where something is not there.
        what: what is loaded, with its article, "an image classifier", for the error.
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
    except Exception as error:  # whatever the hub's client raises
        raise InputError(
            f"hf:{name} is neither a folder nor {what} that the Hugging Face hub gives: {first_line(error)}"
        ) from error


def read_datasets_folder(datasets: Any, folder: Path) -> Any:
    """The data sets in a folder: what `save_to_disk` wrote, else its files as `load_dataset` reads them.

    Args:
        datasets: the package.
        folder: that of hf:FOLDER, for texts and images alike.
    """
    is_saved = any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))
    try:
        return datasets.load_from_disk(str(folder)) if is_saved else datasets.load_dataset(str(folder))
    except Exception as error:  # of any kind, where a file is missing, empty or damaged
        raise InputError(
            f"{folder} is not a folder of rows that datasets' save_to_disk wrote, nor of files that its load_dataset "
            f"reads, such as train.csv and test.csv: {type(error).__name__}"
        ) from None


def find_obstacle() -> str:
    """Why the hub cannot be asked; empty where it answers."""
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
    """The first line of an error's message, at most 300 characters, for use inside a sentence."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__

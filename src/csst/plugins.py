"""What comes from outside: names of the user (`package.module:name`), optional packages, and the Hugging Face hub.

The hub's client retries a failed connection for half a minute; here one quick attempt decides, and one sentence says
what is out of reach or lacks the data.
"""

from __future__ import annotations

import importlib
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, TypeVar

from csst.errors import InputError, nearest

Loaded = TypeVar("Loaded")
_CONNECT_SECONDS = 5


def load(reference: str, what: str) -> Any:
    """Import `package.module:name`, also from the working directory, as `python -m` does."""
    module_name, _, name = reference.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, TypeError, ValueError) as error:  # the latter two for names such as ..a and .
        raise InputError(
            f"{what} was asked for as {reference!r}, but {module_name!r} cannot be imported: {error}"
        ) from error
    try:
        return getattr(module, name)
    except AttributeError:
        public = [word for word in vars(module) if not word.startswith("_")]
        raise InputError(f"module {module_name!r} has no {name!r}{nearest(name, public)}") from None


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

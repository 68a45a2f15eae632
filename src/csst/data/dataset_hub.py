"""Data sets of the Hugging Face hub: from the local cache or downloaded, and one quick sentence without a network."""

from __future__ import annotations

import importlib
import urllib.error
import urllib.request
from typing import Any

from csst.errors import InputError

_CONNECT_SECONDS = 5


def hub_dataset(datasets: Any, name: str, split: str) -> Any:
    """A split of a data set of the hub. Where the hub cannot be reached, what was downloaded before is used."""
    if name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1:
        raise InputError(f"hf:{name}: there is no such folder")
    reason, before = _out_of_reach(datasets), datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = bool(reason)  # else its client repeats a failed connection for half a minute
    try:
        return datasets.load_dataset(name, split=split)
    except Exception as error:  # whatever the hub's client raises
        if reason:
            raise InputError(
                f"hf:{name} is not a folder, not in the local cache, and the Hugging Face hub is out of reach "
                f"({reason}): download the data elsewhere and give its folder, hf:FOLDER"
            ) from None
        told = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"hf:{name} is neither a folder nor a data set that the hub gives: {told}") from None
    finally:
        datasets.config.HF_HUB_OFFLINE = before


def _out_of_reach(datasets: Any) -> str:
    """Why the hub cannot be asked; empty where it answers."""
    constants = importlib.import_module("huggingface_hub.constants")
    if constants.HF_HUB_OFFLINE or datasets.config.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=_CONNECT_SECONDS)
    except urllib.error.HTTPError:
        pass  # it answered
    except (OSError, ValueError) as error:
        return f"{constants.ENDPOINT} cannot be reached: {getattr(error, 'reason', error)}"
    return ""

"""Data sets of the Hugging Face hub: from the local cache or downloaded, and one quick sentence without a network."""

from __future__ import annotations

from typing import Any

from csst.errors import InputError
from csst.hub import out_of_reach


def hub_dataset(datasets: Any, name: str, split: str) -> Any:
    """A split of a data set of the hub. Where the hub cannot be reached, what was downloaded before is used."""
    if name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1:
        raise InputError(f"hf:{name}: there is no such folder")
    before = datasets.config.HF_HUB_OFFLINE
    reason = "HF_HUB_OFFLINE is set" if before else out_of_reach()
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

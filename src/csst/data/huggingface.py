"""Data sets of the Hugging Face hub and folders of them; `datasets` is an extra, imported when first used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from csst.errors import InputError
from csst.plugins import import_extra, load_from_hub

#: what a path begins with that names a data set of the hub or a folder
HUGGING_FACE = "hf:"


def load_datasets(name: str, split: str | None = None) -> Any:
    """Return the data set of a split, or a dictionary of data sets by the names of their splits.

    Args:
        name: OWNER/NAME, as on the hub; or a folder, of which all splits are returned.
        split: name of a split on the hub; None for all.
    """
    datasets = import_extra("datasets", f"{HUGGING_FACE}{name}")
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _read_folder(datasets, folder)

    def load(is_local: bool) -> Any:
        was_offline = datasets.config.HF_HUB_OFFLINE
        datasets.config.HF_HUB_OFFLINE = was_offline or is_local
        try:
            return datasets.load_dataset(name, split=split)
        finally:
            datasets.config.HF_HUB_OFFLINE = was_offline

    return load_from_hub(name, load, "a data set")


def _read_folder(datasets: Any, folder: Path) -> Any:
    """Read the data sets in a folder: written by `save_to_disk`, else files that `load_dataset` reads."""
    is_saved = any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))
    try:
        return datasets.load_from_disk(str(folder)) if is_saved else datasets.load_dataset(str(folder))
    except Exception as error:  # a missing, empty or damaged file raises errors of many kinds
        raise InputError(
            f"{folder} is not a folder of rows that datasets' save_to_disk wrote, nor of files that its load_dataset "
            f"reads, such as train.csv and test.csv: {type(error).__name__}"
        ) from None

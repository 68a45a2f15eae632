"""Models of the Hugging Face library: from a folder, from the local cache, or downloaded once from the hub.

`transformers` is an extra (pip install csst-learn[hf]), imported when first used. Code that comes with a model is
never run: whoever loads here passes trust_remote_code=False.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from csst.errors import InputError
from csst.hub import out_of_reach

Loaded = TypeVar("Loaded")


def transformers_library(spec: str) -> Any:
    """The package transformers; `spec` is the model that needs it, for the error where it is not installed."""
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise InputError(f"{spec} needs the package transformers ({error}): pip install csst-learn[hf]") from None


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """No progress bars and no report of the head that is replaced on purpose."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def from_hub(name: str, load: Callable[[bool], Loaded], what: str) -> Loaded:
    """load(local_files_only) from the cache if it is all there; else from the hub, if it can be reached.

    Args:
        name: OWNER/NAME, as on the hub.
        load: the loader; True means from the cache only, which raises OSError where something is not there.
        what: the kind of model with its article, "an image classifier", for the error.
    """
    if name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1:
        raise InputError(f"hf:{name}: there is no such folder")
    try:
        return load(True)
    except OSError:
        require_hub(name)  # not in the cache
    except InputError:
        raise
    except Exception as error:
        raise _unusable(name, what, error) from error
    try:
        return load(False)
    except InputError:
        raise
    except Exception as error:
        raise _unusable(name, what, error) from error


def _unusable(name: str, what: str, error: Exception) -> InputError:
    return InputError(f"hf:{name} is neither a folder nor {what} that the Hugging Face hub gives: {first_line(error)}")


def require_hub(name: str) -> None:
    """An error in one sentence where the hub cannot be asked."""
    reason = out_of_reach()
    if reason:
        raise InputError(
            f"hf:{name} is not a folder, not in the local cache, and the Hugging Face hub is out of reach ({reason}): "
            f"download the model to a folder and use hf:FOLDER"
        )


def first_line(error: Exception) -> str:
    """The first line of an error's message, at most 300 characters, for use inside a sentence."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__

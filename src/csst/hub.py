"""Whether the Hugging Face hub can be asked: once, and quickly. Its own client repeats a failure for half a minute."""

from __future__ import annotations

import importlib
import urllib.error
import urllib.request

_CONNECT_SECONDS = 5


def out_of_reach() -> str:
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

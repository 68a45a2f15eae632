"""SIGINT and SIGTERM: the current step is finished and saved before the program ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# A module variable, because signals are sent to the process and not to an object.
_pending_number: int | None = None


def is_main_process() -> bool:
    """Return whether this process writes files and messages: the first of those that torchrun or Fabric started."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "NODE_RANK", "LOCAL_RANK"))


class Interrupted(KeyboardInterrupt):
    """A signal asked the program to stop.

    Args:
        number: the signal.
        sentence: progress so far, for the user.
    """

    def __init__(self, number: int = signal.SIGINT, sentence: str = "interrupted") -> None:
        super().__init__(number, sentence)
        self.number = number
        self.sentence = sentence

    @property
    def name(self) -> str:
        """The signal's name, such as SIGINT."""
        return signal.Signals(self.number).name


def pending_signal() -> int | None:
    """Return the signal that waits for a step boundary; None if there is none."""
    return _pending_number


def step_boundary() -> None:
    """Raise `Interrupted` if a signal came since `defer_signals` began; call this when everything can be saved."""
    if _pending_number is not None:
        raise Interrupted(_pending_number)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Let signals wait for `step_boundary` until the block ends; the same signal a second time does not wait.

    Only the main thread of a program receives signals; in other threads nothing changes.
    """
    global _pending_number
    _pending_number = None
    with _handlers(_remember):
        yield
        step_boundary()


@contextmanager
def forward_signals() -> Iterator[None]:
    """Let either signal end the program as Ctrl-C does, after its child processes, until the block ends."""
    with _handlers(_pass_on):
        yield


@contextmanager
def _handlers(handler: object) -> Iterator[None]:
    global _pending_number
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handlers = {number: signal.signal(number, handler) for number in SIGNALS}  # type: ignore[arg-type]
    try:
        yield
    finally:
        for number, previous_handler in previous_handlers.items():
            signal.signal(number, signal.SIG_DFL if previous_handler is None else previous_handler)
        _pending_number = None


def _remember(number: int, frame: FrameType | None) -> None:
    global _pending_number
    if _pending_number == number:
        raise KeyboardInterrupt
    _pending_number = number


def _pass_on(number: int, frame: FrameType | None) -> None:
    for child in multiprocessing.active_children():
        child.terminate()  # SIGTERM: a terminal sends SIGINT to children itself, and a second one would not wait
    raise Interrupted(number)

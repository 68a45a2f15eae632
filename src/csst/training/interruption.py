"""SIGINT and SIGTERM: the step in progress is finished and saved first, and only then does the program end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Signals come to the process, not to an object, so whether one came is known once per process.
_pending: int | None = None


def is_main_process() -> bool:
    """Whether this process writes and speaks: the first, where torchrun or Lightning Fabric has started several."""
    known = os.environ
    return known.get("RANK", "0") == known.get("NODE_RANK", "0") == known.get("LOCAL_RANK", "0") == "0"


class Interrupted(KeyboardInterrupt):
    """The program was asked to stop by this signal. `sentence` tells the user how far it came."""

    def __init__(self, number: int = signal.SIGINT, sentence: str = "interrupted") -> None:
        super().__init__(number, sentence)
        self.number, self.sentence = number, sentence

    @property
    def name(self) -> str:
        return signal.Signals(self.number).name


def pending_signal() -> int | None:
    """The signal that waits for a step boundary, if one does."""
    return _pending


def step_boundary() -> None:
    """To be called where everything can be saved: stops here if a signal came since `defer_signals` began."""
    if _pending is not None:
        raise Interrupted(_pending)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Until the block ends, signals wait for `step_boundary`; the same signal a second time does not wait.

    Only the main thread of a program hears signals; elsewhere nothing changes.
    """
    global _pending
    _pending = None
    with _handlers(_ask):
        yield
        step_boundary()


@contextmanager
def forward_signals() -> Iterator[None]:
    """Until the block ends, either signal ends the program as Ctrl-C does, after telling its child processes."""
    with _handlers(_pass_on):
        yield


@contextmanager
def _handlers(handler: object) -> Iterator[None]:
    global _pending
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in SIGNALS}  # type: ignore[arg-type]
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)
        _pending = None


def _ask(number: int, frame: FrameType | None) -> None:
    global _pending
    if _pending == number:
        raise KeyboardInterrupt
    _pending = number


def _pass_on(number: int, frame: FrameType | None) -> None:
    for child in multiprocessing.active_children():
        child.terminate()  # SIGTERM: a terminal has told the children of a SIGINT itself, and twice would hurry them
    raise Interrupted(number)

"""The command line: one file per verb, loaded only when used, so that `csst --help` is instant."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from csst import __version__
from csst.errors import InputError, nearest
from csst.training.interruption import forward_signals, is_main_process

VERBS = {
    "train": "train a classifier by a recipe: csst train digits --objective 'max min(recall)'",
    "compare": "methods side by side on the same splits: csst compare digits --methods fixmatch,csst --seeds 3",
    "report": "a page to look at, from finished or unfinished runs: csst report RUN ...",
    "evaluate": "measure a finished run on labeled rows: csst evaluate RUN labeled.csv",
    "certify": "whether fresh labels prove a run's bounds: csst certify RUN labeled.csv \"precision['fraud'] >= 0.9\"",
    "predict": "label new examples: csst predict RUN new.csv -o out.csv",
    "monitor": "what new rows without labels mean for a run: csst monitor RUN new.csv [--adapt FOLDER]",
    "export": "a model for use elsewhere, with its card: csst export RUN --to onnx -o model.onnx",
    "frontier": "what a run's model could trade off by its decision rule: csst frontier RUN",
    "augment": "back-translate texts once, for training: csst augment FILE -o cache.sqlite --via hf:A,hf:B",
    "theory": "what the paper's theorem says about a run: csst theory RUN",
    "recipes": "list the recipes",
    "objective": "explain an objective: csst objective 'max mean(recall) s.t. coverage >= 0.95/K'",
    "demo": "what people use, the paper's methods and the default side by side, on long-tailed digits",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; print a user's mistake as one sentence on stderr, with exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_write_help())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        print(f"csst {__version__}")
        return 0
    former_format = warnings.formatwarning
    warnings.formatwarning = _format_warning
    try:
        if arguments[0] not in VERBS:
            raise InputError(f"unknown command {arguments[0]!r}{nearest(arguments[0], VERBS) or '; try csst --help'}")
        with forward_signals(), suppress_broken_pipe():
            return int(importlib.import_module(f"csst.cli.{arguments[0]}").main(arguments[1:]) or 0)
        return 0
    except InputError as error:
        print(f"csst: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        if is_main_process():
            sentence = getattr(stop, "sentence", "interrupted")
            print(f"csst: {sentence}; {_say_how_to_continue(arguments)}", file=sys.stderr)
        return 128 + int(getattr(stop, "number", 2))
    finally:
        warnings.formatwarning = former_format


@contextmanager
def suppress_broken_pipe() -> Iterator[None]:
    """Stop without a word when the reader of our output has seen enough, as `head` has."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return a warning as one sentence without a line of code, and only in the main process."""
    if not is_main_process():
        return ""
    prefix = "csst: " if category is UserWarning else f"csst: {category.__name__}: "
    return f"{prefix}{message}\n"


def _say_how_to_continue(arguments: list[str]) -> str:
    """Return how to continue an interrupted command."""
    if arguments[0] == "train" and "--resume" not in arguments:
        arguments = [*arguments, "--resume"]
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return f"continue with: torchrun ... -m {shlex.join(['csst', *arguments])}"
    verb = "continue" if arguments[0] in ("train", "compare", "demo") else "repeat"
    return f"{verb} with: {shlex.join(['csst', *arguments])}"


def _write_help() -> str:
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {text}" for verb, text in VERBS.items()]
    return (
        "csst: train classifiers for the metric you care about\n\nusage: csst COMMAND ...\n\n"
        + "\n".join(lines)
        + "\n\ncsst COMMAND --help tells more."
    )

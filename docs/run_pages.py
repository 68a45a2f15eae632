"""Carries out the pages of the documentation: every block runs, and what it prints is what the page shows.

    python docs/run_pages.py            # write into the tutorials what their blocks print now

Blocks of a page share one folder and one Python session. A `python` block runs; with a title it is a file of that name
instead. A `text` block after it is what it prints. In a `console` block, lines that begin with $ are commands, and the
rest is what they print. Both show what a terminal does, warnings on stderr among it, but for lines of progress.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```(python|console|text)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: "step  40/200  worst recall 0.31" or "3/20 erm-0  about 8 s left": how far a command is
PROGRESS = re.compile(r"([a-z]+ +)?\d+/\d+( |$)")
NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block: its kind, its title, its text, and where the text lies in the page."""

    kind: str
    title: str
    body: str
    start: int
    end: int


@dataclass(frozen=True)
class Printed:
    """What a page shows at a place, and what was printed."""

    expected: str
    actual: str
    start: int
    end: int


def find_blocks(text: str) -> list[Block]:
    return [Block(m[1], m[2] or "", m[3], m.start(3), m.end(3)) for m in BLOCK.finditer(text)]


def run_page(text: str, folder: Path, change: Callable[[str], str] = lambda program: program) -> Iterator[Printed]:
    """Run the blocks of a page in a folder; what was to be printed and what was, for every block that shows it.

    Args:
        text: the page.
        folder: where it runs.
        change: makes a program or a command shorter, for a quick test.
    """
    session: dict[str, Any] = {"__name__": "__main__"}
    said = ""
    with contextlib.chdir(folder) if sys.version_info >= (3, 11) else _inside(folder):
        for block in find_blocks(text):
            if block.kind == "python" and block.title:
                Path(block.title).write_text(block.body, encoding="utf-8")
            elif block.kind == "python":
                said = capture(lambda body=block.body: exec(compile(change(body), "a page", "exec"), session))
            elif block.kind == "text":
                yield Printed(block.body, said, block.start, block.end)
            else:
                commands = [change(line[2:]) for line in block.body.splitlines() if line.startswith("$ ")]
                shown = "".join(f"$ {command}\n{run_command(command)}" for command in commands)
                yield Printed(block.body, shown, block.start, block.end)


def run_command(command: str) -> str:
    """Return what a command prints; csst runs in this process, which has it loaded already."""
    words = shlex.split(command)
    if words[0] != "csst" or {"|", ">", "&&"} & set(words):
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return drop_progress(subprocess.run(command, shell=True, check=True, text=True, **both).stdout)
    from csst.cli import main

    codes: list[int] = []
    sys.path.insert(0, os.getcwd())  # as `csst` finds modules in the folder it is called in
    try:
        printed = capture(lambda: codes.append(main(words[1:])))
    finally:
        sys.path.remove(os.getcwd())
    if codes != [0]:
        raise RuntimeError(f"{command} ended with {codes}: {printed[-2000:]}")
    return printed


def capture(action: Callable[[], object]) -> str:
    """Return what an action prints to stdout and stderr, in order."""
    printed = io.StringIO()
    usual = warnings.formatwarning
    # As Python shows a warning, without the place in the library, which is a path of this machine.
    warnings.formatwarning = lambda message, category, *_: f"{category.__name__}: {message}\n"
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), warnings.catch_warnings():
            warnings.showwarning = lambda *about: printed.write(warnings.formatwarning(*about[:4]))
            warnings.simplefilter("default")
            for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
                warnings.simplefilter("ignore", category)  # as Python does
            action()
    finally:
        warnings.formatwarning = usual
    return drop_progress(printed.getvalue())


def drop_progress(printed: str) -> str:
    """Return the lines that do not say how far a command is."""
    return "".join(line.rstrip() + "\n" for line in printed.splitlines() if not PROGRESS.match(line))


def differ(expected: str, actual: str) -> str:
    """How two outputs differ, in words; empty where they say the same, with numbers that machines may round apart."""
    rows = [[line.split() for line in drop_machine(text) if line.strip()] for text in (expected, actual)]
    if len(rows[0]) != len(rows[1]):
        return f"{len(rows[0])} lines on the page, {len(rows[1])} printed:\n{actual}"
    for before, after in zip(*rows, strict=True):
        lines = " ".join(before), " ".join(after)
        shapes = [re.sub(r"\s*[─━┏┓┗┛└┘┌┐┬┴┼│┃┡┩╇┳┻━]+\s*", "|", NUMBER.sub("#", line)) for line in lines]
        if shapes[0] != shapes[1]:
            return f"{lines[0]!r} on the page, {lines[1]!r} printed"
        for a, b in zip(*(map(as_number, NUMBER.findall(line)) for line in lines), strict=True):
            if abs(a - b) > 0.05 + 0.1 * abs(a):
                return f"{a} on the page, {b} printed: {lines[1]!r}"
    return ""


def drop_machine(text: str) -> list[str]:
    """Return the lines of an output without what the machine decides: its name, and a table's column of seconds."""
    lines, column = [], None
    for line in text.splitlines():
        cells = re.split("[┃│]", line)
        names = [cell.strip() for cell in cells]
        if "seconds" in names:
            column = names.index("seconds")
        elif len(cells) == 1:
            column = None if line.startswith("└") else column
        if not line.strip().startswith("Hardware:"):
            lines.append("│".join(cell for n, cell in enumerate(cells) if n != column or len(cells) == 1))
    return lines


def as_number(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def update(page: Path) -> None:
    """Write into a page what its blocks print."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        printed = list(run_page(text, Path(folder)))
    for each in reversed(printed):
        text = text[: each.start] + each.actual + text[each.end :]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="default: all tutorials")
    for page in parser.parse_args().pages or sorted((Path(__file__).parent / "tutorials").glob("*.md")):
        print(page, flush=True)
        update(page)

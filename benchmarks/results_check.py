"""Which measured pages are older than the code they measure? python -m benchmarks.results_check

    python -m benchmarks.results_check --repeat benchmarks.effect.versus --data-dir DIR

Every page of benchmarks/results has a line in a fixed form below its title,

    Measured on commit `1a2b3c4`: `rules`, `estimation/class_rates.py`.

with the commit whose code was measured and the modules, files or folders of src/csst, on which its numbers depend. A
page is listed if one of these modules behaves differently now: comments, docstrings, moved files and renamed variables,
functions and classes do not count. Scripts write their page by `write_results`, which keeps the line true.

A page need not be measured again in full. With --repeat, a script that keeps its lines in a `benchmarks.lines.Log`
measures a twentieth of them once more, drawn at random with seed 0. If all values but times are the same to the digit,
the page gets a second line,

    Repeated on commit `4d5e6f7` of 2026-11-18, to the digit: lines 3, 17 and 25 of page.jsonl.

and counts as of that commit; else the differences are shown, and it has to be measured again.
"""

from __future__ import annotations

import ast
import importlib
import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SOURCE = "src/csst"
LINE = re.compile(r"^Measured on commit `([0-9a-f]{7,40})`: (`[^`]+`(?:, `[^`]+`)*)\.\n", re.MULTILINE)

REPEATED = re.compile(r"^Repeated on commit `([0-9a-f]{7,40})` of [^\n]*\n", re.MULTILINE)

#: part of the lines that is measured once more
REPEATED_FRACTION = 0.05

#: changed modules that are named for a page; of more, only how many there are
MOST_NAMED = 5

#: a node of a module: its kind, the field and the identifier or constant there
Token = tuple[str, str, object]


@dataclass(frozen=True)
class Measurement:
    """What a page says it measures.

    Args:
        commit: whose code was measured.
        modules: files and folders below src/csst.
        repeated: the line about the commit on which a part of it was measured once more; "" if none was.
    """

    commit: str
    modules: tuple[str, ...]
    repeated: str = ""

    @property
    def last_commit(self) -> str:
        """The commit whose code the numbers are of, as far as is known."""
        match = REPEATED.match(self.repeated)
        return self.commit if match is None else match[1]

    @classmethod
    def read(cls, text: str) -> Measurement | None:
        """Return the measurement that a page names; None if it names none."""
        match = LINE.search(text)
        repeated = REPEATED.search(text)
        last = "" if repeated is None else repeated[0]
        return None if match is None else cls(match[1], tuple(re.findall("`([^`]+)`", match[2])), last)

    def __str__(self) -> str:
        line = f"Measured on commit `{self.commit}`: {', '.join(f'`{name}`' for name in self.modules)}."
        return f"{line}\n\n{self.repeated.rstrip()}" if self.repeated else line


# ── Writing a page ──


def write_results(page: Path, text: str, modules: Sequence[str], is_measured: bool = True) -> None:
    """Write a page of results with the line that says what it measures.

    The commit is the current one, unless numbers of an earlier one remain: lines of the .jsonl file beside the page
    that were committed before.

    Args:
        page: the .md file.
        text: its content; it begins with a title.
        modules: files and folders below src/csst.
        is_measured: False if the page was only formatted anew.
    """
    before = Measurement.read(page.read_text(encoding="utf-8")) if page.is_file() else None
    keeps_numbers = not is_measured or has_committed_lines(page.with_suffix(".jsonl"))
    if before is not None and keeps_numbers:
        measurement = replace(before, modules=tuple(modules))
    else:
        measurement = Measurement(run_git("rev-parse", "--short", "HEAD").strip(), tuple(modules))
    page.write_text(insert_line(text, measurement), encoding="utf-8")


def insert_line(text: str, measurement: Measurement) -> str:
    """Return the page with this line below its title, and no other of its kind."""
    title, _, rest = REPEATED.sub("", LINE.sub("", text)).partition("\n")
    return f"{title}\n\n{measurement}\n\n{rest.lstrip()}"


def has_committed_lines(log: Path) -> bool:
    """Return whether a log of measurements still has lines of the last commit."""
    if not log.is_file():
        return False
    shown = run_git("show", f"HEAD:./{log.name}", folder=log.parent, may_fail=True)
    return bool(set(shown.splitlines()) & set(log.read_text(encoding="utf-8").splitlines()))


# ── Comparing two versions of the code ──


def read_now(root: Path) -> dict[str, str]:
    """Return the modules of the working tree by their path below src/csst."""
    paths = sorted((root / SOURCE).rglob("*.py"))
    return {path.relative_to(root / SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def read_commit(root: Path, commit: str) -> dict[str, str]:
    """Return the modules of a commit by their path below src/csst."""
    command = ["git", "archive", "--format=tar", commit, SOURCE]
    packed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    modules = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None and member.name.endswith(".py"):
                modules[member.name.removeprefix(f"{SOURCE}/")] = file.read().decode("utf-8")
    return modules


def find_changes(before: dict[str, str], now: dict[str, str], modules: Sequence[str]) -> list[str]:
    """Return the paths among these modules that behave differently now."""
    names_before = frozenset().union(*map(collect_names, before.values()))
    names_now = frozenset().union(*map(collect_names, now.values()))

    def is_same(old: str, new: str) -> bool:
        if before[old] == now[new]:
            return True
        pairs = zip_longest(flatten(before[old]), flatten(now[new]), fillvalue=("", "", None))
        return all(a == b or is_renamed(a, b, names_before, names_now) for a, b in pairs)

    # A file that moved is looked for among those that the other version does not have.
    came = [path for path in now if path not in before]
    went = [path for path in before if path not in now]
    changed = []
    for module in modules:
        old = [path for path in before if path == module or path.startswith(f"{module}/")]
        new = [path for path in now if path == module or path.startswith(f"{module}/")]
        if old:
            changed += [path for path in old if not any(is_same(path, o) for o in ([path] if path in now else came))]
        elif new:  # the commit had these modules under other names
            filled = [path for path in new if len(flatten(now[path])) > 1]
            changed += [path for path in filled if not any(is_same(other, path) for other in went)]
        else:
            changed.append(f"{module} (which is in neither version)")
    return list(dict.fromkeys(changed))


def is_renamed(old: Token, new: Token, names_before: frozenset[str], names_now: frozenset[str]) -> bool:
    """Return whether two identifiers are one thing of csst that got another name: neither name is in both versions."""
    return (
        old[:2] == new[:2]
        and old[1] in IDENTIFIERS
        and old[2] in names_before
        and old[2] not in names_now
        and new[2] in names_now
        and new[2] not in names_before
    )


#: fields of a node that hold an identifier
IDENTIFIERS = ("id", "attr", "arg", "name", "asname", "local")


@cache
def flatten(text: str) -> list[Token]:
    """Return what a module does, node by node: without docstrings, types, imports from csst and names of variables."""
    return list(flatten_node(ast.parse(text), {}))


def flatten_node(node: ast.AST, variables: dict[str, str]) -> Iterator[Token]:
    """Yield a node and its parts.

    Args:
        node: of a module.
        variables: variables of the functions around it, numbered in the order in which they appear.
    """
    if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "csst"):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        names = order_names(node, list_variables(node) | set(variables))
        variables = {name: f"variable {number}" for number, name in enumerate(names)}
    yield type(node).__name__, "", None
    if isinstance(node, ast.Raise):  # what a message says does not change a number
        return
    for field, value in ast.iter_fields(node):
        if field in ("type_comment", "kind", "returns") or (field == "annotation" and isinstance(node, ast.arg)):
            continue
        parts = value if isinstance(value, list) else [value]
        if field == "body" and isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            parts = drop_docstrings(parts)
        for part in parts:
            if isinstance(part, ast.AST):
                yield from flatten_node(part, variables)
            elif isinstance(part, str) and part in variables and is_variable(node, field):
                yield type(node).__name__, "local", variables[part]
            else:
                yield type(node).__name__, field, repr(part) if field == "value" else part


def is_variable(node: ast.AST, field: str) -> bool:
    """Return whether a field names a variable, rather than an attribute or the keyword of a call."""
    return (isinstance(node, ast.Name) and field == "id") or (isinstance(node, ast.arg) and field == "arg")


def list_variables(function: ast.AST) -> set[str]:
    """Return the arguments of a function and what it assigns."""
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}


def order_names(function: ast.AST, variables: set[str]) -> list[str]:
    """Return the variables in the order in which they first appear in a function."""
    nodes = (node for node in ast.walk(function) if isinstance(node, ast.Name | ast.arg))
    names = (node.id if isinstance(node, ast.Name) else node.arg for node in nodes)
    return list(dict.fromkeys(name for name in names if name in variables))


def drop_docstrings(body: Sequence[object]) -> list[object]:
    """Return the statements that do something: without docstrings and other strings on a line of their own."""
    return [
        part
        for part in body
        if not (
            isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)
        )
    ]


@cache
def collect_names(text: str) -> frozenset[str]:
    """Return every name that a module defines: functions, classes, arguments, variables and attributes."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return frozenset(names)


# ── The list ──


def run_git(*words: str, folder: Path = ROOT, may_fail: bool = False) -> str:
    """Return what a git command prints; nothing if it fails and may."""
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True)
    if done.returncode and not may_fail:
        raise SystemExit(f"git {' '.join(words)} failed: {done.stderr.strip()}")
    return done.stdout if done.returncode == 0 else ""


def check(root: Path = ROOT) -> list[str]:
    """Return a sentence for every page of results that is older than the code it measures, or does not say."""
    now = read_now(root)
    sentences = []
    for page in sorted((root / "benchmarks" / "results").glob("*.md")):
        measurement = Measurement.read(page.read_text(encoding="utf-8"))
        if measurement is None:
            sentences.append(f"{page.name} does not say what it measures: write it by results_check.write_results")
            continue
        commit = measurement.last_commit
        if not run_git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}", folder=root, may_fail=True):
            sentences.append(f"{page.name}: commit {commit} is not in this clone; fetch its whole history")
            continue
        changed = find_changes(read_commit(root, commit), now, measurement.modules)
        if changed:
            day = run_git("show", "-s", "--format=%as", commit, folder=root).strip()
            more = f" and {len(changed) - MOST_NAMED} more" if len(changed) > MOST_NAMED else ""
            names = ", ".join(changed[:MOST_NAMED]) + more
            verb = "repeated" if measurement.repeated else "measured"
            sentences.append(f"{page.name}, {verb} on {commit} of {day}: since then {names} changed")
    return sentences


# ── Measuring a part once more ──


def repeat(module: str, arguments: Sequence[str]) -> int:
    """Measure a part of a page once more, note it in the page if it is the same, and return the exit code.

    Args:
        module: of the script, such as benchmarks.effect.versus.
        arguments: the script's own.
    """
    from benchmarks.lines import Log, Repeated

    Log.repeated_fraction = REPEATED_FRACTION
    sys.argv = [module, *arguments]
    try:
        # Not by runpy: the script would get a second copy of `Log` if it were run as __main__.
        importlib.import_module(module).main()
    except Repeated as found:
        return note_repeated(found.file, found.numbers, found.differences)
    raise SystemExit(f"{module} does not keep its lines in a benchmarks.lines.Log, and cannot be repeated in part")


def note_repeated(log: Path, numbers: Sequence[int], differences: Sequence[str]) -> int:
    """Print what was found, write it into the page beside the log if nothing differs, and return the exit code."""
    if differences:
        print("\n".join(differences))
        print(f"\n{len(differences)} of {len(numbers)} lines of {log.name} are not what they were: measure it again.")
        return 1
    page = log.with_suffix(".md")
    text = page.read_text(encoding="utf-8")
    measurement = Measurement.read(text)
    if measurement is None:
        raise SystemExit(f"{page.name} does not say what it measures: write it by results_check.write_results")
    commit, day = run_git("show", "-s", "--format=%h %as", "HEAD", folder=log.parent).split()
    line = f"Repeated on commit `{commit}` of {day}, to the digit: lines {', '.join(map(str, numbers))} of {log.name}."
    page.write_text(insert_line(text, replace(measurement, repeated=f"{line}\n")), encoding="utf-8")
    print(line)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--repeat"]:
        if len(sys.argv) < 3:
            raise SystemExit("--repeat needs the module of the script, such as benchmarks.effect.versus")
        sys.path.insert(0, str(ROOT))
        sys.exit(repeat(sys.argv[2], sys.argv[3:]))
    listed = check()
    print("\n".join(listed) or "every page is as new as the code it measures")
    if listed:
        print(f"\n{len(listed)} pages are older than their code: measure again what they claim, or drop it.")

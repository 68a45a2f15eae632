"""Do the tests notice? python -m benchmarks.quality.mutants [--each 28] [--rooms maths,rules] [--again]

Small faults are put into the code of twelve rooms, one at a time, and each must make a test of its own room fail. Some
are written down in `NAMED`; the others are drawn from all that `variants` can change, always the same ones for the same
code. First every room's tests run once, and it is noted which of them call which function; then a mutant is shown to
those that call the function it is in, the fastest first, until one fails or they have taken `MOST` seconds. No file is
changed: the mutated module exists only in the memory of a process of its own.

Results go to benchmarks/results/mutants.jsonl, line by line, and a command that was stopped goes on from there. A
mutant is tried again if its file has changed, or with --again if it has survived. The table is mutants.md beside it.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib
import importlib.abc
import importlib.util
import io
import json
import os
import resource
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Room:
    """A part of the code with its tests.

    Args:
        modules: patterns of paths below src/csst.
        tests: files and folders.
        drawn: how many mutants are drawn, beside those written down.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    drawn: int = 28


ROOMS: dict[str, Room] = {
    "training": Room(
        ("training/*.py",),
        ("tests/training", "tests/equivalences", "tests/equations/test_algorithms.py"),
    ),
    "selftraining": Room(("selftraining/*.py",), ("tests/selftraining", "tests/equivalences", "tests/equations")),
    "maths": Room(("maths/*.py", "maths/language/*.py"), ("tests/maths", "tests/equations", "tests/properties")),
    "rules": Room(("rules/*.py",), ("tests/rules",)),
    "estimation": Room(("estimation/*.py",), ("tests/estimation",), drawn=20),
    "learners": Room(("learners/*.py",), ("tests/learners",), drawn=14),
    "estimators": Room(("estimators/*.py",), ("tests/estimators",), drawn=14),
    "fitted": Room(("fitting/*.py",), ("tests/fitting", "tests/runs"), drawn=14),
    "runs": Room(("runs/*.py",), ("tests/runs",), drawn=14),
    "data": Room(("data/*.py", "data/tabular/*.py"), ("tests/data",), drawn=20),
    "cli": Room(("cli/predict.py", "cli/examples.py", "cli/prediction_files.py"), ("tests/cli",), drawn=8),
    "report": Room(("report/*.py",), ("tests/report",), drawn=10),
}
#: tests with this fixture start processes of their own, which would not see a mutant
LEFT_OUT = "folder"
#: imported once, before the processes part
HEAVY = ("torch", "torch.optim.swa_utils", "scipy.stats", "scipy.optimize", "sklearn.ensemble", "sklearn.linear_model")
HEAVY += (
    "sklearn.decomposition",
    "sklearn.neighbors",
    "lightning_fabric",
    "hypothesis",
    "yaml",
    "rich.console",
    "PIL.Image",
)
MOST = 30  # seconds of CPU that the tests for one mutant may take, the fastest of them first
WANTED = 0.95  # of the mutants must be killed
LONGEST = 90  # for a mutant that never ends


@dataclass(frozen=True, eq=False)
class Mutant:
    """A change of one node of a module, or of one piece of its text.

    Args:
        room: whose tests must notice.
        path: of the module, below src/csst.
        place: the function that is changed; "" or "Class." outside of functions.
        line: where it begins.
        old: the code before.
        new: the code after.
        compile: makes the changed module.
    """

    room: str
    path: str
    place: str
    line: int
    old: str
    new: str
    compile: Callable[[], CodeType]
    ordinal: int = 0

    @property
    def key(self) -> str:
        return f"{self.path} {self.place}: {self.old} → {self.new} #{self.ordinal}"

    @property
    def rank(self) -> str:
        """The order in which mutants are drawn, as good as random and always the same."""
        return hashlib.sha256(self.key.encode()).hexdigest()


# ── Faults written down: path below src/csst, the text before (once in the file), the text after ──

NAMED: tuple[tuple[str, str, str, str], ...] = (
    (
        "training",
        "training/trainer.py",
        "return labeled_loss + self.settings.selftraining.unlabeled_weight * unlabeled_loss",
        "return labeled_loss + unlabeled_loss",
    ),
    (
        "training",
        "training/trainer.py",
        "return labeled_loss + self.settings.selftraining.unlabeled_weight * unlabeled_loss",
        "return labeled_loss + self.settings.selftraining.unlabeled_weight ** 2 * unlabeled_loss",
    ),
    ("training", "training/group_gains.py", "[*self.gains, mean], groups", "[*self.gains, mean], 0 * groups"),
    ("training", "training/trainer.py", "moving_average(self.settings.ema)", "moving_average(0.5)"),
    ("training", "training/multiplier_updates.py", "if progress < 1 and step", "if step"),
    ("training", "training/trainer.py", "self.ema.update_parameters(self.model)", "pass"),
    ("training", "training/trainer.py", "updated_at != self.step and", "updated_at != self.step or"),
    (
        "training",
        "training/trainer.py",
        "self.last_weights, gain.entries",
        "self.last_weights, self.multipliers.gain.entries",
    ),
    ("selftraining", "selftraining/step.py", "(weights * cost_sensitive_loss", "(cost_sensitive_loss"),
    ("selftraining", "selftraining/selectors.py", "<= limit", "> limit"),
    ("training", "training/warnings.py", "or step < self.first_step:", "or step <= self.first_step:"),
    ("training", "training/warnings.py", "        self.is_pending = False\n", ""),
    ("training", "training/warnings.py", "and runner.step < self.first_step", ""),
    ("training", "training/warnings.py", "for judge in runner.judges", "for judge in [trainer]"),
    (
        "maths",
        "maths/multipliers.py",
        "place.stop - place.start < chance.classes",
        "place.stop - place.start > chance.classes",
    ),
    ("maths", "maths/multipliers.py", "torch.full_like(chance.prior, 1 / chance.classes)", "chance.prior"),
    (
        "maths",
        "maths/multipliers.py",
        "size)\n        value = torch.minimum(value, self.units.limits.to(value))",
        "size)",
    ),
    (
        "maths",
        "maths/constraint_scale.py",
        "(STEEP * goal_slope / slopes[places]).clamp(max=1)",
        "STEEP * goal_slope / slopes[places]",
    ),
    ("maths", "maths/constraint_scale.py", "(MOST_WEIGHT * goal_slope / slopes)", "(goal_slope / slopes)"),
    ("maths", "maths/constraint_scale.py", "ratio.max() * price.abs().max()", "price.abs().max()"),
    (
        "maths",
        "maths/constraint_scale.py",
        "(self.slopes[places] / slopes_here[places])",
        "(slopes_here[places] / self.slopes[places])",
    ),
    ("rules", "rules/candidates.py", "targets = factor * errors", "targets = 0 * errors"),
    ("rules", "rules/candidates.py", "if (slack < REACHED * targets).any():", "if True:"),
    ("rules", "rules/candidates.py", "return safer, raised_targets", "return rule, raised_targets"),
    ("rules", "rules/sweeps.py", "self.coverage - won_coverage", "self.coverage"),
    ("rules", "rules/sweeps.py", "place = (begin + end) // 2", "place = begin"),
    ("rules", "rules/sweeps.py", "for cost in MISS_COSTS:", "for cost in MISS_COSTS[:1]:"),
    ("rules", "rules/sweeps.py", "value - cost * miss", "value"),
    ("rules", "rules/judging.py", "2 * np.median(pairs) + 0.01", "9 * np.median(pairs) + 0.01"),
    ("rules", "rules/judging.py", "return self.miss >= 0 and self.value", "return self.value"),
    ("rules", "rules/judging.py", "decides(errors=1.0)", "decides(errors=0.0)"),
    ("rules", "rules/feasibility.py", "if self.slack >= SAFE * self.error:", "if self.slack >= 0:"),
    ("rules", "rules/metric_form.py", "slopes[1] * (divisor == coverage)", "slopes[1]"),
    ("rules", "rules/candidates.py", "(SOFT_LABELS / labels) ** 0.5", "(SOFT_LABELS / labels)"),
    (
        "rules",
        "rules/candidates.py",
        "make_unchecked(rates, goal.prior), search.prices)",
        "make_unchecked(rates, goal.prior))",
    ),
    ("rules", "rules/standard_errors.py", "/ worth).sum(1)", "/ worth).max(1)"),
    ("rules", "rules/standard_errors.py", "squares - means**2", "squares"),
    ("rules", "rules/standard_errors.py", "np.where(moves, high, 0.0)", "0 * high"),
    ("rules", "rules/standard_errors.py", "+ share * values.mean(1, keepdims=True)", ""),
    ("rules", "rules/judging.py", "(labeled_payoff - unlabeled_payoff)[places] / 2", "0"),
    ("rules", "rules/candidates.py", "np.maximum(0, labels - FIRST_LABELS)", "labels"),
    ("rules", "rules/group_promise.py", "else by_group[bound.group]", "else by_group.sum(0)"),
    ("rules", "rules/promise.py", "len(labels) * deployment if is_sample else rows", "rows"),
    ("rules", "rules/soft_objective.py", "shortfall = (self.margins - payoff)", "shortfall = (0 - payoff)"),
    ("rules", "rules/bias_search.py", "violation > earlier_violation / 2", "violation > earlier_violation"),
    ("rules", "rules/feasibility.py", "if -slack.min() <= goal", "if -slack.min() <= 3 * goal"),
    ("rules", "rules/feasibility.py", "if constraint.sign == lower_sign else", "if constraint.sign != lower_sign else"),
    ("rules", "rules/feasibility.py", "start += size", "start += 1"),
    (
        "rules",
        "rules/possible.py",
        "tops[entry] = tops[entry, -1] * bottoms[entry]",
        "tops[entry] = -tops[entry, -1] * bottoms[entry]",
    ),
    (
        "rules",
        "rules/possible.py",
        "sparse.hstack([-2 * unit, unit, column])",
        "sparse.hstack([-1 * unit, unit, column])",
    ),
    (
        "rules",
        "rules/possible.py",
        "if not is_possible([member.rows() for member in remainder]",
        "if is_possible([member.rows() for member in remainder]",
    ),
    ("rules", "rules/possible.py", '(constraint.sign == ">=") == (side == "right")', 'constraint.sign == ">="'),
    ("rules", "rules/possible.py", "(low, midpoint) if helps(midpoint)", "(low, midpoint) if not helps(midpoint)"),
    ("rules", "rules/deployment.py", '"labeled": learned}', '"labeled": judged}'),
    ("rules", "rules/deployment.py", "fractions[1], fractions[0], None", "fractions[0], fractions[1], None"),
    ("rules", "rules/frontier.py", "return max(feasible_points", "return min(feasible_points"),
    ("estimation", "estimation/shift.py", "(mass + classes * start) / (count + classes)", "mass / count"),
    ("estimation", "estimation/labeling.py", "variance = posterior * (1 - posterior)", "variance = posterior"),
    (
        "estimation",
        "estimation/class_rates.py",
        "weight = np.minimum(UNLABELED_WORTH, mass)",
        "weight = UNLABELED_WORTH + 0 * mass",
    ),
    ("estimation", "estimation/intervals.py", "(1 - level) / 2 / len(slack)", "(1 - level) / 2"),
    (
        "estimators",
        "estimators/deploying.py",
        "np.log(estimate_prior(scores, labeled / labeled.sum()))",
        "np.log(labeled / labeled.sum())",
    ),
    ("estimators", "estimators/deploying.py", "fitted.expected.confusion.prior.numpy())", "np.ones(probs.shape[1]))"),
    (
        "fitted",
        "fitting/fitted_model.py",
        "evidence.evidence, evidence.prior, goal",
        "evidence.evidence, evidence.evidence.train_prior, goal",
    ),
    (
        "fitted",
        "fitting/model_file.py",
        "objective.bind_prior(read_label_prior(self.metrics))",
        "objective.bind_prior(torch.full((len(names),), 1 / len(names)))",
    ),
    ("fitted", "fitting/fitted_model.py", '"selected" if rule is None else "last"', '"selected"'),
    (
        "fitted",
        "fitting/network_fit.py",
        "runner.measured_gain if runner.best.gain is None else Gain(runner.best.gain)",
        "runner.measured_gain",
    ),
    (
        "fitted",
        "fitting/network_fit.py",
        "prior = self.task.validation_prior.numpy()",
        "prior = self.task.train_prior.numpy()",
    ),
    ("fitted", "training/measurement.py", "gain=gain,", "gain=None,"),
    (
        "runs",
        "fitting/metrics.py",
        'metrics.get("adjusted", metrics["validation"])["estimate"]',
        'metrics["validation"]["estimate"]',
    ),
    ("runs", "fitting/metrics.py", ".abs().sum() / 2)", ".abs().sum())"),
)

#: why a survivor may live, by the beginning of its key
REASONS: dict[str, str] = {
    "training/trainer.py Trainer.train_step: parts > 1 → parts >= 1": "the only part of a batch is the batch itself",
    "training/trainer.py Trainer._loss: self.selftraining is None or batch.weak is None": "all are None, without "
    "self-training, or none is",
    "selftraining/crest.py Alignment.forward: weights / weights.sum(1": "the next function divides by the sum again",
    "selftraining/darp.py trim: weights.sum(0) + SMALLEST": "a millionth, there so that nothing is divided by 0",
    "maths/constraint_scale.py ConstraintUnits.measure: not places or": "without constraints nothing changes below",
    "rules/bias_search.py maximize: 1e-05": "when the search counts as converged, to five digits or so",
    "learners/portfolio.py fit_portfolio: 0 → 1 #1": "the default seed: any other is as good",
    "comparison/rows.py execute_fit: 2 → 3 #0": "how far metrics.json is indented",
    "fitting/network_fit.py : 5000": "one unlabeled row more or less of five thousand",
    "rules/bias_search.py maximize: 10": "how many steps L-BFGS remembers; it finds the same",
}

SWAPS: dict[type, type] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq}
SWAPS |= {ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
SWAPS |= {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult}
SWAPS |= {ast.And: ast.Or, ast.Or: ast.And}
NAMES = {"min": "max", "amin": "amax", "argmin": "argmax", "sum": "mean", "any": "all", "floor": "ceil"}
NAMES |= {new: old for old, new in NAMES.items()} | {"exp": "expm1", "log": "log1p", "zeros": "ones", "ones": "zeros"}
#: what is not the program: types, what is imported, what an error says
SKIPPED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.arg)
SKIPPED_FIELDS = ("annotation", "returns", "decorator_list", "bases", "type_comment")
SKIPPED_CALLS = ("warn", "InputError", "Protocol")


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            yield ast.Compare(node.left, [SWAPS[type(op)]()], node.comparators)
        case ast.BinOp() if type(node.op) in SWAPS and not (is_text(node.left) or is_text(node.right)):
            yield ast.BinOp(node.left, SWAPS[type(node.op)](), node.right)
        case ast.BoolOp():
            yield ast.BoolOp(SWAPS[type(node.op)](), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.IfExp():
            yield ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.If() | ast.While():
            yield type(node)(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(2 * value or 1.0)
        case ast.Call(func=ast.Attribute(attr=name)) if name in NAMES:
            yield ast.Call(ast.Attribute(node.func.value, NAMES[name], ast.Load()), node.args, node.keywords)
        case ast.Call(func=ast.Name(id=("min" | "max" | "any" | "all") as name)):
            yield ast.Call(ast.Name(NAMES[name], ast.Load()), node.args, node.keywords)
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def is_tolerance(value: object) -> bool:
    """Whether a number only stands for rounding: twice as much is as good."""
    return isinstance(value, float) and 0 < abs(value) <= 1e-6


def is_skipped(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        node = node.value
    called = node.func if isinstance(node, ast.Call) else None
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node,)
    if any(isinstance(side, ast.Constant) and is_tolerance(side.value) for side in sides):
        return True
    if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: what it refuses never happens
        return True
    return isinstance(node, SKIPPED) or getattr(called, "attr", getattr(called, "id", "")) in SKIPPED_CALLS


def walk(node: ast.AST, place: str) -> Iterator[tuple[str, ast.AST, str, int | None, ast.AST]]:
    """All nodes that may be changed: the function they are in, their parent, its field and the index there."""
    for name, value in ast.iter_fields(node):
        if name in SKIPPED_FIELDS:
            continue
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if not isinstance(child, ast.AST) or is_skipped(child):
                continue
            yield place, node, name, index, child
            yield from walk(child, inside(place, child))


def inside(place: str, node: ast.AST) -> str:
    """The function that the parts of a node are in: "Class.function", or "Class." outside of its functions."""
    if isinstance(node, ast.ClassDef):
        return f"{place}{'.' * (place[-1:] not in ('', '.'))}{node.name}."
    if isinstance(node, ast.FunctionDef):
        return f"{place}{'.' * (place[-1:] not in ('', '.'))}{node.name}"
    return place


def generate(room: str, path: str) -> list[Mutant]:
    """Every mutant of a module."""
    tree = ast.parse((SOURCE / "csst" / path).read_text(encoding="utf-8"))
    mutants: list[Mutant] = []
    seen: dict[tuple[str, str, str], int] = {}
    for place, parent, field, index, node in walk(tree, ""):
        for new in variants(node):
            ast.fix_missing_locations(ast.copy_location(new, node))
            shown = summarize(node), summarize(new)
            ordinal = seen[(place, *shown)] = seen.get((place, *shown), -1) + 1
            change = swapper(tree, parent, field, index, new, str(SOURCE / "csst" / path))
            mutants.append(Mutant(room, path, place, getattr(node, "lineno", 0), *shown, change, ordinal))
    return mutants


def swapper(tree: ast.Module, parent: ast.AST, field: str, index: int | None, new: ast.AST, path: str) -> Any:
    """What compiles the module with `new` in its place; called in a process of its own, so nothing is put back."""

    def change() -> CodeType:
        if index is None:
            setattr(parent, field, new)
        else:
            getattr(parent, field)[index] = new
        return compile(tree, path, "exec")

    return change


def summarize(node: ast.AST) -> str:
    """A node on one line."""
    if isinstance(node, (ast.If, ast.While)):
        return f"if {ast.unparse(node.test)}"
    return " ".join(ast.unparse(node).split())


def named() -> list[Mutant]:
    """The mutants written down."""
    mutants = []
    for room, path, old, new in NAMED:
        file = SOURCE / "csst" / path
        text = file.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise SystemExit(f"{path} has {old!r} {text.count(old)} times, not once: correct NAMED in {__file__}")
        line = text[: text.index(old)].count("\n") + 1
        source = text.replace(old, new)
        change = lambda source=source, file=file: compile(source, str(file), "exec")  # noqa: E731
        mutants.append(Mutant(room, path, enclosing(ast.parse(text), line), line, old, new, change))
    return mutants


def enclosing(tree: ast.AST, line: int, place: str = "") -> str:
    """The function around a line."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.lineno <= line <= (node.end_lineno or 0):
            return enclosing(node, line, inside(place, node))
    return place


def draw(rooms: Sequence[str], each: int | None = None) -> list[Mutant]:
    """Those written down and `each` more of every room; None for as many as the room says."""
    chosen: list[Mutant] = []
    written = named()
    for room in rooms:
        chosen += [mutant for mutant in written if mutant.room == room]
        paths = sorted({path for glob in ROOMS[room].modules for path in (SOURCE / "csst").glob(glob)})
        every = [m for path in paths for m in generate(room, path.relative_to(SOURCE / "csst").as_posix())]
        chosen += sorted(every, key=lambda mutant: mutant.rank)[: ROOMS[room].drawn if each is None else each]
    return chosen


# ── A process of its own for each mutant ──


class Changed(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports one module from changed code, whatever its file says."""

    def __init__(self, path: str, code: CodeType) -> None:
        self.name, self.code = "csst." + path.removesuffix(".py").removesuffix("/__init__").replace("/", "."), code
        self.file, self.has_parts = str(SOURCE / "csst" / path), path.endswith("__init__.py")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        parts = [str(Path(self.file).parent)] if self.has_parts else None
        return importlib.util.spec_from_file_location(
            name,
            self.file,
            loader=self,
            submodule_search_locations=parts,  # type: ignore[arg-type]
        )

    def is_package(self, name: str) -> bool:
        return self.has_parts

    def get_source(self, name: str) -> str | None:
        return None

    def get_code(self, name: str) -> CodeType:
        return self.code


class Chosen:
    """Runs these tests only, in this order, and remembers the first that fails."""

    def __init__(self, order: Sequence[str]) -> None:
        self.order = {test: number for number, test in enumerate(order)}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda item: self.order[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or (report.nodeid if report.failed else "")


class Watching:
    """Notes which functions of csst a test calls, and how long it takes."""

    def __init__(self) -> None:
        self.calls: dict[str, list[str]] = {}
        self.seconds: dict[str, float] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if LEFT_OUT not in getattr(item, "fixturenames", ())]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        seen: set[CodeType] = set()
        prefix, start = str(SOURCE), time.process_time()

        def trace(frame: Any, event: str, argument: Any) -> None:
            seen.add(frame.f_code)

        sys.settrace(trace)
        yield
        sys.settrace(None)
        self.seconds[item.nodeid] = time.process_time() - start
        self.calls[item.nodeid] = sorted(
            {f"{code.co_filename}:{code.co_name}" for code in seen if code.co_filename.startswith(prefix)}
        )


def apart(work: Callable[[], Any], longest: int = LONGEST) -> tuple[Any, int, float]:
    """What `work` returns in a process of its own, that process's code, and its seconds of CPU."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        child = os.fork()
        if child == 0:
            code = 1
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (longest, longest + 5))
                with open(os.devnull, "w") as nowhere:
                    os.dup2(nowhere.fileno(), 1)
                    os.dup2(nowhere.fileno(), 2)
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    answer.write_text(json.dumps(work()))
                code = 0
            finally:
                os._exit(code)
        _, status, usage = os.wait4(child, 0)
        found = json.loads(answer.read_text()) if answer.is_file() and answer.stat().st_size else None
        return found, status, usage.ru_utime + usage.ru_stime


def run_tests(tests: Sequence[str], plugin: Any) -> int:
    """pytest in this process, without files of its own."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0", "-W", "ignore"]
    return int(pytest.main([*options, *tests], plugins=[plugin]))


def watch(room: str) -> Watching:
    """The room's tests on the code as it is; of the same code and tests it is known from last time."""
    watching = Watching()
    files = sorted([*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")])
    tests = " ".join(ROOMS[room].tests).encode()  # which two rooms may share
    digest = hashlib.sha256(tests + b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    known = Path(tempfile.gettempdir()) / f"csst-mutants-{digest}.json"
    if known.is_file():
        watching.calls, watching.seconds = json.loads(known.read_text())
        return watching

    def work() -> Any:
        code = run_tests(ROOMS[room].tests, watching)
        return {"code": code, "calls": watching.calls, "seconds": watching.seconds}

    found, _, seconds = apart(work, 10 * LONGEST)
    if found is None or found["code"] != 0:
        raise SystemExit(f"the tests of {room} fail without any mutant: repair them first ({found and found['code']})")
    watching.calls, watching.seconds = found["calls"], found["seconds"]
    known.write_text(json.dumps([watching.calls, watching.seconds]))
    print(f"{room}: {len(watching.calls)} tests, {seconds:.0f} s of CPU while watched", flush=True)
    return watching


def try_mutant(mutant: Mutant, watching: Watching) -> dict[str, Any]:
    """Whether a test fails, which one, and how long it took."""
    call = f"{SOURCE / 'csst' / mutant.path}:{mutant.place.rpartition('.')[2]}"  # of a whole file outside of functions
    tests = [
        test
        for test, calls in watching.calls.items()
        if any(each == call or (call.endswith(":") and each.startswith(call)) for each in calls)
    ]
    tests.sort(key=lambda test: watching.seconds[test])
    total = list(accumulate(watching.seconds[test] for test in tests))
    tests = tests[: max(1, bisect_right(total, MOST))]

    def work() -> Any:
        sys.meta_path.insert(0, Changed(mutant.path, mutant.compile()))
        chosen = Chosen(tests)
        code = run_tests(sorted({test.partition("::")[0] for test in tests}), chosen)
        return {"code": code, "by": chosen.failed}

    if not tests:
        return {"killed": False, "by": "", "tests": 0, "seconds": 0.0}
    found, status, seconds = apart(work)
    if found is None:
        by = "never ends" if os.WIFSIGNALED(status) else "cannot be imported"
        return {"killed": True, "by": by, "tests": len(tests), "seconds": seconds}
    return {"killed": found["code"] != 0, "by": found["by"] or "import", "tests": len(tests), "seconds": seconds}


def main() -> None:
    from benchmarks.results_check import write_results  # beside this file, which tests import from elsewhere

    parser = argparse.ArgumentParser(description="Put small faults into the code and see whether a test notices.")
    parser.add_argument("--each", type=int, help="mutants drawn in every room, if not as many as it says")
    parser.add_argument("--rooms", default=",".join(ROOMS), help="with commas between")
    parser.add_argument("--again", action="store_true", help="try survivors again, e.g. after a new test")
    parser.add_argument("--page", action="store_true", help="try only what was never tried, and write the page")
    parser.add_argument("--out", default=str(RESULTS / "mutants.jsonl"), help="results, one line each")
    args = parser.parse_args()
    os.chdir(ROOT)
    sys.path[:0] = [str(SOURCE), str(ROOT)]
    os.environ["PYTHONPATH"] = str(SOURCE)
    for name in HEAVY:
        importlib.import_module(name)
    rooms, out = args.rooms.split(","), Path(args.out)
    mutants, known = draw(rooms, args.each), read_results(out)
    watched: dict[str, Watching] = {}
    for number, mutant in enumerate(mutants):
        digest, old = digest_of(mutant), known.get(mutant.key)
        if old and (args.page or old["source"] == digest) and (old["killed"] or not args.again):
            continue
        if mutant.room not in watched:
            watched[mutant.room] = watch(mutant.room)
        result = try_mutant(mutant, watched[mutant.room])
        line = {"key": mutant.key, "room": mutant.room, "line": mutant.line, "source": digest, **result}
        known[mutant.key] = line
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        mark = "killed by " + result["by"] if result["killed"] else f"SURVIVES {result['tests']} tests"
        print(f"{number + 1}/{len(mutants)} {mutant.key}: {mark}, {result['seconds']:.1f} s", flush=True)
    earlier = sum(known[mutant.key]["source"] != digest_of(mutant) for mutant in mutants)
    page = describe([known[mutant.key] for mutant in mutants], earlier)
    modules = [pattern.removesuffix("/*.py") for room in ROOMS.values() for pattern in room.modules]
    write_results(out.with_suffix(".md"), page, modules)
    print(page)
    killed = sum(known[mutant.key]["killed"] for mutant in mutants)
    sys.exit(0 if killed >= WANTED * len(mutants) else 1)


def digest_of(mutant: Mutant) -> str:
    """The state of a mutant's file."""
    return hashlib.sha256((SOURCE / "csst" / mutant.path).read_bytes()).hexdigest()[:12]


def describe(lines: Sequence[dict[str, Any]], earlier: int = 0) -> str:
    """The page: a table of the rooms, and every survivor with its reason.

    Args:
        lines: the results.
        earlier: how many of them are of an earlier state of their file.
    """
    killed = sum(line["killed"] for line in lines)
    table = ["| room | mutants | killed | seconds of CPU, mean |", "|---|---|---|---|"]
    for room in dict.fromkeys(line["room"] for line in lines):
        those = [line for line in lines if line["room"] == room]
        mean = sum(line["seconds"] for line in those) / len(those)
        table.append(f"| {room} | {len(those)} | {sum(line['killed'] for line in those)} | {mean:.1f} |")
    alive = [line for line in lines if not line["killed"]]
    minutes = sum(line["seconds"] for line in lines) / 60
    return "\n".join(
        [
            "# Mutants",
            "",
            f"{killed} of {len(lines)} small faults ({100 * killed / len(lines):.0f} %) make a test of their own room "
            f"fail, in {minutes:.0f} minutes of CPU (`make mutants`, `benchmarks/quality/mutants.py`)."
            + (f" {earlier} of them were tried before the last change of their file." if earlier else ""),
            "",
            *table,
            "",
            f"## Survivors: {len(alive)}",
            "",
            *(f"- `{line['key']}` (line {line['line']}): {reason_for(line)}" for line in alive),
            "",
        ]
    )


def reason_for(line: dict[str, Any]) -> str:
    """Why a survivor lives."""
    known = [reason for start, reason in REASONS.items() if line["key"].startswith(start)]
    return known[0] if known else "no test of the room calls it" if not line["tests"] else "not explained: write a test"


def read_results(out: Path) -> dict[str, dict[str, Any]]:
    """The last line of every mutant."""
    lines = out.read_text(encoding="utf-8").splitlines() if out.is_file() else []
    return {line["key"]: line for line in map(json.loads, lines)}


if __name__ == "__main__":
    main()

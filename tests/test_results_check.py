"""benchmarks/results_check.py lists pages whose modules behave differently by now, and no others."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[1] / "benchmarks" / "results_check.py"
RULES = '''"""Rules."""

from csst.maths import mean


def fit(scores, ridge=5.0):
    """Return the best."""
    best = min(scores) + mean(scores)
    return best * ridge


class Rule:
    def decide(self, scores):
        return fit(scores)
'''


@pytest.fixture(scope="module")
def checker():
    spec = importlib.util.spec_from_file_location("results_check_of_csst", PATH)
    module = sys.modules["results_check_of_csst"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["results_check_of_csst"]


def git(folder, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path, checker):
    """A repository with a room and a page that measures it."""
    (tmp_path / "src/csst/rules").mkdir(parents=True)
    (tmp_path / "src/csst/rules/fit.py").write_text(RULES)
    (tmp_path / "src/csst/other.py").write_text("value = 1\n")
    (tmp_path / "benchmarks/results").mkdir(parents=True)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    page = checker.insert_line("# A page\n\n| 0.5 |\n", checker.Measurement(commit_of(tmp_path), ("rules",)))
    (tmp_path / "benchmarks/results/page.md").write_text(page)
    return tmp_path


def commit_of(folder):
    return git(folder, "rev-parse", "--short", "HEAD")


def change(project, old, new):
    path = project / "src/csst/rules/fit.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    "pairs",
    [
        [('"""Return the best."""', '"""Return the best score."""\n    # A reason.')],
        [("from csst.maths import mean", "from csst.mathematics import mean")],
        [("best", "lowest")],
        [("(scores, ridge=5.0)", "(scores: list, ridge: float = 5.0) -> float")],
        [("fit(", "fit_rule("), ("Rule:", "DecisionRule:"), ("decide", "predict")],
    ],
    ids=["docstring and comment", "a module that was renamed", "a variable", "types", "functions and classes"],
)
def test_what_does_not_change_the_behavior_is_not_listed(project, checker, pairs):
    for old, new in pairs:
        change(project, old, new)
    assert checker.check(project) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("5.0", "6.0"),
        ("min(scores)", "max(scores)"),
        ("best * ridge", "ridge * ridge"),
        ("+ mean(scores)", ""),
        ("fit(scores)\n", "decide(scores)\n"),
        ("return fit", "return mean"),
    ],
)
def test_a_change_of_behavior_is_listed(project, checker, old, new):
    change(project, old, new)
    (sentence,) = checker.check(project)
    assert sentence.startswith(f"page.md, measured on {commit_of(project)} of ")
    assert sentence.endswith("since then rules/fit.py changed")


def test_a_file_that_moved_is_followed_and_one_that_is_gone_is_listed(project, checker):
    old = project / "src/csst/rules/fit.py"
    new = project / "src/csst/decisions/fit_rule.py"
    new.parent.mkdir()
    old.rename(new)
    assert checker.check(project) == []
    new.write_text(RULES.replace("5.0", "6.0"))
    assert "rules/fit.py changed" in checker.check(project)[0]
    new.unlink()
    assert "rules/fit.py changed" in checker.check(project)[0]


def test_modules_may_be_named_as_they_are_called_now(project, checker):
    page = project / "benchmarks/results/page.md"
    page.write_text(page.read_text().replace("`rules`", "`decisions`"))
    assert "decisions (which is in neither version) changed" in checker.check(project)[0]
    (project / "src/csst/rules").rename(project / "src/csst/decisions")
    assert checker.check(project) == []
    (project / "src/csst/decisions/fit.py").write_text(RULES.replace("5.0", "6.0"))
    assert "decisions/fit.py changed" in checker.check(project)[0]


def test_modules_that_a_page_does_not_measure_may_change(project, checker):
    (project / "src/csst/other.py").write_text("value = 2\n")
    assert checker.check(project) == []


def test_a_page_that_says_nothing_and_a_commit_that_is_not_there_are_listed(project, checker):
    (project / "benchmarks/results/silent.md").write_text("# Silent\n")
    unknown = checker.insert_line("# B\n", checker.Measurement("abcdef1", ("rules",)))
    (project / "benchmarks/results/unknown.md").write_text(unknown)
    silent, unknown = checker.check(project)
    assert silent.startswith("silent.md does not say what it measures")
    assert unknown == "unknown.md: commit abcdef1 is not in this clone; fetch its whole history"


def test_a_page_written_again_names_the_commit_of_its_oldest_numbers(project, checker, monkeypatch):
    monkeypatch.setattr(checker, "ROOT", project)
    monkeypatch.setattr(checker.run_git, "__kwdefaults__", {"folder": project, "may_fail": False})
    page = project / "benchmarks/results/page.md"
    log = page.with_suffix(".jsonl")
    log.write_text('{"value": 1}\n')
    first = commit_of(project)
    git(project, "add", ".")
    git(project, "commit", "-qm", "numbers")
    second = commit_of(project)

    def write(**options):
        checker.write_results(page, "# A page\n\n| 0.6 |\n", ("rules", "other.py"), **options)
        assert page.read_text().endswith(
            "# A page\n\n" + str(checker.Measurement.read(page.read_text())) + "\n\n| 0.6 |\n"
        )
        return checker.Measurement.read(page.read_text())

    with log.open("a") as file:
        file.write('{"value": 2}\n')
    assert write() == checker.Measurement(first, ("rules", "other.py")), "a line of the log is from before"
    log.write_text('{"value": 3}\n')
    assert write(is_measured=False).commit == first, "nothing was measured"
    assert write().commit == second, "everything was measured again"
    page.write_text("# A page without a line\n")
    log.unlink()
    assert write().commit == second


def test_every_page_says_what_it_measures(checker):
    """Of a script that writes a page, too: it names modules that are there."""
    pages = sorted(checker.RESULTS.glob("*.md"))
    assert len(pages) >= 20
    modules = checker.read_now(checker.ROOT)
    for page in pages:
        measurement = checker.Measurement.read(page.read_text(encoding="utf-8"))
        assert measurement is not None, page.name
        for name in measurement.modules:
            assert any(path == name or path.startswith(f"{name}/") for path in modules), (page.name, name)

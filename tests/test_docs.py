"""The documentation runs, prints what it says, and says what is there."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import is_dataclass
from pathlib import Path

import pytest

from tests.helpers.programs import shorten

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIALS = [page for page in sorted((ROOT / "docs/tutorials").glob("*.md")) if page.stem != "index"]


def load(name: str):
    """A program of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


run_pages, site_hooks, check_site = (load(name) for name in ("run_pages", "site_hooks", "check_site"))


def python_of(page: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))


WITH_PYTHON = [page for page in PAGES if python_of(page) and page not in TUTORIALS and page.name != "index.md"]


def test_the_front_page_has_the_program_of_the_readme():
    assert python_of(ROOT / "docs/index.md") == python_of(ROOT / "README.md") != ""


def make_short(program: str) -> str:
    """A program or a command with few steps, one seed and one method."""
    few = re.sub(r"--training.steps \d+", "--training.steps 20", shorten(program)).replace("--seeds 2", "--seeds 1")
    return few.replace("--preset table-min-recall", "--methods erm --rules none")


#: the first tutorial and the table fit the default several times
QUICK = [page for page in TUTORIALS if page.stem not in ("first-model", "own-table")]


@pytest.mark.parametrize("page", QUICK, ids=lambda page: page.stem)
def test_tutorials_run(page, tmp_path):
    """With few trees and few steps; what they print is compared below."""
    blocks = list(run_pages.run_page(page.read_text(encoding="utf-8"), tmp_path, make_short))
    assert all(block.actual for block in blocks)
    assert blocks


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_tutorials_print_what_they_say(page, tmp_path):
    """A process of its own: other tests may have shortened something."""
    program = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "docs")!r})
from run_pages import differ, run_page
blocks = list(run_page(Path({str(page)!r}).read_text(encoding="utf-8"), Path.cwd()))
faults = [fault for block in blocks if (fault := differ(block.expected, block.actual))]
print(faults)
sys.exit(bool(faults) or not blocks)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


def test_other_words_and_far_numbers_are_a_difference():
    assert run_pages.differ("recall 0.71 of 9\n", "recall 0.73 of 9\n") == ""
    assert run_pages.differ("recall 0.71\n", "recall 0.91\n")
    assert run_pages.differ("recall 0.71\n", "coverage 0.71\n")
    assert run_pages.differ("one\n", "one\ntwo\n")
    table = "┃ n ┃ seconds ┃\n│ 1 │ {} │\n└──┘\n"
    assert run_pages.differ(table.format(2), table.format(70)) == ""
    assert run_pages.differ(table.format(2), table.format(70).replace("1", "5"))
    assert run_pages.differ("  Hardware: A, 1 thread.\nend\n", " Hardware: B C, 2 threads.\nend\n") == ""


def test_pages_show_what_goes_to_stderr_but_for_progress(tmp_path):
    page = """
```python
import sys, warnings
print("one")
warnings.warn("careful")
print("step  10/200  worst recall 0.3", file=sys.stderr)
print("two", file=sys.stderr)
```
```text
```
```console
$ echo one; echo two >&2; echo "3/20 erm-0  about 8 s left" >&2
$ csst train toy --method la --data.validation 10 --training.steps 60 --out run
```
"""
    first, second = run_pages.run_page(page, tmp_path)
    assert first.actual == "one\nUserWarning: careful\ntwo\n"
    assert "$ echo one; echo two >&2" in second.actual
    assert "\none\ntwo\n$ csst" in second.actual
    assert not any(line.startswith(("step", "3/20")) for line in second.actual.splitlines())
    assert "csst: the lowest class recall is expected to be" in second.actual, "what the command warns of"


def find_commands(page: Path) -> list[str]:
    """The csst commands in the blocks of a page, indented or fenced; joined where a line ends in a backslash."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^    (\S.*)$", text, re.MULTILINE)
    for kind, body in re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL):
        mark = "$ " if kind == "console" else ""
        lines += [line.removeprefix(mark) for line in body.splitlines() if line.startswith(mark)]
    return [line for line in lines if re.match(r"csst [a-z]+( [^ ]|$)|torchrun .* -m csst ", line)]


class Parsed(Exception):
    pass


@pytest.mark.parametrize("page", [page for page in PAGES if find_commands(page)], ids=lambda page: page.name)
def test_commands_have_arguments_that_exist(page, monkeypatch):
    """Also those that need data or devices which are not here: they are read and not carried out."""
    from csst.cli import VERBS, arguments

    def parse(self, args=None, namespace=None):
        usual(self, args, namespace)
        raise Parsed

    def refuse(self, message):
        raise AssertionError(message)

    def stop(*_):
        raise Parsed

    usual = argparse.ArgumentParser.parse_args
    monkeypatch.setattr(arguments, "with_overrides", stop)
    for command in find_commands(page):
        words = shlex.split(command.replace("…", "x"), comments=True)
        words = words[words.index("csst") + 1 :]
        assert words[0] in VERBS, command
        if words[0] == "recipes":
            continue
        verb = importlib.import_module(f"csst.cli.{words[0]}")
        with monkeypatch.context() as patch:
            if words[0] not in ("train", "compare"):
                patch.setattr(argparse.ArgumentParser, "parse_args", parse)
                patch.setattr(argparse.ArgumentParser, "error", refuse)
            with pytest.raises(Parsed):
                verb.main(words[1:])


def test_generated_pages_have_every_setting_command_and_name():
    import csst
    from csst.cli import VERBS
    from csst.estimators.settings import EstimatorSettings

    settings, commands, names = (
        site_hooks.GENERATED[f"reference/{page}.md"]() for page in ("settings", "command-line", "api")
    )
    for group in EstimatorSettings.__dataclass_fields__:
        value = getattr(EstimatorSettings(), group)
        values = (
            {f"{group}.{name}": default for name, default in vars(value).items()}
            if is_dataclass(value)
            else {group: value}
        )
        for name, default in values.items():
            assert f"| `{name}` | {'–' if default == '' else f'`{default}`'} |" in settings
    assert "optimizer steps in all" in settings
    for name in re.findall(r"^::: (\S+)$", names, re.M):
        assert pkgutil.resolve_name(name), "mkdocs would not find it"
    for verb in VERBS:
        assert f"usage: csst {verb}" in commands or verb == "recipes"
    assert "cifar10-lt-small" in commands
    assert "--data.path" in commands
    for name in csst.__all__:
        assert re.search(rf"^::: csst\.[\w.]+\.{name}$", names, re.MULTILINE) or isinstance(getattr(csst, name), dict)


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert check_site.find_faults(tmp_path / "site") == []


def test_every_page_is_in_the_navigation():
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    written = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]}
    assert written | set(site_hooks.GENERATED) <= set(listed)
    assert len(listed) == len(set(listed))


def test_faults_of_a_site_are_found(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "outside.png").write_text("there, but no part of the site")
    (site / "a.html").write_text(
        "<a href='b.html#x'>b</a><img src='c.png'><img src='../outside.png'><script src='https://e.org/x.js'></script>"
    )
    (site / "b.html").write_text("<p id='y'></p><a href='a.html'>a</a>")
    faults = "\n".join(check_site.find_faults(site))
    assert "../outside.png is not there" in faults
    assert "b.html#x has no such place" in faults
    assert "c.png is not there" in faults
    assert "loads https://e.org/x.js from elsewhere" in faults
    assert len(faults.splitlines()) == 4


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", [page for page in WITH_PYTHON if page.stem != "estimator"], ids=lambda page: page.name)
def test_python_examples_run(page, tmp_path, monkeypatch):
    """With few trees and few steps; as it stands below, with the estimator's page, which fits many."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program.py"
    program.write_text(shorten(python_of(page)), encoding="utf-8")
    runpy.run_path(str(program))


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_python_examples_run_as_they_stand(page, tmp_path):
    subprocess.run([sys.executable, "-c", python_of(page)], cwd=tmp_path, check=True, capture_output=True, timeout=120)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_files_that_are_named_exist(page):
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:docs|tests|benchmarks|src)/[\w./-]+\.\w+)", text):
        assert (ROOT / name).exists(), name
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        place = (page.parent / target).resolve()
        made = (
            place.is_relative_to(ROOT / "docs") and place.relative_to(ROOT / "docs").as_posix() in site_hooks.GENERATED
        )
        assert place.exists() or made, target


@pytest.mark.parametrize("name", ["Labeler", "Selector", "Threshold", "Refiner"])
def test_the_signatures_of_the_parts_of_a_method_are_those_of_the_code(name):
    from csst import selftraining
    from csst.selftraining import step

    kind = getattr(step, name) if name == "Refiner" else getattr(selftraining, name)
    text = (ROOT / "docs/reference/methods.md").read_text(encoding="utf-8")
    signature = str(inspect.signature(kind.__call__)).replace("(self, ", "(").replace("'", "")
    assert re.search(rf"^    {name} +{re.escape(signature)}$", text, re.MULTILINE), signature


def test_every_group_of_the_site_begins_with_a_page_that_links_the_others():
    import yaml

    class Loader(yaml.SafeLoader):
        """mkdocs.yml as it is, without the tags of its extensions."""

    navigation = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)["nav"]
    groups = {name: part for entry in navigation for name, part in entry.items() if isinstance(part, list)}
    assert len(groups) == 6
    for name, part in groups.items():
        start, *others = re.findall(r"[\w/-]+\.md", str(part))
        assert start == f"{name.lower()}/index.md"
        written = ROOT / "docs" / start
        turned = site_hooks.turn_links(written.read_text(encoding="utf-8"), start)
        links = {f"{name.lower()}/{target}" for target in re.findall(r"\]\(([\w-]+\.md)\)", turned)}
        assert set(others) <= links, name


def test_measured_tables_that_nobody_named_come_last():
    every = [page for page in site_hooks.COPIES if page.startswith("measured/")]
    named = ["measured/index.md", {"a group": every[:-2]}]
    assert site_hooks.find_unnamed(named) == every[-2:]


def test_pictures_of_measured_tables_are_in_the_site():
    for path in (ROOT / "benchmarks/results").glob("*.md"):
        for place in re.findall(r"!\[[^]]*\]\(([^)]+)\)", path.read_text(encoding="utf-8")):
            picture = (path.parent / place).resolve()
            assert picture.is_file(), (path.name, place)
            assert picture.is_relative_to(ROOT / "docs"), (path.name, place)


def test_every_sentence_of_the_language_reference_parses():
    import csst

    text = (ROOT / "docs/reference/language.md").read_text(encoding="utf-8")
    sentences = re.findall(r"`(max [^`]+)`", text)
    assert len(sentences) >= 10
    for sentence in sentences:
        if sentence != "max recall":
            csst.objective(sentence)
    for alias, sentence in csst.ALIASES.items():
        assert f"| `{alias}` | `{sentence}` |" in text


def read_rows(path: Path) -> list[list[str]]:
    """The cells of all tables of a page, without stars."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [split_cells(line) for line in lines]


def split_cells(line: str) -> list[str]:
    return [cell.strip().replace("*", "") for cell in line.strip("|").split("|")]


def read_blocks(path: Path) -> list[tuple[str, list[list[str]]]]:
    """The sections of a page: the title of each, and the cells of its tables."""
    parts = re.split(r"^## (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    lines = [[line for line in text.splitlines() if line.startswith("|")] for text in parts[1::2]]
    return [(title, [split_cells(line) for line in rows]) for title, rows in zip(parts[::2], lines, strict=True)]


def test_the_tables_of_the_readme_are_those_that_were_measured():
    readme = {row[0]: row[1:] for row in read_rows(ROOT / "README.md")}
    rows = {row[0]: row for row in read_rows(ROOT / "benchmarks/results/versus.md") if len(row) == 6}
    for column, name in enumerate(readme[""]):
        shown = [float(readme[key][column]) for key in readme if key.startswith(("`CSST", "best other"))]
        measured = [float(rows[name][n].split()[0]) for n in (1, 3)]
        assert shown == [pytest.approx(value, abs=0.0051) for value in measured], name
    natural = {row[0]: row for row in read_rows(ROOT / "benchmarks/results/natural.md") if len(row) == 6}
    methods = ["csst", "forest ÷ prior", "LR ÷ prior", "balanced forest", "LR, balanced", "LightGBM, balanced"]
    for column, method in enumerate(methods):
        for place, key in enumerate(
            ("lowest recall, asked for `max min(recall)`", "mean F1, asked for `max mean(f1)`"), 1
        ):
            measured = float(natural[method][place].split()[0])
            assert float(readme[key][column]) == pytest.approx(measured, abs=0.0051), (key, method)
    blocks = [
        block for block in read_blocks(ROOT / "benchmarks/results/encoder_images.md") if "Worst-class" in block[0]
    ]
    apart, every = [{row[0]: row for row in rows if len(row) == 9 and row[-1] == "5"} for _, rows in blocks[:2]]
    methods = ["erm", "fixmatch", "la", "csst-fixmatch", "csst-fixmatch, solve", "csst-balanced, solve", "auto"]
    for column, method in enumerate(methods):
        for key, table, place in (
            ("as trained", apart, 1),
            ("with the decision rule", apart, 5),
            ("the same, every label learned from (`--folds 5`)", every, 5),
        ):
            if table is every and method.endswith("solve"):
                assert readme[key][column] == "–"
                continue
            measured = float({**apart, **table}[method][place].split()[0])  # auto always learns from every label
            assert float(readme[key][column]) == pytest.approx(measured, abs=0.0051), (key, method)


def test_the_readme_says_of_networks_from_scratch_what_was_measured():
    sets = {"MNIST": "mnist-lt", "Fashion-MNIST": "fashion-lt", "traffic signs": "traffic-signs"}
    blocks = {block[0]: block[1] for block in read_blocks(ROOT / "benchmarks/results/scratch.md")}
    shown_rows = [row for row in read_rows(ROOT / "README.md") if "→" in "".join(row[1:])]
    assert len(shown_rows) == 3
    for name, *cells in shown_rows:
        key = next(sets[start] for start in sets if name.startswith(start))
        rows = {row[0].strip("*"): row for row in next(rows for title, rows in blocks.items() if key in title)}
        for method, cell in zip(("LA", "FixMatch", "csst-balanced, solved"), cells, strict=True):
            shown = [float(number.strip("* ")) for number in cell.split("→")]
            measured = [float(rows[method][place].split()[0]) for place in (1, 3)]
            assert shown == [pytest.approx(value, abs=0.0051) for value in measured], (key, method)

"""csst theory: a run's diagnosis in plain words, and the closed forms."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from csst.cli.theory import main
from csst.data import Toy
from csst.data.task import Labeled, Task, identity_view
from csst.errors import InputError
from csst.recipes import recipe, with_overrides
from csst.runs.execute import execute
from csst.theory import from_pair
from csst.theory.bounds import Assumptions
from csst.theory.diagnosis import Diagnosis, Effort, _check_best_case, describe_promise, diagnose, write_sentences
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

SMALL = {"training": {"steps": 40}, "data": {"validation": 30, "test": 40}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "toy"
    execute(with_overrides(recipe("toy"), SMALL), folder)
    return str(folder)


def test_theory_of_a_run(run, capsys):
    assert main([run]) == 0
    out = capsys.readouterr().out
    for words in (
        "measured on 120 test examples",
        "err_w of the pseudo-labeler",
        "err_w of the classifier",
        "R_B,w of the classifier",
        "a lower bound",
        "gamma, by the 10 nearest neighbors",
        "gamma, by overlapping views",
        "all-layer margin",
        "The theorem promises nothing here",
        "This does not mean that self-training fails",
        "duality gap, average multipliers",
    ):
        assert words in out, words
    assert main([run, "--on", "validation", "--examples", "60", "--draws", "1"]) == 0
    shorter = capsys.readouterr().out
    assert "measured on 60 validation examples" in shorter
    assert "overlapping views" not in shorter  # one draw has no second view


def test_theory_of_digits_and_of_a_method_without_game(tmp_path, capsys):
    small = {"training": {"steps": 20}, "data": {"validation": 5, "test": 8}, "method": "fixmatch"}
    small["model"] = {"name": "mlp"}
    execute(with_overrides(recipe("digits"), small), tmp_path / "run")
    assert main([str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "measured on 80 test examples" in out
    assert "no multipliers" in out


def test_theory_of_a_dense_gain(tmp_path, capsys):
    """A coverage goal has weights off the diagonal: |w|_1 and the floor are those of the shifted weights."""
    execute(with_overrides(recipe("toy"), {**SMALL, "objective": "mean-recall-coverage"}), tmp_path / "run")
    assert main([str(tmp_path / "run")]) == 0
    assert "smallest possible err_w" in capsys.readouterr().out


def test_runs_that_cannot_be_diagnosed(tmp_path, run):
    with pytest.raises(InputError, match="not a run"):
        main([str(tmp_path)])
    with pytest.raises(InputError, match="more than 10 examples"):
        main([run, "--examples", "8", "--on", "test"])


class Letters(nn.Module):
    """Texts by their length and their count of e."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(2, 2)

    def encode(self, texts):
        return torch.tensor([[len(t) / 10, t.count("e") / 3] for t in texts])

    def forward(self, x):
        return self.last(x)


class Texts:
    def __init__(self, texts):
        self.texts = texts

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return [self.texts[i] for i in index.tolist()]


def text_task(strong):
    words = [("seen " if k % 2 else "no ") * (1 + k % 5) + "x" * k for k in range(40)]
    labels = torch.tensor([k % 2 for k in range(40)])
    part = Labeled(Texts(words), labels)
    return Task("words", ("no", "seen"), part, Texts(words), part, part, (identity_view, strong), kind="text")


def test_texts_say_what_cannot_be_computed():
    torch.manual_seed(0)
    task = text_task(lambda texts, generator: [t[1:] for t in texts])
    result = diagnose(Letters(), task, task.test, torch.eye(2) / 2)
    assert result.consistency is not None
    assert any("whose inputs are texts" in line for line in result.skipped)
    assert "Not computed: all-layer margins" in "\n".join(write_sentences(result))


def test_views_that_cannot_be_drawn():
    def untranslated(texts, generator):
        raise InputError("3 texts have no translation")

    task = text_task(untranslated)
    result = diagnose(Letters(), task, task.test, torch.eye(2) / 2)
    assert result.consistency is None
    assert result.as_measured is None
    assert any("no translation" in line for line in result.skipped)
    untranslated.of_index = untranslated  # views that were prepared for the unlabeled examples
    result = diagnose(Letters(), text_task(untranslated), task.test, torch.eye(2) / 2)
    assert any("prepared for the unlabeled examples only" in line for line in result.skipped)


def test_the_numbers_are_those_of_the_parts():
    """err_w of weak views and of the examples, L_w and R_{B,w}, by loops over a task whose views are known."""
    task = Toy("toy", labeled=40, unlabeled=50, validation=40, test=40).load(0)
    task = dataclasses.replace(task, views=(lambda x, g: x + 0.3, lambda x, g: x - 0.4))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3))
    w = torch.diag(torch.tensor([0.5, 0.3, 0.2]))
    result = diagnose(model, task, task.test, w, Effort(draws=2))
    x, y = task.test.inputs, task.test.labels
    own, weak, strong = (model(x + shift).argmax(1) for shift in (0.0, 0.3, -0.4))

    def weigh(event):
        return sum(float(w[i, i]) * float(event[y == i].double().mean()) for i in range(3))

    assert result.err[0] == pytest.approx(weigh(own != y))
    assert result.err_pl[0] == pytest.approx(weigh(weak != y))
    assert result.disagreement[0] == pytest.approx(weigh(own != weak))
    assert result.consistency.value == pytest.approx(weigh(own != strong))
    assert result.total == pytest.approx(1)
    assert result.best_case.fraction == pytest.approx(result.err_pl[0])
    assert result.as_measured.fraction == pytest.approx(min(1.0, result.err_pl[0] + result.err[0]))
    assert result.best_case.gamma in result.gammas.values()


def test_classes_that_touch_are_charged():
    """Where neighbors belong to different classes even the best classifier costs something."""
    far = from_pair(0.9, 20.0)
    free = _check_best_case(far, 0.2, 0.0, 0.0, torch.eye(2) / 2)
    assert free.hold
    some = _check_best_case(far, 0.2, 0.0, 0.02, torch.eye(2) / 2)
    assert some.hold
    assert some.promise == pytest.approx(free.promise + (free.gamma + 1) / (free.gamma - 1) * 0.02)
    much = _check_best_case(far, 0.2, 0.0, 0.3, torch.eye(2) / 2)
    assert not much.hold
    assert "neighbors" in much.against[0]


def diagnosis(**changes):
    fine = Assumptions(0.1, 5.0, 0.05, ())
    base = Diagnosis(100, 1.0, 0.0, (0.1, 0.01), (0.08, 0.01), (0.02, 0.0), None, {}, {}, fine, fine, 0.3, {}, ())
    return dataclasses.replace(base, **changes)


def test_words_for_every_outcome():
    bad = Assumptions(0.4, 2.0, 0.5, ("too wrong",))
    assert "assumptions look plausible" in describe_promise(diagnosis())[-1]
    assert "not as a guarantee" in describe_promise(diagnosis())[1]
    assert describe_promise(diagnosis(best_case=bad))[1] == "  - too wrong"
    assert "promises no improvement" in describe_promise(diagnosis(as_measured=bad))[2]
    assert "measured is 0.080" in describe_promise(diagnosis(as_measured=bad))[-1]
    assert "it says nothing" in describe_promise(diagnosis(as_measured=bad, bound=7.0))[-1]
    assert len(describe_promise(diagnosis(as_measured=None))) == 2
    assert "no mistake" in describe_promise(diagnosis(err_pl=(0.0, 0.0)))[0]


def test_gaussian(tmp_path, capsys):
    """Paper, exa:gamma-3 and fig:disjoint_non_disjoint_supp, from the command line."""
    figure = tmp_path / "boundary.svg"
    words = ["gaussian", "--d", "100", "--r", "0.05", "--err", "0.1", "--weights", "4,1", "--figure", str(figure)]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "gamma = c(0.1) = 3.89" in out
    assert "err_w < 0.1757" in out
    assert "err_w <= 0.0692" in out
    assert "err_w < 0.0351" in out  # 0.1757 times the lightest class's fraction, 0.2
    assert "for no pseudo-labeler at all" in out
    assert figure.read_text(encoding="utf-8").count("<svg") == 1
    assert main(["gaussian", "--d", "100", "--r", "0.15", "--err", "0.02", "--separation", "1.5"]) == 0
    out = capsys.readouterr().out
    assert "err_w < 0.3316" in out
    assert "promises an improvement for err_w(F_pl) from" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--d", "4", "--r", "0.1", "--err", "0"], "fraction of"),
        (["--d", "4", "--r", "0.1", "--err", "0.1", "--weights", "1"], "two numbers"),
        (["--d", "4", "--r", "0.1", "--err", "0.1", "--weights", "1,-1"], "positive"),
        (["--d", "0", "--r", "0.1", "--err", "0.1"], "d must be positive"),
        (["--d", "4", "--r", "0.1", "--err", "0.1", "--figure", "x.doc"], "ends with"),
        (["--d", "4", "--r", "0.1", "--err", "0.1", "--figure", "/nowhere/x.svg"], "cannot be written"),
    ],
)
def test_gaussian_refuses(words, message):
    with pytest.raises(InputError, match=message):
        main(["gaussian", *words])

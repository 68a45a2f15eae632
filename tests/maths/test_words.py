"""Familiar words mean what other libraries mean by them; costs and minimizing goals; rules for them by brute force."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, f1_score, fbeta_score, matthews_corrcoef

import csst
from csst.data.costs import read_costs
from csst.maths.gain import gain_matrix
from csst.maths.language.words import list_words
from csst.rules import fit_rule
from csst.rules.claims import read_claims
from tests.helpers import toys

NAMES = ["ok", "odd", "fraud"]
COSTS = [[0.0, 1.0, 5.0], [2.0, -0.5, 1.0], [200.0, 30.0, 0.0]]


@pytest.fixture(scope="module")
def answers():
    """Two hundred true classes and predictions."""
    rng = np.random.default_rng(0)
    truth = rng.choice(3, 200, p=[0.6, 0.3, 0.1])
    return truth, np.where(rng.random(200) < 0.7, truth, rng.integers(0, 3, 200))


def value_of(text, answers, **bound):
    goal = csst.objective(text, class_names=NAMES, **bound)
    return goal.as_stated(float(goal.value(csst.Confusion.from_predictions(*answers, 3))))


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("max balanced_accuracy", balanced_accuracy_score),
        ("max macro_f1", lambda y, p: f1_score(y, p, average="macro")),
        ("max mcc", matthews_corrcoef),
        ("max MCC", matthews_corrcoef),
        ("min error", lambda y, p: (y != p).mean()),
        ("max mean(fbeta(2))", lambda y, p: fbeta_score(y, p, beta=2, average="macro")),
        ("max f2['odd']", lambda y, p: fbeta_score(y, p, beta=2, average=None)[1]),
        ("max fbeta(0.5)['fraud']", lambda y, p: fbeta_score(y, p, beta=0.5, average=None)[2]),
        ("max fbeta(1)['ok']", lambda y, p: f1_score(y, p, average=None)[0]),
        ("max specificity['ok']", lambda y, p: (p[y != 0] != 0).mean()),
        ("min fpr['odd']", lambda y, p: (p[y != 1] == 1).mean()),
        ("minimize fnr[fraud]", lambda y, p: (p[y == 2] != 2).mean()),
        ("max gmean", lambda y, p: np.prod([(p[y == k] == k).mean() for k in range(3)]) ** (1 / 3)),
        ("min max(fnr)", lambda y, p: max((p[y == k] != k).mean() for k in range(3))),
        ("max worst(sensitivity)", lambda y, p: min((p[y == k] == k).mean() for k in range(3))),
    ],
)
def test_a_word_means_what_others_mean_by_it(text, reference, answers):
    assert value_of(text, answers) == pytest.approx(reference(*answers))


@pytest.mark.parametrize("word", list_words())
def test_every_listed_word_is_read_as_it_is_listed(word):
    function = word.removesuffix("(...)")
    meaning = list_words()[word]
    if meaning.endswith("(...)") or word != function:
        word = f"{function}(recall)"
        meaning = meaning.replace("...", "recall")
    goals = [f"max mean(precision) s.t. {text} >= 0.1" for text in (word, meaning)]
    if function in ("worst", "lowest", "max"):  # no worst cases in constraints
        goals = [f"{'min' if function == 'max' else 'max'} {text}" for text in (word, meaning)]
    assert csst.objective(goals[0]) == csst.objective(goals[1])


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("Maximize Recall['ok'] such that Precision['ok'] > 90%", "max recall['ok'] s.t. precision['ok'] >= 0.9"),
        ("minimise fpr['ok'] subject to tpr < 0.5", "min 1 - specificity['ok'] s.t. recall <= 0.5"),
        ("min 2*cost + 1", "min 2*cost + 1"),
        ("min (fnr['ok'] + fpr['ok'])/2", "min ((1 - recall['ok']) + (1 - specificity['ok']))/2"),
        (
            "max f2['ok'] s.t. cost <= 0.2 with confidence 0.9",
            "max fbeta(2)['ok'] s.t. cost <= 0.2 with confidence 0.9",
        ),
    ],
)
def test_one_canonical_printing(text, canonical):
    goal = csst.objective(text, class_names=NAMES)
    assert str(goal) == canonical
    assert csst.objective(canonical, class_names=NAMES) == goal


def test_the_cost_of_predictions(answers):
    cells = confusion_matrix(*answers)
    total = sum(COSTS[i][j] * cells[i, j] for i in range(3) for j in range(3))
    assert value_of("min cost", answers, costs=COSTS) == pytest.approx(total / 200)
    assert value_of("max accuracy - 0.01*cost", answers, costs=COSTS) == pytest.approx(
        np.trace(cells) / 200 - 0.01 * total / 200
    )


def test_the_gain_of_a_cost_is_its_negative_up_to_a_constant_per_row():
    prior = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    goal = csst.objective("min cost", costs=COSTS)
    gain = gain_matrix(goal, [], csst.Confusion.uniform(prior), prior).matrix
    expected = torch.tensor(COSTS).double().amax(1, keepdim=True) - torch.tensor(COSTS)
    assert torch.allclose(gain, expected)


def test_costs_follow_class_names_and_not_their_order():
    table = csst.CostTable(((0.0, 7.0), (1.0, 0.0)), ("fraud", "ok"))
    goal = csst.objective("min cost", class_names=["ok", "fraud"], costs=table)
    c = csst.Confusion.from_counts([[90, 10], [4, 6]])
    assert goal.as_stated(float(goal.value(c))) == pytest.approx((10 * 1 + 4 * 7) / 110)


def test_costs_from_a_file_with_their_unit(tmp_path):
    path = tmp_path / "costs.csv"
    path.write_text("EUR,fraud,ok\nok,5,0\nfraud,0,200\n")
    table = read_costs(path)
    assert table == csst.CostTable(((0.0, 5.0), (200.0, 0.0)), ("ok", "fraud"), "EUR")
    goal = csst.objective("min cost", class_names=["ok", "fraud"], costs=table)
    assert goal.describe_value(-1.25) == "1.250 EUR a row"
    assert csst.objective("min error", costs=table).describe_value(-0.25) == "0.250"
    path.write_text(";fraud;ok\nok;5;0\nfraud;0;200\n")
    assert read_costs(path) == csst.CostTable(((0.0, 5.0), (200.0, 0.0)), ("ok", "fraud"))


def test_costs_from_a_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([[0, 1], [9, 0]], index=["b", "a"], columns=["b", "a"])
    goal = csst.objective("min cost", class_names=["a", "b"], costs=frame)
    assert goal.binding.costs.matrix(("a", "b"), 2).tolist() == [[0, 9], [1, 0]]


@pytest.mark.parametrize(
    ("costs", "says"),
    [
        ([[0, 1, 2], [1, 0, 2]], "one row and one column per class"),
        ([0, 1], "one row and one column per class"),
        ([[0, float("nan")], [1, 0]], "finite"),
        ([["a", 1], [1, 0]], "must be numbers"),
        ([[1, 1], [2, 2]], "no prediction is better"),
        ([[0, 1], [1, 0]], "for 2 classes, and there are 3"),
        (csst.CostTable(((0, 1), (1, 0)), ("ok", "fraud")), "for 2 classes"),
    ],
)
def test_bad_costs_get_a_sentence(costs, says):
    with pytest.raises(csst.InputError, match=says):
        csst.objective("min cost", class_names=NAMES, costs=costs)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no rows"),
        (",a,b\na,0,1\nc,1,0\n", "name the same classes"),
        (",a,b\na,0\nb,1,0\n", "line 2 .* 2 fields, but the first line names 3"),
        (",a,b\na,0,x\nb,1,0\n", "column 'b' .* 'x'"),
    ],
)
def test_bad_files_of_costs_get_a_sentence(tmp_path, text, says):
    path = tmp_path / "costs.csv"
    path.write_text(text)
    with pytest.raises(csst.InputError, match=says):
        read_costs(path)
    with pytest.raises(csst.InputError, match="there is no file"):
        read_costs(tmp_path / "absent.csv")


def test_a_cost_without_a_table_says_where_it_comes_from():
    with pytest.raises(csst.InputError, match="--costs"):
        csst.objective("min cost").value(csst.Confusion.from_counts([[9, 1], [1, 9]]))
    with pytest.raises(csst.InputError, match="no class 'odd'"):
        csst.objective("min cost", costs=csst.CostTable(((0, 1), (1, 0)), ("ok", "fraud"))).bind(2, ["ok", "odd"])


def test_bounds_of_complements_are_certified_and_others_are_not():
    def claims(bound):
        return read_claims(csst.objective(f"max accuracy s.t. {bound}", class_names=NAMES).bind(3))

    def parts(claim):
        return claim.metric, claim.classes, claim.is_lower, pytest.approx(claim.value)

    for bound, same in {
        "fnr['ok'] <= 0.2": "recall['ok'] >= 0.8",
        "0.3 >= fdr['odd']": "precision['odd'] >= 0.7",
        "error <= 0.1": "accuracy >= 0.9",
        "recall['ok'] - 0.1 >= 0.5": "recall['ok'] >= 0.6",
    }.items():
        assert [parts(claim) for claim in claims(bound)] == [parts(claim) for claim in claims(same)]
    for bound in ("specificity['ok'] >= 0.9", "cost <= 1", "mcc >= 0.5", "fbeta(2)['ok'] >= 0.5"):
        with pytest.raises(csst.InputError, match="cannot be certified"):
            claims(bound)


@cache
def list_confusions():
    """The confusions of the toy for all pairs of thresholds on a grid."""
    cuts = np.linspace(-2, 7, 45)
    mass = np.stack([np.append(0, np.cumsum(toys.DENSITY, 0)[np.searchsorted(toys.GRID, cut)]) for cut in cuts])[:, 1:]
    confusions = []
    for low in range(len(cuts)):
        for high in range(low, len(cuts)):
            rates = np.stack([mass[low], mass[high] - mass[low], 1 - mass[high]], 1)
            confusions.append(csst.Confusion(torch.from_numpy(rates.clip(0)), torch.from_numpy(toys.PRIOR)))
    return confusions


def find_best(goal):
    """Return the best value of two thresholds that meet the bounds."""
    return max(float(goal.value(c)) for c in list_confusions() if goal.slack(c).numpy().min(initial=0) >= 0)


@pytest.mark.parametrize(
    "text",
    [
        "max mcc",
        "max fbeta(2)['fraud']",
        "min fpr['ok'] s.t. tpr['ok'] >= 0.8",
        "max recall['fraud'] s.t. specificity['fraud'] >= 0.97",
        "min cost",
        "max mean(recall) s.t. cost <= 4",
        "min cost s.t. recall['ok'] >= 0.8",
    ],
)
def test_rules_for_new_words_are_near_the_best_thresholds(text):
    goal = csst.objective(text, class_names=NAMES, costs=COSTS).bind(3)
    x, labels = toys.sample(1500, seed=1)
    unlabeled, _ = toys.sample(6000, seed=2)
    fitted = fit_rule(
        toys.probs(x),
        labels,
        goal,
        toys.probs(unlabeled),
        train_prior=toys.PRIOR,
        deployment_prior=toys.PRIOR,
        margin=0,
    )
    c = toys.confusion_of(fitted.rule.predict)
    scale = 1.0 if "cost" not in str(goal).split("s.t.")[0] else 4.0
    assert float(goal.value(c)) > find_best(goal) - 0.02 * scale
    assert goal.slack(c).numpy().min(initial=0) > (-0.3 if "cost <=" in text else -0.03)
    assert goal.describe_value(fitted.value) in fitted.sentence


def test_a_run_keeps_its_costs(tmp_path, capsys):
    from csst.cli import main
    from csst.fitting.fitted_model import FittedModel

    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 60)
    rows = rng.normal(labels[:, None] * 1.5, 1.0, (120, 3))
    np.savez(tmp_path / "rows.npz", x=rows, y=np.where(np.arange(120) % 2, labels, -1))
    file = tmp_path / "costs.csv"
    file.write_text("EUR,0,1\n0,0,1\n1,9,0\n")
    data = ["--data.path", str(tmp_path / "rows.npz"), "--learner", "linear", "--out", str(tmp_path / "run")]
    assert main(["train", "array", *data, "--objective", "min cost", "--costs", str(file)]) == 0
    assert "EUR a row" in capsys.readouterr().out
    file.unlink()  # the run has its own copy
    model = FittedModel.load(tmp_path / "run")
    predictions = model.predict(rows.astype(np.float32)).numpy()
    assert (predictions[labels == 1] == 1).mean() > (predictions[labels == 0] == 0).mean()
    counts = csst.Confusion.from_predictions(labels, predictions, 2)
    costs = np.array([[0, 1], [9, 0]])
    assert model.objective.as_stated(float(model.objective.value(counts))) == pytest.approx(
        costs[labels, predictions].mean()
    )

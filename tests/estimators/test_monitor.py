"""CSSTClassifier.monitor and adapt: what new rows without labels say, and a rule solved again for their balance."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from csst import CSSTClassifier, InputError
from csst.rules.monitor import refuse_unexplained

MEANS = np.array([[0.0, 0.0, 0.0], [2.5, 0.0, 0.0], [0.0, 2.5, 0.0]])
NAMES = np.array(["ok", "odd", "fraud"])
PRIOR = np.array([0.6, 0.3, 0.1])
OTHER_PRIOR = np.array([0.25, 0.25, 0.5])


def draw(prior: np.ndarray, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, size, p=prior)
    return MEANS[labels] + rng.normal(size=(size, 3)), NAMES[labels]


def mean_f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    hits = [((labels == name) & (predictions == name)).sum() for name in NAMES]
    totals = [(labels == name).sum() + (predictions == name).sum() for name in NAMES]
    return float(np.mean(2 * np.array(hits) / np.array(totals)))


@pytest.fixture(scope="module")
def fitted() -> CSSTClassifier:
    return CSSTClassifier("max mean(f1)", learner="linear").fit(*draw(PRIOR, 200, 0), draw(PRIOR, 600, 1)[0])


def test_new_rows_of_another_balance(fitted: CSSTClassifier) -> None:
    rows, labels = draw(OTHER_PRIOR, 800, 2)
    seen = fitted.monitor(rows)
    low, high = seen.balance.interval()
    truth = np.array([(labels == name).mean() for name in fitted.classes_])
    assert ((low <= truth) & (truth <= high)).all()
    assert seen.is_explained
    interval = seen.intervals["value"]
    assert interval["low"] <= mean_f1(labels, fitted.predict(rows)) <= interval["high"]
    text = str(seen)
    assert "class balance of 800 new rows" in text
    assert "explain the rows" in text
    assert json.loads(json.dumps(seen.as_dict()))["balance"]["prior"] == pytest.approx(seen.balance.prior.tolist())


def test_adapt_returns_a_classifier_for_the_new_balance(fitted: CSSTClassifier) -> None:
    rows = draw(OTHER_PRIOR, 800, 2)[0]
    test_rows, labels = draw(OTHER_PRIOR, 4000, 3)
    before = fitted.predict(test_rows)
    adapted = fitted.adapt(rows)
    assert (fitted.predict(test_rows) == before).all()
    truth = CSSTClassifier("max mean(f1)", learner="linear", deployment_prior=OTHER_PRIOR[[2, 1, 0]])
    truth.fit(*draw(PRIOR, 200, 0), draw(PRIOR, 600, 1)[0])
    values = [mean_f1(labels, each.predict(test_rows)) for each in (fitted, adapted, truth)]
    assert values[1] > values[0]
    assert values[1] > values[2] - 0.02
    assert "solved again for the class balance of 800 new rows" in adapted.summary()
    assert adapted.monitor(rows).value == pytest.approx(adapted.fit_.full_details.adjusted.value, abs=0.02)


def test_a_shift_is_flagged_and_not_adapted_to(fitted: CSSTClassifier) -> None:
    rows = draw(PRIOR, 800, 2)[0]
    rows[:, 1] += 1.0
    seen = fitted.monitor(rows)
    assert seen.is_explained is False
    assert "do not adapt" in str(seen)
    assert seen.as_dict()["shift"]["columns"][0]["name"] == "column 1"
    with pytest.raises(InputError, match="the rule is not adapted: no balance of the labeled classes"):
        fitted.adapt(rows)


def test_bounds_follow_the_balance(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = "max recall['fraud'] s.t. precision['fraud'] >= 0.5"
    rows = draw(PRIOR, 200, 0)
    classifier = CSSTClassifier(sentence, learner="linear").fit(*rows, draw(PRIOR, 600, 1)[0])
    rarer = classifier.monitor(draw(np.array([0.65, 0.33, 0.02]), 800, 4)[0])
    commoner = classifier.monitor(draw(OTHER_PRIOR, 800, 4)[0])
    assert rarer.bounds[0].slack < commoner.bounds[0].slack
    assert rarer.bounds[0].status == "missed"
    # A balance known from few rows makes the standard error of a bound larger, and with it the margin.
    few_rows, many_rows = (draw(np.array([0.68, 0.28, 0.04]), number, 4)[0] for number in (60, 6000))
    assert classifier.monitor(few_rows).bounds[0].error > 1.2 * classifier.monitor(many_rows).bounds[0].error
    samples = [draw(np.array([0.68, 0.28, 0.04]), 120, seed)[0] for seed in (4, 5, 6, 8)]
    careful_slacks = [adapt_slack(classifier, few_rows) for few_rows in samples]
    monkeypatch.setattr("csst.rules.soft_objective.BALANCE_DRAWS", 1)
    gains = np.subtract(careful_slacks, [adapt_slack(classifier, few_rows) for few_rows in samples])
    assert gains.mean() > 0.01
    assert min(careful_slacks) > 0


def adapt_slack(classifier: CSSTClassifier, rows: np.ndarray) -> float:
    """Return by how much the first bound is expected to be exceeded after adapting to rows."""
    return classifier.adapt(rows).fit_.full_details.adjusted.bounds[0].slack


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (draw(PRIOR, 5, 0)[0], "needs at least 20 of them; found 5 rows"),
        (draw(PRIOR, 50, 0)[0][:, :2], "X has 2 features, but CSSTClassifier is expecting 3 features"),
    ],
)
def test_bad_rows_are_one_sentence(fitted: CSSTClassifier, rows: np.ndarray, sentence: str) -> None:
    for verb in (fitted.monitor, fitted.adapt):
        with pytest.raises(ValueError, match=sentence):
            verb(rows)


def test_rows_of_one_class_are_not_adapted_to(fitted: CSSTClassifier) -> None:
    rows = draw(np.array([1.0, 0.0, 0.0]), 200, 7)[0]
    rows = rows[rows[:, :2].max(1) < 0]
    with pytest.raises(InputError, match="the rule is not adapted"):
        fitted.adapt(rows)
    monitoring = fitted.monitor(draw(PRIOR, 100, 8)[0])
    single = replace(monitoring.balance, prior=np.array([0.005, 0.99, 0.005]))
    with pytest.raises(InputError, match="look like the single class 'odd'"):
        refuse_unexplained(replace(monitoring, balance=single))
    refuse_unexplained(replace(monitoring, balance=replace(single, rows=800)))  # classes may be as rare as that


def test_unlabeled_rows_that_the_classes_do_not_explain_are_left_out() -> None:
    """The rule and its expected value are those of a fit on the labels; one sentence says so, after decide, too."""
    rows, labels = draw(PRIOR, 200, 0)
    offset = np.array([0.0, 0.0, 1.5])
    unlabeled = draw(PRIOR, 600, 1)[0] + offset
    with pytest.warns(UserWarning, match="no balance of the labeled classes explains the unlabeled rows"):
        classifier = CSSTClassifier("max mean(f1)", learner="linear").fit(rows, labels, unlabeled)
    rule = classifier.fit_.full_details.adjusted
    assert "(p = 0.000999, new values being in column 2)" in " ".join(classifier.notes_)
    assert "are from the labels alone" in classifier.summary()
    assert rule.estimate.unlabeled == 0
    assert rule.estimate.unlabeled_prior == pytest.approx(rule.evidence.labeled_prior)
    assert any("labels alone" in note for note in classifier.decide("max min(recall)").notes_)
    # Their balance is no longer asked for, though it is named.
    named = CSSTClassifier("max mean(f1)", learner="linear", deployment_prior="unlabeled")
    with pytest.warns(UserWarning, match="from the labels alone"):
        named.fit(rows, labels, unlabeled)
    prior = named.fit_.full_details.adjusted.estimate.confusion.prior
    assert prior.tolist() == rule.estimate.confusion.prior.tolist()
    # New rows are compared with the labels; a balance alone is no shift, and the rule can be adapted to it.
    new_rows = draw(OTHER_PRIOR, 800, 2)[0]
    assert classifier.monitor(new_rows).is_explained
    assert classifier.monitor(new_rows + offset).is_explained is False
    assert classifier.monitor(new_rows[:90]).is_explained is None
    assert not any("labels alone" in note for note in classifier.adapt(new_rows).notes_)


def test_unlabeled_rows_of_another_balance_are_trusted() -> None:
    classifier = CSSTClassifier("max mean(f1)", learner="linear").fit(
        *draw(PRIOR, 200, 0), draw(OTHER_PRIOR, 600, 1)[0]
    )
    assert classifier.fit_.full_details.adjusted.estimate.unlabeled == 600

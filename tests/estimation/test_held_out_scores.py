"""What is known about a classifier: scores, posteriors, and what is refused."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from csst.errors import InputError
from csst.estimation.calibration import fit_calibration
from csst.estimation.folds import deal_folds
from csst.estimation.held_out_scores import HeldOutScores, read_prior
from csst.estimation.shift import estimate_prior

PRIOR = np.array([0.6, 0.3, 0.1])


def random_probs(n, K=3, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(K), n)


def example(n=30, m=40, **options):
    labels = np.arange(n) % 3
    return HeldOutScores.from_probs(random_probs(n), labels, random_probs(m, seed=1) if m else None, **options)


def test_the_training_prior_is_taken_out():
    probs, unlabeled = random_probs(6), random_probs(4, seed=1)
    found = HeldOutScores.from_probs(probs, [0, 1, 2, 0, 1, 2], unlabeled, train_prior=PRIOR)
    for given, scores in ((probs, found.scores), (unlabeled, found.unlabeled_scores)):
        for p, z in zip(given, scores, strict=True):
            assert z == pytest.approx([math.log(p[k]) - math.log(PRIOR[k]) for k in range(3)], abs=1e-12)
    assert found.train_prior.tolist() == PRIOR.tolist()


def test_a_probability_of_zero_counts_as_a_tenth_of_a_label_where_scores_are_calibrated():
    probs = np.array([[1.0, 0.0], [0.3, 0.7], [1.0, 0.0], [0.999999, 1e-6]])
    found = HeldOutScores.from_probs(probs, [0, 1, 1, 0], train_prior=[0.8, 0.2])
    for p, z, raw_scores in zip(probs, found.calibration_scores, found.scores, strict=True):
        expected = [math.log(p[k] if p[k] > 0 else 1 / (10 * 4)) - math.log((0.8, 0.2)[k]) for k in range(2)]
        assert z == pytest.approx(expected, abs=1e-12)
        assert raw_scores == pytest.approx([math.log(max(p[k], 1e-12) / (0.8, 0.2)[k]) for k in range(2)], abs=1e-12)
    assert found.calibration.temperature == fit_calibration(found.calibration_scores, found.labels).temperature


def test_a_single_label_that_a_forest_gives_probability_zero_does_not_silence_all_scores():
    # Five of a hundred labels are of the rare class; no tree of 300 votes for one of these.
    rng = np.random.default_rng(0)
    labels = (np.arange(100) < 5).astype(int)
    votes = np.rint(300 / (1 + np.exp(3 - 4 * labels - rng.normal(size=100)))) / 300
    votes[0] = 0.0
    probs = np.column_stack([1 - votes, votes])
    assert HeldOutScores.from_probs(probs, labels).calibration.temperature > 0.3
    tiny_probs = np.maximum(probs, 2e-12)
    assert HeldOutScores.from_probs(tiny_probs / tiny_probs.sum(1, keepdims=True), labels).calibration.temperature < 0.2


def test_a_probability_of_zero_stays_finite():
    found = HeldOutScores.from_probs([[1.0, 0.0], [0.0, 1.0]], [0, 1], train_prior="uniform")
    assert found.scores[0, 1] == pytest.approx(math.log(1e-12) - math.log(0.5))


def test_named_priors():
    probs, labels = random_probs(8), [0, 0, 0, 0, 1, 1, 1, 2]
    fractions = [0.5, 0.375, 0.125]
    by_labels = HeldOutScores.from_probs(probs, labels)
    assert by_labels.train_prior.tolist() == by_labels.labeled_prior.tolist() == fractions
    uniform = HeldOutScores.from_probs(probs, labels, train_prior="uniform")
    assert uniform.train_prior == pytest.approx([1 / 3] * 3)
    assert uniform.labeled_prior.tolist() == fractions
    given = HeldOutScores.from_probs(probs, labels, train_prior=PRIOR)
    assert given.labeled_prior.tolist() == PRIOR.tolist()
    other = HeldOutScores.from_probs(probs, labels, train_prior=PRIOR, labeled_prior=[0.2, 0.3, 0.5])
    assert other.train_prior.tolist() == PRIOR.tolist()
    assert other.labeled_prior.tolist() == [0.2, 0.3, 0.5]
    assert given.counts.tolist() == [4, 3, 1]
    assert given.fractions.tolist() == fractions


def plain_posterior(scores, calibration, prior):
    rows = []
    for z in scores:
        raw = [prior[k] * math.exp(calibration.temperature * z[k] + calibration.bias[k]) for k in range(len(prior))]
        rows.append([value / sum(raw) for value in raw])
    return np.array(rows)


def test_posteriors_are_the_formula():
    found = example(train_prior=PRIOR)
    balance = estimate_prior(found.calibration.apply(found.unlabeled_scores), PRIOR)
    assert found.unlabeled_prior == pytest.approx(balance)
    assert found.posterior == pytest.approx(plain_posterior(found.unlabeled_scores, found.calibration, balance))
    labeled = plain_posterior(found.scores, found.calibration, [1 / 3] * 3)
    assert found.labeled_posterior == pytest.approx(labeled)
    assert found.soft_posterior is found.posterior
    assert found.soft_scores is found.unlabeled_scores


def test_labeled_rows_have_the_balance_of_their_labels():
    found = HeldOutScores.from_probs(random_probs(8), [0, 0, 0, 0, 1, 1, 1, 2], train_prior=PRIOR)
    expected = plain_posterior(found.scores, found.calibration, [0.5, 0.375, 0.125])
    assert found.labeled_posterior == pytest.approx(expected)


def test_labeled_rows_stand_in_for_unlabeled_ones():
    found = example(m=0, train_prior=PRIOR)
    assert not found.has_unlabeled
    assert found.soft_scores is found.scores
    assert found.soft_posterior is found.labeled_posterior
    assert found.unlabeled_prior == pytest.approx(PRIOR)


def test_information_is_one_less_the_balanced_log_loss():
    """Of rows that the calibration was not fitted on, every class weighing the same."""
    probs, labels = random_probs(40), np.repeat([0, 1, 2], [20, 12, 8])
    found = HeldOutScores.from_probs(probs, labels, train_prior=PRIOR)
    losses = np.zeros(40)
    folds = deal_folds(labels, 5, 0)
    for fold in range(5):
        calibration = fit_calibration(found.scores[folds != fold], labels[folds != fold])
        sure = plain_posterior(found.scores, calibration, [1 / 3] * 3)
        for i in np.flatnonzero(folds == fold):
            losses[i] = -math.log(sure[i, labels[i]])
    loss = sum(losses[labels == k].mean() for k in range(3)) / 3
    assert found.information == pytest.approx(1 - loss / math.log(3), abs=1e-4)
    truth = np.arange(300) % 3
    assert HeldOutScores.from_probs(np.eye(3)[truth] * 0.97 + 0.01, truth).information > 0.9
    assert HeldOutScores.from_probs(np.eye(3)[2 - truth] * 0.7 + 0.1, truth).information < 0.2


def test_constant_scores_are_seen():
    assert HeldOutScores.from_probs([[0.3, 0.7]] * 4, [0, 1, 0, 1]).is_constant
    assert not example().is_constant


def changed(row, column, value):
    probs = random_probs(6)
    probs[row, column] = value
    return probs


LABELS = [0, 1, 2, 0, 1, 2]
BAD = {
    "a class without a label": ((random_probs(6), [0, 1, 1, 0, 1, 0]), {}, r"classes \[2\] have none in the labeled"),
    "named": (
        (random_probs(6), [0, 1, 1, 0, 1, 0]),
        {"class_names": ["cat", "dog", "owl"]},
        r"classes \['owl'\] have none",
    ),
    "NaN": ((changed(2, 1, np.nan), LABELS), {}, r"finite; found NaN or infinite values in rows \[2\]"),
    "NaN, unlabeled": ((random_probs(6), LABELS, changed(4, 0, np.nan)), {}, r"finite.*rows \[4\]"),
    "infinite": ((changed(1, 1, np.inf), LABELS), {}, r"finite.*rows \[1\]"),
    "negative": ((changed(3, 0, -0.25), LABELS), {}, r"non-negative; row 3 holds -0\.25.*not logits"),
    "other width": ((random_probs(6), LABELS, random_probs(5, 4)), {}, r"shape \(N, 3\).*found \(5, 4\)"),
    "a vector": (([0.5, 0.5], [0, 1]), {}, r"shape \(N, K\).*found \(2,\)"),
    "one column": (([[1.0], [1.0]], [0, 0]), {}, r"at least 2 classes; found 1"),
    "sum": ((random_probs(6) * 1.5, LABELS), {}, r"sum to 1; row \d sums to 1\.5.*softmax"),
    "words": (([["a", "b"]], [0]), {}, r"probs must be numbers"),
    "too few labels": ((random_probs(6), LABELS[:5]), {}, r"one label per row of probs; found 5 for 6"),
    "label out of range": ((random_probs(6), [0, 1, 3, 0, 1, 2]), {}, r"labels must lie in 0 \.\. 2; .* from 0 to 3"),
    "negative label": ((random_probs(6), [0, 1, -1, 0, 1, 2]), {}, r"labels must lie in 0 \.\. 2; .* from -1 to 2"),
    "float labels": (
        (random_probs(6), [0.0, 1, 2, 0, 1, 2]),
        {},
        r"vector of integers; found shape \(6,\) of .*float",
    ),
    "labels of two columns": ((random_probs(6), [LABELS]), {}, r"vector of integers; found shape \(1, 6\)"),
    "no rows": ((np.zeros((0, 3)), np.zeros(0, dtype=int)), {}, r"classes \[0, 1, 2\] have none"),
    "unknown prior": ((random_probs(6), LABELS), {"train_prior": "flat"}, r"train_prior is 'labels', 'uniform' or one"),
    "prior of other length": (
        (random_probs(6), LABELS),
        {"train_prior": [0.5, 0.5]},
        r"train_prior has 2 classes and the scores 3",
    ),
    "prior with a zero": ((random_probs(6), LABELS), {"train_prior": [0.5, 0.5, 0.0]}, r"positive.*classes \[2\]"),
    "prior not summing to 1": ((random_probs(6), LABELS), {"train_prior": [0.5, 0.5, 0.5]}, r"sum to 1; found 1\.5"),
    "labeled prior": ((random_probs(6), LABELS), {"labeled_prior": "labels"}, r"labeled_prior is 'uniform' or one"),
    "labeled prior of other length": ((random_probs(6), LABELS), {"labeled_prior": [0.5, 0.5]}, r"labeled_prior has 2"),
}


def test_probabilities_may_be_a_data_frame():
    probs = random_probs(6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = HeldOutScores.from_probs(pd.DataFrame(probs, index=range(6, 0, -1)), pd.Series(LABELS))
    assert (read.scores == HeldOutScores.from_probs(probs, LABELS).scores).all()


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case):
    given, options, message = BAD[case]
    with pytest.raises(InputError, match=message):
        HeldOutScores.from_probs(*given, **options)


def test_tensors_and_single_precision_are_taken():
    probs = torch.softmax(torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), 1)
    found = HeldOutScores.from_probs(probs, torch.tensor(LABELS), probs.half().float(), train_prior="uniform")
    assert found.scores.dtype == np.float64
    assert found.scores == pytest.approx(np.log(probs.double().numpy()) + math.log(3))


def test_unlabeled_rows_are_thinned_by_chance_once():
    unlabeled = random_probs(500, seed=1)
    made = [
        HeldOutScores.from_probs(
            random_probs(6), LABELS, unlabeled, train_prior="uniform", most_unlabeled=60, seed=seed
        )
        for seed in (0, 0, 1)
    ]
    assert [len(one.unlabeled_scores) for one in made] == [60, 60, 60]
    assert np.array_equal(made[0].unlabeled_scores, made[1].unlabeled_scores)
    assert not np.array_equal(made[0].unlabeled_scores, made[2].unlabeled_scores)
    kept = {tuple(row) for row in np.round(np.exp(made[0].unlabeled_scores) / 3, 9)}
    assert len(kept) == 60
    assert kept <= {tuple(row) for row in np.round(unlabeled, 9)}
    whole = HeldOutScores.from_probs(random_probs(6), LABELS, unlabeled, train_prior="uniform", most_unlabeled=500)
    assert np.array_equal(whole.unlabeled_scores, np.log(unlabeled) - np.log(1 / 3))


def test_a_part_has_its_labels_only():
    whole = example(train_prior=PRIOR)
    rows = np.array([4, 0, 7, 9])
    part = whole.part(rows)
    assert part.labels.tolist() == [1, 0, 1, 0]
    assert np.array_equal(part.scores, whole.scores[rows])
    assert part.unlabeled_scores is whole.unlabeled_scores
    assert part.labeled_prior is whole.labeled_prior
    assert part.counts.tolist() == [2, 2, 0]
    assert np.isfinite(part.labeled_posterior).all()
    assert part.calibration.bias != pytest.approx(whole.calibration.bias, abs=1e-3)


@pytest.mark.parametrize(("most", "step", "left"), [(40, 1, 40), (39, 2, 20), (20, 2, 20), (13, 4, 10), (1, 40, 1)])
def test_thinning_keeps_every_kth_unlabeled_row(most, step, left):
    whole = example()
    thin = whole.thin(most)
    assert len(thin.unlabeled_scores) == left <= most
    assert np.array_equal(thin.unlabeled_scores, whole.unlabeled_scores[::step])
    assert np.array_equal(thin.scores, whole.scores)


def test_thinning_without_unlabeled_rows():
    assert len(example(m=0).thin(2000).unlabeled_scores) == 0


def test_read_prior_knows_its_names():
    named = {"labels": np.array([0.5, 0.5])}
    assert read_prior("labels", "prior", named, 2).tolist() == [0.5, 0.5]
    assert read_prior("uniform", "prior", named, 4).tolist() == [0.25] * 4
    assert read_prior([0.25, 0.75], "prior", named, 2).tolist() == [0.25, 0.75]
    with pytest.raises(InputError, match="prior is 'labels', 'uniform' or one number per class; found 'train'"):
        read_prior("train", "prior", named, 2)

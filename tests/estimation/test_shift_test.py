"""Whether the labeled classes explain new rows: silent under a change of balance, loud where something is new."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits

from csst.estimation.novelty import choose_power, measure_novelty
from csst.estimation.reference import MOST_COLUMNS, Projection, Reference
from csst.estimation.row_features import RowFeatures, fit_simplex
from csst.estimation.shift_test import compare_unlabeled, measure_shift

MEANS = np.array([[0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0]])
PRIOR = np.array([0.7, 0.25, 0.05])
OTHER_PRIOR = np.array([0.1, 0.3, 0.6])


def draw(prior: np.ndarray, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(len(prior), size, p=prior)
    return MEANS[labels] + rng.normal(size=(size, MEANS.shape[1])), labels


def make_reference(seed: int, per_class: int = 20, unlabeled: int = 500) -> Reference:
    labels = np.repeat(np.arange(3), per_class)
    rows = MEANS[labels] + np.random.default_rng([seed, 1]).normal(size=(len(labels), 4))
    return Reference.sample(rows, labels, draw(PRIOR, unlabeled, seed)[0], PRIOR, [0] * 4, seed)


def count_alarms(prior: np.ndarray, has_unlabeled: bool, per_class: int, draws: int = 5) -> int:
    alarms = 0
    for seed in range(draws):
        reference = make_reference(seed, per_class)
        reference = reference if has_unlabeled else reference.without_unlabeled
        rows = draw(prior, 500, 1000 + seed)[0]
        alarms += not measure_shift(reference, rows, prior).is_explained
    return alarms


@pytest.mark.parametrize("has_unlabeled", [True, False])
@pytest.mark.parametrize("per_class", [5, 20])
def test_another_balance_alone_is_no_alarm(has_unlabeled, per_class):
    assert count_alarms(OTHER_PRIOR, has_unlabeled, per_class) <= 1


def test_rare_classes_that_look_alike_are_no_alarm():
    """Eights and nines have few of the labels and many of the rows; least squares alone find too few of them."""
    rows, labels = load_digits(return_X_y=True)
    rows = rows.astype(np.float32)
    p_values = []
    for seed in range(8):
        order = np.random.default_rng(seed).permutation(len(labels))[:1297]
        is_labeled = np.zeros(len(labels), dtype=bool)
        for k in range(10):
            of_class = order[labels[order] == k]
            is_labeled[of_class[: round(100 * 20 ** (-k / 9))]] = True
        other = order[~is_labeled[order]]
        prior = np.bincount(labels[other]) / len(other)
        reference = Reference.sample(rows[is_labeled], labels[is_labeled], rows[other], prior, [0] * 64)
        p_values.append(compare_unlabeled(reference, rows[other]).p_value)
    assert sum(p_value <= 0.1 for p_value in p_values) <= 2


def test_the_same_rows_are_no_alarm():
    assert count_alarms(PRIOR, True, 20) <= 1


@pytest.mark.parametrize("value", [1.0, 0.1])
def test_rows_that_are_all_the_same_are_no_alarm(value):
    """What their means differ by is rounding."""
    rows = np.full((300, 2), value)
    reference = Reference.sample(rows[:60], np.arange(60) % 3, rows, PRIOR, [0] * 2)
    assert measure_shift(reference, rows, PRIOR).is_explained
    assert compare_unlabeled(reference, rows).is_explained


def test_a_new_class_is_found_and_its_rows_are_named():
    reference = make_reference(0)
    rows = draw(PRIOR, 500, 5)[0]
    is_new = np.arange(500) < 50
    rows[is_new, 2:] += 3.0
    test = measure_shift(reference, rows, PRIOR)
    assert not test.is_explained
    assert is_new[test.strange_rows].mean() > 0.7
    assert {column.name for column in test.columns} <= {"column 2", "column 3"}
    assert "no balance of the labeled classes explains the rows" in test.sentence
    assert test.as_dict()["strange_rows"] == test.strange_rows.tolist()


def test_a_changed_column_is_named_with_its_direction():
    reference = make_reference(1).with_names(["a", "b", "c", "d"])
    rows = draw(PRIOR, 500, 6)[0]
    rows[:, 3] -= 1.0
    test = measure_shift(reference, rows, PRIOR)
    assert [column.name for column in test.columns] == ["d"]
    assert test.columns[0].change == pytest.approx(-1.0, abs=0.2)


def test_a_new_category_is_found():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, size=(700, 1)).astype(float)
    rows = np.column_stack([rng.normal(size=700), codes])
    labels = (rows[:100, 0] > 0).astype(int)
    prior = np.array([0.5, 0.5])
    reference = Reference.sample(rows[:100], labels, rows[100:400], prior, [0, 3])
    assert measure_shift(reference, rows[400:], prior).is_explained
    new_rows = rows[400:].copy()
    new_rows[:40, 1] = -1
    test = measure_shift(reference, new_rows, prior)
    assert [column.name for column in test.columns] == ["column 1"]


def test_categories_that_labels_happen_not_to_have_are_no_alarm():
    """Of 100 categories, 150 labels lack some twenty; a new row has another one as often as a label has one alone."""
    alarms, found = 0, 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        codes = rng.integers(0, 100, 1150).astype(float)
        rows = np.column_stack([rng.normal(size=1150), codes])
        is_known = np.isin(codes, codes[:150])
        rows[~is_known, 1] = -1
        labels = (rows[:150, 0] > 0).astype(int)
        reference = Reference.sample(rows[:150], labels, rows[:0], np.array([0.5, 0.5]), [0, 100])
        alarms += measure_shift(reference, rows[150:], np.array([0.5, 0.5])).p_value <= 0.02
        rows[150:550, 1] = -1
        found += measure_shift(reference, rows[150:], np.array([0.5, 0.5])).p_value <= 0.02
    assert (alarms, found) == (0, 5)


def test_few_labels_are_silent_rather_than_wrong():
    """A model's balance makes the noise larger; without it, least squares on five labels find too small a change."""
    p_values = [
        measure_shift(make_reference(seed, 5), draw(OTHER_PRIOR, 500, 1000 + seed)[0], prior).p_value
        for prior in (None, OTHER_PRIOR)
        for seed in range(3)
    ]
    assert np.mean(p_values[:3]) < np.mean(p_values[3:])


def test_wide_and_sparse_rows_are_projected_alike():
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(40, MOST_COLUMNS + 10)) * (rng.random((40, MOST_COLUMNS + 10)) < 0.2)
    sparse = scipy.sparse.csr_matrix(wide)
    projected = Projection.learn(sparse).apply(sparse)
    assert projected.shape == (40, MOST_COLUMNS)
    assert Projection.learn(sparse).apply(sparse[:7]) == pytest.approx(projected[:7])
    dense = Projection.learn(wide)
    assert not dense.is_identity
    assert dense.apply(wide[:3]) == pytest.approx(dense.apply(wide)[:3], abs=1e-6)
    labels = np.arange(40) % 2
    reference = Reference.sample(sparse[:20], labels[:20], sparse[20:], np.array([0.5, 0.5]), [0] * wide.shape[1])
    assert 0 < measure_shift(reference, sparse[20:], np.array([0.5, 0.5])).p_value <= 1


def test_features_of_a_column_do_not_depend_on_its_unit():
    rows = np.random.default_rng(0).normal(size=(50, 2))
    features = RowFeatures.learn(rows, [0, 0])
    other = RowFeatures.learn(rows * [1000.0, 1.0] + [7.0, 0.0], [0, 0])
    assert features.apply(rows) == pytest.approx(other.apply(rows * [1000.0, 1.0] + [7.0, 0.0]))
    assert features.groups[-1].stop == features.apply(rows).shape[1]


def test_the_nearest_mixture_of_means():
    means = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert fit_simplex(means, np.array([0.2, 0.3, 0.5])) == pytest.approx([0.2, 0.3, 0.5], abs=1e-4)
    assert fit_simplex(means, np.array([2.0, -1.0, 0.0])) == pytest.approx([1.0, 0.0, 0.0], abs=1e-4)


def test_a_new_digit_is_found_with_five_labels_per_class(monkeypatch):
    """A forest of new and unlabeled rows finds it; mean features, which lean on the labels, do not."""
    rows, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(rows))
    others = [order[digits[order] == k] for k in range(1, 10)]
    labeled = np.concatenate([places[:5] for places in others])
    rest = np.random.default_rng(1).permutation(np.concatenate([places[5:] for places in others]))
    uniform = np.full(9, 1 / 9)
    unlabeled = rows[rest[:700]]
    reference = Reference.sample(rows[labeled], digits[labeled] - 1, unlabeled, uniform, [0] * rows.shape[1])
    new_rows = np.concatenate([rows[rest[700:1400]], rows[order[digits[order] == 0]][:78]])
    change = np.array([0.08, *[-0.01] * 8])  # a model takes the zeros for something
    assert measure_shift(reference, new_rows[:700], uniform).is_explained
    test = measure_shift(reference, new_rows, uniform + change)
    assert not test.is_explained
    assert (test.strange_rows >= 700).mean() > 0.5
    monkeypatch.setattr("csst.estimation.shift_test.find_novelty", lambda *_: None)
    assert measure_shift(reference, new_rows, uniform + change).is_explained


def test_a_class_that_becomes_common_is_not_new():
    """A forest finds its rows; without the change that a model estimates they would be novelty."""
    rng = np.random.default_rng(0)

    def draw_rows(size, share):
        labels = (rng.random(size) < share).astype(int)
        return rng.normal(size=(size, 3)) + 3.0 * labels[:, None], labels

    unlabeled, _ = draw_rows(600, 0.05)
    rows, _ = draw_rows(600, 0.3)
    labeled, labels = draw_rows(60, 0.5)
    change = np.array([-0.25, 0.25])
    assert measure_novelty(labeled, labels, unlabeled, rows, change).p_value > 0.05
    assert measure_novelty(labeled, labels, unlabeled, rows, 0 * change).p_value < 0.01


@pytest.mark.parametrize("categories", [60, 300, 10**6])
def test_many_categories_and_ids_are_no_alarm(categories):
    """The most frequent of 60 are so by chance; 600 rows of the fit lack forty of 300, and have no new row's ID."""
    alarms, found = 0, 0
    prior = np.array([0.5, 0.5])
    for seed in range(4):
        rng = np.random.default_rng(seed)
        codes = rng.integers(0, categories, 900).astype(float)
        codes[600:][~np.isin(codes[600:], codes[:600])] = -1
        rows = np.column_stack([rng.normal(size=900), codes])
        labels = (rows[:200, 0] > 0).astype(int)
        reference = Reference.sample(rows[:200], labels, rows[200:600], prior, [0, categories])
        alarms += measure_shift(reference, rows[600:], prior).p_value <= 0.02
        rows[600:700, 0] += 4
        found += measure_shift(reference, rows[600:], prior).p_value <= 0.02
    assert (alarms, found) == (0, 4)


def test_few_rows_at_the_upper_end_count_less():
    assert [choose_power(rows) for rows in (20, 60, 110, 220, 5000)] == [1.0, 2.0, 4.5, 10.0, 10.0]


def test_the_forest_alarms_as_often_as_said():
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(30):
        unlabeled, rows, labeled = (rng.normal(size=(n, 3)) for n in (200, 200, 20))
        p_values.append(measure_novelty(labeled, np.arange(20) % 2, unlabeled, rows, np.zeros(2)).p_value)
    assert sum(p_value <= 0.05 for p_value in p_values) <= 5
    assert np.mean(p_values) == pytest.approx(0.5, abs=0.2)


def test_labeled_rows_may_be_among_the_unlabeled_ones():
    rng = np.random.default_rng(0)
    labels = np.arange(20) % 2
    change = np.array([-0.4, 0.4])
    p_values = []
    for _ in range(10):
        unlabeled, rows, labeled = (rng.normal(size=(n, 3)) for n in (300, 200, 20))
        pool = np.concatenate([unlabeled, labeled])
        p_values.append(measure_novelty(labeled, labels, pool, rows, change).p_value)
    assert min(p_values) > 0.02
    assert np.mean(p_values) == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize(("unlabeled", "rows"), [(60, 50), (100, 1000)])
def test_few_unlabeled_rows_are_no_alarm(unlabeled, rows):
    """Features outnumber the rows: a normal noise of their covariance alarmed in every second case."""
    alarms = 0
    for seed in range(10):
        reference = make_reference(seed, 20, unlabeled)
        alarms += not measure_shift(reference, draw(PRIOR, rows, 1000 + seed)[0], PRIOR).is_explained
    assert alarms <= 2

"""Table "Metrics defined using entries of a confusion matrix" (Sec. 2.1)."""

import pytest
import torch
from sklearn import metrics as sk

import csst

from . import reference as ref
from .compare import close, tensor

CASES = [(K, seed) for K in ref.SIZES for seed in range(2)]


def examples(K, seed, n=400):
    """Labels with a long tail and predictions that are right more often than not."""
    case = ref.instance(K, seed)
    y = list(range(K)) + case.rng.choices(range(K), case.pi, k=n)
    F = [case.rng.choices(range(K), case.R[label])[0] for label in y]
    return y, F


def measured(K, seed):
    y, F = examples(K, seed)
    return csst.Confusion.from_predictions(torch.tensor(y), torch.tensor(F), K), ref.confusion(y, F, K)


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_confusion_matrix(K, seed):
    """C_ij[F] = E[1(y = i, F(x) = j)], from predictions, from counts of two batches, and from rates and prior."""
    c, C = measured(K, seed)
    close(c.matrix, C)
    y, F = examples(K, seed)
    halves = [csst.confusion_counts(torch.tensor(y[a:b]), torch.tensor(F[a:b]), K) for a, b in ((0, 99), (99, len(y)))]
    close(csst.Confusion.from_counts(halves[0] + halves[1]).matrix, C)
    close(csst.Confusion.from_counts(torch.stack(halves)).matrix, C)
    case = ref.instance(K, seed)
    rates, prior = tensor(case.R), tensor(case.pi)
    close(csst.Confusion(rates, prior).matrix, ref.confusion_of_rates(case.R, case.pi))


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_recall(K, seed):
    """Table metrics, recall: C_ii / sum_j C_ij."""
    c, C = measured(K, seed)
    close(c.recall, ref.all_classes(ref.recall, C))


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_coverage(K, seed):
    """Table metrics, coverage: sum_j C_ji."""
    c, C = measured(K, seed)
    close(c.coverage, ref.all_classes(ref.coverage, C))
    y, F = examples(K, seed)
    close(c.coverage, [F.count(j) / len(y) for j in range(K)])


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_precision(K, seed):
    """Table metrics, precision: C_ii / sum_k C_ki."""
    c, C = measured(K, seed)
    close(c.precision, ref.all_classes(ref.precision, C))


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_worst_case_recall(K, seed):
    """Table metrics, worst case recall: min_i C_ii / sum_j C_ij."""
    c, C = measured(K, seed)
    close(csst.objective("min-recall").value(c), ref.worst_case_recall(C))


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_accuracy(K, seed):
    """Table metrics, accuracy: sum_i C_ii."""
    c, C = measured(K, seed)
    close(c.accuracy, ref.accuracy(C))


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_f1_and_jaccard(K, seed):
    """Beyond Table metrics: F1 as the harmonic mean of precision and recall, Jaccard as intersection over union."""
    c, C = measured(K, seed)
    close(c.f1, ref.all_classes(ref.f1, C))
    close(c.jaccard, ref.all_classes(ref.jaccard, C))


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_group_means(K, seed):
    """The mean of a metric over a group of classes, as Eqs. min-HT-recall-obj and HT-cov-const-obj use it."""
    c, C = measured(K, seed)
    group = [0, K - 1]
    for name in ("recall", "coverage", "precision", "f1", "jaccard"):
        expected = ref.mean([getattr(ref, name)(C, i) for i in group])
        close(csst.objective(f"max {name}[ends]", groups={"ends": group}).value(c), expected)


@pytest.mark.parametrize(("K", "seed"), CASES)
@pytest.mark.parametrize("weighted", [False, True], ids=["as measured", "under another prior"])
def test_scikit_learn_agrees(K, seed, weighted):
    """Table metrics against scikit-learn; another prior is scikit-learn's sample_weight pi_y / (fraction of y)."""
    y, F = examples(K, seed)
    c, weights = measured(K, seed)[0], None
    if weighted:
        prior = ref.instance(K, seed).evaluation
        c = c.with_prior(tensor(prior))
        weights = [prior[label] / (y.count(label) / len(y)) for label in y]
    kwargs = {"labels": range(K), "average": None, "sample_weight": weights, "zero_division": 0}
    close(c.recall, sk.recall_score(y, F, **kwargs).tolist())
    close(c.precision, sk.precision_score(y, F, **kwargs).tolist())
    close(c.f1, sk.f1_score(y, F, **kwargs).tolist())
    close(c.jaccard, sk.jaccard_score(y, F, **kwargs).tolist())
    close(c.accuracy, sk.accuracy_score(y, F, sample_weight=weights))


def test_precision_of_a_class_never_predicted_is_zero():
    """Table metrics, precision: 0/0 counts as 0, for F1 and Jaccard too, as scikit-learn's zero_division=0."""
    y, F = [0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 0, 1]
    c = csst.Confusion.from_predictions(y, F, 3)
    assert c.precision[2] == c.f1[2] == c.jaccard[2] == 0
    close(c.precision, sk.precision_score(y, F, average=None, zero_division=0).tolist())


@pytest.mark.parametrize("K", ref.SIZES)
def test_ideal_coverage(K):
    """perfect-coverage: on a balanced set a perfect classifier covers 1/K per class and meets cov_j >= 0.95/K."""
    c = csst.Confusion.from_predictions(torch.arange(K), torch.arange(K), K)
    close(c.coverage, [1 / K] * K)
    close(csst.objective("mean-recall-coverage").slack(c), [0.05 / K] * K)

"""Algorithms 1 and 2 line by line, the multipliers' start, and the gain before the first update."""

import math

import pytest
import torch

import csst
from csst.maths.domains import Simplex

from . import reference as ref
from .compare import close, tensor

CASES = [(K, seed) for K in ref.SIZES for seed in range(2)]
LARGER = [*CASES, (23, 0)]
STEPS = 8


def validation(case):
    """A sequence of classifiers F^0, F^1, ... as confusions on a validation set, and their confusion matrices."""
    for _ in range(STEPS):
        counts = [[case.rng.randrange(0, 30) for _ in range(case.K)] for _ in range(case.K)]
        for i in range(case.K):
            counts[i][i] += 10 + case.rng.randrange(0, 40)
        total = sum(map(sum, counts))
        yield csst.Confusion.from_counts(torch.tensor(counts)), [[n / total for n in row] for row in counts]


def exponentiated(lam, payoff, omega):
    """lambda_i exp(-omega payoff_i), then norm."""
    return ref.norm([lam[i] * math.exp(-omega * payoff[i]) for i in range(len(lam))])


def projected(lam, payoff, omega):
    """lambda_i - omega payoff_i, then max(0, .)."""
    return [max(0.0, lam[i] - omega * payoff[i]) for i in range(len(lam))]


@pytest.mark.parametrize(("K", "seed"), CASES)
@pytest.mark.parametrize("omega", [0.1, 0.25, 2.0])
def test_algorithm_1(K, seed, omega):
    """Algorithm worst-case: lambda <- norm(lambda exp(-omega recall)), G = diag(lambda/pi), for several updates."""
    case = ref.instance(K, seed)
    multipliers, lam = csst.Multipliers(csst.objective("min-recall"), tensor(case.pi), step_size=omega), [1 / K] * K
    close(multipliers.value, lam)
    for c, C in validation(case):
        lam = exponentiated(lam, [ref.recall(C, i) for i in range(K)], omega)
        assert min(lam) > Simplex().floor / K, "the reference has no floor"
        multipliers.update(c)
        close(multipliers.value, lam)
        close(multipliers.gain.matrix, ref.gain_min_recall(lam, case.pi))


@pytest.mark.parametrize(("K", "seed"), CASES)
@pytest.mark.parametrize("omega", [0.1, 0.25, 2.0])
def test_algorithm_2(K, seed, omega):
    """Algorithm coverage: lambda <- max(0, lambda - omega (cov - 0.95/K)); G_ij = delta_ij/(K pi_i) + lambda_j."""
    case = ref.instance(K, seed)
    multipliers, lam = (
        csst.Multipliers(csst.objective("mean-recall-coverage"), tensor(case.pi), step_size=omega),
        [1 / K] * K,
    )
    close(multipliers.value, lam)
    reached_zero = False
    for c, C in validation(case):
        lam = projected(lam, [ref.coverage(C, i) - 0.95 / K for i in range(K)], omega)
        reached_zero |= min(lam) == 0
        multipliers.update(c)
        close(multipliers.value, lam)
        close(multipliers.gain.matrix, ref.gain_coverage(lam, case.pi))
    assert reached_zero or omega < 2


@pytest.mark.parametrize(("K", "seed"), LARGER)
def test_head_tail_algorithms(K, seed):
    """Algorithms worst-case and coverage for Eqs. min-HT-recall-obj and HT-cov-const-obj: one multiplier per group.

    lambda^0 weighs every class alike, so that the first gain is that of mean recall.
    """
    case = ref.instance(K, seed)
    groups = ref.head_and_tail(case.pi)
    recall, coverage = (
        csst.Multipliers(csst.objective(name), tensor(case.pi), step_size=0.25)
        for name in ("min-ht-recall", "mean-recall-ht-coverage")
    )
    lam, price = [len(group) / K for group in groups], [1 / K, 1 / K]
    close(recall.gain.matrix, ref.gain_mean_recall(case.pi))
    for c, C in validation(case):
        close(recall.value, lam)
        close(coverage.value, price)
        lam = exponentiated(lam, [ref.mean([ref.recall(C, i) for i in group]) for group in groups], 0.25)
        covered = [ref.mean([ref.coverage(C, i) for i in group]) for group in groups]
        price = projected(price, [share - 0.95 / K for share in covered], 0.25)
        recall.update(c)
        coverage.update(c)
        close(recall.gain.matrix, ref.gain_ht_recall(*lam, *groups, case.pi))
        close(coverage.gain.matrix, ref.gain_ht_coverage(*price, *groups, case.pi))


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_both_algorithms_in_one_game(K, seed):
    """Algorithms worst-case and coverage side by side: simplex and constraints each take their own step.

    Beside mean(recall), recall[0] is steep: 1/pi_0 against at most max_i 1/(K pi_i); from three times on it steps less.
    """
    case = ref.instance(K, seed)
    scale = min(1.0, 3 * case.pi[0] * max(1 / (K * share) for share in case.pi))
    sentence = "max min(recall) s.t. coverage >= 0.95/K, recall[0] <= 0.9"
    multipliers, lam, price = (
        csst.Multipliers(csst.objective(sentence), tensor(case.pi)),
        [1 / K] * K,
        [1 / K] * K + [scale / K],
    )
    for c, C in validation(case):
        lam = exponentiated(lam, [ref.recall(C, i) for i in range(K)], 0.25)
        slack = [*(ref.coverage(C, i) - 0.95 / K for i in range(K)), scale * (0.9 - ref.recall(C, 0))]
        price = projected(price, slack, 0.25)
        multipliers.update(c)
        close(multipliers.value, [*lam, *price])


@pytest.mark.parametrize("K", ref.SIZES)
def test_simplex_floor(K):
    """Algorithm worst-case with the documented floor: no multiplier below floor/K, the least uniform share mixed in."""
    lam, recalls = [1 / K] * K, [1.0] + [0.5] * (K - 1)
    domain, result = Simplex(1e-2), tensor([1 / K] * K)
    for _ in range(60):
        lam = exponentiated(lam, recalls, 0.25)
        if min(lam) < 1e-2 / K:  # (1 - a) min + a/K = floor/K
            a = (1e-2 / K - min(lam)) / (1 / K - min(lam))
            lam = [(1 - a) * v + a / K for v in lam]
        result = domain.step(result, tensor(recalls), 0.25)
        close(result, lam)
    assert float(result[0]) == pytest.approx(1e-2 / K)
    assert float(result.sum()) == pytest.approx(1)


@pytest.mark.parametrize("K", ref.SIZES)
def test_initial_multipliers(K):
    """lambda^0 of both algorithms: classes alike on the simplex, 1/K or 0 for lambda >= 0, or the training shares."""
    case = ref.instance(K, 5)
    head, tail = ref.head_and_tail(case.pi)
    pi = tensor(case.pi)
    both = csst.objective("max min(recall) s.t. coverage >= 0.95/K")
    close(csst.Multipliers(both, pi).value, [1 / K] * (2 * K))
    close(csst.Multipliers(both, pi, initial="zero").value, [1 / K] * K + [0.0] * K)
    close(csst.Multipliers(both, pi, initial="prior").value, case.pi + [1 / K] * K)
    close(csst.Multipliers(csst.objective("min-recall"), pi, initial="prior").gain.matrix, torch.eye(K).tolist())
    shares = [sum(case.pi[i] for i in group) for group in (head, tail)]
    close(csst.Multipliers(csst.objective("min-ht-recall"), pi, initial="prior").value, shares)
    sizes = [len(head) / K, len(tail) / K]
    for initial in ("uniform", "zero"):
        close(csst.Multipliers(csst.objective("min-ht-recall"), pi, initial=initial).value, sizes)
    mixed = csst.objective("max min(recall) + min(recall[head], recall[tail]) s.t. accuracy >= 0.1")
    close(csst.Multipliers(mixed, pi).value, [1 / K] * K + sizes + [1 / K])
    alike = csst.objective("max min(each(recall, head))")
    assert csst.Multipliers(alike, pi).value.tolist() == [1 / len(head)] * len(head)
    assert csst.Multipliers(csst.objective("mean-recall"), pi).value.shape == (0,)


@pytest.mark.parametrize("K", ref.SIZES)
def test_printed_gain_of_algorithm_2_is_a_typo(K):
    """Algorithm coverage at lambda = 0: the text's G is logit adjustment, the printed diag(lambda/pi) would vanish."""
    case = ref.instance(K, 6)
    multipliers = csst.Multipliers(csst.objective("mean-recall-coverage"), tensor(case.pi), initial="zero")
    close(multipliers.gain.matrix, ref.gain_mean_recall(case.pi))
    balanced = csst.Confusion.from_counts(torch.eye(K))  # every constraint is met, so lambda stays at 0
    multipliers.update(balanced)
    close(multipliers.value, [0.0] * K)
    close(multipliers.gain.matrix, ref.gain_mean_recall(case.pi))


@pytest.mark.parametrize("K", ref.SIZES)
def test_gain_before_the_first_update(K):
    """Algorithms worst-case and coverage before their first update: the gain is the one at R = 1/K."""
    case = ref.instance(K, 8)
    pi, uniform = tensor(case.pi), [[1 / K] * K for _ in range(K)]
    close(csst.Multipliers(csst.objective("min-recall"), pi).gain.matrix, ref.gain_min_recall([1 / K] * K, case.pi))
    close(
        csst.Multipliers(csst.objective("mean-recall-coverage"), pi).gain.matrix,
        ref.gain_coverage([1 / K] * K, case.pi),
    )
    f1 = csst.Multipliers(csst.objective("max mean(f1)"), pi).gain.matrix

    def mean_f1(R, prior):
        C = ref.confusion_of_rates(R, prior)
        return ref.mean([2 * C[i][i] / (prior[i] + ref.coverage(C, i)) for i in range(K)])

    expected = tensor(ref.gain_by_differences(mean_f1, uniform, case.pi, case.pi))
    torch.testing.assert_close(f1, expected, rtol=1e-6, atol=2e-7 * float(expected.max()))


@pytest.mark.parametrize("K", ref.SIZES)
def test_step_size(K):
    """The step size of Algorithm worst-case: 0.25 unless given, and a schedule may override it for one update."""
    case = ref.instance(K, 9)
    ((c, C),) = list(validation(case))[:1]
    for given, used in (({}, 0.25), ({"step_size": 0.5}, 0.5)):
        multipliers = csst.Multipliers(csst.objective("min-recall"), tensor(case.pi))
        multipliers.update(c, **given)
        close(multipliers.value, exponentiated([1 / K] * K, ref.all_classes(ref.recall, C), used))

"""Calibration, shown: on a finite instance space the minimizer of the expected loss is the Bayes-optimal classifier."""

import itertools
import random

import pytest
import torch

import csst

from . import reference as ref
from .compare import tensor

SPACES = [(2, 8), (3, 7), (4, 6)]  # classes, instances: K^n classifiers can be enumerated
CASES = [(K, n, seed, diagonal) for K, n in SPACES for seed in range(2) for diagonal in (True, False)]


def joint_distribution(K, n, seed, diagonal):
    """P(x, y) with a long tail and a random G, such that the best decision at every x is clearly the best."""
    rng = random.Random(f"{K} {n} {seed} {diagonal}")
    while True:
        pi, G = ref.long_tail(K, 10.0), ref.random_gain(rng, K, diagonal)
        if seed == 0:  # a gain of the paper: worst-case recall, or coverage
            lam = ref.random_distribution(rng, K)
            G = ref.gain_min_recall(lam, pi) if diagonal else ref.gain_coverage([5 * v for v in lam], pi)
        given_y = [ref.random_distribution(rng, n) for _ in range(K)]
        P = [[pi[y] * given_y[y][x] for y in range(K)] for x in range(n)]
        scores = [sorted(ref.pulled(G, row)) for row in P]
        plain = [max(range(K), key=row.__getitem__) for row in P]
        weighted = [max(range(K), key=ref.pulled(G, row).__getitem__) for row in P]
        if all(s[-1] > 1.05 * s[-2] for s in scores) and len(set(weighted)) > 1 and plain != weighted:
            return P, G


def minimized(expected_loss, shape):
    """The logits that minimize a convex expected loss, by LBFGS."""
    logits = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [logits],
        max_iter=2000,
        history_size=50,
        tolerance_grad=1e-11,
        tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        loss = expected_loss(logits)
        loss.backward()
        return loss

    optimizer.step(closure)
    return logits.detach()


def expected(loss, logits, P, gain):
    """E over (x, y) of loss(y, s(x)): hard labels only, each weighted by P(x, y)."""
    n, K = len(P), len(P[0])
    labels, weights = torch.arange(K).repeat(n), tensor(P).flatten()
    return (weights * loss(logits.repeat_interleave(K, 0), labels, gain)).sum()


def best_classifier(P, G):
    """max over all K^n classifiers of sum_ij G_ij C_ij[F], by enumeration."""
    n, K = len(P), len(G)

    def objective(F):
        C = [[sum(P[x][i] for x in range(n) if F[x] == j) for j in range(K)] for i in range(K)]
        return ref.csl(G, C)

    return list(max(itertools.product(range(K), repeat=n), key=objective))


@pytest.mark.parametrize(("K", "n", "seed", "diagonal"), CASES)
def test_hybrid_loss_is_calibrated(K, n, seed, diagonal):
    """Narasimhan's Prop. 4: minimizing E[loss:hyb] gives argmax_j sum_i P(i|x) G_ij, the maximizer of Eq. csl-obj."""
    P, G = joint_distribution(K, n, seed, diagonal)
    gain = csst.Gain(tensor(G))
    logits = minimized(lambda s: expected(csst.cost_sensitive_loss, s, P, gain), (n, K))
    optimum = [ref.norm(ref.pulled(G, row)) for row in P]
    torch.testing.assert_close(torch.softmax(logits, 1), tensor(optimum), rtol=1e-5, atol=1e-7)
    bayes = [max(range(K), key=row.__getitem__) for row in optimum]
    assert logits.argmax(1).tolist() == bayes
    assert best_classifier(P, G) == bayes


@pytest.mark.parametrize(("K", "n", "seed", "diagonal"), CASES)
def test_weighted_loss_is_calibrated(K, n, seed, diagonal):
    """Eq. wt-consistency-reg on labels: the same optimum softmax(s) = norm(G^T p) and the same Bayes rule."""
    P, G = joint_distribution(K, n, seed, diagonal)
    gain = csst.Gain(tensor(G))
    logits = minimized(lambda s: expected(csst.weighted_consistency, s, P, gain), (n, K))
    optimum = tensor([ref.norm(ref.pulled(G, row)) for row in P])
    torch.testing.assert_close(torch.softmax(logits, 1), optimum, rtol=1e-5, atol=1e-7)
    assert logits.argmax(1).tolist() == best_classifier(P, G)


@pytest.mark.parametrize(("K", "n", "seed", "diagonal"), CASES)
@pytest.mark.parametrize("loss", [csst.weighted_consistency, csst.cost_sensitive_loss])
def test_consistency_minimizes_the_divergence(K, n, seed, diagonal, loss):
    """Prop. kl-weighted: the minimizer of the batch loss is norm(G^T p) and KL(norm(G^T p) || p_m) = 0, for every x."""
    P, G = joint_distribution(K, n, seed, diagonal)
    gain, target = csst.Gain(tensor(G)), tensor([ref.norm(row) for row in P])
    logits = minimized(lambda s: loss(s, target, gain).mean(), (n, K))
    probs = torch.softmax(logits, 1)
    optimum = tensor([ref.norm(ref.pulled(G, ref.norm(row))) for row in P])
    torch.testing.assert_close(probs, optimum, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(gain.optimal_prediction(target), optimum)
    assert float(csst.kl_to_optimal(target, probs, gain).max()) < 1e-9


@pytest.mark.parametrize("K", ref.SIZES)
def test_optimal_softmax_of_a_label(K):
    """Prop. prop2-narashimhan: for a label y the weighted loss is minimal at G_yi / sum_j G_yj."""
    G = ref.random_gain(random.Random(K), K)
    gain, labels = csst.Gain(tensor(G)), torch.arange(K)
    optimum = tensor([[G[y][i] / sum(G[y]) for i in range(K)] for y in range(K)])
    logits = minimized(lambda s: csst.weighted_consistency(s, labels, gain).mean(), (K, K))
    torch.testing.assert_close(torch.softmax(logits, 1), optimum, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(gain.optimal_prediction(labels), optimum)


def test_confidence_cannot_be_optimal():
    """Prop. prop2-narashimhan's remark: for coverage, K = 10 and rho = 100 one class in ten can reach 0.95."""
    G = ref.gain_coverage([0.1] * 10, ref.long_tail(10))
    peaks = csst.Gain(tensor(G)).optimal_prediction(torch.arange(10)).amax(1)
    assert float(peaks[0]) == pytest.approx(0.279, abs=5e-4)
    assert (peaks >= 0.95).sum() == 1


@pytest.mark.parametrize(("K", "n"), SPACES)
def test_row_constants_change_no_decision(K, n):
    """Sec. 3.1: adding a constant to each row of G leaves the maximizer of Eq. csl-obj as it is."""
    P, G = joint_distribution(K, n, 1, False)
    negative = [[g - (1.5 + i) for g in row] for i, row in enumerate(G)]
    shifted = csst.maths.gain.canonical(tensor(negative))
    assert best_classifier(P, negative) == best_classifier(P, G) == best_classifier(P, shifted.tolist())
    gain = csst.Gain(shifted)
    logits = minimized(lambda s: expected(csst.cost_sensitive_loss, s, P, gain), (n, K))
    assert logits.argmax(1).tolist() == best_classifier(P, negative)

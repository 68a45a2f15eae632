"""The gain as the gradient of the objective: non-linear goals and any constraints, against finite differences."""

import random
from types import SimpleNamespace

import pytest
import torch

import csst
from csst.maths.gain import canonical

from . import reference as ref
from .compare import tensor


def read(R, prior):
    """The metrics as functions of the rates with the prior held fixed: pi_i stands for sum_j C_ij."""
    C, K = ref.confusion_of_rates(R, prior), len(prior)
    hit, cov = [C[i][i] for i in range(K)], ref.all_classes(ref.coverage, C)
    return SimpleNamespace(
        K=K,
        recall=[hit[i] / prior[i] for i in range(K)],
        coverage=cov,
        precision=[hit[i] / cov[i] if cov[i] > 0 else 0.0 for i in range(K)],
        f1=[2 * hit[i] / (prior[i] + cov[i]) for i in range(K)],
        jaccard=[hit[i] / (prior[i] + cov[i] - hit[i]) for i in range(K)],
        accuracy=sum(hit),
    )


# sentence → utility, entries of each min, constraint payoffs (>= 0 is met), the default metric prior
GOALS = {
    "max gmean(recall)": (lambda m: ref.gmean(m.recall), [], lambda m: [], "train"),
    "max hmean(recall)": (lambda m: ref.hmean(m.recall), [], lambda m: [], "train"),
    "max qmean(recall)": (lambda m: ref.qmean(m.recall), [], lambda m: [], "train"),
    "max mean(f1)": (lambda m: ref.mean(m.f1), [], lambda m: [], "evaluation"),
    "max mean(jaccard)": (lambda m: ref.mean(m.jaccard), [], lambda m: [], "evaluation"),
    "max accuracy s.t. precision[0] >= 0.5": (
        lambda m: m.accuracy,
        [],
        lambda m: [m.precision[0] - 0.5],
        "evaluation",
    ),
    "max mean(f1) s.t. recall >= 0.3": (
        lambda m: ref.mean(m.f1),
        [],
        lambda m: [r - 0.3 for r in m.recall],
        "evaluation",
    ),
    "max mean(recall) s.t. coverage <= 1.2/K": (
        lambda m: ref.mean(m.recall),
        [],
        lambda m: [1.2 / m.K - v for v in m.coverage],
        "train",
    ),
    "max accuracy s.t. 0.5/K <= coverage[1] <= 2/K": (
        lambda m: m.accuracy,
        [],
        lambda m: [m.coverage[1] - 0.5 / m.K, 2 / m.K - m.coverage[1]],
        "train",
    ),
    "max min(recall) s.t. coverage >= 0.8/K, recall[0] <= 0.9": (
        lambda m: 0.0,
        [lambda m: m.recall],
        lambda m: [*(v - 0.8 / m.K for v in m.coverage), 0.9 - m.recall[0]],
        "train",
    ),
    "max 0.5*min(recall) + min(precision[0], f1[1]) - coverage[0] s.t. precision[1] >= 0.3": (
        lambda m: -m.coverage[0],
        [lambda m: [0.5 * r for r in m.recall], lambda m: [m.precision[0], m.f1[1]]],
        lambda m: [m.precision[1] - 0.3],
        "evaluation",
    ),
}
CASES = [(sentence, K) for sentence in GOALS for K in ref.SIZES]


def multipliers(sentence, case, m):
    """One random point of each simplex, then a random price per constraint."""
    _, worst, constraints, _ = GOALS[sentence]
    lam = [v for entries in worst for v in ref.random_distribution(case.rng, len(entries(m)))]
    return lam + [case.rng.uniform(0, 2) for _ in constraints(m)]


@pytest.mark.parametrize(("sentence", "K"), CASES)
def test_value_payoff_and_slack(sentence, K):
    """The game max_F min_lambda u + lambda.phi (Sec. 2.1): min entries first, then constraints, <= sign-flipped."""
    utility, worst, constraints, where = GOALS[sentence]
    case = ref.instance(K, 7)
    m, c = read(case.R, case.evaluation), csst.Confusion(tensor(case.R), tensor(case.evaluation))
    objective = csst.objective(sentence).bind(K)
    slack, entries = constraints(m), [values(m) for values in worst]
    assert float(objective.utility(c)) == pytest.approx(utility(m), rel=1e-10)
    assert objective.payoff(c).tolist() == pytest.approx([*(v for vs in entries for v in vs), *slack], rel=1e-10)
    assert objective.slack(c).tolist() == pytest.approx(slack, rel=1e-10)
    assert float(objective.value(c)) == pytest.approx(utility(m) + sum(map(min, entries)), rel=1e-10)
    assert len(objective.labels) == len(objective.payoff(c))
    assert objective.metric_prior == where


@pytest.mark.parametrize(("sentence", "K"), CASES)
@pytest.mark.parametrize("metric_prior", ["train", "evaluation", None])
def test_gain_is_the_gradient(sentence, K, metric_prior):
    """Eq. csl-obj at the current classifier: G_ij = (1/pi_i) d/dR_ij [u + lambda.phi], under both metric priors."""
    utility, worst, constraints, default = GOALS[sentence]
    case = ref.instance(K, 11)
    m = read(case.R, case.evaluation)
    lam = multipliers(sentence, case, m)

    def game(R, prior):
        m = read(R, prior)
        payoff = [*(v for entries in worst for v in entries(m)), *constraints(m)]
        return utility(m) + sum(a * b for a, b in zip(lam, payoff, strict=True))

    c = csst.Confusion(tensor(case.R), tensor(case.evaluation))
    result = csst.gain_matrix(csst.objective(sentence), tensor(lam), c, tensor(case.pi), metric_prior).matrix
    prior = case.pi if (metric_prior or default) == "train" else case.evaluation
    expected = tensor(ref.gain_by_differences(game, case.R, case.pi, prior))
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=2e-7 * float(expected.max()))


@pytest.mark.parametrize("sentence", ["max gmean(recall)", "max hmean(recall)", "max mean(f1)", "max mean(precision)"])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-2])
def test_gain_of_a_dead_class(sentence, epsilon):
    """Eq. csl-obj for a class at recall 0 and never predicted: G is finite, derived at (1 - eps) R + eps/K."""
    R, pi = [[0.9, 0.1, 0.0], [0.3, 0.7, 0.0], [0.5, 0.5, 0.0]], ref.long_tail(3)
    name = sentence.removeprefix("max ")
    kind, metric = name[: name.index("(")], name[name.index("(") + 1 : -1]

    def game(R, prior):
        return getattr(ref, kind)(getattr(read(R, prior), metric))

    c = csst.Confusion(tensor(R), tensor([0.5, 0.3, 0.2]))
    objective = csst.objective(sentence, epsilon=epsilon)
    result = csst.gain_matrix(objective, tensor([]), c, tensor(pi), "evaluation").matrix
    expected = tensor(ref.gain_by_differences(game, R, pi, [0.5, 0.3, 0.2], epsilon))
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=2e-7 * float(expected.max()))
    value = game(R, [0.5, 0.3, 0.2]) if kind == "mean" else 0.0  # reported values use R itself
    assert float(objective.value(c)) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("K", ref.SIZES)
def test_canonical_form(K):
    """Rows of G may be shifted (Sec. 3.1): the smallest c_i >= 0 with G_ij >= 0 and G_ii >= .05 max_j G_ij."""
    rng = random.Random(K)
    for attempt in range(20):
        G = [[rng.uniform(-1, 3) for _ in range(K)] for _ in range(K)]
        G[0] = [rng.uniform(0.2, 3) for _ in range(K)]  # already fine: untouched
        G[1] = [0.0 if attempt % 2 else -2.0 for _ in range(K)]  # indifferent
        if K > 2:
            G[2] = [0.0 if i == 2 else 1.0 + i for i in range(K)]  # non-negative, but nothing on the diagonal
        if K > 3:
            G[3] = [rng.uniform(-3, -1) if i == 3 else rng.uniform(0, 1) for i in range(K)]
        result = canonical(tensor(G))
        torch.testing.assert_close(result, tensor(ref.canonical(G)), rtol=1e-12, atol=1e-15)
        assert torch.equal(result[0], tensor(G[0]))
        csst.Gain(result)  # accepted by the loss: non-negative with a positive diagonal


@pytest.mark.parametrize("K", ref.SIZES)
def test_gain_of_an_ignored_class(K):
    """Rows of G (Sec. 3.1): a class the objective is indifferent to gets a row of 1e-6 times the largest entry."""
    case = ref.instance(K, 3)
    c = csst.Confusion(tensor(case.R), tensor(case.evaluation))
    result = csst.gain_matrix(csst.objective("max recall[0]"), tensor([]), c, tensor(case.pi)).matrix
    raw = [[(i == j == 0) / case.pi[0] for j in range(K)] for i in range(K)]
    torch.testing.assert_close(result, tensor(ref.canonical(raw)), rtol=1e-12, atol=0)
    assert float(result[1, 0]) == pytest.approx(1e-6 / case.pi[0])

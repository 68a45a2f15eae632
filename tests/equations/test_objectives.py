"""The objectives of Secs. 2.1 and 5: value, payoff, slack, and the gain against the paper's closed forms."""

import pytest
import torch

import csst

from . import reference as ref
from .compare import close, tensor

CASES = [(K, seed) for K in ref.SIZES for seed in range(2)]
LARGER = [*CASES, (23, 0), (40, 1)]  # several classes in the tail


def setting(K, seed):
    """A random instance, its classifier measured under the evaluation prior, and that confusion matrix."""
    case = ref.instance(K, seed)
    c = csst.Confusion(tensor(case.R), tensor(case.evaluation))
    return case, c, ref.confusion_of_rates(case.R, case.evaluation)


def gain(sentence, lam, c, case, metric_prior=None):
    return csst.gain_matrix(csst.objective(sentence), tensor(lam), c, tensor(case.pi), metric_prior).matrix


def reduces_to_csl(G, case, game):
    """sum_ij G_ij C_ij equals the game's value under the training prior, for this and any other classifier."""
    for R in (case.R, [ref.random_distribution(case.rng, case.K) for _ in range(case.K)]):
        assert ref.csl(G.tolist(), ref.confusion_of_rates(R, case.pi)) == pytest.approx(game(R), rel=1e-9)


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_constant_gain(K, seed):
    """Eq. csl-obj: max sum_ij G_ij C_ij for a given G, which is used exactly as it is."""
    case, c, C = setting(K, seed)
    G = ref.random_gain(case.rng, K)
    objective = csst.ConstantGain(tensor(G))
    close(objective.value(c), ref.csl(G, C))
    assert len(objective.payoff(c)) == len(objective.slack(c)) == 0
    assert torch.equal(csst.gain_matrix(objective, tensor([]), c, tensor(case.pi)).matrix, tensor(G))


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_accuracy(K, seed):
    """Eq. csl-obj for accuracy: sum_i C_ii, G = I."""
    case, c, C = setting(K, seed)
    close(csst.objective("accuracy").value(c), ref.accuracy(C))
    close(gain("accuracy", [], c, case), [[float(i == j) for j in range(K)] for i in range(K)])


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_mean_recall(K, seed):
    """Eq. csl-obj for mean recall, logit adjustment: G = diag(1/(K pi))."""
    case, c, C = setting(K, seed)
    close(csst.objective("mean-recall").value(c), ref.mean(ref.all_classes(ref.recall, C)))
    close(gain("mean-recall", [], c, case), ref.gain_mean_recall(case.pi))


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_worst_case_recall(K, seed):
    """Eq. min-recall-obj: max_F min_i rec_i[F]; the payoff is the recalls, there is no constraint."""
    _, c, C = setting(K, seed)
    objective = csst.objective("min-recall").bind(K)
    close(objective.value(c), ref.worst_case_recall(C))
    close(objective.payoff(c), ref.all_classes(ref.recall, C))
    assert float(objective.utility(c)) == 0
    assert len(objective.slack(c)) == 0


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_worst_case_recall_saddle_point(K, seed):
    """The saddle point of worst-case recall: min over the simplex of sum_i lambda_i C_ii/pi_i; G_i = lambda_i/pi_i."""
    case, c, C = setting(K, seed)
    objective = csst.objective("min-recall").bind(K)
    corners = [ref.one_hot(i, K) for i in range(K)]
    for lam in [*corners, *(ref.random_distribution(case.rng, K) for _ in range(5))]:
        game = sum(lam[i] * C[i][i] / case.evaluation[i] for i in range(K))
        close(tensor(lam) @ objective.payoff(c), game)
        assert game >= float(objective.value(c)) - 1e-12
        if min(lam) > 0:
            G = gain("min-recall", lam, c, case)
            close(G, ref.gain_min_recall(lam, case.pi))
            reduces_to_csl(G, case, lambda R, lam=lam: sum(weight * R[i][i] for i, weight in enumerate(lam)))
    assert min(float(tensor(lam) @ objective.payoff(c)) for lam in corners) == pytest.approx(ref.worst_case_recall(C))


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_coverage_constraint(K, seed):
    """Eq. coverage-constraint-obj: mean recall s.t. cov_j >= 0.95/K for every class."""
    _, c, C = setting(K, seed)
    objective = csst.objective("mean-recall-coverage").bind(K)
    margins = [ref.coverage(C, j) - 0.95 / K for j in range(K)]
    close(objective.value(c), ref.mean(ref.all_classes(ref.recall, C)))
    close(objective.slack(c), margins)
    close(objective.payoff(c), margins)
    assert [bool(met) for met in objective.slack(c) >= 0] == [ref.coverage(C, j) >= 0.95 / K for j in range(K)]


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_coverage_lagrangian(K, seed):
    """Eq. cov-const-obj: G_ij = delta_ij/(K pi_i) + lambda_j, and lambda = 0 leaves logit adjustment."""
    case, c, _ = setting(K, seed)
    for lam in ([0.0] * K, [case.rng.uniform(0, 2) for _ in range(K)]):
        G = gain("mean-recall-coverage", lam, c, case)
        close(G, ref.gain_coverage(lam, case.pi))
        # sum_ij G_ij C_ij is the Lagrangian without its constant -sum_j lambda_j 0.95/K
        reduces_to_csl(G, case, lambda R, lam=lam: _lagrangian(R, case.pi, lam) + sum(lam) * 0.95 / K)


def _lagrangian(R, pi, lam):
    C, K = ref.confusion_of_rates(R, pi), len(pi)
    total = sum(C[i][i] / pi[i] for i in range(K)) / K
    for j in range(K):
        total += lam[j] * (sum(C[i][j] for i in range(K)) - 0.95 / K)
    return total


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_coverage_gain_under_the_evaluation_prior(K, seed):
    """Eq. cov-const-obj under an evaluation prior e: G_ij = delta_ij/(K pi_i) + lambda_j e_i/pi_i."""
    case, c, _ = setting(K, seed)
    lam = [case.rng.uniform(0, 2) for _ in range(K)]
    for prior in (case.evaluation, [1 / K] * K):
        result = gain("mean-recall-coverage", lam, c.with_prior(tensor(prior)), case, "evaluation")
        expected = [[((i == j) / K + lam[j] * prior[i]) / case.pi[i] for j in range(K)] for i in range(K)]
        close(result, expected)


@pytest.mark.parametrize(("K", "seed"), CASES)
def test_recall_gain_ignores_the_evaluation_prior(K, seed):
    """The saddle point of worst-case recall under either metric prior: recalls do not depend on the class balance."""
    case, c, _ = setting(K, seed)
    lam = ref.random_distribution(case.rng, K)
    for where in ("train", "evaluation"):
        close(gain("min-recall", lam, c, case, where), ref.gain_min_recall(lam, case.pi))


@pytest.mark.parametrize(("K", "seed"), LARGER)
def test_head_and_tail(K, seed):
    """The groups of Eq. min-HT-recall-obj: by training frequency, not by index, and they partition the classes."""
    case, _, _ = setting(K, seed)
    head, tail = ref.head_and_tail(case.pi)
    assert csst.head_tail(tensor(case.pi)) == {"head": head, "tail": tail}
    assert max(case.pi[t] for t in tail) <= min(case.pi[h] for h in head)
    assert csst.head_tail(tensor([0.25] * 4)) == {"head": [0, 1, 2], "tail": [3]}


@pytest.mark.parametrize(("K", "seed"), LARGER)
def test_head_tail_recall(K, seed):
    """Eq. min-HT-recall-obj: the worse of mean head and mean tail recall; G = diag(lambda_g/(pi_i |g|))."""
    case, c, C = setting(K, seed)
    head, tail = ref.head_and_tail(case.pi)
    objective = csst.objective("min-ht-recall").bind_prior(tensor(case.pi))
    means = [sum(C[i][i] / case.evaluation[i] for i in group) / len(group) for group in (head, tail)]
    close(objective.payoff(c), means)
    close(objective.value(c), min(means))
    lam = ref.random_distribution(case.rng, 2)
    G = gain("min-ht-recall", lam, c, case)
    close(G, ref.gain_ht_recall(*lam, head, tail, case.pi))
    reduces_to_csl(
        G,
        case,
        lambda R: sum(
            weight / len(group) * R[i][i] for weight, group in zip(lam, (head, tail), strict=True) for i in group
        ),
    )


@pytest.mark.parametrize(("K", "seed"), LARGER)
def test_head_tail_coverage(K, seed):
    """Eq. HT-cov-const-obj: mean head and tail coverage >= 0.95/K; G_ij = lambda_g(j)/|g(j)| + delta_ij/(K pi_i)."""
    case, c, C = setting(K, seed)
    groups = ref.head_and_tail(case.pi)
    objective = csst.objective("mean-recall-ht-coverage").bind_prior(tensor(case.pi))
    margins = [sum(C[i][j] for i in range(K) for j in group) / len(group) - 0.95 / K for group in groups]
    close(objective.value(c), sum(C[i][i] / (K * case.evaluation[i]) for i in range(K)))
    close(objective.slack(c), margins)
    close(objective.payoff(c), margins)
    lam = [case.rng.uniform(0, 2), case.rng.uniform(0, 2)]
    G = gain("mean-recall-ht-coverage", lam, c, case)
    close(G, ref.gain_ht_coverage(*lam, *groups, case.pi))
    per_class = [next(v / len(g) for v, g in zip(lam, groups, strict=True) if j in g) for j in range(K)]
    reduces_to_csl(G, case, lambda R: _lagrangian(R, case.pi, per_class) + sum(per_class) * 0.95 / K)

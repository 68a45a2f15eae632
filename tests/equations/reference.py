"""The paper's equations, written from its LaTeX with loops over plain floats; nothing here uses the library.

R are rates, P(F(x) = j | y = i); C a confusion matrix, C_ij = P(y = i, F(x) = j); pi a class prior; lam multipliers.
"""

import math
import random
from dataclasses import dataclass

SIZES = (2, 3, 5, 10)


# ---------------------------------------------------------------- random instances


def long_tail(K, rho=100.0):
    """n_i proportional to rho^(-i/(K-1))."""
    return norm([rho ** (-i / (K - 1)) for i in range(K)])


def random_distribution(rng, K):
    return norm([rng.gammavariate(1.0, 1.0) + 1e-3 for _ in range(K)])


def random_gain(rng, K, diagonal=False):
    """Positive entries; off the diagonal zero if `diagonal`, else of the same order as on it."""
    return [
        [rng.uniform(0.5, 4) if i == j else 0.0 if diagonal else rng.uniform(0.05, 2) for j in range(K)]
        for i in range(K)
    ]


@dataclass
class Instance:
    """A classifier's rates, a long-tailed training prior in shuffled order, another prior for evaluation."""

    K: int
    R: list
    pi: list
    evaluation: list
    rng: random.Random


def instance(K, seed):
    rng = random.Random(1000 * K + seed)
    pi = long_tail(K, rng.choice([10.0, 100.0]))
    rng.shuffle(pi)
    rates = [random_distribution(rng, K) for _ in range(K)]
    for i in range(K):  # better than chance on most classes, as a trained classifier is
        keep = rng.uniform(0, 0.9)
        rates[i] = [(1 - keep) * r + keep * (i == j) for j, r in enumerate(rates[i])]
    return Instance(K, rates, pi, random_distribution(rng, K), rng)


# ---------------------------------------------------------------- confusion and metrics (Sec. 2.1, Table metrics)


def confusion(y, F, K):
    """C_ij[F] = E[1(y = i, F(x) = j)] over a list of examples."""
    C = [[0.0] * K for _ in range(K)]
    for label, prediction in zip(y, F, strict=True):
        C[label][prediction] += 1 / len(y)
    return C


def confusion_of_rates(R, pi):
    return [[pi[i] * R[i][j] for j in range(len(pi))] for i in range(len(pi))]


def recall(C, i):
    return C[i][i] / sum(C[i][j] for j in range(len(C)))


def coverage(C, i):
    return sum(C[j][i] for j in range(len(C)))


def precision(C, i):
    return C[i][i] / coverage(C, i) if coverage(C, i) > 0 else 0.0


def f1(C, i):
    p, r = precision(C, i), recall(C, i)
    return 2 * p * r / (p + r) if p + r > 0 else 0.0


def jaccard(C, i):
    return C[i][i] / (sum(C[i][j] for j in range(len(C))) + coverage(C, i) - C[i][i])


def accuracy(C):
    return sum(C[i][i] for i in range(len(C)))


def all_classes(metric, C):
    return [metric(C, i) for i in range(len(C))]


def worst_case_recall(C):
    return min(all_classes(recall, C))


def mean(values):
    return sum(values) / len(values)


def gmean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values))


def hmean(values):
    return len(values) / sum(1 / v for v in values)


def qmean(values):
    return 1 - math.sqrt(sum((1 - v) ** 2 for v in values) / len(values))


def csl(G, C):
    """sum_ij G_ij C_ij (Eq. csl-obj)."""
    return sum(G[i][j] * C[i][j] for i in range(len(C)) for j in range(len(C)))


def head_and_tail(pi):
    """Tail = the max(1, round(K/10)) rarest classes, ties by index; head = the others."""
    order = sorted(range(len(pi)), key=lambda i: (-pi[i], i))
    size = max(1, round(len(pi) / 10))
    return sorted(order[:-size]), sorted(order[-size:])


# ---------------------------------------------------------------- gains in closed form


def gain_min_recall(lam, pi):
    return [[lam[i] / pi[i] if i == j else 0.0 for j in range(len(pi))] for i in range(len(pi))]


def gain_mean_recall(pi):
    return gain_min_recall([1 / len(pi)] * len(pi), pi)


def gain_ht_recall(lam_h, lam_t, head, tail, pi):
    return gain_min_recall([lam_h / len(head) if i in head else lam_t / len(tail) for i in range(len(pi))], pi)


def gain_coverage(lam, pi):
    """delta_ij / (K pi_i) + lambda_j, the text below Eq. cov-const-obj."""
    K = len(pi)
    return [[(i == j) / (K * pi[i]) + lam[j] for j in range(K)] for i in range(K)]


def gain_ht_coverage(lam_h, lam_t, head, tail, pi):
    return gain_coverage([lam_h / len(head) if j in head else lam_t / len(tail) for j in range(len(pi))], pi)


def canonical(G):
    """Row i gets the smallest c >= 0 that makes every entry >= 0 and G_ii >= .05 max_j G_ij; zero rows are tiny."""
    shifted = []
    for i, row in enumerate(G):
        c = max(0.0, -min(row))
        if row[i] + c < 0.05 * (max(row) + c):  # solve G_ii + c = .05 (max_j G_ij + c)
            c = (0.05 * max(row) - row[i]) / (1 - 0.05)
        shifted.append([g + c for g in row])
    largest = max(max(row) for row in shifted)
    return [row if max(row) > 0 else [1e-6 * largest] * len(row) for row in shifted]


def smoothed(R, epsilon=1e-3):
    return [[(1 - epsilon) * r + epsilon / len(row) for r in row] for row in R]


def gain_by_differences(game, R, pi, metric_prior, epsilon=1e-3):
    """G_ij = (1/pi_i) d/dR_ij game(R, metric_prior) at the smoothed rates, by fourth-order central differences."""
    R = smoothed(R, epsilon)
    K = len(R)

    def moved(i, j, h):
        return game([[r + h * ((a, b) == (i, j)) for b, r in enumerate(row)] for a, row in enumerate(R)], metric_prior)

    G = [[0.0] * K for _ in range(K)]
    for i in range(K):
        for j in range(K):
            h = 1e-3 * R[i][j]
            near, far = moved(i, j, h) - moved(i, j, -h), moved(i, j, 2 * h) - moved(i, j, -2 * h)
            G[i][j] = (8 * near - far) / (12 * h) / pi[i]
    return canonical(G)


# ---------------------------------------------------------------- predictions and losses (Secs. 2.2 and 4)


def norm(values):
    total = sum(values)
    return [v / total for v in values]


def softmax(s):
    top = max(s)
    return norm([math.exp(v - top) for v in s])


def one_hot(y, K):
    return [float(i == y) for i in range(K)]


def pulled(A, p):
    """(A^T p)_i = sum_y A_yi p_y."""
    return [sum(A[y][i] * p[y] for y in range(len(p))) for i in range(len(p))]


def mixing(G):
    """M with G = M D, D = diag(G_11, ..., G_KK)."""
    return [[G[i][j] / G[j][j] for j in range(len(G))] for i in range(len(G))]


def hybrid_loss(y, p_m, G):
    """Eq. loss:hyb."""
    M, K = mixing(G), len(G)
    total = sum(p_m[j] / G[j][j] for j in range(K))
    return -sum(M[y][i] * math.log((p_m[i] / G[i][i]) / total) for i in range(K))


def logit_adjusted_loss(y, p_m, G):
    """The hybrid loss with M the identity."""
    return -math.log((p_m[y] / G[y][y]) / sum(p_m[j] / G[j][j] for j in range(len(G))))


def weighted_consistency(p_hat, p_m, G):
    """Eq. wt-consistency-reg."""
    return -sum(w * math.log(p) for w, p in zip(pulled(G, p_hat), p_m, strict=True))


def adjusted_consistency(p_hat, s, G):
    """Eq. lgt-adj-wt-cons, on logits s."""
    adjusted = softmax([s[i] - math.log(G[i][i]) for i in range(len(s))])
    return -sum(w * math.log(q) for w, q in zip(pulled(mixing(G), p_hat), adjusted, strict=True))


def entropy(p):
    return -sum(v * math.log(v) for v in p if v > 0)


def kl(p, q):
    """KL(p || q) with 0 log 0 = 0."""
    return sum(a * (math.log(a / b) if b > 0 else math.inf) for a, b in zip(p, q, strict=True) if a > 0)


def sharpened(p, temperature):
    return norm([v ** (1 / temperature) for v in p])

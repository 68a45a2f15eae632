"""The losses and the threshold of Secs. 2.2 and 4 and of the appendices "Objective" and "diagonal Gain Matrix"."""

import math

import pytest
import torch
import torch.nn.functional as F

import csst
from csst.selftraining import Confidence, Hard, KLThreshold, SelfTraining, Sharpened

from . import reference as ref
from .compare import close, tensor

CASES = [(K, seed, diagonal) for K in ref.SIZES for seed in range(2) for diagonal in (False, True)]
BATCH = 12


def batch(K, seed, diagonal):
    """A gain matrix, and a batch of logits, hard labels and soft labels."""
    rng = ref.instance(K, seed).rng
    logits = [[rng.gauss(0, 2) for _ in range(K)] for _ in range(BATCH)]
    labels = [rng.randrange(K) for _ in range(BATCH)]
    soft = [ref.random_distribution(rng, K) for _ in range(BATCH)]
    return ref.random_gain(rng, K, diagonal), logits, labels, soft


@pytest.mark.parametrize(("K", "seed", "diagonal"), CASES)
def test_decomposition(K, seed, diagonal):
    """G = M D with D = diag(G_11, ..., G_KK) (Sec. 2.2); M is the identity for a diagonal G."""
    G = batch(K, seed, diagonal)[0]
    gain = csst.Gain(tensor(G))
    close(gain.diagonal, [G[i][i] for i in range(K)])
    close(gain.mixing, ref.mixing(G))
    M, D = gain.mixing.tolist(), gain.diagonal.tolist()
    assert [[M[i][j] * D[j] for j in range(K)] for i in range(K)] == [pytest.approx(row) for row in G]
    assert gain.is_diagonal == diagonal == all(M[i] == ref.one_hot(i, K) for i in range(K))


@pytest.mark.parametrize(("K", "seed", "diagonal"), CASES)
def test_hybrid_loss(K, seed, diagonal):
    """Eq. loss:hyb, as a function of the model's probabilities p_m(x)."""
    G, logits, labels, _ = batch(K, seed, diagonal)
    result = csst.cost_sensitive_loss(tensor(logits), torch.tensor(labels), csst.Gain(tensor(G)))
    close(result, [ref.hybrid_loss(y, ref.softmax(s), G) for y, s in zip(labels, logits, strict=True)])


@pytest.mark.parametrize(("K", "seed"), [(K, seed) for K in ref.SIZES for seed in range(2)])
def test_logit_adjusted_loss(K, seed):
    """The LA loss, Eq. loss:hyb for a diagonal G: CE(s) for G = I and CE(s + log pi) for G = diag(1/(K pi))."""
    G, logits, labels, _ = batch(K, seed, diagonal=True)
    pi, s, y = ref.instance(K, seed).pi, tensor(logits), torch.tensor(labels)
    for matrix in (G, ref.gain_mean_recall(pi)):
        expected = [ref.logit_adjusted_loss(a, ref.softmax(b), matrix) for a, b in zip(labels, logits, strict=True)]
        close(csst.cost_sensitive_loss(s, y, csst.Gain(tensor(matrix))), expected)
    close(csst.cost_sensitive_loss(s, y, csst.Gain(torch.eye(K))), F.cross_entropy(s, y, reduction="none").tolist())
    adjusted = F.cross_entropy(s + tensor(pi).log(), y, reduction="none")
    close(csst.cost_sensitive_loss(s, y, csst.Gain(tensor(ref.gain_mean_recall(pi)))), adjusted.tolist())


@pytest.mark.parametrize(("K", "seed", "diagonal"), CASES)
def test_optimal_prediction(K, seed, diagonal):
    """norm(G^T p) = G^T p / sum_i (G^T p)_i (Sec. 4), for soft and for hard labels."""
    G, _, labels, soft = batch(K, seed, diagonal)
    gain = csst.Gain(tensor(G))
    close(gain.optimal_prediction(tensor(soft)), [ref.norm(ref.pulled(G, p)) for p in soft])
    close(gain.optimal_prediction(torch.tensor(labels)), [ref.norm(G[y]) for y in labels])


@pytest.mark.parametrize(("K", "seed", "diagonal"), CASES)
def test_weighted_consistency(K, seed, diagonal):
    """Eq. wt-consistency-reg, for soft and for hard pseudo-labels."""
    G, logits, labels, soft = batch(K, seed, diagonal)
    hard = [ref.one_hot(y, K) for y in labels]
    for target, given in ((soft, tensor(soft)), (hard, torch.tensor(labels)), (hard, tensor(hard))):
        expected = [ref.weighted_consistency(p, ref.softmax(s), G) for p, s in zip(target, logits, strict=True)]
        close(csst.weighted_consistency(tensor(logits), given, csst.Gain(tensor(G))), expected)


@pytest.mark.parametrize(("K", "seed", "diagonal"), CASES)
def test_weighted_consistency_is_a_divergence(K, seed, diagonal):
    """Proof of Prop. kl-weighted: the loss is C H(norm(G^T p), p_m), and KL = H(norm, p_m) - H(norm)."""
    G, logits, _, soft = batch(K, seed, diagonal)
    gain, probs = csst.Gain(tensor(G)), torch.softmax(tensor(logits), 1)
    divergence = csst.kl_to_optimal(tensor(soft), probs, gain).tolist()
    constant = [sum(ref.pulled(G, p)) for p in soft]
    entropy = [ref.entropy(ref.norm(ref.pulled(G, p))) for p in soft]
    expected = [c * (d + h) for c, d, h in zip(constant, divergence, entropy, strict=True)]
    close(csst.weighted_consistency(tensor(logits), tensor(soft), gain), expected)


@pytest.mark.parametrize(("K", "seed", "diagonal"), CASES)
def test_adjusted_consistency(K, seed, diagonal):
    """Eq. lgt-adj-wt-cons, on logits; with a hard label it is loss:hyb, with a diagonal G too it is the LA loss.

    So it is the hybrid loss of a pseudo-label (appendix "Connection").
    """
    G, logits, labels, soft = batch(K, seed, diagonal)
    gain, s = csst.Gain(tensor(G)), tensor(logits)
    close(
        csst.cost_sensitive_loss(s, tensor(soft), gain),
        [ref.adjusted_consistency(p, row, G) for p, row in zip(soft, logits, strict=True)],
    )
    hard = csst.cost_sensitive_loss(s, tensor([ref.one_hot(y, K) for y in labels]), gain)
    single = ref.logit_adjusted_loss if diagonal else ref.hybrid_loss
    close(hard, [single(y, ref.softmax(row), G) for y, row in zip(labels, logits, strict=True)])


@pytest.mark.parametrize(("K", "seed", "diagonal"), CASES)
def test_kl_to_optimal(K, seed, diagonal):
    """KL(norm(G^T p) || p_m(x)), what Eq. loss:CSST-KL compares with tau; p_m is the raw softmax."""
    G, logits, labels, soft = batch(K, seed, diagonal)
    gain, probs = csst.Gain(tensor(G)), torch.softmax(tensor(logits), 1)
    expected = [ref.kl(ref.norm(ref.pulled(G, p)), ref.softmax(s)) for p, s in zip(soft, logits, strict=True)]
    close(csst.kl_to_optimal(tensor(soft), probs, gain), expected)
    expected = [ref.kl(ref.norm(G[y]), ref.softmax(s)) for y, s in zip(labels, logits, strict=True)]
    close(csst.kl_to_optimal(torch.tensor(labels), probs, gain), expected)


def test_threshold_edges():
    """Eq. loss:CSST-KL at its edges: KL = tau is used, 0 log 0 = 0, a needed class at probability 0 is too far."""
    diagonal, full = csst.Gain(torch.eye(2).double()), csst.Gain(tensor([[1.0, 1.0], [1.0, 1.0]]))
    label, index = torch.tensor([0]), torch.tensor([0])
    half, sure = tensor([[0.5, 0.5]]), tensor([[1.0, 0.0]])
    assert KLThreshold(math.log(2))(label, half, diagonal, index).tolist() == [1]
    assert KLThreshold(math.log(2) - 1e-9)(label, half, diagonal, index).tolist() == [0]
    for target in (label, sure):
        assert csst.kl_to_optimal(target, sure, diagonal).tolist() == [0]
        assert csst.kl_to_optimal(target, sure, full).tolist() == [math.inf]
    assert KLThreshold(0.0)(label, half, full, index).tolist() == [1]


def unlabeled_reference(weak, strong, G, tau, label):
    """L_u of Eqs. loss:CSST-KL and loss:supp-hybloss: mean over all of B_u of 1(KL <= tau) times the loss."""
    losses, used = [], []
    for s_weak, s_strong in zip(weak, strong, strict=True):
        p_m = ref.softmax(s_weak)
        p_hat = label(p_m)
        used.append(float(ref.kl(ref.norm(ref.pulled(G, p_hat)), p_m) <= tau))
        losses.append(used[-1] * ref.adjusted_consistency(p_hat, s_strong, G))
    return sum(losses) / len(losses), used


def views(K, seed, G):
    """Weak logits around the best softmax of a label, more or less far from it; strong logits near the weak ones."""
    rng = ref.instance(K, seed).rng
    weak = []
    for n in range(40):
        row = G[rng.randrange(K)]
        weak.append([math.log(g + 1e-3) + rng.gauss(0, 0.04 * n) for g in row])
    return weak, [[v + rng.gauss(0, 0.5) for v in row] for row in weak]


def supervised_reference(labels, logits, G):
    """Eq. hyb-sup."""
    return sum(ref.hybrid_loss(y, ref.softmax(s), G) for y, s in zip(labels, logits, strict=True)) / len(labels)


LABELERS = {
    "FixMatch": (Hard(), lambda p: ref.one_hot(p.index(max(p)), len(p))),
    "UDA": (Sharpened(0.4), lambda p: ref.sharpened(p, 0.4)),
}


@pytest.mark.parametrize(("K", "seed", "diagonal"), CASES)
def test_supervised_loss(K, seed, diagonal):
    """Eq. hyb-sup, CSST(UDA) L_s and the average hybrid loss of Sec. 2.2: the mean over the labeled batch."""
    G, logits, labels, _ = batch(K, seed, diagonal)
    result = csst.cost_sensitive_loss(tensor(logits), torch.tensor(labels), csst.Gain(tensor(G))).mean()
    close(result, supervised_reference(labels, logits, G))


@pytest.mark.parametrize(("K", "seed", "diagonal"), CASES)
@pytest.mark.parametrize("method", LABELERS)
def test_unlabeled_loss(method, K, seed, diagonal):
    """Eqs. loss:CSST-KL, loss:supp-hybloss (hard labels) and CSST(UDA) L_u (sharpened): the loss, and who was used."""
    G = batch(K, seed, diagonal)[0]
    weak, strong = views(K, seed, G)
    label, plain = LABELERS[method]
    distances = sorted(ref.kl(ref.norm(ref.pulled(G, plain(p))), p) for p in map(ref.softmax, weak))
    tau = (distances[20] + distances[21]) / 2  # half of the batch is used
    expected, mask = unlabeled_reference(weak, strong, G, tau, plain)
    w, s = tensor(weak).requires_grad_(), tensor(strong).requires_grad_()
    loss, used = SelfTraining(label, KLThreshold(tau))(w, s, torch.arange(40), csst.Gain(tensor(G)))
    close(loss, expected)
    assert used.tolist() == mask
    assert 0 < sum(mask) < 40
    loss.backward()
    assert w.grad is None  # pseudo-labels are constants
    assert (s.grad.abs().sum(1) > 0).tolist() == [m > 0 for m in mask]


@pytest.mark.parametrize(("K", "seed", "diagonal"), CASES)
@pytest.mark.parametrize("method", LABELERS)
def test_total_loss(method, K, seed, diagonal):
    """L_s + lambda_u L_u (Sec. 4), the final loss of CSST(FixMatch) and CSST(UDA): L_s^hyb + lambda_u L_u^wt."""
    G, logits, labels, _ = batch(K, seed, diagonal)
    weak, strong = views(K, seed, G)
    (label, plain), tau, unlabeled_weight = LABELERS[method], 0.3, 1.7
    expected = supervised_reference(labels, logits, G)
    expected += unlabeled_weight * unlabeled_reference(weak, strong, G, tau, plain)[0]
    gain = csst.Gain(tensor(G))
    unlabeled, _ = SelfTraining(label, KLThreshold(tau))(tensor(weak), tensor(strong), torch.arange(40), gain)
    labeled = csst.cost_sensitive_loss(tensor(logits), torch.tensor(labels), gain).mean()
    close(labeled + unlabeled_weight * unlabeled, expected)


@pytest.mark.parametrize("K", ref.SIZES)
def test_confidence_threshold(K):
    """The confidence threshold of FixMatch (Sec. 4): 1(max_i p_m(x)_i >= threshold), whatever the gain."""
    rng = ref.instance(K, 0).rng
    logits = [[rng.gauss(0, 4) for _ in range(K)] for _ in range(200)]
    gain, index = csst.Gain(tensor(ref.random_gain(rng, K))), torch.arange(200)
    probs = torch.softmax(tensor(logits), 1)
    result = Confidence(0.95)(probs.argmax(1), probs, gain, index)
    assert result.tolist() == [float(max(ref.softmax(s)) >= 0.95) for s in logits]


@pytest.mark.parametrize(("K", "seed"), [(K, seed) for K in ref.SIZES for seed in range(2)])
@pytest.mark.parametrize("confidence", [0.6, 0.9, 0.95])
def test_diagonal_threshold(K, seed, confidence):
    """Threshold function for a diagonal G (appendix): KL = -log p_m(x)_y, so KL <= tau is max p_m >= exp(-tau)."""
    rng = ref.instance(K, seed).rng
    G, logits = ref.random_gain(rng, K, diagonal=True), [[rng.gauss(0, 4) for _ in range(K)] for _ in range(200)]
    gain, probs, index = csst.Gain(tensor(G)), torch.softmax(tensor(logits), 1), torch.arange(200)
    for label in (probs.argmax(1), F.one_hot(probs.argmax(1), K).double()):
        close(csst.kl_to_optimal(label, probs, gain), [-math.log(max(ref.softmax(s))) for s in logits])
        result = KLThreshold(-math.log(confidence))(label, probs, gain, index)
        assert result.tolist() == [float(max(ref.softmax(s)) >= confidence) for s in logits]
        assert result.tolist() == Confidence(confidence)(label, probs, gain, index).tolist()
        assert 0 < result.sum() < 200

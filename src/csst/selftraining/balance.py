"""Unlabeled examples with another class prior than the labeled ones: their gain and their pseudo-labels.

A network trained under a gain G on labels of prior pi_L has softmax(s) = norm(G^T p), with p the class probabilities
under pi_L. Under the prior pi_u of the unlabeled examples these are q, and the gain is G_u:

    q    proportional to  p * pi_u / pi_L                (Saerens, Latinne and Decaestecker, 2002)
    G_u  =  diag(pi_L / pi_u) G,      so that  norm(G_u^T q) = norm(G^T p) = softmax(s)

Pseudo-labels and their selection use q and G_u, so that the threshold compares the softmax with the label under the
prior of these examples. The loss keeps G: under G_u a label of a class that is rare among unlabeled examples would get
a margin of log pi_L / pi_u, and wrong labels are mostly of these classes (docs/explanation/choices.md).
"""

from __future__ import annotations

from torch import Tensor, nn

from csst.maths.gain import Gain


class UnlabeledBalance(nn.Module):
    """The current estimate of pi_u, beside pi_L; both are equal until the first estimate.

    Args:
        labeled: pi_L, (K,).
        is_estimated: whether pi_u is estimated; if not, only the gain is removed from pseudo-labels.
    """

    prior: Tensor
    labeled: Tensor

    def __init__(self, labeled: Tensor, is_estimated: bool = True) -> None:
        super().__init__()
        self.is_estimated = is_estimated
        start = labeled.detach().cpu().float()
        self.register_buffer("prior", start)
        self.register_buffer("labeled", start.clone())
        self._cached: tuple[Gain, int, Gain] | None = None

    def learn(self, prior: Tensor, labeled: Tensor) -> None:
        """Use these class fractions from now on.

        Args:
            prior: pi_u of the unlabeled examples, (K,).
            labeled: pi_L of the labeled examples, (K,).
        """
        self.prior.copy_(prior)
        self.labeled.copy_(labeled)

    def gain(self, gain: Gain) -> Gain:
        """Return the gain of unlabeled examples, G_u = diag(pi_L / pi_u) G.

        Args:
            gain: G, the gain of labeled examples.

        Returns:
            G_u.
        """
        version = self.prior._version
        if self._cached is None or self._cached[0] is not gain or self._cached[1] != version:
            ratio = self.labeled.cpu().double() / self.prior.cpu().double()
            self._cached = gain, version, gain.weigh_classes(ratio)
        return self._cached[2]

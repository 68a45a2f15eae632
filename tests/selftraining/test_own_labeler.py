"""A pseudo-labeler of a user's own that remembers something: written with `csst.selftraining` alone."""

from __future__ import annotations

import torch

from csst.selftraining import KLThreshold, Method, StatefulPart
from tests.helpers.trainers import lines, trainer


class RunningPrior(StatefulPart):
    """argmax_k p_k pi_k / m_k, m the running mean of the predictions."""

    def bind(self, setup):
        self.register_buffer("labeled", setup.prior.float())
        self.register_buffer("mean", torch.full((setup.classes,), 1 / setup.classes))

    def __call__(self, probs, index):
        self.record(probs)
        return (probs * self.labeled / self.mean).argmax(1)

    def update(self, *rows):
        self.mean = 0.9 * self.mean + 0.1 * rows[0].mean(0)


RUNNING = Method("running", "objective", lambda settings: RunningPrior(), lambda settings: KLThreshold(settings.tau))


def test_it_learns_its_prior_and_resumes_to_the_bit():
    whole = trainer(RUNNING)
    expected = lines(whole.run())
    mean = whole.selftraining.label.mean
    assert abs(float(mean.sum()) - 1) < 1e-5
    assert float((mean - 0.1).abs().max()) > 0.01
    first, second = trainer(RUNNING), trainer(RUNNING)
    records = [next(iter(first.run()))]
    for _ in range(3):  # in the middle between two updates
        first.train_step()
    second.load_state_dict(first.state_dict())
    records += list(second.run())
    assert lines(records) == expected
    assert torch.equal(second.selftraining.label.mean, mean)

"""Local search for a rule: one coefficient of its matrix at a time, all the thresholds of it at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from csst.posthoc.problem import Measured, Problem
from csst.posthoc.rule import scored

#: how many thresholds are measured at a time; more distinct ones than this are searched from coarse to fine
THRESHOLDS = 512
#: an example turns to no class whose probability is below this, whatever the class weighs
SMALLEST_PROBABILITY = 1e-12
#: a pass over the coefficients that gains less than this is the last
GAIN_OF_A_PASS = 1e-4


@dataclass(frozen=True, eq=False)
class Candidate:
    """A matrix with its counts and its key on a problem."""

    matrix: Tensor
    counts: Tensor
    key: tuple[float, ...]


def candidates(problem: Problem, matrices: Sequence[Tensor]) -> list[Candidate]:
    """Matrices measured on a problem, each scaled so that its largest entry is 1, which changes no decision."""
    scaled = [matrix / (float(matrix.abs().max()) or 1.0) for matrix in matrices]
    counts = torch.stack([problem.counts(matrix) for matrix in scaled])
    keys = problem.measure(counts).keys.tolist()
    return [Candidate(*each) for each in zip(scaled, counts, map(tuple, keys), strict=True)]


def candidate(problem: Problem, matrix: Tensor) -> Candidate:
    return candidates(problem, [matrix])[0]


class Search:
    """Coordinate ascent on the coefficients of a rule, with a budget of sweeps that all its walks share.

    The coefficients are G_jj for each class and, where the objective looks at wrong predictions too, an offset of
    column j. For the metrics of the language the best rule of all has this form: G_ij = r_i (a_j delta_ij + b_j),
    where r takes the probabilities to the class prior of these examples.
    """

    def __init__(self, problem: Problem, generator: torch.Generator, sweeps: int) -> None:
        self.problem, self.generator, self.sweeps = problem, generator, sweeps
        self.base = problem.probs @ problem.odds

    def refined(self, start: Candidate) -> Candidate:
        """A rule no worse than the start, whose single coefficients cannot be improved (or the budget is spent)."""
        matrix, key = start.matrix.clone(), start.key
        scores = scored(self.problem.probs, matrix)
        while self.sweeps > 0:
            before = key
            for j in torch.randperm(self.problem.classes, generator=self.generator).tolist():
                key = self._move(matrix, scores, j, key, own=True)
                if self.problem.has_offsets:
                    key = self._move(matrix, scores, j, key, own=False)
            if all(now - then < GAIN_OF_A_PASS for now, then in zip(key, before, strict=True)):
                break
        end = candidate(self.problem, matrix)
        return end if end.key > start.key else start

    def disturbed(self, now: Candidate) -> Candidate:
        """The rule with its columns scaled by random factors of about a third."""
        size = self.problem.classes
        factors = (0.3 * torch.randn(size, generator=self.generator, dtype=torch.float64)).exp()
        return candidate(self.problem, now.matrix * factors)

    def _move(self, matrix: Tensor, scores: Tensor, j: int, key: tuple[float, ...], own: bool) -> tuple[float, ...]:
        """Put G_jj (own) or the offset of column j at its best value, in place, if that beats the key."""
        if self.sweeps <= 0:
            return key
        self.sweeps -= 1
        along = self.problem.probs[:, j] if own else self.base
        rest = scores[:, j] - matrix[j, j] * along if own else scores[:, j].clone()
        scores[:, j] = -float("inf")
        rival = torch.from_numpy(scores.numpy().argmax(1))
        value, reached = best_value(self.problem, j, rest, along, rival, scores.gather(1, rival[:, None]).squeeze(1))
        if reached <= key:
            value, reached = (float(matrix[j, j]) if own else 0.0), key
        scores[:, j] = rest + value * along
        if own:
            matrix[j, j] = value
        else:
            matrix[:, j] += value * self.problem.odds
        return reached


def best_value(
    problem: Problem, j: int, rest: Tensor, along: Tensor, rival: Tensor, most: Tensor
) -> tuple[float, tuple[float, ...]]:
    """The best t for   score_j = rest + t along   against the best other class `rival` with score `most`, and its key.

    Example n turns to class j where t passes (most - rest) / along, so that sorted thresholds and running counts
    give the confusion of every t.
    """
    turns = along > SMALLEST_PROBABILITY
    threshold = (most - rest)[turns] / along[turns]
    if not len(threshold):
        return 0.0, (-float("inf"),)
    order = torch.from_numpy(threshold.numpy().argsort(kind="stable"))
    threshold = threshold[order]
    truth, taken = problem.labels[turns][order], rival[turns][order]
    fixed = (problem.labels[~turns], torch.where(rest > most, j, rival)[~turns])
    # A cut is how many examples turn to j; equal thresholds cannot be cut apart.
    inner = (threshold[1:] - threshold[:-1] > 1e-12 * threshold[1:].abs()).nonzero().flatten() + 1
    cuts = torch.cat([inner.new_tensor([0]), inner, inner.new_tensor([len(threshold)])])
    low, high, tally = 0, len(cuts) - 1, Tally.of(problem, torch.cat([truth, fixed[0]]), torch.cat([taken, fixed[1]]))
    while True:
        size = min(THRESHOLDS, high - low + 1)
        index = torch.linspace(low, high, size, dtype=torch.float64).round().long()
        first, last = int(cuts[low]), int(cuts[high])
        tallies = tally.turned(truth[first:last], taken[first:last], j, cuts[index] - first)
        measured = tallies.measured()
        best = measured.best()
        if size == high - low + 1:
            break
        left = max(0, best - 1)
        tally = tallies.row(left)
        low, high = int(index[left]), int(index[min(size - 1, best + 1)])
    key = measured.keys[best]
    return _widest(threshold, cuts[index[(measured.keys == key).all(1)]]), tuple(key.tolist())


@dataclass(frozen=True, eq=False)
class Tally:
    """What a problem needs to know of confusions: hits and column sums where that is enough, else all counts."""

    problem: Problem
    parts: tuple[Tensor, ...]

    @classmethod
    def of(cls, problem: Problem, truth: Tensor, predicted: Tensor) -> Tally:
        classes = problem.classes
        if problem.by_margins:
            hits = torch.bincount(predicted[truth == predicted], minlength=classes)
            return cls(problem, (hits.double(), torch.bincount(predicted, minlength=classes).double()))
        flat = torch.bincount(truth * classes + predicted, minlength=classes**2)
        return cls(problem, (flat.reshape(classes, classes).double(),))

    def turned(self, truth: Tensor, taken: Tensor, j: int, cuts: Tensor) -> Tally:
        """The same after the first `cut` of these examples turned from `taken` to j, for each of the sorted cuts."""
        classes, size = self.problem.classes, len(cuts)
        # Part b holds the examples that turn at cut b.
        part = torch.repeat_interleave(torch.arange(size), torch.diff(cuts, prepend=cuts.new_zeros(1)))

        def running(index: Tensor, chosen: Tensor | None = None, width: int = classes) -> Tensor:
            flat = part * width + index
            counted = torch.bincount(flat if chosen is None else flat[chosen], minlength=size * width)
            return counted.reshape(size, width).cumsum(0).double()

        if self.problem.by_margins:
            hits = self.parts[0] - running(taken, truth == taken)
            hits[:, j] += running(torch.zeros_like(truth), truth == j, width=1)[:, 0]
            predicted = self.parts[1] - running(taken)
            predicted[:, j] += cuts
            return Tally(self.problem, (hits, predicted))
        left = running(truth * classes + taken, width=classes**2).reshape(size, classes, classes)
        counts = self.parts[0] - left
        counts[:, :, j] += left.sum(2)
        return Tally(self.problem, (counts,))

    def row(self, index: int) -> Tally:
        return Tally(self.problem, tuple(part[index] for part in self.parts))

    def measured(self) -> Measured:
        return self.problem.measure_margins(*self.parts) if len(self.parts) == 2 else self.problem.measure(*self.parts)


def _widest(threshold: Tensor, cuts: Tensor) -> float:
    """The middle of the widest gap among these cuts: of equally good values the one farthest from any example."""
    positive = float(threshold[0]) > 0
    places = threshold.log() if positive else threshold
    beyond = 1.0 if positive else 1e-3 + 0.1 * float(places[-1] - places[0])
    ends = torch.cat([places[:1] - beyond, places, places[-1:] + beyond])
    below, above = ends[cuts], ends[cuts + 1]
    widest = int((above - below).argmax())
    middle = (below[widest] + above[widest]) / 2
    return float(middle.exp() if positive else middle)

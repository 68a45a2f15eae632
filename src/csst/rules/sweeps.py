"""Sweeps of single biases over weighted rows, for sentences that soft decisions cannot follow.

A row goes to class j once its bias passes the row's threshold, b_j > max_{l != j} (z_l + b_l) - z_j. Along the sorted
thresholds the recall and the coverage of every class are cumulative sums, so that one sort shows the sentence's value
for every b_j there is. Sweeping one class after the other raises

    value - cost (largest miss of a constraint)

until no class helps: first at a cost that lets classes move past each other, then at one that puts misses first.
It needs no gradient: goals on one class, precision and bounds, whose soft versions are flat far from the best
threshold, are found exactly for two classes and closely for more. The result never scores lower than the bias it began
with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from csst.rules.bias_search import WeightedRows
from csst.rules.soft_objective import SoftObjective

#: what a miss costs, from sweeps that may trade it for value to sweeps that put it first
MISS_COSTS = (10.0, 1000.0)
#: passes over all classes at each cost, at most; a pass that gains less than this is the last
PASSES = 4
SMALL_GAIN = 5e-4
#: thresholds that a sweep looks at first, and again between the neighbors of the best one
POSITIONS = 128
#: classes that a pass sweeps, at most: those on which the score depends most
MOST_CLASSES = 12
#: how far beyond all rows a bias goes that wins none or all of them: new rows may lie outside
FAR = 10.0
#: thresholds that differ by no more than this are one
TIED = 1e-9
#: sums below this are 0
ROUNDING = 1e-12
#: scores within this of the best are a plateau, of which the middle is taken
PLATEAU = 5e-4


@dataclass(frozen=True, eq=False)
class Sweep:
    """One class against the best of the others, row by row in the order in which the class wins them.

    Args:
        thresholds: what the bias has to exceed, ascending, (N,).
        rivals: the class that loses the row, (N,).
        won: W_ij of the row for the class itself, (N,).
        lost: W_il of the row for its rival l, (N,).
        pulls: how much the row counts for coverage, (N,).
        recall: recall of all classes while the class is never predicted, (K,).
        coverage: coverage of all classes while the class is never predicted, (K,).
        class_index: j.
        cells: the column that wins each row, (N,), if classes are cells of groups that share a bias; else None.
    """

    thresholds: np.ndarray
    rivals: np.ndarray
    won: np.ndarray
    lost: np.ndarray
    pulls: np.ndarray
    recall: np.ndarray
    coverage: np.ndarray
    class_index: int
    cells: np.ndarray | None = None

    @classmethod
    def of_class(
        cls, rows: WeightedRows, biased_scores: np.ndarray, decisions: np.ndarray, pulls: np.ndarray, class_index: int
    ) -> Sweep:
        """Return the sweep of a class, with rows (N,) sorted by the bias at which the class wins them.

        Args:
            rows: scores and fractions.
            biased_scores: z + b, (N, K).
            decisions: argmax_j z_j + b_j, (N,).
            pulls: sum_k pi_k W_ik, (N,).
            class_index: j.

        Returns:
            The sweep.
        """
        classes = biased_scores.shape[1]
        if rows.blocks.number > 1:
            return cls.of_cells(rows, biased_scores, decisions, pulls, class_index)
        # Only rows of the class itself have another rival than the class that is decided for.
        rivals = decisions.copy()
        own_rows = np.flatnonzero(decisions == class_index)
        rival_scores = biased_scores[own_rows]
        rival_scores[:, class_index] = -np.inf
        rivals[own_rows] = rival_scores.argmax(1)
        cells = np.arange(0, biased_scores.size, classes) + rivals
        thresholds = biased_scores.take(cells) - rows.scores[:, class_index]
        losses = rows.fractions.take(cells)
        recall = np.bincount(rivals, losses, minlength=classes)
        coverage = np.bincount(rivals, pulls, minlength=classes)
        order = np.argsort(thresholds)
        won = rows.fractions.take(order * classes + class_index)
        # In the order of the thresholds; `take` is three times as fast as indexing.
        columns = [values.take(order) for values in (thresholds, rivals, losses, pulls)]
        return cls(columns[0], columns[1], won, columns[2], columns[3], recall, coverage, class_index)

    @classmethod
    def of_cells(
        cls, rows: WeightedRows, biased_scores: np.ndarray, decisions: np.ndarray, pulls: np.ndarray, class_index: int
    ) -> Sweep:
        """Return the sweep of a cell, where a row has scores in one block only.

        Biases are tied, and the class wins a row for the cell of the row's group; or each cell has its own, and wins
        rows of its group alone. Arguments: see `of_class`.
        """
        columns = biased_scores.shape[1]
        size = columns // rows.blocks.number
        index = np.arange(len(biased_scores))
        groups = decisions // size
        cells = groups * size + class_index % size
        is_open = np.ones(len(biased_scores), dtype=bool) if rows.blocks.are_tied else groups == class_index // size
        rival_scores = biased_scores.copy()
        rival_scores[index[is_open], cells[is_open]] = -np.inf
        rivals = rival_scores.argmax(1)
        thresholds = rival_scores[index, rivals] - rows.scores[index, cells]
        recall = np.bincount(rivals, rows.fractions[index, rivals], minlength=columns)
        coverage = np.bincount(rivals, pulls, minlength=columns)
        order = np.flatnonzero(is_open)
        order = order[np.argsort(thresholds[order], kind="stable")]
        won = rows.fractions[order, cells[order]]
        losses = rows.fractions[order, rivals[order]]
        sorted_rows = (thresholds[order], rivals[order], won, losses, pulls[order])
        return cls(*sorted_rows, recall, coverage, class_index, cells[order])

    def margins_after(self, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return recall and coverage, both (B, K), after the class has won so many rows, ascending ranks (B,)."""
        classes = len(self.recall)
        row_count = int(ranks[-1])
        # Row i belongs to the first rank that includes it; rows beyond the last rank stay where they are.
        segments = np.repeat(np.arange(len(ranks)), np.diff(ranks, prepend=0))

        def add_up(weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
            cells = segments * classes + columns[:row_count]
            sums = np.bincount(cells, weights[:row_count], minlength=len(ranks) * classes)
            return sums.reshape(-1, classes).cumsum(0)

        recall = self.recall - add_up(self.lost, self.rivals)
        won_coverage = add_up(self.pulls, self.rivals)
        coverage = self.coverage - won_coverage
        if self.cells is None:
            recall[:, self.class_index] = np.bincount(segments, self.won[:row_count], minlength=len(ranks)).cumsum()
            coverage[:, self.class_index] = won_coverage.sum(1)
        else:
            recall += add_up(self.won, self.cells)
            coverage += add_up(self.pulls, self.cells)
        # What rounding leaves of a class that has lost all its rows would be divided by itself.
        recall[recall < ROUNDING] = 0.0
        coverage[coverage < ROUNDING] = 0.0
        return recall, coverage

    def spread_ranks(self) -> np.ndarray:
        """Return ranks at equal steps of the class's own rows and of all rows, with both ends."""
        size = len(self.won)
        if size <= 2 * POSITIONS:
            return np.arange(size + 1)
        steps = np.linspace(0, 1, POSITIONS // 2)
        recall = self.won.cumsum()
        coverage = self.pulls.cumsum()
        by_class = np.searchsorted(recall, steps * recall[-1]) + 1
        by_rows = np.searchsorted(coverage, steps * coverage[-1]) + 1
        return sort_distinct(np.concatenate([[0], np.minimum(by_class, size), np.minimum(by_rows, size), [size]]))

    def snap_ranks(self, ranks: np.ndarray) -> np.ndarray:
        """Return the next ranks at which thresholds differ: rows with one threshold are won together."""
        inner_ranks = ranks[(ranks > 0) & (ranks < len(self.thresholds))]
        ends = np.searchsorted(self.thresholds, self.thresholds[inner_ranks - 1] + TIED, side="right")
        return sort_distinct(np.concatenate([ends, ranks[(ranks == 0) | (ranks == len(self.thresholds))]]))

    def bias_at(self, rank: int) -> float:
        """Return a bias between the last row that is won and the first that is not, or far from all."""
        if rank == 0:
            return float(self.thresholds[0]) - FAR
        if rank == len(self.thresholds):
            return float(self.thresholds[-1]) + FAR
        return float(self.thresholds[rank - 1] + self.thresholds[rank]) / 2


def sort_distinct(ranks: np.ndarray) -> np.ndarray:
    """Return the distinct ranks in ascending order; `np.unique` takes three times as long for so few."""
    ascending_ranks = np.sort(ranks)
    return ascending_ranks[np.diff(ascending_ranks, prepend=-1) > 0]


def sweep_biases(objective: SoftObjective, rows: WeightedRows, bias: np.ndarray) -> np.ndarray:
    """Raise the score of a bias by sweeping one class after the other.

    Args:
        objective: with the margins by which constraints are to be met.
        rows: scores and fractions.
        bias: where to begin, (K,).

    Returns:
        A bias (K,) that scores no less than the beginning.
    """
    swept = bias
    for cost in MISS_COSTS:
        swept = sweep_at_cost(objective, rows, swept, cost)
        # Without a miss the score is the same at every cost.
        if measure_miss(objective, rows, swept) == 0:
            break
    return max([bias, swept], key=lambda candidate: score_bias(objective, rows, candidate))


def sweep_at_cost(objective: SoftObjective, rows: WeightedRows, bias: np.ndarray, cost: float) -> np.ndarray:
    """Return the bias (K,) that sweeps lead to when a miss costs so much."""
    pulls = rows.weigh_coverage(objective.prior.numpy())
    bias = bias.copy()
    biased_scores = rows.scores + rows.blocks.spread(bias)
    decisions = biased_scores.argmax(1)
    score = score_bias(objective, rows, bias, cost)
    moves = 0
    moves_at_sweep: dict[int, int] = {}
    for _ in range(PASSES):
        score_before = score
        for class_index in order_classes(objective, rows, bias).tolist():
            # Where no bias has moved since its last sweep, a class would find the same rank again.
            if moves_at_sweep.get(class_index) == moves:
                continue
            sweep = Sweep.of_class(rows, biased_scores, decisions, pulls, class_index)
            rank, rank_score = find_rank(objective, sweep, cost)
            if rank_score > score + ROUNDING:
                bias[class_index] = sweep.bias_at(rank)
                columns = slice(class_index, None, len(bias))  # one, unless groups share a bias
                biased_scores[:, columns] = rows.scores[:, columns] + bias[class_index]
                decisions = biased_scores.argmax(1)
                score = rank_score
                moves += 1
            moves_at_sweep[class_index] = moves
        if score < score_before + SMALL_GAIN:
            break
    return bias


def find_rank(objective: SoftObjective, sweep: Sweep, cost: float) -> tuple[int, float]:
    """Return how many rows the class should win, and the score then."""
    ranks = sweep.snap_ranks(sweep.spread_ranks())
    scores = score_margins(objective, *sweep.margins_after(ranks), cost)
    top = int(scores.argmax())
    low = ranks[max(0, top - 1)]
    high = ranks[min(len(ranks) - 1, top + 1)]
    if high - low > 2:
        ranks = sweep.snap_ranks(np.linspace(low, high, min(high - low + 1, 2 * POSITIONS)).astype(np.int64))
        scores = score_margins(objective, *sweep.margins_after(ranks), cost)
        top = int(scores.argmax())
    level = scores >= scores[top] - PLATEAU
    end = top + int(np.argmin(np.append(level[top:], False)))
    begin = top - int(np.argmin(np.append(level[top::-1], False)))
    place = (begin + end) // 2
    return int(ranks[place]), float(scores[place])


def score_margins(
    objective: SoftObjective, recall: np.ndarray, coverage: np.ndarray, cost: float = MISS_COSTS[-1]
) -> np.ndarray:
    """Return value - cost (largest miss) for recalls and coverages (B, K), (B,)."""
    value, miss = objective.measure_margins(recall, coverage)
    return value - cost * miss


def score_bias(objective: SoftObjective, rows: WeightedRows, bias: np.ndarray, cost: float = MISS_COSTS[-1]) -> float:
    """Return the score of argmax_j z_j + b_j on the rows."""
    return float(score_margins(objective, *measure_bias(objective, rows, bias), cost)[0])


def measure_bias(objective: SoftObjective, rows: WeightedRows, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return recall and coverage, both (1, K), of argmax_j z_j + b_j on the rows."""
    decisions = rows.decide(bias)
    columns = rows.scores.shape[1]
    hits = rows.fractions.take(np.arange(0, rows.scores.size, columns) + decisions)
    recall = np.bincount(decisions, hits, minlength=columns)
    coverage = np.bincount(decisions, rows.weigh_coverage(objective.prior.numpy()), minlength=columns)
    return recall[None], coverage[None]


def measure_miss(objective: SoftObjective, rows: WeightedRows, bias: np.ndarray) -> float:
    """Return the largest miss of a constraint beyond its margin by argmax_j z_j + b_j on the rows."""
    return float(objective.measure_margins(*measure_bias(objective, rows, bias))[1][0])


def order_classes(objective: SoftObjective, rows: WeightedRows, bias: np.ndarray) -> np.ndarray:
    """Return the classes to sweep: all of them, or those on whose recall and coverage the score depends most."""
    if len(bias) <= MOST_CLASSES:
        return np.arange(len(bias))
    recall, coverage = measure_bias(objective, rows, bias)
    steps = 1e-4 * np.eye(recall.shape[1])
    base = score_margins(objective, recall, coverage)
    by_recall = score_margins(objective, recall + steps, coverage + 0 * steps) - base
    by_coverage = score_margins(objective, recall + 0 * steps, coverage + steps) - base
    weights = rows.blocks.gather(np.abs(by_recall) + np.abs(by_coverage))
    return np.argsort(-weights, kind="stable")[:MOST_CLASSES]

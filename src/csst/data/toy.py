"""Small data sets that need no file: handwritten digits, and Gaussian toys whose optimal classifiers are known exactly.

digits       scikit-learn's handwritten digits (8×8, real scans, shipped with the dependency), made long-tailed
toy          three classes in a row, unequally frequent: the one in the middle is the rarest, so that accuracy, mean
             recall (logit adjustment) and worst-case recall have three different optimal classifiers
toy-overlap  the same classes so close together that pseudo-labels are often wrong
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from csst.data.images.views import make_views
from csst.data.splits import Tail, long_tail, long_tail_counts, scale_counts, split_hash
from csst.data.tabular.table_views import Noise
from csst.data.task import Task, make_task
from csst.errors import InputError

#: width of a cell of the grids that integrate densities
CELL = 1e-3


@dataclass(frozen=True)
class Gaussians:
    """Unit-variance Gaussians in the plane, one per class, centered on a line, with exact recalls by quadrature.

    The second coordinate is pure noise, so every Bayes rule depends on the first only and the integrals are
    one-dimensional.
    """

    centers: tuple[float, ...]

    def sample(self, counts: list[int], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return random points (N, 2) and their classes (N,), with these numbers of each class."""
        labels = np.repeat(np.arange(len(counts)), counts)
        points = rng.standard_normal((len(labels), 2))
        points[:, 0] += np.asarray(self.centers)[labels]
        return points.astype(np.float32), labels

    def densities(self) -> np.ndarray:
        """Return P_i(x) on a grid with cells of width `CELL` that holds all but 1e-9 of the mass, (K, points)."""
        grid = np.arange(min(self.centers) - 6.5, max(self.centers) + 6.5, CELL) + CELL / 2
        return np.exp(-((grid - np.asarray(self.centers)[:, None]) ** 2) / 2) / np.sqrt(2 * np.pi)

    def recalls(self, weights: np.ndarray) -> np.ndarray:
        """Return the recalls of the Bayes rule argmax_i w_i P_i(x); w = prior maximizes accuracy, w = 1 mean recall."""
        density = self.densities()
        return integrate_recalls(density, np.asarray(weights)[:, None] * density)

    def minimax(self) -> tuple[float, np.ndarray]:
        """Return the largest possible worst-class recall, and the weights whose Bayes rule reaches it.

        Minimizes the convex function  lambda -> integral of max_i lambda_i P_i(x) dx  over the simplex by exponentiated
        gradient with a decreasing step; its gradient is the recalls, which are all equal at the minimum.
        """
        density = self.densities()
        weights = np.full(len(density), 1 / len(density))
        minimum = 1.0
        minimizer = np.zeros(len(density))
        for t in range(400):
            scores = weights[:, None] * density
            value = scores.max(0).sum() * CELL
            if value < minimum:
                minimum = value
                minimizer = weights
            weights = weights * np.exp(-integrate_recalls(density, scores) * 4 / (1 + t / 20))
            weights = weights / weights.sum()
        return minimum, minimizer


def integrate_recalls(density: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the recalls (K,) of the rule argmax_i scores_i, from densities on a grid, (K, points)."""
    decisions = scores.argmax(0)
    return np.array([density[i][decisions == i].sum() * CELL for i in range(len(density))])


@cache
def best_min_recall(source: Gaussians) -> float:
    """Return the largest possible worst-class recall; cached, since it takes a fifth of a second."""
    return source.minimax()[0]


SPACINGS = {"toy": 1.9, "toy-overlap": 1.0}


@dataclass(frozen=True)
class Toy:
    """Long-tailed samples of three Gaussians in a row; the rarest class is in the middle.

    Args:
        name: toy, or toy-overlap.
        labeled: labeled examples of the most frequent class.
        labeled_fraction: the fraction of these labels that is used; 2 for twice as many. The other parts stay the same.
        unlabeled: unlabeled examples of the most frequent class.
        imbalance: most frequent over rarest class.
        validation: validation examples per class.
        test: test examples per class.
    """

    name: str = "toy"
    labeled: int = 400
    unlabeled: int = 2000
    imbalance: float = 20.0
    validation: int = 500
    test: int = 5000
    labeled_fraction: float = 1.0

    def gaussians(self) -> Gaussians:
        if self.name not in SPACINGS:
            raise InputError(f"data.name must be one of {', '.join(SPACINGS)}; found {self.name!r}")
        gap = SPACINGS[self.name]
        return Gaussians((-gap, gap, 0.0))

    def load(self, seed: int, holds_out: bool = True) -> Task:
        """Sample all parts."""
        source = self.gaussians()
        rng = np.random.default_rng(seed)
        counts = long_tail_counts(self.labeled, self.imbalance, 3)
        points, labels = source.sample(counts, rng)
        unlabeled, truth = source.sample(long_tail_counts(self.unlabeled, self.imbalance, 3), rng)
        validation = source.sample([self.validation] * 3, rng)
        test = source.sample([self.test] * 3, rng)
        # Additional labels are sampled last, so that the other parts are the same for every labeled_fraction.
        new_counts = scale_counts(counts, self.labeled_fraction)
        growth = [max(0, new_count - count) for new_count, count in zip(new_counts, counts, strict=True)]
        new_points, new_labels = source.sample(growth, rng)
        rows = np.concatenate([np.flatnonzero(labels == c)[: new_counts[c]] for c in range(3)])
        labeled = (np.concatenate([points[rows], new_points]), np.concatenate([labels[rows], new_labels]))
        scale = torch.ones(2)
        return make_task(
            self.name,
            labeled,
            unlabeled,
            validation,
            test,
            class_names=("left", "right", "middle"),
            views=(Noise(scale, 0.05), Noise(scale, 0.25)),
            unlabeled_truth=torch.from_numpy(truth),
            split_hash=split_hash(*labeled, unlabeled, *validation, *test),
            facts={"best possible min recall": best_min_recall(source)},
        )


@dataclass(frozen=True)
class Digits:
    """Long-tailed handwritten digits, as images (1, 8, 8).

    The unlabeled part is less long-tailed than the labels: with theirs, its rarest class would have seven images, too
    few for self-training to find.

    Args:
        labeled: labeled examples of the most frequent class.
        labeled_fraction: the fraction of these labels that is used; 2 for twice as many. The other parts stay the same.
        unlabeled: unlabeled examples of the most frequent class.
        imbalance: most frequent over rarest class.
        unlabeled_imbalance: the same for the unlabeled part; None for the imbalance of the labels.
        unlabeled_reversed: the unlabeled part's most frequent class is the labeled part's rarest.
        validation: validation examples per class.
        test: test examples per class.
    """

    labeled: int = 30
    unlabeled: int = 75
    imbalance: float = 10.0
    unlabeled_imbalance: float | None = 3.0
    unlabeled_reversed: bool = False
    validation: int = 25
    test: int = 40
    labeled_fraction: float = 1.0

    def load(self, seed: int, holds_out: bool = True) -> Task:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        pictures = torch.from_numpy(np.round(images.reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8))
        imbalance = self.imbalance if self.unlabeled_imbalance is None else self.unlabeled_imbalance
        split = long_tail(
            labels,
            Tail(self.labeled, self.imbalance),
            Tail(self.unlabeled, imbalance, self.unlabeled_reversed),
            labeled_fraction=self.labeled_fraction,
            validation=self.validation,
            test=self.test,
            seed=seed,
        )
        truth = torch.from_numpy(labels).long()

        # A mirrored digit is not that digit, and half of eight pixels would hide most of one.
        weak, strong = make_views(padding=1, cutout=0.25, flips=False)

        def part(index: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
            return pictures[index], truth[index]

        return make_task(
            "digits",
            part(split.labeled),
            pictures[split.unlabeled],
            part(split.validation),
            part(split.test),
            views=(weak, strong),
            kind="image",
            unlabeled_truth=truth[split.unlabeled],
            split_hash=split.hash,
        )

"""scikit-learn's handwritten digits (8×8, real scans, shipped with the dependency), made long-tailed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from csst.data.images.views import make_views
from csst.data.splits import Tail, long_tail
from csst.data.task import Task, make_task


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
        unlabeled_imbalance: the same for the unlabeled part; None for that of the labels.
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

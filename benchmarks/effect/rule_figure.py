"""The picture of docs/explanation/rule.md: recall estimated by labels alone and with unlabeled rows, against the truth.

    python -m benchmarks.effect.rule_figure --data-dir DIR

CIFAR-10 features, a linear model, 5 validation labels per class, the pooled rule; the truth is the recall on 500 test
rows per class. Prints the mean absolute errors over 10 draws of the labels and draws the first.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.effect.few_label_sets import load
from csst.rules import fit_rule

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs/explanation/rule.svg")
    args = parser.parse_args()
    split = load("cifar10_features", 0, args.data_dir)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
        model.fit(split.x_labeled, split.y_labeled)
    held, unlabeled, test = (model.predict_proba(x) for x in (split.x_validation, split.x_unlabeled, split.x_test))
    errors = []
    for draw in range(10):
        rows = np.concatenate([np.flatnonzero(split.y_validation == c)[5 * draw :][:5] for c in range(split.classes)])
        fitted = fit_rule(held[rows], split.y_validation[rows], "max min(recall)", unlabeled, train_prior=split.prior)
        truth = fitted.rule.confusion(test, split.y_test).recall.numpy()
        counted, pooled = np.diag(fitted.estimate.labeled_rates), fitted.estimate.confusion.recall.numpy()
        errors.append((np.abs(counted - truth).mean(), np.abs(pooled - truth).mean()))
        if draw == 0:
            paint(truth, counted, pooled, args.out)
    print("mean absolute error of a class's recall, labels alone and pooled:", np.mean(errors, 0).round(3))


def paint(truth: np.ndarray, counted: np.ndarray, pooled: np.ndarray, out: Path) -> None:
    """One row per class: the truth, and two estimates of it."""
    matplotlib.rcParams["svg.hashsalt"] = "csst"
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    places = np.arange(len(truth))
    axes.hlines(places, np.minimum(truth, counted), np.maximum(truth, counted), color="#c9c9c9", lw=1)
    axes.plot(truth, places, "|", color="#222222", markersize=16, markeredgewidth=2.5, label="on 500 test rows each")
    axes.plot(counted, places, "s", color="#d1603d", markersize=6, label="by 5 labels each")
    axes.plot(pooled, places, "o", color="#1f6f8b", markersize=7, label="by labels and unlabeled rows")
    axes.set_yticks(places, CLASSES)
    axes.invert_yaxis()
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("recall")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.45, 1.16), ncols=3, fontsize=9)
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main()

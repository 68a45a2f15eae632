"""Columns that alone predict the label nearly perfectly: often something that is known only with the label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from csst.data.tabular.columns import Columns

#: balanced accuracy out of fold from which on a single column counts as a leak
NEARLY = 0.99
#: labels that are looked at, and columns up to which it is done
MOST_LABELS = 2000
MOST_COLUMNS = 500
#: labels of the rarest class from which on accuracy out of fold means something
FEWEST_LABELS = 5


def note_leaks(columns: Columns, rows: np.ndarray, labels: np.ndarray) -> Columns:
    """Return the columns with a note on each that predicts the label alone.

    Args:
        columns: the columns of a table.
        rows: the encoded table, (N, D).
        labels: class indices, -1 for unlabeled, (N,).
    """
    scores = score_columns(rows[:, : len(columns.inputs)], labels)
    if scores is None:
        return columns
    leaks = {column.name: score for column, score in zip(columns.inputs, scores, strict=True) if score >= NEARLY}
    parts = []
    for column in columns.parts:
        if column.name in leaks:
            note = f"alone predicts the label (balanced accuracy {leaks[column.name]:.2f}): known only afterwards?"
            column = replace(column, notes=(*column.notes, note))
        parts.append(column)
    return replace(columns, parts=tuple(parts))


def score_columns(rows: np.ndarray, labels: np.ndarray) -> list[float] | None:
    """Return the balanced accuracy of a small tree on each column alone, out of fold; 0 where it is clearly lower.

    None where there are too few labels, or too many columns.
    """
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.model_selection import cross_val_score
    from sklearn.tree import DecisionTreeClassifier

    indices = np.flatnonzero(labels >= 0)
    if rows.shape[1] > MOST_COLUMNS:
        return None
    if len(indices) > MOST_LABELS:
        indices = np.sort(np.random.default_rng(0).permutation(indices)[:MOST_LABELS])
    counts = np.bincount(labels[indices])
    if min(counts[counts > 0], default=0) < FEWEST_LABELS or (counts > 0).sum() < 2:
        return None
    tree = DecisionTreeClassifier(max_leaf_nodes=max(8, 2 * len(counts)), random_state=0)
    target = labels[indices]
    scores = []
    for index in range(rows.shape[1]):
        column = rows[indices, index : index + 1]
        # Most columns do not even predict the labels that the tree has seen, and need no folds.
        if balanced_accuracy_score(target, tree.fit(column, target).predict(column)) < NEARLY:
            scores.append(0.0)
            continue
        fold_scores = cross_val_score(tree, column, target, cv=3, scoring="balanced_accuracy")
        scores.append(float(fold_scores.mean()))
    return scores

"""Read a user's table: a file with named columns, one of which holds the labels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from csst.data.tabular.column_kinds import learn_columns
from csst.data.tabular.columns import Columns
from csst.data.tabular.files import find_ending, read_arrays, read_chunks
from csst.data.text.files import drop_point, read_label_words, require_column, sort_class_names, warn_about_gaps
from csst.errors import InputError

#: balanced accuracy out of fold from which on a single column counts as a leak
NEARLY = 0.99
#: labels that are looked at, and columns up to which it is done
MOST_LABELS = 2000
MOST_COLUMNS = 500
#: labels of the rarest class from which on accuracy out of fold means something
FEWEST_LABELS = 5
#: what to do where the column of labels is missing
NAME_LABEL = "; name the column of the labels with --data.label"


def read_labeled_table(
    path: str, label: str, drop: Sequence[str] = (), test_path: str = "", group: str = ""
) -> tuple[dict[str, Any], Columns]:
    """Return the arrays x, y (-1 for a blank label) and class_names of a table, and what its columns hold.

    Args:
        path: a .csv, .tsv, .jsonl or .parquet file.
        label: the column of labels, words or numbers; blank, -1, NaN or null means unlabeled.
        drop: columns to leave out.
        test_path: a table with the same columns, every row of which is labeled.
        group: the column of groups of rows; "" for none.

    Returns:
        Arrays under the names of an .npz file, and the columns.
    """
    names = read_names(path)
    require_column(label, names, path, NAME_LABEL)
    for name in (*drop, *([group] if group else [])):
        require_column(name, names, path)
    words = read_words(path, label)
    warn_about_gaps(words, path)
    class_names = sort_class_names(words)
    table = read_arrays(path, without=(label, *drop))
    if not table:
        raise InputError(f"{path} has no column besides the labels")
    columns = learn_columns(table)
    x = columns.encode(table, path)
    y = index_words(words, class_names, path)  # the classes are those that occur
    columns = note_leaks(columns, x, y)
    arrays: dict[str, Any] = {"x": x, "y": y, "class_names": np.array(class_names)}
    if test_path:
        arrays["x_test"], arrays["y_test"] = read_test_table(test_path, label, columns, class_names)
    if group:
        arrays["group"] = read_words(path, group)
        if test_path:
            require_column(group, read_names(test_path), test_path)
            arrays["group_test"] = read_words(test_path, group)
    return arrays, columns


def read_names(path: str) -> list[str]:
    """Return the names of the columns of a table; raise an error if it has no rows, or only one column."""
    chunk = next(read_chunks(path, rows=100), None)
    if chunk is None:
        raise InputError(f"{path} holds no rows")
    refuse_single_column(chunk, path)
    return list(chunk)


def refuse_single_column(names: Collection[str], path: str) -> None:
    """Raise an error if a text file has only one column: its delimiter is likely none that is known."""
    if len(names) == 1 and find_ending(path) in (".csv", ".tsv"):
        raise InputError(
            f"{path} has one column only, {next(iter(names))[:60]!r}: columns are separated by commas, semicolons, "
            "tabs or bars"
        )


def read_words(path: str, label: str) -> list[str | None]:
    """Return the labels of a table as words, None for an unlabeled row."""
    words: list[str | None] = []
    for chunk in read_chunks(path):
        values = chunk.get(label)
        words += [None] * len(next(iter(chunk.values()))) if values is None else read_label_words(list(values))
    return words


def index_words(words: Sequence[str | None], names: Sequence[str], refusal: str) -> np.ndarray:
    """Return the place of every word among the names, -1 for None, (N,).

    5 and 5.0 are one word: a data frame writes integers with gaps as the latter, and without gaps as the former.

    Args:
        words: N words.
        names: all words that may occur.
        refusal: beginning of the error for any other word.
    """
    places = {name: place for place, name in enumerate(names)}
    places_without_point = {drop_point(name): place for name, place in places.items()}
    for word in {word for word in words if word is not None} - set(places):
        if drop_point(word) in places_without_point:
            places[word] = places_without_point[drop_point(word)]
    strangers = sorted({word for word in words if word is not None} - set(places))
    if strangers:
        raise InputError(f"{refusal}: {strangers[:5]}; known are {list(names)[:20]}")
    return np.array([-1 if word is None else places[word] for word in words], dtype=np.int64)


def index_labels(words: Sequence[str | None], class_names: Sequence[str], path: str, use: str) -> np.ndarray:
    """Return class indices, (N,); raise an error for a row without a label and for a class that is not known.

    Args:
        words: labels in words.
        class_names: the classes of the model, or of the training data.
        path: the file, for errors.
        use: what rows with labels do, for errors: "every row that certifies needs a label".
    """
    missing_count = sum(word is None for word in words)
    if missing_count:
        raise InputError(
            f"every row that {use} needs a label; {missing_count} of the {len(words)} rows of {path} have none"
        )
    return index_words(words, class_names, f"{path} has labels that the model does not know")


def read_test_table(
    path: str, label: str, columns: Columns, class_names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and class indices of a table with the columns of the training data; all rows need a label."""
    require_column(label, read_names(path), path, NAME_LABEL)
    labels = index_labels(read_words(path, label), class_names, path, "tests the model")
    return columns.encode(read_arrays(path, columns.text_names), path), labels


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

"""Every bad or odd input gets a clear sentence or a sensible result."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

import csst
from tests.helpers.estimators import blobs, hidden, quick
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

X, Y = blobs(90)
PART = hidden(Y)


def changed(at, value):
    rows = X.copy()
    rows[at] = value
    return rows


@pytest.mark.parametrize("make", [np.asarray, lambda rows: pd.DataFrame(rows, columns=list("abcdef"))])
def test_huge_numbers_are_refused_without_a_warning_of_numpy(make):
    huge = X.astype(np.float64)
    huge[:, 1] = 1e308 * np.where(np.arange(90) % 3, 1, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(csst.InputError, match="NaN or infinity in 90 rows"):
            csst.CSSTClassifier(learner="linear").fit(make(huge), PART)


@pytest.mark.parametrize(
    ("rows", "labels", "said"),
    [
        (X, np.full(90, -1), "y holds no label at all"),
        (X, [None] * 90, "y holds no label at all"),
        (X, np.where(PART == -1, -1, 1), "found one class, 1: the other .* rows, marked -1, NaN or None, are unlab"),
        (X, np.where(np.arange(90) == 0, 7, PART), "class '7' has 1 labeled examples"),
        (changed((3, 2), np.nan), PART, "the first in row 3, column 2: drop or impute them, or pass a table"),
        (changed((3, 2), np.inf), PART, "infinity"),
        (X.astype(np.float64) * 1e300, PART, "NaN or infinity in 90 rows"),
        (X, PART[:-1], "90 rows and 89 labels"),
        (X[:0], PART[:0], "0 sample"),
        (X[:, :0], PART, "0 feature"),
        (X[:, 0], PART, "2D array"),
        (X, None, "requires y to be passed"),
        (X, np.where(PART == -1, np.inf, PART), "y contains infinity"),
        (X, np.random.default_rng(0).normal(size=90), "Unknown label type"),
        (X, np.stack([PART, PART], 1), "1d array"),
        (X, ["a" if at % 2 else 1 for at in range(90)], "y mixes texts with other types"),
        (X, np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]")[Y % 2], "found datetime64.*: make them t"),
        (X, np.fromiter([("a", int(k)) for k in Y], dtype=object, count=90), "number or a truth value; found tuple"),
        (X.astype(str), PART, ""),
        (np.array([["a"] * 6] * 90), PART, "could not convert"),
    ],
)
def test_fit_says_what_is_wrong(rows, labels, said):
    if not said:
        assert quick(steps=2).fit(rows, labels).n_features_in_ == 6  # texts of numbers are numbers, as in scikit-learn
        return
    with pytest.raises(ValueError, match=said):
        quick(steps=2).fit(rows, labels)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"validation": 0.0}, "held-out fraction must lie between 0 and 1"),
        ({"validation": 1.5}, "held-out fraction must lie between 0 and 1"),
        ({"validation": "half"}, "None, a fraction, indices or a pair"),
        ({"validation": [0.5, 0.5]}, "None, a fraction, indices or a pair"),
        ({"validation": [0, 0, 1, 2]}, "labeled rows of X, each once"),
        ({"validation": [0, 1, 2, 3]}, "labeled rows of X, each once"),
        ({"validation": [0, 1, 1000]}, "labeled rows of X, each once"),
        ({"validation": [0, 1]}, "classes .'2'. have no label among those held out for validation"),
        ({"validation": (X, Y, X)}, "a pair .X, y.; found 3 parts"),
        ({"validation": (X, np.where(Y == 2, 3, Y))}, "classes that were not among the labels in training: .'3'."),
        ({"validation": (X, PART)}, "every validation row needs a label"),
        ({"validation": (X[:, :5], Y)}, "X has 5 features, but CSSTClassifier is expecting 6"),
        ({"validation": (X[:5], Y)}, "one label"),
        ({"validation": None, "folds": 1}, "or 2 to 20; found 1"),
        ({"rule": "magic"}, "rule must be one of none, fit"),
        ({"views": "pretty"}, "views are auto, table, embedding"),
        ({"method": "cstt"}, "unknown method"),
        ({"objective": "max min(recal)"}, "recal"),
        ({"accelerator": "abacus"}, "accelerator must be one of"),
        ({"steps": 0}, "steps must be positive"),
        ({"lr": -1}, "lr must be positive"),
        ({"tau": -1}, "tau"),
        ({"encoder": "words"}, "takes texts|list of texts"),
        ({"encoder": 3}, "an encoder is a name"),
    ],
)
def test_parameters_are_checked_in_fit(given, said):
    made = quick(**{"steps": 2, **given})  # never in the constructor
    with pytest.raises(ValueError, match=said):
        made.fit(X.reshape(90, 6, 1, 1).astype(np.uint8) if made.encoder == 3 else X, PART)


def test_predict_says_what_is_wrong():
    fitted = quick(steps=2).fit(X, PART)
    with pytest.raises(ValueError, match="X has 5 features, but CSSTClassifier is expecting 6 features"):
        fitted.predict(X[:, :5])
    with pytest.raises(ValueError, match="NaN"):
        fitted.predict(changed((0, 0), np.nan))
    with pytest.raises(ValueError, match="not fitted"):
        quick().predict(X)
    with pytest.raises(csst.InputError, match="recall needs an example of every class"):
        fitted.score(X, np.where(Y == 1, 9, Y))
    with pytest.raises(csst.InputError, match="90 rows and 3 labels"):
        fitted.score(X, Y[:3])
    with pytest.raises(csst.InputError, match="recall needs an example of every class"):
        fitted.score(X[:1], Y[:1])
    for weights in (np.ones(3), -np.ones(90)):
        with pytest.raises(csst.InputError, match="sample_weight must hold a weight of 0 or more for each"):
            fitted.score(X, Y, sample_weight=weights)
    with pytest.raises(ValueError, match="X has 3 features"):
        quick(steps=2).fit(X, PART, X_unlabeled=X[:, :3])


def test_a_class_with_one_label_is_fine_with_a_validation_set_of_its_own():
    labels = np.where(np.arange(90) % 3 == 2, -1, Y)
    labels[2] = 2
    fitted = quick(validation=(X[45:], Y[45:])).fit(X[:45], labels[:45])
    assert fitted.labeled_counts_ == [15, 15, 1]
    with pytest.raises(csst.InputError, match="every class needs 2; class '2' has 1"):
        quick(validation=None).fit(X[:45], labels[:45])


def test_integers_with_missing_ones_stay_integers():
    pd = pytest.importorskip("pandas")
    labels = pd.Series([None if mark == -1 else int(k) for k, mark in zip(Y, PART, strict=True)], dtype="Int64")
    fitted = csst.CSSTClassifier(learner="linear").fit(X, labels)
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert fitted.classes_.dtype.kind == "i"
    assert sum(fitted.labeled_counts_) == (PART != -1).sum()


def test_a_class_named_like_a_mark_is_noted():
    names = np.array(["cat", "dog", "nan"])[Y]
    with pytest.warns(UserWarning, match="the text 'nan' in y is taken for the name of a class"):
        fitted = csst.CSSTClassifier(learner="linear").fit(X, names)
    assert "the text 'nan'" in fitted.summary()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert csst.CSSTClassifier(learner="linear").fit(X, np.array(["-1", "0", "1"])[Y]).notes_ == []


def test_the_unit_of_a_column_does_not_matter():
    """Numbers may be tiny; only what does not vary beside its mean is constant."""
    rows = X * np.float32(1e-20)
    learned = [csst.CSSTClassifier(learner="linear").fit(part, PART).predict_proba(part) for part in (X, rows)]
    np.testing.assert_allclose(*learned, atol=1e-3)


def test_no_unlabeled_rows():
    with pytest.warns(UserWarning, match="no unlabeled rows, so csst learned from labels alone"):
        fitted = quick().fit(X, Y)
    assert fitted.fit_.full_details.about["method"] == "csl"
    assert "note: there are no unlabeled rows" in fitted.summary()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = quick(method="csl").fit(X, Y)
    np.testing.assert_array_equal(plain.predict_proba(X), fitted.predict_proba(X))


def test_constant_and_duplicate_columns():
    more = np.hstack([X, np.full((90, 1), 3.0), np.zeros((90, 1)), X[:, :2]]).astype(np.float32)
    for rows in (more, csr_matrix(more)):
        fitted = quick().fit(rows, PART)
        assert np.isfinite(fitted.predict_proba(rows)).all()
        assert fitted.score(rows, Y) > 0.8
    apart = more.copy()
    apart[:, 6] = 4.0  # a constant column that changes later must not blow up
    assert np.isfinite(fitted.predict_proba(apart)).all()


def test_texts_and_images_are_checked():
    texts = ["a b", "c d"] * 10
    with pytest.raises(csst.InputError, match="1 entries are not, the first at 3"):
        quick(encoder="words").fit([*texts[:3], 5, *texts[4:]], [0, 1] * 10)
    with pytest.raises(csst.InputError, match="nothing or a single text"):
        quick(encoder="words").fit("a text", [0])
    with pytest.raises(csst.InputError, match="found several: resize"):
        quick(encoder=len).fit([np.zeros((4, 4), np.uint8), np.zeros((5, 5), np.uint8)], [0, 1])
    with pytest.raises(csst.InputError, match="images uint8"):
        quick(encoder=len).fit(np.zeros((4, 3, 4, 4)), [0, 1, 0, 1])
    with pytest.raises(csst.InputError, match="one row for each"):
        quick(encoder=lambda batch: np.zeros((1, 3))).fit(texts, [0, 1] * 10)
    pd = pytest.importorskip("pandas")
    with pytest.raises(csst.InputError, match="pass one of its columns"):
        quick(encoder="words").fit(pd.DataFrame({"text": texts}), [0, 1] * 10)

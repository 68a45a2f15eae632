"""Frames with categories, sparse matrices, and the views of a table's rows."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, csr_matrix

import csst
from csst.data.tabular.column_kinds import learn_columns
from csst.data.tabular.columns import Columns
from csst.data.tabular.table_views import NeighborMix, Noise, ScarfCorruption
from csst.data.tabular.tables import find_categorical, read_frame
from csst.models.table import TableInput
from tests.helpers.estimators import blobs, hidden, quick


def table(rows: int = 120):
    """A color that tells the class, a truth value, and noise."""
    pd = pytest.importorskip("pandas")
    rng, y = np.random.default_rng(0), np.arange(rows) % 3
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=rows),
            "color": pd.Categorical(np.array(["red", "green", "blue"])[y]),
            "old": rng.random(rows) < 0.5,
            "count": rng.integers(0, 9, rows),
        }
    )
    return frame, y


def learn(frame) -> Columns:
    return learn_columns(read_frame(frame), find_categorical(frame))


def encode(frame, columns: Columns):
    return columns.encode(read_frame(frame))


def test_categories_are_learned_from():
    frame, y = table()
    fitted = quick().fit(frame, hidden(y))
    assert fitted.score(frame, y) == 1
    assert fitted.feature_names_in_.tolist() == ["size", "color", "old", "count"]
    assert fitted.columns_.categories == {1: ("blue", "green", "red"), 2: (False, True)}
    text = frame.assign(color=frame["color"].astype(str))
    np.testing.assert_allclose(fitted.predict_proba(text), fitted.predict_proba(frame))
    other = frame.assign(color="violet")
    assert (encode(other, fitted.columns_)[:, 1] == -1).all()
    assert np.isfinite(fitted.predict_proba(other)).all(), "a color never met is none of those that were"


def test_frames_are_checked():
    frame, y = table()
    fitted = quick().fit(frame, hidden(y))
    with pytest.raises(csst.InputError, match="frame with categories"):
        fitted.predict(np.zeros((2, 4)))
    with pytest.raises(csst.InputError, match="frame with categories"):
        fitted.predict(frame.to_numpy(dtype=object))  # texts among numbers
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[["color", "size", "old", "count"]])
    with pytest.raises(ValueError, match="feature"):
        fitted.predict(frame.drop(columns="old"))
    with pytest.raises(csst.InputError, match=r"NaN or infinity in 1 rows, the first in row 2, column size"):
        fitted.predict(frame.assign(size=[0.0, 1.0, np.inf, *[0.0] * 117]))
    with pytest.raises(csst.InputError, match="'size' of X held numbers in training"):
        fitted.predict(frame.assign(size="big"))
    pd = pytest.importorskip("pandas")
    with pytest.raises(csst.InputError, match="mixes types"):
        learn(pd.DataFrame({"a": pd.Series([1, "1", "b"], dtype=object)}))
    with pytest.raises(csst.InputError, match="lists or other objects"):
        learn(pd.DataFrame({"a": pd.Series([[1], [2]], dtype=object)}))


def test_missing_categories_are_a_category_and_missing_numbers_become_the_median():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": pd.Series(["x", None, float("nan"), pd.NA, "y"], dtype=object)})
    columns = learn(frame)
    assert columns.categories == {0: (None, "x", "y")}
    assert encode(frame, columns)[:, 0].tolist() == [1, 0, 0, 0, 2]
    numbers = pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64")})
    assert learn(numbers).categories == {}
    assert encode(numbers, learn(numbers)).tolist() == [[1, 0], [2, 1], [3, 0]]


def test_numbers_that_were_declared_categories_are_categories():
    pd = pytest.importorskip("pandas")
    codes = pd.Categorical([30, 4, None, 30], categories=[4, 30, 5])
    columns = learn(pd.DataFrame({"code": codes, "size": [1, 2, 3, 4]}))
    assert set(columns.categories) == {0}
    assert set(columns.categories[0]) == {None, 4, 30}
    encoded = encode(pd.DataFrame({"code": [4, 30, 5], "size": [1, 2, 3]}), columns)[:, 0].tolist()
    assert encoded == [columns.categories[0].index(4), columns.categories[0].index(30), -1]


def test_numbers_in_a_column_of_objects_are_numbers():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "price": pd.Series([Decimal("1.5"), None, Decimal("2")], dtype=object),
            "count": pd.Series([np.int64(3), np.float32(4), 5], dtype=object),
        }
    )
    assert learn(frame).categories == {}
    assert encode(frame.iloc[[0, 2]], learn(frame))[:, :2].tolist() == [[1.5, 3], [2, 5]]


@pytest.mark.parametrize("value", [date(2020, 1, 2), datetime(2020, 1, 2, tzinfo=timezone.utc), "2020-01-02"])
def test_dates_become_days_month_and_weekday(value):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"day": pd.Series([value, None], dtype=object)})
    columns = learn(frame)
    assert columns.names == ("day", "day is missing", "month of day", "weekday of day")
    assert columns.sizes == [0, 0, 12, 7]
    assert encode(frame, columns).tolist() == [[18263, 0, 0, 3], [18263, 1, -1, -1]]
    stamps = pd.DataFrame({"day": pd.to_datetime(["2020-01-02 13:30", None])})
    assert encode(stamps, learn(stamps))[0].tolist() == [18263.5625, 0, 0, 3, 13]


def test_durations_are_refused():
    pd = pytest.importorskip("pandas")
    for values in ([timedelta(1), None], pd.to_timedelta([1, 2], unit="D")):
        with pytest.raises(csst.InputError, match=r"'day' must hold numbers or categories; found .*: convert it first"):
            learn(pd.DataFrame({"day": values}))


def test_a_column_of_too_many_texts_is_left_out_with_a_warning():
    frame, y = table(1200)
    frame["name"] = [f"n{i}" for i in range(1200)]
    with pytest.warns(UserWarning, match=r"column 'name' is left out \(1200 different texts, more than 1000\)"):
        fitted = csst.CSSTClassifier(learner="linear").fit(frame, hidden(y))
    assert fitted.columns_.names == ("size", "color", "old", "count")
    assert fitted.predict(frame[:5]).tolist() == y[:5].tolist()


def test_columns_with_the_same_name_are_refused():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(np.zeros((4, 3)), columns=["a", "b", "a"])
    with pytest.raises(csst.InputError, match=r"different names; found \['a'\] more than once"):
        csst.CSSTClassifier().fit(frame, [0, 1, 0, 1])


def test_polars_frames():
    pl = pytest.importorskip("polars")
    frame, y = table()
    other = pl.DataFrame({name: frame[name].to_list() for name in frame.columns})
    fitted = quick().fit(other, hidden(y))
    assert fitted.score(other, y) == 1
    assert fitted.columns_.categories == {1: ("blue", "green", "red"), 2: (False, True)}


def rows_with_zeros():
    """Rows (120, 30) of which most numbers are 0, and their classes (120,)."""
    X, y = blobs(120, features=30)
    return np.where(np.abs(X) < 1, 0, X), y


@pytest.fixture(scope="module")
def dense_probs():
    """The probabilities of the network that learned from dense rows."""
    X, y = rows_with_zeros()
    return quick().fit(X, hidden(y)).predict_proba(X)


@pytest.mark.parametrize("kind", [csr_matrix, csr_array])
def test_sparse_rows(kind, dense_probs):
    X, y = rows_with_zeros()
    sparse = quick().fit(kind(X), hidden(y))
    np.testing.assert_allclose(sparse.predict_proba(kind(X)), dense_probs, atol=1e-4)
    np.testing.assert_allclose(sparse.predict_proba(X), sparse.predict_proba(kind(X)), atol=1e-6)


def test_sparse_rows_beside_dense_ones_and_in_folds():
    X, y = rows_with_zeros()
    unlabeled_dense = quick().fit(csr_matrix(X), y, X_unlabeled=X)
    unlabeled_sparse = quick().fit(X, y, X_unlabeled=csr_matrix(X))
    np.testing.assert_allclose(unlabeled_sparse.predict_proba(X), unlabeled_dense.predict_proba(X), atol=1e-4)
    crossed = quick(validation=None).fit(csr_array(X), y, X_unlabeled=csr_array(X))
    assert crossed.score(X, y) > 0.8


def test_scarf_keeps_columns_marginals_and_kinds():
    """Numbers get noise, swaps or the mean; a category is its own, another row's or none: never a number between."""
    rows = torch.stack([torch.arange(200.0), torch.arange(200.0) % 4], 1)
    scale, empty = torch.tensor([57.7, 0.0]), torch.tensor([99.5, -1.0])
    batch = torch.tensor([[1000.0, 9.0]]).repeat(20_000, 1)
    out = ScarfCorruption(rows, scale, empty, fraction=0.3, noise=0.0, drop=0.1)(
        batch, torch.Generator().manual_seed(0)
    )
    for column, (own, none) in enumerate(((1000.0, 99.5), (9.0, -1.0))):
        values = out[:, column]
        assert float((values == own).float().mean()) == pytest.approx(0.6, abs=0.02)
        assert float((values == none).float().mean()) == pytest.approx(0.1, abs=0.02)
        drawn = values[(values != own) & (values != none)]
        assert float(len(drawn)) / len(values) == pytest.approx(0.3, abs=0.02)
        assert set(drawn.tolist()) == set(rows[:, column].tolist())
    both = ((out[:, 0] == 1000) & (out[:, 1] == 9)).float().mean()
    assert float(both) == pytest.approx(0.36, abs=0.02), "columns are corrupted independently"
    noisy = Noise(scale, 0.1)(batch, torch.Generator().manual_seed(0))
    assert float(noisy[:, 0].std()) == pytest.approx(5.77, rel=0.05)
    assert (noisy[:, 1] == 9).all()


def test_neighborly_goes_towards_a_near_one_that_is_not_itself():
    pool = torch.tensor([[0.0, 0.0], [1.0, 0.0], [100.0, 0.0], [101.0, 0.0]])
    view = NeighborMix(pool, torch.zeros(2), torch.ones(2), drop=0.0, noise=0.0, mix=0.5, near=1)
    out = view(pool, torch.Generator().manual_seed(0))
    moved = (out - pool)[:, 0]
    assert (moved[[0, 2]] > 0).all()
    assert (moved[[1, 3]] < 0).all()
    assert (moved.abs() <= 0.5).all()
    dropped = NeighborMix(pool, torch.tensor([7.0, 8.0]), torch.ones(2), drop=1.0)
    assert (dropped(pool, torch.Generator().manual_seed(0)) == torch.tensor([7.0, 8.0])).all()


def test_table_input_by_hand():
    layer = TableInput.for_network([0, 3, 0], np.array([1.0, 0.0, 5.0]), np.array([2.0, 0.0, 0.0]))
    out = layer(torch.tensor([[3.0, 2.0, 5.0], [1.0, -1.0, 6.0]]))
    assert layer.width == 5
    assert out.tolist() == [[1.0, 0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0, 0.0]]


def test_a_column_with_a_category_per_row_is_warned_about():
    pd = pytest.importorskip("pandas")
    y = np.arange(100) % 2
    names = [f"n{i}" for i in range(100)]
    for values in (names, [*names[:90], *["n0"] * 10]):
        with pytest.warns(UserWarning, match=r"column 'who' has \d+ categories in 100 rows: an ID or a name\?"):
            csst.CSSTClassifier(learner="linear").fit(pd.DataFrame({"size": y, "who": values}), y)
    assert learn(pd.DataFrame({"who": [*names[:80], *["n0"] * 20]})).parts[0].notes == ()
    assert learn(pd.DataFrame({"who": names[:10]})).parts[0].notes == (), "too few rows to tell"

"""The short constructor: settings in groups, single ones as parameters, missing numbers, and metadata routing."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from csst import CSSTClassifier, InputError, Settings
from csst.data.tabular.column_kinds import learn_columns
from csst.data.tabular.tables import read_frame
from csst.settings import TABULAR, Dual, Training
from tests.helpers.estimators import blobs, hidden
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN


def test_the_constructor_is_short():
    names = list(inspect.signature(CSSTClassifier).parameters)
    wanted = ["objective", "learner", "method", "validation", "encoder", "confidence", "deployment_prior"]
    wanted += ["costs", "abstain_value", "per_group", "settings", "n_jobs", "random_state", "verbose"]
    assert names == wanted


def test_single_settings_are_parameters():
    clf = CSSTClassifier()
    params = clf.get_params()
    assert params["settings"] is None
    assert params["settings__selftraining__tau"] == TABULAR.selftraining.tau
    assert params["settings__dual__rates"] == "pooled"
    assert "settings__training__steps" not in clf.get_params(deep=False)
    clf.set_params(settings__selftraining__tau=0.3, settings__training__steps=7, objective="max mean(recall)")
    assert (clf.settings.selftraining.tau, clf.settings.training.steps) == (0.3, 7)
    assert (clf.settings.dual, clf.objective) == (TABULAR.dual, "max mean(recall)")
    again = clone(clf)
    assert again.get_params() == clf.get_params()
    again.set_params(settings__training__steps=9)
    assert clf.settings.training.steps == 7, "a clone's settings are its own"
    with pytest.raises(InputError, match=r"there is no setting training.stepps; did you mean 'steps'"):
        clf.set_params(settings__training__stepps=9)
    with pytest.raises(InputError, match="training is a group of settings; found 3"):
        clf.set_params(settings__training=3)
    with pytest.raises(ValueError, match="Invalid parameter 'steps'"):
        clf.set_params(steps=9)


def test_settings_as_a_dictionary_or_whole():
    X, y = blobs(60)
    some = {"training": {"steps": 4}, "model": {"hidden": 8}}
    fitted = CSSTClassifier(learner="network", validation=0.4, settings=some).fit(X, hidden(y))
    assert fitted.history_[-1]["step"] == 4
    assert fitted.fit_.model[1].weight.shape == (8, 6)
    whole = Settings(training=Training(steps=3), dual=Dual(steps_per_update=1))
    fitted = CSSTClassifier(learner="network", validation=0.4, settings=whole).fit(X, hidden(y))
    assert [record["step"] for record in fitted.history_] == [0, 1, 2, 3]
    for wrong, says in (
        (3, "settings are csst.Settings or a dictionary"),
        ({"trainin": {}}, "there is no setting trainin; did you mean 'training'"),
        ({"training": {"steps": "many"}}, "training.steps must be of type int"),
    ):
        clf = CSSTClassifier(settings=wrong)  # never in the constructor
        assert "settings" in clf.get_params()
        with pytest.raises(InputError, match=says):
            clf.fit(X, hidden(y))


def test_a_networks_settings_are_refused_where_none_is_trained():
    X, y = blobs(60)
    for settings in ({"training": {"steps": 4}}, {"rule": "fit"}, {"selftraining": {"tau": 0.3}}):
        with pytest.raises(InputError, match=r"learner 'linear' trains no network.*set learner"):
            CSSTClassifier(learner="linear", settings=settings).fit(X, hidden(y))
    for settings in (Settings(), {"embedding": {"cache": "somewhere"}}):
        CSSTClassifier(learner="linear", settings=settings).fit(X, hidden(y))


def test_threads_change_nothing():
    X, y = blobs(90)
    one, two = (CSSTClassifier(learner=["linear", "kernel"], n_jobs=n).fit(X, hidden(y)) for n in (1, 2))
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))


def test_missing_numbers_become_the_median_and_say_so():
    pd = pytest.importorskip("pandas")
    X, y = blobs(90)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "kind": np.array(["u", "v"])[y % 2]})
    frame.loc[::5, "a"] = np.nan
    frame.loc[::7, "kind"] = None
    fitted = CSSTClassifier(learner="linear").fit(frame, hidden(y))
    assert [column.name for column in fitted.columns_.parts if column.has_gaps] == ["a"]
    median = fitted.columns_.parts[0].median
    assert median == pytest.approx(np.nanmedian(frame["a"]))
    assert fitted.columns_.names == ("a", "b", "c", "kind", "a is missing")
    filled = frame.assign(a=frame["a"].fillna(median))
    filled["a is missing"] = frame["a"].isna().astype(float)
    plain = CSSTClassifier(learner="linear").fit(filled, hidden(y))
    np.testing.assert_allclose(plain.predict_proba(filled), fitted.predict_proba(frame), atol=1e-6)
    new = frame.assign(b=np.where(np.arange(90) == 3, np.nan, frame["b"]))  # was never missing before
    assert np.isfinite(fitted.predict_proba(new)).all()
    assert (fitted.predict_proba(new)[4:] == fitted.predict_proba(frame)[4:]).all()
    np.testing.assert_array_equal(frame["a"].isna(), np.arange(90) % 5 == 0)  # the user's frame is left alone


def test_missing_numbers_of_columns_without_names_and_what_the_card_says_of_them(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = blobs(90)
    frame = pandas.DataFrame(X.astype(np.float64))
    frame.iloc[::5, 1] = np.nan
    fitted = CSSTClassifier(learner="linear").fit(frame, hidden(y))
    assert fitted.columns_.names == ("0", "1", "2", "3", "4", "5", "1 is missing")
    median = float(np.nanmedian(frame[1]))
    rows = np.hstack([frame.fillna(median).to_numpy(), frame[[1]].isna().to_numpy()])
    np.testing.assert_allclose(fitted.predict_proba(frame), fitted.fit_.predict_proba(rows.astype(np.float32)))
    card = fitted.export(tmp_path / "a.safetensors", to="safetensors")[1].read_text(encoding="utf-8")
    assert f'a missing number of "1" is replaced by {median:.9g}' in card
    fitted.fit(X, hidden(y))  # an array has no missing numbers
    assert fitted.predict(frame.fillna(0)).shape == (90,)


def test_missing_numbers_of_other_kinds_of_columns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {"whole": pd.array([1, None, 3, 4], dtype="Int64"), "gone": [np.nan] * 4, "text": list("abca")}
    )
    columns = learn_columns(read_frame(frame))
    assert {column.name: column.median for column in columns.parts} == {"whole": 3.0, "gone": 0.0, "text": 0.0}
    rows = columns.encode(read_frame(frame))
    assert rows[:, 0].tolist() == [1.0, 3.0, 3.0, 4.0]
    assert rows[:, 1].tolist() == [0.0] * 4
    assert rows[:, columns.names.index("whole is missing")].tolist() == [0, 1, 0, 0]
    polars = pytest.importorskip("polars")
    other = polars.DataFrame({"whole": [1, None, 3, 4], "gone": [None] * 4, "text": list("abca")})
    assert columns.encode(read_frame(other)).tolist() == rows.tolist()


def test_unlabeled_rows_are_routed_through_a_pipeline():
    X, y = blobs(90)
    with sklearn.config_context(enable_metadata_routing=True):
        clf = CSSTClassifier(learner="linear").set_fit_request(X_unlabeled=True)
        pipe = make_pipeline(StandardScaler(), clf).fit(X[:60], y[:60], X_unlabeled=X[60:])
    assert pipe[-1].fit_.expected.unlabeled == 30


def test_class_names_of_any_type():
    X, y = blobs(90)
    for names in ([True, False], ["ja", "nein"], [1.0, 2.0], [10, 20]):
        labels = np.array(names)[(y > 0).astype(int)]
        fitted = CSSTClassifier(learner="linear").fit(X, labels)
        assert fitted.classes_.tolist() == sorted(names)
        assert (fitted.predict(X) == labels).mean() > 0.9

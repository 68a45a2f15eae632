"""CSSTClassifier: what it takes, what it learns, what it says; scikit-learn's habits."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import recall_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import csst
from csst.data.tabular.table_views import NeighborMix, Noise, ScarfCorruption
from csst.data.tabular.tables import compute_moments
from csst.data.task import make_task
from csst.estimation.expectation import estimate_intervals
from csst.estimation.intervals import recall_intervals, slack_intervals
from csst.maths.confusion import Confusion
from tests.helpers.estimators import blobs, hidden, quick
from tests.helpers.short_runs import SHORT_RUN
from tests.helpers.tiny_models import reviews

pytestmark = SHORT_RUN


def states_of(fitted) -> list[dict]:
    """Of all trainers of a network's fit."""
    state = fitted.fit_.full_details.state
    return state.get("trainers", [state])


def test_learns_and_predicts():
    X, y = blobs()
    fitted = quick().fit(X, hidden(y))
    assert fitted.fit_.full_details.about["method"] == "csst-fixmatch"
    assert (fitted.predict(X) == y).mean() > 0.9
    probs = fitted.predict_proba(X)
    assert probs.shape == (240, 3)
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(X)), probs, atol=1e-12)
    assert (fitted.decision_function(X).argmax(1) == probs.argmax(1)).all()
    assert len(fitted.multipliers_) == 3
    assert fitted.gain_.shape == (3, 3)
    assert fitted.n_features_in_ == 6
    assert [record["step"] for record in fitted.history_] == [0, 10, 20]
    assert any(record["used"] for record in fitted.history_), "no unlabeled row was ever used"


def test_score_is_the_objective():
    X, y = blobs()
    X = X + np.random.default_rng(1).normal(size=X.shape) * 2
    fitted = quick().fit(X, hidden(y))
    recalls = recall_score(y, fitted.predict(X), average=None)
    assert min(recalls) < max(recalls)
    assert fitted.score(X, y) == pytest.approx(min(recalls))
    half = hidden(y)
    known = half != -1
    assert fitted.score(X, half) == pytest.approx(min(recall_score(y[known], fitted.predict(X)[known], average=None)))
    assert quick("max mean(recall)").fit(X, hidden(y)).score(X, y) > 0


@pytest.mark.parametrize("mark", [-1, float("nan"), None])
def test_ways_to_say_unlabeled(mark):
    X, y = blobs(90)
    given = hidden(y.astype(float) if mark != mark else y, mark=mark)
    fitted = quick().fit(X, given)
    assert sum(fitted.labeled_counts_) == 36  # 45 labels, a fifth of each class's 15 held out
    names = np.array(["ape", "bee", "cat"])[y]
    words = hidden(names, mark=mark if mark != -1 else None)
    again = quick().fit(X, words)
    assert again.classes_.tolist() == ["ape", "bee", "cat"]
    assert set(again.predict(X)) <= {"ape", "bee", "cat"}
    np.testing.assert_allclose(again.predict_proba(X), fitted.predict_proba(X), atol=1e-6)


def test_unlabeled_rows_may_come_apart():
    X, y = blobs(90)
    given = hidden(y)
    whole = quick().fit(X, given)
    apart = quick().fit(X[given != -1], y[given != -1], X_unlabeled=X[given == -1])
    np.testing.assert_allclose(apart.predict_proba(X), whole.predict_proba(X), atol=1e-6)


def test_validation_in_every_form():
    X, y = blobs(120)
    rows = np.arange(30)
    by_index = quick(validation=rows).fit(X, y, X_unlabeled=X)
    assert int(by_index.fit_.full_details.estimate.n.sum()) == 30
    mask = np.zeros(120, dtype=bool)
    mask[rows] = True
    by_mask = quick(validation=mask).fit(X, y, X_unlabeled=X)
    pair = quick(validation=(X[rows], y[rows])).fit(X[30:], y[30:], X_unlabeled=X)
    for other in (by_mask, pair):
        np.testing.assert_allclose(other.predict_proba(X), by_index.predict_proba(X), atol=1e-6)
    share = quick(validation=0.5).fit(X, y, X_unlabeled=X)
    assert share.labeled_counts_ == [20, 20, 20]
    crossed = quick(validation=None).fit(X, y, X_unlabeled=X)
    assert crossed.labeled_counts_ == [40, 40, 40]
    assert int(crossed.fit_.full_details.estimate.n.sum()) == 120
    assert "estimated from 120 labels (40 per class) and 120 unlabeled rows" in crossed.summary()
    assert "estimated from 60 labels (20 per class)" in share.summary()


def test_precision_of_the_numbers_does_not_matter():
    X, y = blobs(90)
    single, double = quick().fit(X, hidden(y)), quick().fit(X.astype(np.float64), hidden(y))
    np.testing.assert_allclose(single.predict_proba(X), double.predict_proba(X), atol=1e-6)


def test_the_same_seed_gives_the_same_model():
    X, y = blobs(90)
    first, second, other = (quick(random_state=s).fit(X, hidden(y)).predict_proba(X) for s in (1, 1, 2))
    assert (first == second).all()
    assert (first != other).any()
    before = torch.get_num_threads()
    assert quick(random_state=None).fit(X, hidden(y)).seed_ != quick(random_state=None).fit(X, hidden(y)).seed_
    assert torch.get_num_threads() == before


def test_clone_and_pickle():
    X, y = blobs(90)
    fitted = quick(rule="fit", validation=None).fit(X, hidden(y))
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.predict_proba(X) == fitted.predict_proba(X)).all()
    assert (again.predict(X) == fitted.predict(X)).all()
    assert again.summary() == fitted.summary()
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    assert not hasattr(fresh, "fit_")
    assert len(pickle.dumps(quick().fit(X, hidden(y)))) < 100_000, "the data is pickled with the model"


def test_warm_start_goes_on():
    X, y = blobs(120)
    for validation in (0.2, None):
        fitted = quick(warm_start=True, steps=20, validation=validation, random_state=None).fit(X, hidden(y))
        seed, first = fitted.seed_, fitted.predict_proba(X)
        before = [state["model"]["1.weight"].clone() for state in states_of(fitted)]
        fitted.fit(X, hidden(y))
        assert [record["step"] for record in fitted.history_] == [0, 10, 20, 30, 40]
        assert fitted.seed_ == seed
        assert (fitted.predict_proba(X) != first).any()
        assert all(state["step"] == 40 for state in states_of(fitted))
        assert all((a != s["model"]["1.weight"]).any() for a, s in zip(before, states_of(fitted), strict=True))
    anew = quick(steps=20).fit(X, hidden(y)).fit(X, hidden(y))
    assert [record["step"] for record in anew.history_] == [0, 10, 20]


def test_warm_start_goes_on_from_the_last_average_and_not_from_the_selected_one():
    X, y = blobs(120)
    X = X + np.random.default_rng(2).normal(size=X.shape) * 3
    fitted = quick(steps=60, lr=0.3, ema=0.8, validation=0.3, keep="best", random_state=1, scale="auto").fit(
        X, hidden(y)
    )
    (state,) = states_of(fitted)
    assert state["best"]["step"] < state["step"], "this fit was chosen because its last model is not the selected one"
    assert any(not torch.equal(state["ema"][name], kept) for name, kept in state["best"]["state"].items())
    for name, kept in fitted.fit_.model.state_dict().items():
        assert torch.equal(kept, state["best"]["state"][name])


def test_warm_start_refuses_what_would_leak_or_not_fit():
    X, y = blobs(120)
    fitted = quick(warm_start=True, steps=10).fit(X, hidden(y))
    with pytest.raises(csst.InputError, match="validation rows are never learned from"):
        fitted.fit(X[3:], hidden(y)[3:])
    with pytest.raises(csst.InputError, match="same classes"):
        fitted.fit(X, np.where(hidden(y) == 2, 1, hidden(y)))
    with pytest.raises(csst.InputError, match="same method; the last fit was csst-fixmatch, this one is fixmatch"):
        clone_with(fitted, method="fixmatch").fit(X, hidden(y))
    with pytest.raises(csst.InputError, match="same network"):
        clone_with(fitted, settings__model__hidden=8).fit(X, hidden(y))
    with pytest.raises(csst.InputError, match=r'trains no network.*set learner="network"'):
        clone_with(fitted, learner="auto").fit(X, hidden(y))


def clone_with(fitted, **changes):
    return pickle.loads(pickle.dumps(fitted)).set_params(**changes)


def test_grid_search_and_pipeline():
    X, y = blobs(120)
    search = GridSearchCV(quick(steps=20), {"settings__selftraining__tau": [0.01, 0.3]}, cv=2).fit(X, hidden(y))
    assert search.best_params_["settings__selftraining__tau"] in (0.01, 0.3)
    assert search.best_score_ > 0.5
    pipe = make_pipeline(StandardScaler(), quick()).fit(X, hidden(y))
    assert pipe.score(X, y) > 0.8
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcdef"))
    framed = make_pipeline(StandardScaler(), quick()).set_output(transform="pandas").fit(frame, hidden(y))
    assert framed[-1].feature_names_in_.tolist() == list("abcdef")
    np.testing.assert_allclose(framed.predict_proba(frame), pipe.predict_proba(X), atol=1e-5)


def test_intervals_of_constraints_hold_together_as_often_as_they_say():
    """The truth is known, counts are drawn from it: at least 95 % of the time all intervals contain the truth."""
    goal = csst.objective("max mean(recall) s.t. coverage >= 0.2, recall >= 0.6").bind(3)
    rates = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.05, 0.05, 0.9]])
    truth = goal.slack(Confusion(rates, torch.ones(3) / 3)).tolist()
    rng, held, times = np.random.default_rng(0), 0, 20
    for _ in range(times):
        counts = torch.tensor(np.stack([rng.multinomial(25, row / row.sum()) for row in rates.double().numpy()]))
        found = slack_intervals(goal, counts)
        assert len(found) == len(truth) == 6
        held += all(one["low"] <= true <= one["high"] for true, one in zip(truth, found, strict=True))
    assert held / times >= 0.95
    perfect = slack_intervals(goal, torch.diag(torch.tensor([5, 5, 5])))
    assert all(one["low"] < one["slack"] for one in perfect), "five examples of each class make nothing certain"


def test_summary_says_how_sure_it_is():
    X, y = blobs(120)
    fitted = quick("max mean(recall) s.t. coverage >= 0.2").fit(X, hidden(y))
    said = fitted.summary()
    expected = estimate_intervals(fitted.fit_.objective, fitted.fit_.full_details.estimate)
    lowest, least = expected["min_recall"], min(expected["constraints"], key=lambda one: one["slack"])
    assert f"lowest class recall {lowest['estimate']:.2f} (95 % interval {lowest['low']:.2f}–" in said
    assert "the lowest class recall is expected to be" in said
    word = f"with a slack of {least['slack']:.3f} (95 % interval about {least['low']:.2f} to {least['high']:.2f})"
    assert f"constraints met, {word}" in said
    assert fitted.fit_.full_details.estimate.basis in said
    assert fitted.intervals_ == expected


def test_constraint_intervals_of_few_examples_are_about_the_exact_ones():
    """Five of five, and none of five, in ten classes: within 0.1 of Clopper and Pearson at the same joint level."""
    goal = csst.objective("max mean(recall) s.t. recall >= 0.5").bind(10)
    counts = torch.diag(torch.full((10,), 5))
    counts[3] = counts[3].roll(1)
    found, exact = slack_intervals(goal, counts), recall_intervals(counts)
    assert found[0]["low"] + 0.5 == pytest.approx(exact[0].low, abs=0.1)
    assert found[3]["high"] + 0.5 == pytest.approx(exact[3].high, abs=0.1)


@pytest.mark.parametrize("way", ["held out", "cross-fit"])
def test_the_rule_is_for_the_model_at_the_end(way):
    X, y = blobs(120)
    X = X + np.random.default_rng(2).normal(size=X.shape) * 3
    validation = None if way == "cross-fit" else (X[80:], y[80:])
    X, y = (X, y) if way == "cross-fit" else (X[:80], y[:80])
    fitted = quick(steps=60, lr=0.3, validation=validation, rule="fit", keep="best").fit(X, hidden(y))
    state = states_of(fitted)[-1]
    assert state["best"]["step"] < state["step"], "this fit was chosen because its last model is not the selected one"
    for name, kept in fitted.fit_.model.state_dict().items():
        assert torch.equal(kept, state["ema"][name])
    plain = quick(steps=60, lr=0.3, validation=validation, keep="best").fit(X, hidden(y))
    for name, kept in plain.fit_.model.state_dict().items():
        assert torch.equal(kept, fitted.fit_.full_details.weights[f"selected.{name}"])
    assert np.array_equal(plain.fit_.expected.counts, fitted.fit_.full_details.estimate.counts)
    if way == "held out":
        last = fitted.fit_.probs(validation[0]).argmax(1)
        truth = np.searchsorted(fitted.classes_, validation[1])
        counted = csst.confusion_counts(truth, last, len(fitted.classes_)).numpy()
        # The rule is fitted on class probabilities: the gain, which hardly moved here, is taken out of the argmax.
        assert np.abs(fitted.fit_.full_details.adjusted.unadjusted.counts - counted).sum() <= 4


def test_finished_rule_is_used_and_judged_by_cross_fitting():
    X, y = blobs(240)
    X = X + np.random.default_rng(1).normal(size=X.shape) * 2
    fitted = quick("max mean(recall) s.t. coverage[0] >= 0.5", rule="fit").fit(X, hidden(y))
    rule = fitted.fit_.full_details.adjusted.rule
    probs = fitted.fit_.probs(X)
    scores = rule.scores(probs).numpy()
    assert (fitted.predict(X) == scores.argmax(1)).all()
    np.testing.assert_allclose(fitted.predict_proba(X), rule.posterior(probs).numpy())
    np.testing.assert_allclose(fitted.decision_function(X), scores, atol=1e-6)
    assert fitted.fit_.expected is fitted.fit_.full_details.adjusted.estimate
    assert "network, csst-fixmatch + rule, for" in fitted.summary()


def test_verbose_shows_progress(capsys):
    X, y = blobs(90)
    quick(verbose=1).fit(X, hidden(y))
    said = capsys.readouterr().err
    assert "csst-fixmatch step     20/20" in said
    assert "worst recall" in said


def test_texts_with_an_encoder(tmp_path):
    texts, labels = reviews(60, 60)
    labels = [label if at % 2 else None for at, label in enumerate(labels)]
    fitted = quick(encoder="words", cache=str(tmp_path)).fit(texts, labels)
    assert isinstance(fitted.fit_.model[0].mean, torch.Tensor)
    assert fitted.n_features_in_ == 2048
    known = [at for at, label in enumerate(labels) if label is not None]
    assert fitted.score([texts[at] for at in known], [labels[at] for at in known]) > 0.8
    assert list(tmp_path.rglob("*.sqlite")), "the embeddings were not kept"
    assert pickle.loads(pickle.dumps(fitted)).predict(["a lovely great story"]).tolist() == ["good"]


def mean_color(images):
    return images.float().mean((2, 3))


def test_images_with_a_function():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    images = rng.integers(0, 60, (60, 8, 8, 3)).astype(np.uint8)
    images[y == 1, :, :, 0] += 150
    fitted = quick(encoder=mean_color).fit(images, hidden(y))
    assert fitted.n_features_in_ == 3
    assert fitted.score(images, y) == 1
    first_channels = quick(encoder=mean_color).fit(images.transpose(0, 3, 1, 2), hidden(y))
    np.testing.assert_allclose(fitted.predict_proba(images), first_channels.predict_proba(images), atol=1e-6)


def test_views_are_chosen_and_can_be_given():
    X, y = blobs(60)
    task = make_task("blobs", (X[:30], y[:30]), X[30:])
    assert [type(v) for v in task.with_views("table").views] == [Noise, ScarfCorruption]
    assert [type(v) for v in task.with_views("embedding").views] == [Noise, NeighborMix]
    seen = []

    def view(batch, generator):
        seen.append(batch.shape)
        return batch

    quick(views=(view, view), steps=2).fit(X, hidden(y))
    assert (256, 6) in seen
    assert quick(views="embedding").fit(X, hidden(y)).score(X, y) > 0.8


def test_statistics_of_columns():
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(20_000, 3)) * [1, 10, 0] + [5, -1e4, 7]).astype(np.float32)
    mean, std = compute_moments(rows)
    np.testing.assert_allclose(mean, rows.astype(np.float64).mean(0), rtol=1e-9)
    np.testing.assert_allclose(std, rows.astype(np.float64).std(0), atol=1e-8)
    from scipy.sparse import csr_matrix

    sparse = csr_matrix(np.where(rng.random((500, 4)) < 0.1, rng.normal(size=(500, 4)), 0))
    mean, std = compute_moments(sparse)
    np.testing.assert_allclose(mean, sparse.toarray().mean(0))
    np.testing.assert_allclose(std, sparse.toarray().std(0))


def test_any_objective_of_ones_own():
    class TailRecall(csst.Objective):
        def utility(self, c: Confusion):
            return c.recall[1:].mean()

    X, y = blobs(90)
    fitted = quick(TailRecall()).fit(X, hidden(y))
    assert fitted.score(X, y) == pytest.approx(recall_score(y, fitted.predict(X), average=None)[1:].mean())

"""CSSTClassifier with a confidence, and certify: what is set apart, what is promised, which rows are refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from csst import CSSTClassifier, InputError
from csst.data.row_hashes import count_seen, hash_rows
from csst.data.text.texts import Texts
from csst.fitting.fitted_model import FittedModel

CENTERS = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
NAMES = np.array(["ok", "odd", "fraud"])
SENTENCE = "max mean(recall) s.t. recall >= 0.75"


def draw(seed: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, size=size, p=[0.5, 0.3, 0.2])
    return CENTERS[labels] + rng.normal(size=(size, 2)), NAMES[labels]


@pytest.fixture(scope="module")
def fitted() -> CSSTClassifier:
    classifier = CSSTClassifier(SENTENCE, confidence=0.9, learner="linear")
    return classifier.fit(*draw(0, 200), draw(1, 300)[0])


def test_bounds_are_promised_and_said(fitted: CSSTClassifier) -> None:
    certificate = fitted.certificate_
    assert certificate is not None
    assert certificate.is_certified
    assert sum(certificate.labels) + sum(fitted.labeled_counts_) == 200
    assert sum(certificate.labels) == pytest.approx(100, abs=2)
    summary = fitted.summary()
    assert "certified with confidence 0.9: recall['fraud'] >= 0.75" in summary
    assert summary.count("promised 0.750") == 3
    rows, labels = draw(5, 20_000)
    predictions = fitted.predict(rows)
    assert min((predictions[labels == name] == name).mean() for name in NAMES) >= 0.75


def test_a_certificate_is_kept_in_the_folder(fitted: CSSTClassifier, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metrics = fitted.fit_.save(tmp_path)
    loaded = FittedModel.load(tmp_path)
    assert loaded.certificate == fitted.certificate_
    assert loaded.objective.confidence == 0.9
    assert metrics["adjusted"]["certificate"]["bounds"][0]["asked"] == 0.75
    rows, labels = (part[:40] for part in draw(0, 200))
    with pytest.raises(InputError, match="40 of these 40 rows were part of the fit"):
        loaded.certify(SENTENCE, rows.astype(np.float32), np.searchsorted(sorted(NAMES), labels))


@pytest.mark.parametrize("learner", ["linear", "network"])
def test_nothing_is_learned_from_labels_that_certify(learner: str) -> None:
    rows, labels = draw(0, 90)
    fresh, truth = draw(2, 90)
    spoiled = np.roll(truth, 1)
    settings = {"training": {"steps": 5}, "folds": 2} if learner == "network" else None
    fits = []
    for y in (truth, spoiled):
        classifier = CSSTClassifier(SENTENCE, confidence=0.8, learner=learner, validation=(fresh, y), settings=settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fits.append(classifier.fit(rows, labels, draw(1, 60)[0]))
    assert [fit.certificate_.labels for fit in fits if fit.certificate_] != []
    assert sum(fits[0].certificate_.labels) == 90
    assert not fits[1].certificate_.is_certified
    probe = draw(3, 50)[0]
    np.testing.assert_array_equal(fits[0].fit_.logits(probe).numpy(), fits[1].fit_.logits(probe).numpy())
    np.testing.assert_array_equal(fits[0].predict_proba(probe), fits[1].predict_proba(probe))


def test_a_fraction_for_validation_is_the_share_that_certifies() -> None:
    classifier = CSSTClassifier(SENTENCE, confidence=0.9, learner="linear", validation=0.3).fit(*draw(0, 200))
    assert sum(classifier.certificate_.labels) == pytest.approx(60, abs=2)
    other = CSSTClassifier(SENTENCE, confidence=0.9, learner="linear", settings={"certifying": 0.3})
    assert other.fit(*draw(0, 200)).certificate_.labels == classifier.certificate_.labels


def test_without_a_confidence_nothing_is_set_apart() -> None:
    classifier = CSSTClassifier(SENTENCE, learner="linear").fit(*draw(0, 200))
    assert classifier.certificate_ is None
    assert sum(classifier.labeled_counts_) == 200
    assert "certified" not in classifier.summary()


def test_certify_is_certified_refuted_or_undecided(fitted: CSSTClassifier) -> None:
    rows, labels = draw(7, 300)
    certified = fitted.certify(None, rows, labels)
    assert certified.verdict == "certified"
    assert certified.confidence == 0.9
    assert certified.sentence.startswith(f"certified with confidence 0.9 after {certified.labels} labels: recall")
    early = fitted.certify(None, rows[: certified.labels - 1], labels[: certified.labels - 1])
    assert early.verdict == "undecided"
    assert early.more is not None
    assert "would decide" in early.sentence
    later = fitted.certify(None, rows[: certified.labels], labels[: certified.labels])
    assert later.verdict == "certified"  # one label more, and any number of looks
    wrong = np.where(labels == "ok", "odd", "ok")
    refuted = fitted.certify("precision['ok'] >= 0.9", rows, wrong, confidence=0.9)
    assert refuted.verdict == "refuted"
    assert "precision['ok'] >= 0.9 does not hold" in refuted.sentence


def test_unlabeled_rows_may_help_and_do_no_harm(fitted: CSSTClassifier) -> None:
    rows, labels = draw(7, 200)
    pool = draw(8, 4000)[0]
    bound = "accuracy >= 0.9"
    plain = fitted.certify(bound, rows, labels, confidence=0.9)
    helped = fitted.certify(bound, rows, labels, confidence=0.9, X_unlabeled=pool)
    assert plain.verdict == helped.verdict == "certified"
    wrong = np.roll(NAMES, 1)[np.searchsorted(sorted(NAMES), labels)]
    assert fitted.certify(bound, rows, wrong, confidence=0.9, X_unlabeled=pool).verdict == "refuted"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            (None, *(part[:50] for part in draw(0, 200))),
            "50 of these 50 rows were part of the fit, or equal one of its rows; pass rows drawn at random",
        ),
        ((None, draw(1, 300)[0][:20], ["ok"] * 20), "20 of these 20 rows were part of the fit"),
        (("max min(recall)", *draw(7, 50)), "is for bounds, and 'max min\\(recall\\)' has none"),
        (("recall['frod'] >= 0.5", *draw(7, 50)), "there is no class 'frod'; did you mean 'fraud'"),
        (("gmean(recall) >= 0.5", *draw(7, 50)), "cannot be certified"),
        (("precision['fraud'] >= 2", *draw(7, 50)), "labels can prove bounds above 0 and below 1"),
        (("coverage['ok'] <= 1", *draw(7, 50)), "labels can prove bounds above 0 and below 1"),
        ((None, *draw(7, 50), 0.8), "the sentence says confidence 0.9 and the argument 0.8"),
        (("recall >= 0.5", *draw(7, 50), 1.5), "lies between 0 and 1, such as 0.95; found 1.5"),
        ((None, draw(7, 50)[0], ["ok"] * 49), "X and y must have the same length; found 50 rows and 49 labels"),
        ((None, draw(7, 2)[0], ["ok", None]), "every row that certifies needs a label"),
        ((None, draw(7, 2)[0], ["ok", "new"]), "classes that were not among the labels"),
    ],
)
def test_bad_input_is_one_sentence(fitted: CSSTClassifier, arguments, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        fitted.certify(*arguments)


def test_rows_that_suggest_chose_cannot_certify(fitted: CSSTClassifier) -> None:
    pool, labels = draw(11, 60)
    chosen = fitted.suggest(pool, 10)
    with pytest.raises(InputError, match="10 of these 10 rows were chosen by suggest"):
        fitted.certify(None, pool[chosen], labels[chosen])


@pytest.mark.parametrize(
    ("options", "labels", "sentence"),
    [
        ({"confidence": 0.9, "deployment_prior": "unlabeled"}, None, "give deployment_prior as numbers"),
        ({"confidence": 2}, None, "lies between 0 and 1"),
        ({"confidence": 0.9}, ["ok"] * 30 + ["odd"] * 30 + ["fraud"], "'fraud' has 1 label, and at least 2 are needed"),
    ],
)
def test_a_fit_that_cannot_promise_is_refused_before_it_learns(options, labels, sentence: str) -> None:
    rows, drawn = draw(0, 61)
    classifier = CSSTClassifier("max accuracy s.t. precision['fraud'] >= 0.9", learner="linear", **options)
    with pytest.raises(InputError, match=sentence):
        classifier.fit(rows, drawn if labels is None else labels)


def test_hashes_are_of_content() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 5)).round(1)
    rows[rows < 0] = 0
    hashes = hash_rows(rows)
    assert len(np.unique(hashes)) == 20
    np.testing.assert_array_equal(hashes, hash_rows(scipy.sparse.csr_matrix(rows)))
    np.testing.assert_array_equal(hashes[5:7], hash_rows(rows[5:7].astype(np.float32)))
    assert count_seen(hashes[:3], hashes) == 3
    assert count_seen(hash_rows(rows + 0.01), hashes) == 0
    texts = hash_rows(Texts(["a", "b", "a"]))
    assert texts[0] == texts[2] != texts[1]


def test_rows_that_are_alike_by_chance_are_not_taken_for_rows_of_the_fit() -> None:
    rng = np.random.default_rng(0)
    old = hash_rows(rng.integers(0, 3, size=(300, 2)))
    assert count_seen(hash_rows(rng.integers(0, 3, size=(50, 2))), old) == 0

"""Arrays of images in the estimator: what is taken, what is refused, and what comes out."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from csst import CSSTClassifier
from csst.errors import InputError
from csst.estimators.networks import read_image_rows, read_image_views
from csst.estimators.settings import IMAGES, Inputs
from csst.fitting.fitted_model import FittedModel
from csst.models import build
from tests.helpers.exports import onnx, run_onnx

#: enough to learn something within a second or two
QUICK = {"training": {"steps": 60, "labeled_batch": 32, "unlabeled_batch": 32}, "dual": {"steps_per_update": 20}}


def draw_digits(classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 8, 8), floats in 0...1, and their classes."""
    digits = load_digits(n_class=classes)
    return digits.images / 16, digits.target


@pytest.fixture(scope="module")
def fitted():
    """A network on 60 labeled and 180 unlabeled digits, and 200 more that it has not seen."""
    images, truth = draw_digits()
    labels = truth[:240].copy()
    labels[60:] = -1
    settings = {**QUICK, "rule": "fit"}
    clf = CSSTClassifier(learner="network", validation=0.3, settings=settings).fit(images[:240], labels)
    return clf, images[240:440], truth[240:440]


def test_a_network_learns_from_an_array_of_images(fitted):
    clf, images, truth = fitted
    assert clf.image_shape_ == (1, 8, 8)
    predictions = clf.predict(images)
    recalls = [(predictions[truth == c] == c).mean() for c in range(3)]
    assert min(recalls) > 0.7
    probabilities = clf.predict_proba(images)
    assert probabilities.shape == (200, 3)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert clf.suggest(images, 5).shape == (5,)


def test_the_page_has_thumbnails_of_mistakes(fitted, tmp_path):
    clf = fitted[0].decide("max recall[0]")  # which makes mistakes of the other classes
    page = clf.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert 0 < page.count('src="data:image/jpeg') <= 40


def test_floats_in_0_to_1_and_uint8_are_the_same_images(fitted):
    clf, images, _ = fitted
    pixels = np.round(images * 255).astype(np.uint8)
    probabilities = clf.predict_proba(images)
    for others in (pixels, pixels[..., None], pixels[:, None], list(pixels), torch.from_numpy(pixels)):
        np.testing.assert_array_equal(clf.predict_proba(others), probabilities)


def test_a_fitted_model_is_kept_by_pickle_and_in_a_folder(fitted, tmp_path):
    clf, images, _ = fitted
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.predict(images), clf.predict(images))
    clf.fit_.save(tmp_path / "model")
    loaded = FittedModel.load(tmp_path / "model", make=lambda: build(IMAGES.model, (1, 8, 8), 3, 0))
    pixels = torch.from_numpy(np.round(images * 255).astype(np.uint8))[:, None]
    assert loaded.predict(pixels).tolist() == clf.predict(images).tolist()


@onnx
def test_the_exported_graph_takes_uint8_and_decides_as_the_model(fitted, tmp_path):
    clf, images, _ = fitted
    path, card = clf.export(tmp_path / "digits.onnx")
    pixels = np.round(images * 255).astype(np.uint8)[:, None]
    out = run_onnx(path, pixels)
    np.testing.assert_allclose(out["probabilities"], clf.predict_proba(images), atol=1e-4)
    assert out["label"].tolist() == clf.predict(images).tolist()
    assert "floats in 0...1 are multiplied by 255 and rounded first" in card.read_text("utf-8")


@pytest.mark.parametrize("learner", ["auto", "linear", ["linear", "forest"]])
def test_other_learners_say_what_to_do_with_images(learner):
    images, truth = draw_digits()
    with pytest.raises(InputError, match=r"X holds images, shape \(\d+, 8, 8\), and learner .* takes rows of numbers"):
        CSSTClassifier(learner=learner).fit(images, truth)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda x: np.where(x > 0.5, np.nan, x), "NaN or infinity"),
        (lambda x: x * 16, r"pixels in 0\.\.\.1; found 0 to 16"),
        (lambda x: x - 1, r"pixels in 0\.\.\.1; found -1 to 0"),
        (lambda x: (x * 16).astype(np.int64), "found int64: convert them"),
        (lambda x: x[:, None, None], "must hold images"),
        (lambda x: [x[0], x[1][:4]], "one size"),
    ],
)
def test_pixels_that_are_none_are_refused(change, sentence):
    images = draw_digits()[0]
    with pytest.raises(InputError, match=sentence):
        read_image_rows(change(images), "network")


def test_images_of_another_size_and_rows_are_refused_after_the_fit(fitted):
    clf, images, _ = fitted
    with pytest.raises(InputError, match=r"X holds images of shape \(1, 8, 7\); the model was fitted on images of"):
        clf.predict(images[:, :, :7])
    with pytest.raises(InputError, match="X holds rows of numbers; the model was fitted on images"):
        clf.predict(images.reshape(len(images), -1))
    table = CSSTClassifier(learner="network", validation=0.3, settings=QUICK)
    table.fit(images.reshape(len(images), -1), fitted[2])
    with pytest.raises(InputError, match=r"X holds images of shape \(1, 8, 8\); the model was fitted on rows"):
        table.predict(images)


def test_network_and_views_follow_the_size_of_the_images():
    sizes = {8: (1, 1, 0.25), 14: (1, 1, 0.25), 24: (1, 3, 0.5), 28: (2, 3, 0.5), 32: (2, 4, 0.5), 96: (6, 12, 0.5)}
    settings = Inputs()
    for side, numbers in sizes.items():
        assert (settings.padding_of(side), settings.cutout_of(side)) == numbers[1:]
        network = build(IMAGES.model, (3, side, side), 4, 0)
        assert network(torch.zeros(2, 3, side, side, dtype=torch.uint8)).shape == (2, 4)
        assert network.reduce == numbers[0]
    weak, strong = read_image_views(settings, (1, 28, 28))
    assert (weak.padding, weak.flip, strong.cutout, strong.flip) == (3, False, 0.5, False)
    weak, strong = read_image_views(Inputs(views="photos", padding=2, cutout=0.0), (1, 28, 28))
    assert (weak.padding, weak.flip, strong.cutout, strong.flip) == (2, True, 0.0, True)
    with pytest.raises(InputError, match="symbols, photos or a pair"):
        read_image_views(Inputs(views="letters"), (1, 28, 28))

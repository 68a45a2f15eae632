"""Views of images through a frozen encoder: what is embedded, kept, found again and trained on."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from csst.data.embeddings import Embedder, embed_task, hash_contents
from csst.data.images.arrays import ImageArrays
from csst.data.images.views import OPERATIONS, SeededDraws, Strong, Weak
from csst.data.prepared_views import WeakViews, view_keys
from csst.data.row_hashes import hash_rows
from csst.fitting.fitted_model import FittedModel
from csst.maths.confusion import confusion_counts
from csst.recipes import recipe
from csst.runs.execute import execute
from csst.runs.folder import CHECKPOINT, Run
from csst.settings import Embedding
from csst.training.generations import expand_labeled
from csst.training.interruption import Interrupted
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

SEEDS = [bytes([at]) * 16 for at in range(40)]


def images(count: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8, generator=generator)


class Stub:
    """Sums over a grid of each channel, exact in float16 after division; remembers how much it was asked."""

    fingerprint = "stub"

    def __init__(self, fails_after: int = 10**9) -> None:
        self.asked, self.fails_after = 0, fails_after

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        if self.asked + len(batch) > self.fails_after:
            os.kill(os.getpid(), signal.SIGKILL)
        self.asked += len(batch)
        return batch.float().view(len(batch), 3, 2, 4, 2, 4).mean((3, 5)).flatten(1).round()


def encode(batch: torch.Tensor) -> torch.Tensor:
    """The stub as package.module:function."""
    return Stub()(batch)


def task(count: int = 40, seed: int = 0):
    y = np.arange(count) % 2
    parts = {"x_train": images(count, seed), "y_train": y, "x_test": images(count, seed + 1), "y_test": y}
    np.savez("photos.npz", **{key: np.asarray(value) for key, value in parts.items()})
    return ImageArrays("photos.npz", labeled=6, unlabeled=12, imbalance=1, padding=2).load(seed)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CSST_CACHE", str(tmp_path / "cache"))


# ── Randomness of each image's own ──


@pytest.mark.parametrize("view", [Weak(2), Strong(padding=2), Strong(operations=8, padding=1, flip=False)])
def test_a_view_does_not_depend_on_the_images_beside(view):
    x = images(40)
    together = view(x, SeededDraws(SEEDS))
    for at in (0, 7, 39):
        assert torch.equal(together[at : at + 1], view(x[at : at + 1], SeededDraws(SEEDS[at : at + 1])))
    backwards = view(x.flip(0), SeededDraws(SEEDS[::-1]))
    assert torch.equal(backwards.flip(0), together)
    assert not torch.equal(together, view(x, SeededDraws(SEEDS[1:] + SEEDS[:1])))


def test_seeded_draws_are_uniform_and_as_a_generators():
    seeds = [at.to_bytes(4, "big") for at in range(4000)]
    draws = SeededDraws(seeds)
    numbers = torch.stack([draws.uniform() for _ in range(40)])  # more than the first block of bytes
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert numbers.mean(1).sub(0.5).abs().max() < 0.03
    assert np.abs(np.corrcoef(numbers.numpy()) - np.eye(40)).max() < 0.08
    gray = torch.full((4000, 1, 8, 8), 200, dtype=torch.uint8)
    gray[:, :, 0, 0] = 9  # the corner shows where the crop went
    view = Weak(padding=2, flip=True)
    ours, theirs = (
        (view(gray, randomness) == 9).float().mean((0, 1))
        for randomness in (SeededDraws(seeds), torch.Generator().manual_seed(0))
    )
    assert (ours - theirs).abs().max() < 0.03
    assert len(OPERATIONS) == 14


# ── What is embedded and kept ──


def test_views_equal_encoding_augmented_images_one_by_one():
    made, raw, encoder = task(), task(), Stub()
    embedder = Embedder(encoder, Embedding(views=2, draws=3, batch=5))
    out = embed_task(made, embedder)
    assert encoder.asked == 36 + 40 + 36 * 2 + 24 * 3  # each content and each view once
    assert out.strong.vectors.shape == (3, 24, 12)
    assert out.strong.vectors.dtype == torch.float16
    for draw in range(3):
        for at in range(24):
            one = raw.unlabeled[at : at + 1]
            seeds = view_keys(hash_contents(one), raw.strong, draw)
            assert torch.equal(out.strong.vectors[draw, at].float(), Stub()(raw.strong(one, SeededDraws(seeds)))[0])
    both = torch.cat([raw.labeled.inputs, raw.unlabeled])
    for draw in range(2):
        seeds = view_keys(hash_contents(both), raw.weak, draw)
        assert torch.equal(out.weak.views[draw].float(), Stub()(raw.weak(both, SeededDraws(seeds))))
    assert not torch.equal(out.weak.views[0], out.weak.views[1])
    assert torch.equal(out.validation.inputs, Stub()(raw.validation.inputs))


def test_views_that_are_kept_are_not_drawn_again(capfd, monkeypatch):
    first = embed_task(task(), Embedder(Stub(), Embedding(views=1, draws=2)))
    said = capfd.readouterr().err
    assert "embedding 76 images and 84 views of them (1 weak, 2 strong of each)" in said
    assert "at most 0 MB in " in said
    assert "already holds 1 vectors" in said

    def refuse(self, images, draws):
        raise AssertionError("a view was drawn again")

    monkeypatch.setattr(Strong, "__call__", refuse)
    again = Stub()
    second = embed_task(task(), Embedder(again, Embedding(views=1, draws=2)))
    assert again.asked == 0
    assert torch.equal(first.strong.vectors, second.strong.vectors)
    assert torch.equal(first.weak.views, second.weak.views)


def _embed_until_killed(folder: str) -> None:
    embed_task(task(), Embedder(Stub(fails_after=100), Embedding(views=2, draws=2, batch=8, cache=folder)))


def test_the_store_survives_a_kill(tmp_path):
    process = multiprocessing.get_context("fork").Process(target=_embed_until_killed, args=(str(tmp_path),))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    rest, whole = Stub(), Stub()
    after = embed_task(task(), Embedder(rest, Embedding(views=2, draws=2, batch=8, cache=str(tmp_path))))
    alone = embed_task(task(), Embedder(whole, Embedding(views=2, draws=2, batch=8, cache=str(tmp_path / "other"))))
    assert 92 <= whole.asked - rest.asked <= 100  # all batches before the kill were kept
    assert torch.equal(after.strong.vectors, alone.strong.vectors)
    assert torch.equal(after.weak.views, alone.weak.views)


# ── What is trained on ──


def test_weak_views_are_found_by_the_vector_wherever_it_is():
    plain, views = torch.randn(20, 6), torch.randn(2, 20, 6).half()
    view = WeakViews(plain, views)
    index = torch.tensor([3, 19, 3, 0] * 60)
    out = view(plain[index], torch.Generator().manual_seed(0))
    known = torch.cat([plain[None], views.float()])
    pairs = zip(index.tolist(), out, strict=True)
    seen = [{d for d in range(3) if torch.equal(row, known[d, at])} for at, row in pairs]
    assert all(len(draws) == 1 for draws in seen)
    assert set().union(*seen) == {0, 1, 2}
    strange = torch.randn(5, 6)
    assert torch.equal(view(strange, torch.Generator().manual_seed(0)), strange)
    assert len({*hash_rows(torch.randn(5000, 6)).tolist()}) == 5000


def test_examples_that_join_the_labeled_ones_keep_their_views():
    out = embed_task(task(), Embedder(Stub(), Embedding(views=2, draws=1)))
    more = expand_labeled(out, torch.tensor([5, 1]), torch.tensor([0, 1]))
    drawn = torch.stack([more.weak(more.labeled.inputs, torch.Generator().manual_seed(at))[-2:] for at in range(30)])
    for place, row in ((0, 5), (1, 1)):
        known = {tuple(out.unlabeled[row].tolist())} | {tuple(v.tolist()) for v in out.weak.views[:, 12 + row].float()}
        assert {tuple(v.tolist()) for v in drawn[:, place]} == known


def test_without_views_the_weak_view_is_the_embedding_itself():
    out = embed_task(task(), Embedder(Stub(), Embedding(views=0, draws=1)))
    assert torch.equal(out.weak(out.unlabeled, torch.Generator()), out.unlabeled)


def test_a_head_trained_from_stored_views_resumes_to_the_bit():
    task(80)
    base = recipe("cifar10-lt-encoder")
    data = replace(base.data, path="photos.npz", classes=2, labeled=8, unlabeled=24, imbalance=2, validation=10)
    made = replace(
        base,
        data=replace(data, padding=2),
        encoder=f"{__name__}:encode",
        training=replace(base.training, steps=40, labeled_batch=8, unlabeled_batch=16),
        dual=replace(base.dual, steps_per_update=10),
    )
    whole = execute(made, "whole")

    def stop(trainer, record) -> None:
        if record.step == 20:
            raise Interrupted(signal.SIGTERM)

    with pytest.raises(Interrupted):
        execute(made, "parts", on_record=stop, checkpoint_seconds=0)
    assert Run.open("parts").checkpoint()["trainer"]["step"] == 20
    assert (Run.open("parts").path(CHECKPOINT)).is_file()
    resumed = execute(made, "parts", resume=True)
    assert resumed["test"] == whole["test"]
    assert resumed["checksums"] == whole["checksums"]


# ── Principal components ──


def test_components_are_those_of_the_training_images():
    plain = embed_task(task(), Embedder(Stub(), Embedding(views=1, draws=2)))
    out = embed_task(task(), Embedder(Stub(), Embedding(views=1, draws=2, components=5)))
    known = torch.cat([plain.labeled.inputs, plain.unlabeled]).numpy()
    reference = PCA(5, svd_solver="full").fit(known)
    ours = torch.cat([out.labeled.inputs, out.unlabeled]).numpy()
    signs = np.sign((ours * reference.transform(known)).sum(0))
    np.testing.assert_allclose(ours, reference.transform(known) * signs, atol=1e-3)
    np.testing.assert_allclose(out.test.inputs, reference.transform(plain.test.inputs) * signs, atol=1e-3)
    for mine, wide in ((out.strong.vectors, plain.strong.vectors), (out.weak.views, plain.weak.views)):
        expected = reference.transform(wide.flatten(0, 1).float().numpy()) * signs
        np.testing.assert_allclose(mine.flatten(0, 1).float(), expected, atol=0.3)  # float16
    drawn = out.weak(out.labeled.inputs, torch.Generator().manual_seed(0))
    assert not torch.equal(drawn, out.labeled.inputs)  # views are found again by the projected vectors
    assert out.facts["embedding_width"] == 12
    assert len(set(out.moments[1])) == 1  # one scale for all
    assert out.moments[1][0] == pytest.approx(ours.std(), rel=1e-3)
    same = embed_task(task(), Embedder(Stub(), Embedding(views=1, draws=2, components=12)))
    assert same.projection is None


def test_a_model_on_components_takes_images_and_is_exported_whole(tmp_path):
    task(80)
    base = recipe("cifar10-lt-encoder")
    data = replace(base.data, path="photos.npz", classes=2, labeled=8, unlabeled=24, imbalance=2, validation=10)
    made = replace(
        base,
        data=replace(data, padding=2),
        encoder=f"{__name__}:encode",
        embedding=replace(base.embedding, components=5),
        training=replace(base.training, steps=20, labeled_batch=8, unlabeled_batch=16),
        rule="fit",
    )
    metrics = execute(made, "run")
    assert metrics["input_shape"] == [5]
    fitted = FittedModel.load("run")
    test = made.data.load(0).test
    counts = confusion_counts(test.labels, fitted.predict(test.inputs), 2)
    assert counts.tolist() == metrics["adjusted"]["test"]["confusion"]
    assert fitted.as_exportable().example.shape == (3, 12)  # what the encoder gives

"""Splits, tasks and the toys' exact answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import csst
from csst.data import Digits, Gaussians, Tail, Toy, from_arrays, hold_out, long_tail, long_tail_counts
from csst.data.npz import read_npz
from csst.estimation.held_out_scores import HeldOutScores
from csst.estimation.shift import estimate_prior


def test_the_exponential_long_tail_is_cifar10s():
    """Paper, fig:intra-fid: n_i = floor(5000 · 100^(-i/9)) is the 12,406-image split of CIFAR10-LT."""
    counts = long_tail_counts(5000, 100, 10)
    assert sum(counts) == 12406
    assert counts[0] == 5000
    assert counts[-1] == 50
    assert long_tail_counts(10, 10, 3, reverse=True) == [1, 3, 10]
    assert long_tail_counts(5, 100, 4)[-1] == 1


def test_a_long_tailed_split_has_the_counts_asked_for_and_no_example_twice():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(5), 200))
    split = long_tail(labels, Tail(40, 8), Tail(80, 4, is_reversed=True), validation=10, test=15, seed=3)
    assert np.bincount(labels[split.labeled]).tolist() == long_tail_counts(40, 8, 5)
    assert np.bincount(labels[split.unlabeled]).tolist() == long_tail_counts(80, 4, 5, reverse=True)
    assert np.bincount(labels[split.validation]).tolist() == [10] * 5
    assert np.bincount(labels[split.test]).tolist() == [15] * 5
    every = np.concatenate([split.labeled, split.unlabeled, split.validation, split.test])
    assert len(np.unique(every)) == len(every)


@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.5, 2.0])
def test_another_amount_of_labels_leaves_the_other_parts_as_they_are(fraction):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(5), 200))
    cut = {"validation": 10, "test": 15, "seed": 3}
    whole, other = (
        long_tail(labels, Tail(40, 8), Tail(80, 8), labeled_fraction=part, **cut) for part in (1.0, fraction)
    )
    for name in ("unlabeled", "validation", "test"):
        assert getattr(whole, name).tolist() == getattr(other, name).tolist()
    counts = [max(1, round(fraction * count)) for count in long_tail_counts(40, 8, 5)]
    assert np.bincount(labels[other.labeled]).tolist() == counts
    fewer, more = sorted((whole.labeled, other.labeled), key=len)
    assert set(fewer) < set(more)
    every = np.concatenate([other.labeled, other.unlabeled, other.validation, other.test])
    assert len(np.unique(every)) == len(every)
    with pytest.raises(csst.InputError, match="labeled_fraction must be positive"):
        long_tail(labels, Tail(40, 8), Tail(80, 8), labeled_fraction=0.0)
    with pytest.raises(csst.InputError, match=r"needs 280 .*\(40 labeled, 80 unlabeled, 160 more labels\)"):
        long_tail(labels, Tail(40, 8), Tail(80, 8), labeled_fraction=5.0)


@pytest.mark.parametrize("source", [Digits(labeled=16), Toy(labeled=40, unlabeled=60, validation=5, test=5)])
def test_every_set_that_is_cut_by_counts_takes_a_fraction_of_its_labels(source):
    whole, half, double = (replace(source, labeled_fraction=part).load(0) for part in (1.0, 0.5, 2.0))
    for other in (half, double):
        assert torch.equal(whole.unlabeled, other.unlabeled)
        assert torch.equal(whole.test.inputs, other.test.inputs)
        assert torch.equal(whole.validation.inputs, other.validation.inputs)
    assert whole.split_hash == source.load(0).split_hash != half.split_hash
    assert [int(counts[0]) for counts in (half.train_counts, double.train_counts)] == [
        source.labeled // 2,
        source.labeled * 2,
    ]
    known = {tuple(row.flatten().tolist()) for row in double.labeled.inputs}
    assert all(tuple(row.flatten().tolist()) in known for row in half.labeled.inputs)


def test_the_seed_names_the_split():
    one, two, other = (Digits().load(seed).split_hash for seed in (0, 0, 1))
    assert one == two != other
    assert one == "ca10891a3c4edd77"  # the same everywhere: NumPy's PCG64 stream does not depend on the platform


def test_a_pool_that_is_too_small_is_refused():
    with pytest.raises(csst.InputError, match="needs 120 examples of class 0"):
        long_tail(np.repeat([0, 1], 100), Tail(40, 2), Tail(80, 2))
    with pytest.raises(csst.InputError, match="imbalance"):
        long_tail_counts(10, 0.5, 3)


def test_a_stratified_cut_takes_some_of_every_class_and_never_all():
    labels = np.repeat([0, 1, 2], [100, 10, 2])
    held = hold_out(labels, 0.2, 0)
    assert np.bincount(labels[held]).tolist() == [20, 2, 1]
    with pytest.raises(csst.InputError, match="class 'rare' has 1 labeled"):
        hold_out(np.array([0, 0, 1]), 0.5, 0, ["common", "rare"])


def test_arrays_become_a_task():
    x, y = np.random.default_rng(0).standard_normal((50, 3)), np.tile([0, 1, -1, -1, -1], 10)
    task = from_arrays({"x": x, "y": y, "x_unlabeled": x[:4]}, validation=0.3)
    assert len(task.labeled) == 14
    assert len(task.validation) == 6
    assert len(task.unlabeled) == 34
    assert task.train_prior.tolist() == [0.5, 0.5]
    assert task.input_shape == (3,)
    weak, strong = (view(task.unlabeled, torch.Generator().manual_seed(0)) for view in (task.weak, task.strong))
    assert 0 < float((weak - task.unlabeled).abs().mean()) < float((strong - task.unlabeled).abs().mean())


GOOD = {"x": np.zeros((6, 2)), "y": np.array([0, 0, 1, 1, -1, -1])}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"x": np.full((6, 2), np.nan)}, "finite; 6 rows are not"),
        ({"x": np.zeros(6)}, "one row per example"),
        ({"x": np.array([["a", "b"]] * 6)}, "array of numbers"),
        ({"y": np.array([0, 0, 1, 1, -1])}, "each example needs one label; found 6 and 5"),
        ({"y": np.array([0, 0, 1, 1, -2, -1])}, "-1 for unlabeled; found -2"),
        ({"y": np.array([0.5] * 6)}, "integers"),
        ({"y": np.array([-1] * 6)}, "no label at all"),
        ({"y": np.array([0, 0, 2, 2, -1, -1])}, "classes .'1'. have none in the labeled examples"),
        ({"class_names": np.array(["a"])}, "class_names lists 1"),
        ({"x_validation": np.zeros((2, 2))}, "y_validation is needed"),
        (
            {"x_validation": np.zeros((2, 2)), "y_validation": np.array([0, 0])},
            "classes \\['1'\\] have none in the validation",
        ),
        ({"x_validation": np.zeros((2, 3)), "y_validation": np.array([0, 1])}, "inputs of one shape"),
        ({"x_test": np.zeros((2, 2)), "y_test": np.array([0, 5])}, "test labels must lie in 0 .. 1"),
    ],
)
def test_bad_arrays_get_a_sentence(changes, says):
    with pytest.raises(csst.InputError, match=says):
        from_arrays({**GOOD, **changes})


def test_bad_files_get_a_sentence(tmp_path):
    np.savez(tmp_path / "odd.npz", x=np.zeros((2, 2)), y_valid=np.zeros(2))
    np.savez(tmp_path / "objects.npz", x=np.array([{}, {}], dtype=object))
    (tmp_path / "text.npz").write_text("not a zip")
    whole = (tmp_path / "odd.npz").read_bytes()
    (tmp_path / "torn.npz").write_bytes(whole[: len(whole) // 2])
    np.save(tmp_path / "one.npy", np.zeros(3))
    for name, says in (
        ("odd.npz", "did you mean 'y_validation'"),
        ("objects.npz", "plain arrays"),
        ("text.npz", "cannot be read"),
        ("torn.npz", "cannot be read"),
        ("none.npz", "no file"),
        ("one.npy", "single array"),
    ):
        with pytest.raises(csst.InputError, match=says):
            read_npz(str(tmp_path / name), ("x", "y", "y_validation"), ("x",))


def test_the_toys_best_value_is_computed_once_for_all_seeds(monkeypatch):
    first = Toy(test=10).load(0).facts
    monkeypatch.setattr(Gaussians, "minimax", lambda self: pytest.fail("computed again"))
    assert Toy(test=20).load(1).facts == first


def test_the_toys_minimax_value_is_a_saddle_point():
    """No weights give a larger worst recall, and at the optimum all recalls are equal."""
    source = Gaussians((-1.9, 1.9, 0.0))
    value, weights = source.minimax()
    assert source.recalls(weights) == pytest.approx([value] * 3, abs=2e-3)
    rng = np.random.default_rng(0)
    for _ in range(50):
        assert source.recalls(rng.dirichlet(np.ones(3))).min() <= value + 1e-3
    labels_first = Toy().load(0)
    assert labels_first.facts["best possible min recall"] == pytest.approx(value)


def test_exact_recalls_agree_with_a_large_sample():
    source = Gaussians((-1.0, 1.5, 0.0))
    points, labels = source.sample([200_000] * 3, np.random.default_rng(0))
    weights = np.array([0.5, 0.2, 0.3])
    scores = weights * np.exp(-((points[:, :1] - np.array(source.centers)) ** 2) / 2)
    hits = scores.argmax(1) == labels
    assert [hits[labels == c].mean() for c in range(3)] == pytest.approx(source.recalls(weights), abs=5e-3)


def test_the_unlabeled_prior_is_recovered_even_from_miscalibrated_scores():
    source, rng = Gaussians((-1.5, 1.5, 0.0)), np.random.default_rng(0)

    def scores(counts):
        points, labels = source.sample(counts, rng)
        exact = -((points[:, :1] - np.array(source.centers)) ** 2) / 2
        return torch.from_numpy(exact), torch.from_numpy(labels)

    truth = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)
    unlabeled, _ = scores([500, 1000, 3500])
    uniform = np.full(3, 1 / 3)
    assert estimate_prior(unlabeled.numpy(), uniform) == pytest.approx(truth.numpy(), abs=0.03)
    validation, labels = scores([300, 300, 300])
    bent = torch.tensor([2.0, -1.0, 0.5])
    probs = [torch.softmax(3 * part + bent, 1) for part in (validation, unlabeled)]
    evidence = HeldOutScores.from_probs(probs[0], labels, probs[1], train_prior="uniform")
    assert evidence.unlabeled_prior == pytest.approx(truth.numpy(), abs=0.08)

"""Cross-fitting: nobody is judged by a model that saw them, and all trainers follow the same multipliers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import count

import numpy as np
import pytest
import torch

from csst.data.task import Labeled, Task, identity_view, make_task
from csst.errors import InputError
from csst.models import mlp
from csst.settings import Dual, Settings, Training
from csst.training.crossfit import CrossFit, split_folds
from csst.training.evaluation import compute_logits
from csst.training.interruption import Interrupted
from csst.training.measurement import estimate_argmax, evidence_from_logits, join
from tests.helpers.estimators import blobs
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

SETTINGS = Settings(training=Training(steps=20, ema=0.9, lr=0.1), dual=Dual(steps_per_update=10, rates="pooled"))


def noise(batch, generator):
    return batch + torch.randn(batch.shape, generator=generator)


def example_task(rows: int = 90):
    X, y = blobs(rows + 60)
    X = X + np.random.default_rng(3).normal(size=X.shape).astype(np.float32) * 2
    return make_task("blobs", (X[:rows], y[:rows]), X[rows:], (X[:3], y[:3]), views=(identity_view, noise))


def model():
    torch.manual_seed(0)
    return mlp((6,), 3, hidden=8, depth=1)


@cache
def finished_run():
    """A cross-fitted run to the end, for tests that only look at it."""
    run = crossed()
    run.records = list(run.run())
    return run


def crossed(task=None, settings=SETTINGS, objective="max min(recall)", folds=3):
    return CrossFit(task or example_task(), model, objective, "csst", settings, seed=0, folds=folds)


def test_every_labeled_example_is_predicted_by_a_model_that_has_not_seen_it():
    task = example_task()
    result = crossed(task)
    everyone = task.labeled.inputs
    held = [fold.task.validation.inputs for fold in result.folds]
    assert sorted(map(tuple, torch.cat(held).tolist())) == sorted(map(tuple, everyone.tolist())), "each once"
    for fold in result.folds:
        learned = {tuple(row) for row in fold.task.labeled.inputs.tolist()}
        judged = {tuple(row) for row in fold.task.validation.inputs.tolist()}
        assert not learned & judged
        assert len(learned) + len(judged) == 90
        assert torch.bincount(fold.task.validation.labels).tolist() == [10, 10, 10]
        for row, label in zip(fold.task.validation.inputs.tolist(), fold.task.validation.labels.tolist(), strict=True):
            at = (everyone == torch.tensor(row)).all(1).nonzero().item()
            assert int(task.labeled.labels[at]) == label
    assert result.trainer.task.labeled is task.labeled, "the one that is kept learns from all"


def test_batches_of_a_fold_never_hold_its_own_examples():
    result = crossed()
    for fold in result.folds:
        judged = {tuple(row) for row in fold.task.validation.inputs.tolist()}
        for step in range(30):
            drawn = fold.batches.draw(step, torch.device("cpu")).x
            assert not judged & {tuple(row) for row in drawn.tolist()}


def test_all_trainers_follow_the_same_multipliers_and_select_at_the_same_step():
    result = crossed()
    values = []
    for record in result.run():
        values.append(record.multipliers)
        for trainer in result.trainers:
            assert trainer.multipliers.value.tolist() == record.multipliers
    assert values[0] != values[-1]
    assert len({trainer.best.step for trainer in result.trainers}) == 1
    assert all(trainer.step == 20 for trainer in result.trainers)


def test_pooled_counts_and_the_dual_step_by_hand():
    """Labeled rows by their fold's model, unlabeled ones by the kept one; then one exponentiated step on the rates."""
    result = crossed()
    updates = result.run()
    next(updates)
    before, gain = result.trainer.multipliers.value.clone(), result.trainer.multipliers.gain
    record = next(updates)  # its models are still those that were measured
    rows, labels = [], []
    for fold in result.folds:
        fold.ema.module.eval()
        with torch.no_grad():
            for row, label in zip(fold.task.validation.inputs, fold.task.validation.labels, strict=True):
                rows.append(fold.ema.module(row[None])[0])
                labels.append(int(label))
        fold.ema.module.train()
    assert len(rows) == 90
    kept = result.trainer
    watched = compute_logits(kept.ema.module, kept.task.unlabeled, index=kept.watched)
    assert 0 < len(watched) <= 0.2 * len(kept.task.unlabeled)
    prior = kept.task.train_prior
    logits = torch.stack(rows)
    evidence = evidence_from_logits(logits, torch.tensor(labels), watched, gain, prior)
    recall = estimate_argmax(evidence, logits, watched).confusion.recall
    assert record.recall == pytest.approx(recall.tolist(), abs=1e-5)
    size = SETTINGS.dual.step_size
    expected = before * torch.exp(-size * recall)
    assert record.multipliers == pytest.approx((expected / expected.sum()).tolist(), rel=1e-4)
    assert record.step_size == pytest.approx(size)


def test_out_of_fold_outputs_are_those_of_the_fold_that_did_not_learn_from_them():
    run = finished_run()
    scores, labels = run.judge()
    assert scores.shape == (90, 3)
    validation = [fold.task.validation for fold in run.folds]
    with torch.no_grad():
        logits = [fold.best_model()(part.inputs) for fold, part in zip(run.folds, validation, strict=True)]
    torch.testing.assert_close(scores, torch.cat(logits), atol=1e-5, rtol=0)
    assert torch.equal(labels, torch.cat([part.labels for part in validation]))


def test_groups_by_frequency_are_those_of_all_labeled_examples():
    """In a fold another class may be the rarest; the goal must stay the same."""
    X, y = blobs(60)
    keep = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:4], np.flatnonzero(y == 2)[:5]])
    task = make_task("blobs", (X[keep], y[keep]), X, (X[:3], y[:3]), views=(identity_view, noise))
    result = crossed(task, objective="max min(mean(recall[head]), mean(recall[tail]))", folds=2)
    counts = torch.tensor([[10, 10, 0], [1, 4, 0], [0, 1, 3]])
    from csst.maths.confusion import Confusion

    values = {float(trainer.objective.value(Confusion.from_counts(counts))) for trainer in result.trainers}
    assert len(values) == 1
    assert values == {min((0.5 + 0.75) / 2, 0.8)}


def test_fewer_folds_than_asked_where_a_class_is_rare():
    labels = torch.tensor([0] * 9 + [1] * 2)
    assert len(split_folds(labels, 3, 0, ("a", "b"))) == 2
    with pytest.raises(InputError, match="every class needs 2; class 'b' has 1"):
        split_folds(torch.tensor([0, 0, 1]), 3, 0, ("a", "b"))
    with pytest.raises(InputError, match="2 to 20 folds"):
        crossed(folds=1)


def test_patience_and_odd_steps_are_respected():
    training = replace(SETTINGS.training, steps=13)
    steps = [record.step for record in crossed(settings=replace(SETTINGS, training=training)).run()]
    assert steps == [0, 10, 13]


def test_a_fold_trains_for_the_same_groups_as_the_whole():
    X, y = blobs(60)
    keep = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:4], np.flatnonzero(y == 2)[:5]])
    task = make_task("blobs", (X[keep], y[keep]), X, (X[:3], y[:3]), views=(identity_view, noise))
    result = crossed(task, objective="max min(mean(recall[head]), mean(recall[tail]))", folds=2)
    assert len({trainer.multipliers.objective for trainer in result.trainers}) == 1


def test_a_state_between_two_records_resumes_to_the_same_end():
    whole = finished_run()
    first = crossed()
    second = crossed()
    expected = [record.multipliers for record in whole.records]
    steps = first.run()
    records = [next(steps).multipliers, next(steps).multipliers]
    second.load_state_dict(first.state_dict())
    assert [*records, *(record.multipliers for record in second.run())] == expected
    for name, value in whole.last_weights().items():
        assert torch.equal(value, second.last_weights()[name])
    for name, value in whole.best.state.items():
        assert torch.equal(value, second.best.state[name])
        assert torch.equal(value, second.best_model().state_dict()[name])


@pytest.mark.parametrize("at", [14, 37, 79])
def test_stopped_between_any_two_steps_it_resumes_to_the_same_end(monkeypatch, at):
    """Of four trainers that take ten steps each, some have moved further than others."""
    whole = finished_run()
    first = crossed()
    second = crossed()
    expected = [record.multipliers for record in whole.records]
    calls = count(1)
    records = []

    def stop():
        if next(calls) == at:
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr("csst.training.crossfit.step_boundary", stop)
        with pytest.raises(Interrupted):
            records.extend(record.multipliers for record in first.run())
    assert sum(trainer.step for trainer in first.trainers) == at
    second.load_state_dict(first.state_dict())
    rest = [record.multipliers for record in second.run()]
    assert rest == expected[-len(rest) :]
    assert len(rest) == (2 if at < 40 else 1)
    for mine, theirs in zip(second.trainers, whole.trainers, strict=True):
        assert mine.step == theirs.step == 20
        for name, value in theirs.last_weights().items():
            assert torch.equal(value, mine.last_weights()[name])


def test_rates_are_judged_under_the_class_balance_of_the_validation_examples():
    task = example_task()
    labels = torch.tensor([0] * 8 + [1] + [2])
    task = replace(task, validation=Labeled(task.labeled.inputs[:10], labels))
    game = crossed(task, objective="max mean(recall) s.t. coverage >= 0.2")
    last = list(game.run())[-1]  # at the end the multipliers do not move, so that all is still as it was measured
    measurement = join(
        [fold.measurer.measure_validation() for fold in game.folds],
        game.trainer.measurer.score_unlabeled(game.trainer.watched),
    )
    rates = game.trainer.estimate_confusion(measurement).rates
    covered = [sum(share * float(rates[i, j]) for i, share in enumerate((0.8, 0.1, 0.1))) for j in range(3)]
    assert last.coverage == pytest.approx(covered, abs=1e-6)
    assert task.validation_prior.tolist() == [0.8, 0.1, 0.1]


def test_validation_examples_become_labeled_ones_that_are_judged_out_of_fold():
    task = example_task(60)
    held = Labeled(task.unlabeled[:9], torch.tensor([0, 1, 2] * 3))
    every = replace(task, validation=held).join_validation()
    assert torch.equal(every.labeled.inputs, torch.cat([task.labeled.inputs, held.inputs]))
    assert torch.equal(every.labeled.labels, torch.cat([task.labeled.labels, held.labels]))
    assert every.validation is held, "whose class balance is still wanted"
    judged = torch.cat([fold.task.validation.inputs for fold in crossed(every).folds])
    assert all((judged == row).all(1).any() for row in held.inputs)


def test_texts_join_too():
    texts, more = Texts(["a", "b"]), Texts(["c", "d"])
    task = Task(
        "texts", ("x", "y"), Labeled(texts, torch.tensor([0, 1])), more, Labeled(more, torch.tensor([1, 0])), None
    )
    every = task.join_validation().labeled
    assert every.inputs[torch.tensor([3, 0, 2])] == ["d", "a", "c"]
    assert every.labels.tolist() == [0, 1, 1, 0]


class Texts(list):
    """Texts that are fetched by index, as those of a file are."""

    def __getitem__(self, indices):
        return [list.__getitem__(self, i) for i in indices.tolist()]

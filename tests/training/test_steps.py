"""A step by hand: what one optimizer step, one schedule and one measurement must be."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import pytest
import torch

from csst.maths.confusion import Confusion
from csst.settings import Dual, Hardware, Selection, SelfTrainingSettings, Settings, Training
from csst.training.evaluation import constraints_met
from csst.training.measurement import WATCHED_PART, choose_watched
from csst.training.schedules import dual_step, learning_rate, moving_average, training_signal, warmup_factor
from tests.helpers.trainers import SMALL, lines, trainer, weights


@pytest.mark.parametrize("schedule", ["fixmatch", "linear", "constant"])
def test_three_steps_are_those_of_a_loop_by_hand(schedule):
    """Fresh gradients of the mean cross-entropy, SGD with Nesterov momentum, the learning rate of the schedule."""
    settings = replace(SMALL, training=replace(SMALL.training, schedule=schedule, warmup=2))
    made, other = (trainer("erm", "accuracy", settings) for _ in range(2))
    training, model = settings.training, other.model
    velocity = [torch.zeros_like(p) for p in model.parameters()]
    for step in range(3):
        batch = other.batches.draw(step, other.engine.device)
        loss = torch.nn.functional.cross_entropy(model(batch.x), batch.y)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        progress = step / training.steps
        factor = {"fixmatch": math.cos(7 * math.pi * progress / 16), "linear": 1 - progress, "constant": 1.0}[schedule]
        lr = training.lr * factor * (0.5 if step == 0 else 1.0)
        with torch.no_grad():
            for p, v, gradient in zip(model.parameters(), velocity, gradients, strict=True):
                new = gradient + training.weight_decay * p
                v.mul_(training.momentum).add_(new)
                p.sub_(lr * (new + training.momentum * v))
        made.train_step()
    for a, b in zip(weights(made), weights(other), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_schedules_by_their_formulas():
    assert [dual_step("linear", 2.0, p) for p in (0.0, 0.25, 1.0)] == [2.0, 1.5, 0.0]
    assert [dual_step("constant", 2.0, p) for p in (0.0, 0.25, 1.0)] == [2.0, 2.0, 2.0]
    assert [dual_step("cosine", 2.0, p) for p in (0.0, 0.5, 1.0)] == pytest.approx([2.0, 1.0, 0.0])
    assert [learning_rate("fixmatch", 2.0, p) for p in (0.0, 0.5)] == [2.0, 2 * math.cos(7 * math.pi / 32)]
    assert learning_rate("constant", 2.0, 0.5) == 2.0
    assert [warmup_factor(step, 4) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    share = {"linear": 0.4, "log": 1 - math.exp(-2), "exp": math.exp(-3)}
    for name, part in share.items():
        assert training_signal(name, 0.4, 4) == pytest.approx(part * 0.75 + 0.25)
        assert training_signal(name, 1.0, 4) == pytest.approx(1.0, abs=0.01)


def test_annealing_keeps_the_unsure_examples_only():
    """The mean loss over the labeled examples whose class is less probable than the training signal."""
    on = SelfTrainingSettings(annealing="linear")
    training = trainer("uda", "accuracy", replace(SMALL, selftraining=on))
    logits = torch.tensor([[4.0] + [0.0] * 9, [0.0] * 10, [-1.0] + [0.0] * 9])
    y = torch.zeros(3, dtype=torch.long)
    losses = torch.nn.functional.cross_entropy(logits, y, reduction="none")
    training.step = 3  # a tenth of all steps: signal .1 · .9 + .1 = .19, and p = .86, .1, .04
    torch.testing.assert_close(training._labeled_loss(logits, y), losses[1:].mean())
    training.step = 0  # signal .1: a probability of exactly so much is no longer unsure
    torch.testing.assert_close(training._labeled_loss(logits, y), losses[2])
    torch.testing.assert_close(training._labeled_loss(logits[:1], y[:1]), torch.zeros(()))


def test_whole_numbers_are_copied_and_not_averaged():
    update = moving_average(0.75)
    averaged, new = torch.tensor([4.0]), torch.tensor([8.0])
    update([averaged], [new], 1)
    assert averaged.item() == 5.0
    counts = torch.tensor([4])
    update([counts], [torch.tensor([8])], 1)
    assert counts.item() == 8


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_parts_of_a_batch_are_synchronized_once_at_the_end(parts):
    training = trainer("erm", "accuracy", replace(SMALL, hardware=Hardware(accumulate=parts)))
    asked, sizes, usual = [], [], training.engine.without_sync
    training.engine.without_sync = lambda model, enabled: asked.append(enabled) or usual(model, enabled)
    training.model.register_forward_hook(lambda module, inputs, out: sizes.append(len(out)))
    training.train_step()
    assert asked == [True] * (parts - 1) + [False]
    assert sizes == [16 // parts] * parts


def test_every_update_compares_multipliers_and_gain_over_processes():
    training = trainer("csst", "mean-recall-coverage")
    compared = {}
    training.engine.require_same = lambda values, what: compared.update({what: values.clone()})
    training.train_step()
    training.update_multipliers()
    assert torch.equal(compared["multipliers"], training.multipliers.value)
    assert torch.equal(compared["gains"], training.multipliers.entries)


def test_examples_are_counted_once_for_every_view():
    for name, examples in (("csst", 16 + 2 * 32), ("erm", 16)):
        training = trainer(name)
        counted, usual = [], training.running_means.add
        training.running_means.add = lambda n, counted=counted, usual=usual, **v: counted.append(n) or usual(n, **v)
        training.train_step()
        assert sum(counted) == examples


def test_what_the_record_says_of_pseudo_labels():
    """Fractions of the unlabeled examples seen since the last record."""
    training = trainer("csst", "min-recall", replace(SMALL, selftraining=SelfTrainingSettings(tau=1e6)))
    first, second, *_ = training.run()
    assert first.used is None
    assert second.used == 1.0
    assert 0 < second.pseudo_accuracy < 1


def test_one_generation_of_several_warns_and_nothing_else_does():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("csst", "fixmatch", "erm", "csst-darp"):
            trainer(name)
    with pytest.warns(UserWarning, match="one generation of crest"):
        trainer("crest")


def test_watched_rows_are_a_fifth_and_at_most_two_thousand():
    assert len(choose_watched(100, 0)) == WATCHED_PART * 100 == 20
    many = choose_watched(50_000, 0)
    assert len(many) == 2000
    assert torch.equal(many, many.unique())
    assert torch.equal(many, choose_watched(50_000, 0))
    assert not torch.equal(many, choose_watched(50_000, 1))


def test_watched_rows_are_measured_in_order_and_never_drawn():
    settings = replace(SMALL, dual=replace(SMALL.dual, rates="pooled"))
    training = trainer("csst", "min-recall", settings)
    with torch.no_grad():
        expected = training.ema.module.eval()(training.task.unlabeled[training.watched])
    torch.testing.assert_close(training.measurer.measure(training.watched, training.balance_rows).unlabeled, expected)
    drawn = torch.cat([training.batches.draw(step, training.engine.device).index for step in range(20)])
    assert not set(drawn.tolist()) & set(training.watched.tolist())
    assert trainer("csst").watched is None


def test_a_state_may_be_taken_on_with_another_order_of_examples():
    whole, same, anew = (trainer("csst") for _ in range(3))
    for _ in range(7):
        whole.train_step()
    state = whole.state_dict()
    same.load_state_dict(state)
    anew.load_state_dict(state, keeps_order=False)
    after = [made.batches.draw(7, made.engine.device).index.tolist() for made in (whole, same, anew)]
    assert after[0] == after[1] != after[2]
    assert torch.equal(anew.multipliers.value, whole.multipliers.value)
    for name, value in whole.last_weights().items():
        assert torch.equal(value, anew.last_weights()[name])


def test_records_come_once_per_update_also_when_steps_are_no_multiple():
    training = trainer("erm", "accuracy", replace(SMALL, training=replace(SMALL.training, steps=12)))
    records = list(training.run())
    assert [record.step for record in records] == [0, 5, 10, 12]
    assert lines(training.run()) == []


def test_unlabeled_rows_drive_the_multipliers_only_where_rates_are_pooled():
    """Estimating the unlabeled balance looks at the same logits, but λ then still follows validation counts."""
    counted = replace(SMALL, selftraining=SelfTrainingSettings(unlabeled_prior="estimated"))
    pooled = replace(SMALL, dual=replace(SMALL.dual, rates="pooled"))
    for settings, follows_counts in ((SMALL, True), (counted, True), (pooled, False)):
        training = trainer("csst", "min-recall", settings)
        for _ in range(5):
            training.train_step()
        measurement = training.measurer.measure(training.watched, training.balance_rows)
        estimated, plain = training.estimate_confusion(measurement), Confusion.from_counts(measurement.counts)
        assert torch.allclose(estimated.rates, plain.rates) == follows_counts


def test_a_run_of_any_length_has_a_clock_of_its_own():
    """Average, interval and warm-up follow from the steps unless given."""
    clocks = {steps: Settings(training=Training(steps=steps)) for steps in (3, 500, 1000, 50_000)}
    assert [clock.ema for clock in clocks.values()] == pytest.approx([0, 0.98, 0.99, 0.999])
    assert [clock.steps_per_update for clock in clocks.values()] == [5, 10, 20, 500]
    assert [clock.dual_warmup for clock in clocks.values()] == [0] * 4
    assert not any(clock.keeps_last or clock.remembers_too_much for clock in clocks.values())
    solved = replace(clocks[1000], dual=Dual(update="solve"))
    assert (solved.dual_warmup, solved.keeps_last) == (50, True)
    own = Settings(
        training=Training(steps=1000, ema=0.5), dual=Dual(7, update="solve", warmup=3), selection=Selection("best")
    )
    assert (own.ema, own.steps_per_update, own.dual_warmup, own.keeps_last) == (0.5, 7, 3, False)
    training = trainer("erm", "accuracy", Settings(training=Training(steps=40, labeled_batch=16)))
    assert [record.step for record in training.run()] == list(range(0, 41, 5))


def test_an_average_that_remembers_more_than_a_fifth_of_the_run_is_warned_of():
    long = replace(SMALL, training=replace(SMALL.training, ema=0.9))
    with pytest.warns(UserWarning, match=r"remembers about 10 of the run's 15 steps.* lower it to 0.3333"):
        trainer("erm", "accuracy", long)
    assert Settings(training=Training(steps=1500, ema=0.999)).remembers_too_much
    assert not Settings(training=Training(steps=1500, ema=0.99)).remembers_too_much
    assert Settings(training=Training(steps=10, ema=1.0)).remembers_too_much


def test_a_share_at_its_bound_meets_it():
    assert constraints_met([0.1, 38 / 400 - 0.095 - 1e-17]) is True
    assert constraints_met([0.1, -1e-6]) is False
    assert constraints_met([]) is None

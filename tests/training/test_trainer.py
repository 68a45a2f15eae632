"""The loop really trains, follows Algorithms 1 and 2, selects on the objective, and reproduces itself."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

import csst
from csst.data import Toy, from_arrays
from csst.maths.losses import cost_sensitive_loss
from csst.maths.ranking import ValidationScore, score_on
from csst.models import Model, Standardize, build
from csst.selftraining import METHODS, method
from csst.settings import Dual, Selection, SelfTrainingSettings, Settings, Training
from csst.training.selection import Best
from csst.training.trainer import Trainer
from tests.helpers.short_runs import SHORT_RUN
from tests.helpers.trainers import DIGITS, SMALL, lines, trainer

pytestmark = SHORT_RUN


def test_weights_multipliers_and_average_change():
    training = trainer()
    weights = [p.clone() for p in training.model.parameters()]
    average = [p.clone() for p in training.ema.module.parameters()]
    multipliers, gain = training.multipliers.value.clone(), training.multipliers.gain.matrix.clone()
    records = list(training.run())
    assert [r.step for r in records] == [0, 5, 10, 15]
    assert all(not torch.equal(a, b) for a, b in zip(weights, training.model.parameters(), strict=True))
    assert all(not torch.equal(a, b) for a, b in zip(average, training.ema.module.parameters(), strict=True))
    assert not torch.equal(multipliers, training.multipliers.value)
    assert not torch.equal(gain, training.multipliers.gain.matrix)


def test_training_lowers_the_loss_and_raises_the_objective():
    training = trainer(settings=replace(SMALL, training=replace(SMALL.training, steps=120)))
    records = list(training.run())
    assert records[-1].labeled_loss < 0.7 * records[1].labeled_loss
    assert training.best.value > records[0].value + 0.2


@pytest.mark.parametrize("name", METHODS)
def test_every_method_runs_through_the_one_loop(name):
    records = list(trainer(name).run())
    learns_from_unlabeled = METHODS[name].label is not None
    assert (records[-1].used is not None) == learns_from_unlabeled
    assert (len(records[-1].multipliers) > 0) == (METHODS[name].gain_follows == "objective")


def test_the_pseudo_label_branch_carries_no_gradient():
    training = trainer()
    seen = []
    training.model.register_forward_hook(lambda module, args, out: seen.append(out.requires_grad))
    training.train_step()
    assert seen == [False, True]  # weak under no_grad; labeled and strong together with gradient


def test_the_multiplier_update_is_algorithm_1_on_the_averaged_model():
    training = trainer()
    for _ in range(10):
        training.train_step()
    before = training.multipliers.value.clone()
    training.ema.module.eval()
    predicted = training.ema.module(training.task.validation.inputs).argmax(1)
    recall = csst.Confusion.from_predictions(training.task.validation.labels, predicted, 10).recall
    expected = before * torch.exp(-0.5 * recall)
    training.update_multipliers()
    torch.testing.assert_close(training.multipliers.value, expected / expected.sum())


def test_no_multiplier_moves_after_the_last_step():
    """The gain of the last record is the one the last weights were trained under."""
    for goal in ("min-recall", "mean-recall-coverage"):
        training = trainer("csst", goal, replace(SMALL, dual=replace(SMALL.dual, schedule="constant")))
        *_, before, last = training.run()
        assert before.step < last.step == SMALL.training.steps
        assert last.multipliers == before.multipliers == training.multipliers.value.tolist()


@pytest.mark.parametrize("weight", [0.0, 0.5, 3.0])
def test_the_loss_is_the_labeled_one_plus_the_weighted_unlabeled_one(weight):
    """L_s + λ_u L_u, with λ_u as it stands in the settings."""
    settings = replace(SMALL, selftraining=SelfTrainingSettings(unlabeled_weight=weight, tau=1e6))
    training = trainer("csst", "min-recall", settings)
    batch, gain = training.batches.draw(0, training.engine.device), training.multipliers.gain
    with torch.no_grad():
        labeled = cost_sensitive_loss(training.model(batch.x), batch.y, gain).mean()
        unlabeled, used = training.selftraining(
            training.model(batch.weak), training.model(batch.strong), batch.index, gain
        )
    assert used.all()
    assert min(labeled, unlabeled) > 0.1
    torch.testing.assert_close(training._loss(batch).detach(), labeled + weight * unlabeled)


@pytest.mark.parametrize("decay", [0.9, 0.3])
def test_the_averaged_model_decays_as_the_settings_say(decay):
    """average <- decay average + (1 - decay) new after every step, from a copy of the first weights on."""
    training = trainer("erm", settings=replace(SMALL, training=replace(SMALL.training, ema=decay)))
    expected: list[torch.Tensor] = []
    for _ in range(4):
        training.train_step()
        new = [p.detach().clone() for p in training.model.parameters()]
        expected = [decay * a + (1 - decay) * b for a, b in zip(expected, new, strict=True)] if expected else new
    for average, value in zip(training.ema.module.parameters(), expected, strict=True):
        torch.testing.assert_close(average.detach(), value)


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    one, two, other = (list(trainer(seed=s).run()) for s in (3, 3, 4))
    assert lines(one) == lines(two)
    assert lines(one) != lines(other)


def test_a_loaded_state_continues_to_the_bit():
    whole = trainer("csst-uda", "mean-recall-coverage")
    expected = list(whole.run())
    for stop in (0, 1, 2):
        first, second = trainer("csst-uda", "mean-recall-coverage"), trainer("csst-uda", "mean-recall-coverage")
        records = []
        for record in first.run():
            records.append(record)
            if len(records) == stop + 1:
                break
        second.load_state_dict(first.state_dict())
        records += list(second.run())
        assert lines(records) == lines(expected)
        for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
            assert torch.equal(a, b)
        assert torch.equal(whole.multipliers.gain.matrix, second.multipliers.gain.matrix)
        assert whole.best.step == second.best.step


def test_dropout_resumes_to_the_bit_and_leaves_the_global_generator_alone():
    def make() -> Trainer:
        task = DIGITS.load(0)
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            Standardize((1, 8, 8)), torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(64, 10)
        )
        return Trainer(task, net, "min-recall", "csst", SMALL)

    whole = make()
    torch.manual_seed(7)
    expected = lines(whole.run())
    assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(7)))
    first, second = make(), make()
    step = first.run()
    records = [next(step), next(step)]
    second.load_state_dict(first.state_dict())
    assert lines([*records, *second.run()]) == expected


def test_a_step_on_a_cpu_leaves_the_other_devices_generators_alone(monkeypatch):
    """Without CUDA each of their seeds is put off with a recorded stack: 8 % of a short run."""
    training = trainer()
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("a seed for CUDA on a CPU"))
    training.train_step()


def test_selection_is_by_constraints_first_then_value():
    c = csst.Confusion.from_counts([[8, 2], [4, 6]])
    goal = csst.objective("max mean(recall) s.t. coverage >= 0.45").bind(2)
    now = score_on(goal, c, 0.0)
    assert now.violation == pytest.approx(0.05)
    assert now.score == pytest.approx(0.7 - 0.5)
    assert score_on(goal, c, 0.06).score == pytest.approx(0.7)
    best, model = Best(), dict
    gain = torch.ones(2)
    assert not best.consider(ValidationScore(0.9, [], 0.0), 0, model, gain)  # untrained
    assert best.consider(ValidationScore(0.9, [-0.2], 0.2), 1, model, gain)
    assert best.consider(ValidationScore(0.2, [-0.1], 0.1), 2, model, gain)  # closer to feasible beats a higher value
    assert best.consider(ValidationScore(0.1, [0.0], 0.0), 3, model, gain)
    assert not best.consider(ValidationScore(0.9, [-0.1], 0.1), 4, model, gain)
    assert best.consider(ValidationScore(0.1, [0.0], 0.0), 5, model, gain)  # a tie: trained longer
    assert best.step == 5
    assert best.updates_since_improvement == 2
    assert best.consider(ValidationScore(0.0, [0.0], 0.0), 6, model, 2 * gain, always=True)  # the last is kept
    assert best.step == 6
    assert best.gain.tolist() == [2, 2]


def test_early_stopping_waits_for_patience_and_keeps_the_best():
    settings = replace(SMALL, training=replace(SMALL.training, steps=400), selection=Selection(patience=3))
    training = trainer("erm", "accuracy", settings)
    records = list(training.run())
    assert records[-1].step < 400
    assert max(r.value for r in records[1:]) == training.best.value
    after = [r.value for r in records if r.step > max(r.step for r in records if r.value == training.best.value)]
    assert len(after) <= 3


def test_the_best_model_is_the_one_that_was_measured_best():
    training = trainer(settings=replace(SMALL, training=replace(SMALL.training, steps=50, lr=0.3)))
    records = list(training.run())
    model = training.best_model()
    predicted = model(training.task.validation.inputs).argmax(1)
    c = csst.Confusion.from_predictions(training.task.validation.labels, predicted, 10)
    assert float(training.objective.value(c)) == max(r.value for r in records[1:]) == training.best.value


def test_the_gain_of_the_best_model_is_the_one_it_was_trained_under():
    """The update that measures a model also makes the next gain, which this model has not seen."""
    training = trainer()
    training.train_step()
    gain_of_training = training.multipliers.gain.entries.clone()
    training.update_multipliers()
    assert not torch.equal(training.multipliers.gain.entries, gain_of_training), "a gain that stays would show nothing"
    assert torch.equal(training.best.gain, gain_of_training.cpu())


def test_the_best_model_is_a_copy_and_leaves_the_averaged_model_alone():
    training = trainer()
    for _ in training.run():
        pass
    training.train_step()  # so that the last weights are not the selected ones
    last = training.last_weights()
    selected_state = copy.deepcopy(training.best.state)
    assert any(not torch.equal(last[name], selected_state[name]) for name in last)
    model = training.best_model()
    assert all(torch.equal(value, selected_state[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert all(torch.equal(value, last[name]) for name, value in training.ema.module.state_dict().items())
    assert all(torch.equal(value, last[name]) for name, value in training.last_weights().items())
    assert all(
        torch.equal(value, training.best.state[name]) for name, value in training.best_model().state_dict().items()
    )
    assert training.best_model() is not training.best_model()
    assert not model.training


@pytest.mark.parametrize("how", ["csst", "csl"])
def test_groups_of_ones_own_named_head_and_tail_are_those_of_training_too(how):
    """Selection and multipliers must mean the same classes, also where the names are the paper's."""
    own = {"head": [7, 8, 9], "tail": [0, 1]}
    training = trainer(how, csst.objective("min-ht-recall", groups=own))
    counts = torch.eye(10) * torch.arange(1, 11) + 1
    c = csst.Confusion.from_counts(counts)
    expected = [float(c.recall[own["head"]].mean()), float(c.recall[own["tail"]].mean())]
    assert training.objective.payoff(c).tolist() == pytest.approx(expected)
    assert training.multipliers.objective.payoff(c).tolist() == pytest.approx(expected)


def test_a_fixed_objective_gets_the_groups_of_the_training_prior():
    row = replace(method("csl"), gain_follows="min-ht-recall")
    training = trainer(row, "accuracy")
    assert dict(training.multipliers.objective.binding.groups)["tail"] == (9,)


def test_annealing_leaves_out_what_is_already_learned():
    on = SelfTrainingSettings(annealing="exp")
    plain, annealed = trainer("uda"), trainer("uda", settings=replace(SMALL, selftraining=on))
    assert lines(plain.run()) != lines(annealed.run())


def test_a_diverging_run_stops_with_a_sentence():
    wild = replace(SMALL, training=replace(SMALL.training, lr=1e30, schedule="constant"))
    with pytest.raises(csst.InputError, match=r"not finite|diverged"):
        list(trainer("erm", settings=wild).run())


def test_a_method_of_the_users_own_is_a_row():
    from csst.selftraining import Hard, Method

    everything = Method("all", "accuracy", lambda s: Hard(), lambda s: lambda t, p, g, i: torch.ones(len(p)))
    records = list(trainer(everything).run())
    assert records[-1].used == 1.0
    assert method("csst", "text").name == "csst-uda"
    assert method("csst", "image").name == method("csst", "array").name == "csst-fixmatch"
    with pytest.raises(csst.InputError, match="did you mean 'fixmatch'"):
        method("fixmtch")


def test_unlabeled_examples_are_needed_only_where_they_are_used():
    x, y = torch.randn(40, 3), torch.arange(40) % 2
    task = from_arrays({"x": x, "y": torch.cat([y[:30], -torch.ones(10, dtype=torch.long)])})
    empty = replace(task, unlabeled=task.unlabeled[:0])
    model = build(Model(hidden=4, depth=1), (3,), 2, 0)
    list(Trainer(empty, model, "min-recall", "csl", SMALL).run())
    with pytest.raises(csst.InputError, match="needs unlabeled examples"):
        Trainer(empty, model, "min-recall", "csst", SMALL)


@pytest.mark.parametrize(
    "goal", ["max gmean(recall)", "max mean(f1)", pytest.param("max hmean(recall)", marks=pytest.mark.slow)]
)
def test_relinearising_without_multipliers_does_not_oscillate(goal):
    """Without λ every update re-linearises at the current rates: Frank–Wolfe without averaging, held by small steps."""
    settings = Settings(
        training=Training(steps=300, labeled_batch=64, lr=0.05, ema=0.97), dual=Dual(steps_per_update=10)
    )
    training = trainer("csl", goal, settings, data=Toy("toy", labeled=400, imbalance=5, test=50))
    values = [r.value for r in training.run()]
    late = torch.tensor(values[len(values) // 2 :])
    assert float(late.max() - late.min()) < 0.05
    assert float(late.mean()) > values[0] + 0.2

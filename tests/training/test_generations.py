"""The outer loop: what each generation learns from, that one generation is no loop, and resuming to the bit."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

import csst
from csst.data.examples import Joined, choose
from csst.data.task import Task
from csst.learners.network import build_network
from csst.runs.begin import assemble
from csst.runs.execute import execute
from csst.runs.folder import Run
from csst.selftraining import Confidence, GenerationSchedule, Hard, Method
from csst.training.generations import Generations
from csst.training.selection import Best
from tests.helpers.runs import QUICK, Stop, compared, same
from tests.helpers.short_runs import SHORT_RUN
from tests.helpers.trainers import trainer

pytestmark = SHORT_RUN


def recipe_of(method: str, **settings):
    return replace(QUICK, method=method, selftraining=replace(QUICK.selftraining, **settings))


def generations(recipe) -> Generations:
    first = assemble(recipe)
    return Generations(first, recipe, lambda: build_network(recipe.network, first.task, recipe.seed))


def test_one_generation_that_keeps_everything_is_fixmatch_to_the_bit(tmp_path):
    execute(recipe_of("fixmatch"), tmp_path / "base")
    execute(recipe_of("crest", crest_generations=1, crest_alpha=0.0), tmp_path / "crest")
    (journal, metrics, state), (ours, result, states) = compared(tmp_path / "base"), compared(tmp_path / "crest")
    assert journal == ours
    assert {**metrics, "method": ""} == {**result, "method": ""}
    assert same(state, states)


@pytest.mark.parametrize("alpha", [0.0, 1 / 3])
def test_each_generation_learns_from_the_labels_and_the_chosen_pseudo_labels(alpha):
    training = generations(recipe_of("crest", crest_generations=3, crest_alpha=alpha))
    original, before = training.task, None
    records, selected = [], -float("inf")
    for record in training.run():
        records.append(record.step)
        if training.trainer is not before and before is not None:
            probs = torch.softmax(before.ema.module.eval()(original.unlabeled), 1)
            index, labels = GenerationSchedule(3, alpha).choose(probs, original.train_prior)
            task = training.trainer.task
            assert len(index) > 0
            assert torch.equal(task.labeled.labels, torch.cat([original.labeled.labels, labels]))
            assert torch.equal(task.labeled.inputs[len(original.labeled) :], original.unlabeled[index])
            assert len(task.unlabeled) == len(original.unlabeled)
            if alpha == 0:
                assert len(index) == len(original.unlabeled)
        before = training.trainer
        assert record.selected == (record.step > 0 and record.value >= selected)
        selected = max(selected, record.value) if record.step else selected
    assert records == [0, 10, 20, 30, 40, 50, 60]  # 60 steps in all, no step twice
    assert training.number == 2
    assert training.is_complete
    assert training.best.value == selected
    assert training.task is original


def test_the_last_model_labels_whatever_validation_has_selected(monkeypatch):
    training = generations(recipe_of("crest", crest_generations=2))
    monkeypatch.setattr(
        type(training.trainer), "best_model", lambda trainer: pytest.fail("the selected model was asked")
    )
    teacher = training.trainer
    for _ in training.run():
        if training.number == 1:
            break
    expected = torch.softmax(teacher.ema.module.eval()(training.task.unlabeled), 1).argmax(1)
    assert torch.equal(training.labels, expected[training.index])


def test_a_generation_starts_afresh_with_its_share_of_the_steps_and_its_temperature():
    recipe = recipe_of("crest+", crest_generations=3, crest_temperature=0.25)
    training = generations(recipe)
    untrained = [p.clone() for p in training.trainer.model.parameters()]
    powers, seen = [], set()
    for _ in training.run():
        if training.number not in seen:
            seen.add(training.number)
            flat = training.task.train_prior ** (1.0, 0.625, 0.25)[training.number]
            torch.testing.assert_close(training.trainer.selftraining.refine.expected, flat / flat.sum())
            powers.append(training.number)
            assert training.trainer.settings.training.steps == 20
    assert powers == [0, 1, 2]
    training._begin(1, 0, torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    for a, b in zip(untrained, training.trainer.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("method", "at"),
    [
        *(("flexmatch", 30), ("darp", 30), ("crest", 20), ("csst-balanced", 25)),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("csst-darp", 25), ("crest+", 30))),
    ],
)
def test_resuming_is_bit_identical(tmp_path, method, at):
    """crest is stopped at the end of a generation, crest+ within the second; darp refines from step 24 on."""
    recipe = recipe_of(method, darp_every=4, confidence=0.7, tau=0.3)
    recipe = replace(recipe, dual=replace(recipe.dual, steps_per_update=5))

    def stop(trainer, record):
        if record.step == at:
            raise Stop

    execute(recipe, tmp_path / "whole")
    with pytest.raises(Stop):
        execute(recipe, tmp_path / "cut", on_record=stop, checkpoint_seconds=0)
    execute(recipe, tmp_path / "cut", resume=True, checkpoint_seconds=0)
    assert same(compared(tmp_path / "whole"), compared(tmp_path / "cut"))
    steps = [r["step"] for r in Run(tmp_path / "cut").journal()]
    assert steps == list(range(0, 61, 5))
    learned = compared(tmp_path / "whole")[2]["selftraining"]
    for name, empty in (("select.selected", -1), ("refine.steps", 0), ("refine.seen", 0)):
        assert name not in learned or bool((learned[name] != empty).any())
    assert bool(learned) == (method != "crest")


def test_a_kill_after_a_generation_began_but_before_its_checkpoint(tmp_path):
    """The checkpoint is of the generation before; the journal already has records of the next."""
    recipe, seen = recipe_of("crest+"), []

    def stop(trainer, record):
        seen.append(record.step)
        if record.step == 30:
            raise Stop

    execute(recipe, tmp_path / "whole")
    with pytest.raises(Stop):
        execute(recipe, tmp_path / "cut", on_record=stop, checkpoint_seconds=0)
    state = Run(tmp_path / "cut").load("checkpoint.pt")
    again = generations(recipe)
    for record in again.run():
        if record.step == 20:  # the end of the first generation
            break
    Run(tmp_path / "cut").save("checkpoint.pt", {**state, "trainer": again.state_dict()})
    execute(recipe, tmp_path / "cut", resume=True, checkpoint_seconds=0)
    assert same(compared(tmp_path / "whole"), compared(tmp_path / "cut"))


def test_generations_with_any_objective_and_early_stopping():
    row = Method(
        "csst-crest",
        "objective",
        lambda s: Hard(),
        lambda s: Confidence(0.7),
        generations=lambda s: GenerationSchedule(2),
    )
    base = replace(QUICK, selection=replace(QUICK.selection, patience=1))
    with pytest.warns(UserWarning, match="one generation of csst-crest"):
        first = trainer(row, settings=base)
    training = Generations(first, base, lambda: first.model)
    steps = [record.step for record in training.run()]
    assert training.number == 1
    assert steps == sorted(set(steps))
    assert steps[-1] == training.step < 90  # the first trainer was given 60, the second is given 30
    assert len(training.trainer.multipliers.value) == 10


def test_the_best_model_is_a_copy_of_the_weights_selected_among_all_generations():
    training = generations(recipe_of("crest"))
    for _ in training.run():
        pass
    last = training.last_weights()
    selected_state = copy.deepcopy(training.best.state)
    model = training.best_model()
    assert all(torch.equal(value, training.best.state[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert all(torch.equal(value, last[name]) for name, value in training.trainer.ema.module.state_dict().items())
    assert all(torch.equal(value, selected_state[name]) for name, value in training.best_model().state_dict().items())


def test_the_best_model_of_all_generations_is_kept():
    training = generations(recipe_of("crest"))
    kept, new = {"w": torch.zeros(1)}, {"w": torch.ones(1)}
    training.before, training.best = 20, Best(10, 0.0, 0.5, state=kept)
    for worse in (Best(5, 0.0, 0.4, state=new), Best(5, 0.1, 0.9, state=new)):
        training.trainer.best = worse
        assert not training._consider()
        assert (training.best.step, training.best.state) == (10, kept)
    training.trainer.best = Best(5, 0.0, 0.5, state=new)
    assert training._consider()
    assert (training.best.step, training.best.state) == (25, new)


def test_the_tail_stays_the_tail_when_pseudo_labels_join():
    """Which classes are rare is a fact of the task, not of the labeled set as it grows."""
    training = generations(replace(recipe_of("crest"), objective="min-ht-recall"))
    rarest = int(training.task.train_counts.argmin())
    training._begin(1, 20, torch.arange(100), torch.full((100,), rarest))
    assert int(training.trainer.task.train_counts.argmin()) != rarest
    assert training.trainer.objective == training.objective


class Words:
    """Examples that are not tensors."""

    def __init__(self, words):
        self.words, self.asked = words, []

    def __len__(self):
        return len(self.words)

    def __getitem__(self, indices):
        assert len(indices)
        return [self.words[i] for i in indices.tolist()]

    def prefetch(self, indices):
        self.asked.append(indices.tolist())


def test_joined_examples_are_fetched_in_the_order_asked_for():
    first, other = Words(list("abcd")), Words(list("UVWXYZ"))
    joined = Joined(first, choose(other, np.array([5, 0, 2])))
    everything = list("abcdZUW")
    assert len(joined) == 7
    for asked in ([0, 6, 3, 4, 4, 1], [1, 2], [6, 5, 4]):
        assert joined[torch.tensor(asked)] == [everything[i] for i in asked]
    joined.prefetch(torch.tensor([5, 0, 6]))
    assert (first.asked, other.asked) == ([[0]], [[0, 2]])
    numbers = Joined(torch.arange(4.0), choose(torch.arange(10.0, 16), np.array([5, 0, 2])))
    assert numbers[torch.tensor([6, 0, 4])].tolist() == [12, 0, 15]


def test_more_generations_than_steps_are_refused(tmp_path):
    with pytest.raises(csst.InputError, match="generations need at least as many steps"):
        execute(recipe_of("crest", crest_generations=100), tmp_path / "run")


def test_the_metrics_are_of_the_task_itself(tmp_path):
    metrics = execute(recipe_of("crest"), tmp_path / "run")
    task: Task = QUICK.data.load(0)
    assert metrics["labeled_counts"] == task.train_counts.tolist()
    assert metrics["steps"] == 60
    assert sum(metrics["pseudo_labeled_counts"]) > 0
    assert execute(recipe_of("fixmatch"), tmp_path / "other")["pseudo_labeled_counts"] == [0, 0, 0]

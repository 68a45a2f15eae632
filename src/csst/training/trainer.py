"""The one training loop. Every method of the paper runs through it; a method is a row of a table, never a branch.

One step: a labeled and an unlabeled batch → weak and strong views → logits → L_s + unlabeled_weight · L_u → SGD, EMA.
One multiplier update (every `steps_per_update` steps, first before step 0): EMA model on validation → confusion, summed
over processes → payoff → λ → G, Algorithms 1 and 2; or the gain of the current decision rule (`solved_multipliers`).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from csst.data.task import Task
from csst.errors import InputError
from csst.maths.confusion import Confusion
from csst.maths.gain import Gain
from csst.maths.language import objective as read_objective
from csst.maths.losses import cost_sensitive_loss
from csst.maths.objectives import Objective, payoff_of
from csst.maths.ranking import score_on
from csst.selftraining import Method, Setup
from csst.selftraining import method as read_method
from csst.selftraining.step import as_classes
from csst.settings import Settings
from csst.training.batches import DROPOUT, Batch, Batches
from csst.training.engine import Engine
from csst.training.interruption import step_boundary
from csst.training.measurement import Measurement, Measurer, choose_rows, choose_watched, pooled_confusion
from csst.training.multiplier_updates import MultiplierUpdates
from csst.training.records import Record, RunningMeans
from csst.training.schedules import (
    describe_long_memory,
    learning_rate,
    make_optimizer,
    moving_average,
    training_signal,
    warmup_factor,
)
from csst.training.selection import Best
from csst.training.solved_multipliers import Solution
from csst.training.start import Start
from csst.training.teacher import Teacher, Teaching


class Trainer:
    """Trains a model on a task for an objective, by a method.

        for record in Trainer(task, model, "max min(recall)", "csst").run(): ...

    Afterwards `best_model()` is the averaged model with the best value of the objective on validation. Test examples
    are never used here.

    Args:
        task: labeled, unlabeled and validation examples.
        model: the network; it is trained in place.
        objective: a sentence, a short name or an `Objective`.
        method: a name of `csst.selftraining.METHODS`, package.module:name, or a `Method`.
        settings: settings of training, self-training, the multipliers, selection and hardware.
        seed: seed of the order of examples and of the views.
        setup: facts about the data for the method's parts; None takes them from the task.
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        objective: Objective | str,
        method: Method | str = "csst",
        settings: Settings | None = None,
        seed: int = 0,
        setup: Setup | None = None,
    ) -> None:
        self.task = task
        self.settings = settings or Settings()
        self.seed = seed
        self.method = read_method(method, task.kind)
        self._bind_objective(objective)
        self._make_selftraining(setup)
        self.engine = Engine(self.settings.hardware)
        self._make_batches(getattr(model, "encode", None))
        self._make_model_and_average(model)
        self.best = Best()
        self.running_means = RunningMeans(task.class_names)
        self.step = 0
        self.updated_at = -1
        self.start: Start | None = None

    def _bind_objective(self, objective: Objective | str) -> None:
        """Bind the run's objective to the task, and make the multipliers that the method's gain follows."""
        task = self.task
        bound_objective = read_objective(objective).bind(task.classes, task.class_names)
        self.stated_objective = bound_objective.bind_prior(task.train_prior)
        self.objective: Objective = self.stated_objective.ungrouped
        goal = self.method.objective(self.objective)
        if isinstance(goal, str):
            goal = read_objective(goal).bind(task.classes, task.class_names)
        is_solvable = self.method.gain_follows == "objective"
        self.updates = MultiplierUpdates(goal, self.stated_objective, task, self.settings, is_solvable)
        self.multipliers = self.updates.multipliers

    def _make_selftraining(self, setup: Setup | None) -> None:
        """Make the method's consistency loss, None without one, and the teacher that follows measurements."""
        if setup is None and self.method.generation_schedule(self.settings.selftraining).generations > 1:
            name = self.method.name
            warnings.warn(f"this trains one generation of {name}; csst.runs.execute trains all", stacklevel=3)
        if self.settings.remembers_too_much:
            warnings.warn(describe_long_memory(self.settings), stacklevel=3)
        task = self.task
        if setup is None:
            setup = Setup(task.classes, len(task.unlabeled), task.train_prior, self.settings.training.steps)
        self.selftraining = self.method.selftraining(self.settings.selftraining, setup)
        if self.selftraining is not None and not len(task.unlabeled):
            raise InputError(f"method {self.method.name} needs unlabeled examples; there are none: use csl, la or erm")
        self.teacher = Teacher(self.selftraining)

    def _make_batches(self, encode: Callable[[list[Any]], Tensor] | None) -> None:
        """Choose the unlabeled rows that are measured, and make the batches, which leave the watched ones out."""
        unlabeled = len(self.task.unlabeled)
        self.watched = self.balance_rows = None
        if self.updates.pools_rates and unlabeled:
            self.watched = choose_watched(unlabeled, self.seed)
        if self.teacher.balance is not None:
            self.balance_rows = choose_rows(unlabeled, self.seed)
        process = (self.engine.rank, self.engine.processes)
        uses_unlabeled = self.selftraining is not None
        training = self.settings.training
        self.batches = Batches(self.task, training, self.seed, uses_unlabeled, *process, encode, self.watched)

    def _make_model_and_average(self, model: nn.Module) -> None:
        """Place the model and make its moving average, its optimizer and the wrapped model that is called."""
        engine = self.engine
        if self.selftraining is not None:
            self.selftraining.to(engine.device)
        self.model = engine.place(model).train()
        self.ema = engine.make_average(self.model, moving_average(self.settings.ema))
        # Whole copies are made before the weights are sharded, and the optimizer of the sharded weights after.
        self.template = engine.make_template(self.ema.module)
        engine.shard(self.model, self.ema.module)
        self.forward, self.optimizer = engine.prepare(self.model, make_optimizer(self.model, self.settings.training))
        batch_size = self.settings.training.evaluation_batch
        self.measurer = Measurer(self.task, self.ema.module, engine, self.batches, batch_size)

    @property
    def measured_gain(self) -> Gain:
        """The gain behind the averaged model."""
        return self.updates.measured_gain

    def run(self) -> Iterator[Record]:
        """Train to the end, yielding a record at every multiplier update; continues from a loaded state."""
        interval = self.settings.steps_per_update
        while True:
            if self.updated_at != self.step and (self.step % interval == 0 or self.is_complete):
                yield self.update_multipliers()
            if self.is_complete:
                return
            for _ in range(min(interval - self.step % interval, self.settings.training.steps - self.step)):
                self.train_step()
                if self.engine.processes == 1:  # several must stop together, and so only when they talk anyway
                    step_boundary()

    @property
    def is_complete(self) -> bool:
        """Whether all steps are taken, or patience has run out."""
        return (
            self.step >= self.settings.training.steps
            or 0 < self.settings.selection.patience <= self.best.updates_since_improvement
        )

    def train_step(self) -> None:
        """Take one optimizer step on L_s + unlabeled_weight · L_u."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        labeled_index = self.batches.shard(self.batches.labeled.peek())
        batch = self.batches.draw(self.step, self.engine.device)
        self.optimizer.zero_grad(set_to_none=True)
        parts = self.settings.hardware.accumulate
        # Dropout, too, depends on seed, step and rank only.
        seed = self.batches.randomness(self.step, DROPOUT).initial_seed()
        tracker = self.running_means.track_batch(self.step, labeled_index, batch.index, self.multipliers.gain)
        with self.engine.seeded(seed), tracker:
            for number in range(parts):
                with self.engine.without_sync(self.forward, number < parts - 1):
                    loss = self._loss(batch.part(number, parts) if parts > 1 else batch) / parts
                    self.running_means.track_loss(loss)
                    self.engine.backward(loss)
        self.engine.clip(self.forward, self.optimizer)
        self.optimizer.step()
        if self.selftraining is not None:
            self.selftraining.commit()
        self.ema.update_parameters(self.model)
        self.updates.end_step()
        self.step += 1

    def _loss(self, batch: Batch) -> Tensor:
        """Return L_s + unlabeled_weight · L_u of a batch, a scalar, and add its parts to the running means."""
        one_step = torch.ones(())
        if self.selftraining is None or batch.weak is None or batch.strong is None or batch.index is None:
            labeled_loss = self._labeled_loss(self.forward(batch.x), batch.y, batch.groups)
            self.running_means.add(len(batch.x), steps=one_step, labeled_loss=labeled_loss)
            return labeled_loss
        labeled_end = len(batch.x)
        strong_end = labeled_end + len(batch.strong)
        if self.settings.training.batchnorm == "separate":
            with torch.no_grad():
                weak_logits = self.forward(batch.weak)
            logits = self.forward(torch.cat([batch.x, batch.strong]))
        else:
            logits = self.forward(torch.cat([batch.x, batch.strong, batch.weak]))
            weak_logits = logits[strong_end:].detach()
        gain = self.updates.find_row_gain(batch.unlabeled_groups)
        index = batch.index.to(weak_logits.device)
        labeled_loss = self._labeled_loss(logits[:labeled_end], batch.y, batch.groups)
        target, weights = self.selftraining.pseudo_labels(weak_logits, index, gain)
        unlabeled_loss = self.selftraining.loss(logits[labeled_end:strong_end], target, weights, gain)
        if self.task.unlabeled_truth is not None:
            truth = self.task.unlabeled_truth[batch.index].to(weak_logits.device)
            self.running_means.add(0, right=(weights * (as_classes(target) == truth)).sum())
        self.running_means.add(
            len(batch.x) + 2 * len(weights),
            steps=one_step,
            unlabeled=torch.tensor(len(weights)),
            labeled_loss=labeled_loss,
            unlabeled_loss=unlabeled_loss,
            used=weights.sum(),
        )
        return labeled_loss + self.settings.selftraining.unlabeled_weight * unlabeled_loss

    def _labeled_loss(self, logits: Tensor, y: Tensor, groups: Tensor | None = None) -> Tensor:
        """Return L_s, a scalar; with annealing, of the examples that are not learned yet (UDA)."""
        losses = cost_sensitive_loss(logits, y, self.updates.find_row_gain(groups))
        schedule = self.settings.selftraining.annealing
        if schedule == "off":
            return losses.mean()
        truth_probs = torch.softmax(logits.detach(), 1).gather(1, y[:, None]).squeeze(1)
        mask = (truth_probs < training_signal(schedule, self.progress, self.task.classes)).to(losses)
        return (mask * losses).sum() / mask.sum().clamp(min=1)

    def measure_teacher(self, measurement: Measurement) -> Teaching:
        """Estimate the unlabeled class prior and the accuracy of pseudo-labels, the same on all processes.

        Args:
            measurement: of the averaged model.

        Returns:
            Both estimates; None for each that the method does not use.
        """
        quality = self.teacher.measure(measurement, self.measured_gain, self.task)
        return self.engine.broadcast(quality)

    def estimate_confusion(self, measurement: Measurement) -> Confusion:
        """Estimate the confusion that drives the multipliers, the same on all processes.

        Args:
            measurement: of the averaged model.

        Returns:
            The confusion, K classes.
        """
        if self.updates.pools_rates:
            confusion = pooled_confusion(measurement, self.measured_gain, self.task)
        else:
            confusion = Confusion.from_counts(measurement.counts, self.task.class_names)
        return Confusion(self.engine.broadcast(confusion.rates), confusion.prior)

    def solve_multipliers(self, measurement: Measurement) -> Solution | None:
        """Solve for the gain that the current scores ask for, the same on all processes.

        Args:
            measurement: of the averaged model.

        Returns:
            The solution of the first process; None if multipliers move by gradient or not at all.
        """
        solution = self.updates.solve(measurement, self.task, self.watched) if self.engine.is_main else None
        return self.engine.broadcast(solution)

    def update_multipliers(self, confusion: Confusion | None = None, solution: Solution | None = None) -> Record:
        """Move the multipliers, and store the model if it is the best so far (Algorithms 1 and 2).

        Args:
            confusion: the confusion to follow; None measures this trainer's model.
            solution: result of `solve_multipliers`, for use with a given confusion.

        Returns:
            The record of the update.
        """
        if confusion is None:
            measurement = self.measurer.measure(self.watched, self.balance_rows)
            self.teacher.learn(self.measure_teacher(measurement), self.task.train_prior)
            confusion = self.estimate_confusion(measurement)
            solution = self.solve_multipliers(measurement)
        gain = self.measured_gain
        step_size = self.updates.move(confusion, solution, self.step)
        self.engine.require_same(self.multipliers.value, "multipliers")
        self.engine.require_same(self.multipliers.entries, "gains")
        score = score_on(self.objective, confusion, self.settings.selection.tolerance)
        is_selected = self.best.consider(score, self.step, self.last_weights, gain.entries, self.settings.keeps_last)
        self.updated_at = self.step
        return Record(
            step=self.step,
            recall=confusion.recall.tolist(),
            coverage=confusion.coverage.tolist(),
            value=score.value,
            slack=score.slack,
            score=score.score,
            selected=is_selected,
            multipliers=self.multipliers.value.tolist(),
            payoff=payoff_of(self.multipliers.objective, confusion).tolist(),
            step_size=step_size,
            lr=self.lr,
            unlabeled_prior=self.teacher.prior,
            trust=None if solution is None else solution.trust,
            hold="" if solution is None else solution.hold,
            teacher_accuracy=self.teacher.accuracy,
            teacher_weights=self.teacher.weights,
            **self.running_means.read_and_restart(self.engine.total),
        )

    def best_model(self) -> nn.Module:
        """Return a new model with the selected averaged weights, in evaluation mode."""
        return self.copy_model(self.best.state)

    def copy_model(self, weights: dict[str, Tensor]) -> nn.Module:
        """Return a new model with these weights, in evaluation mode.

        Args:
            weights: state of the model, by name.

        Returns:
            The model.
        """
        model = copy.deepcopy(self.template)
        model.load_state_dict(weights)
        return model.eval()

    def last_weights(self) -> dict[str, Tensor]:
        """Return a copy of the current averaged weights; if they are sharded, all processes must call this together."""
        return self.engine.weights(self.ema.module)

    @property
    def progress(self) -> float:
        """The fraction of the steps taken so far."""
        return self.step / self.settings.training.steps

    @property
    def lr(self) -> float:
        """The learning rate of the next step."""
        training = self.settings.training
        return learning_rate(training.schedule, training.lr, self.progress) * warmup_factor(self.step, training.warmup)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole training; loading it and running on is bit-identical to never having stopped (on a CPU).

        If the model is sharded, all processes must call this together.
        """
        return {
            "step": self.step,
            "updated_at": self.updated_at,
            "model": self.engine.weights(self.model),
            "ema": self.engine.weights(self.ema.module),
            "averaged": self.ema.n_averaged.clone(),
            "optimizer": self.engine.optimizer_state(self.model, self.optimizer),
            "running_means": self.running_means.state_dict(self.engine.total),
            "selftraining": self.selftraining.state_dict() if self.selftraining is not None else {},
            "averaged_gain": self.updates.state_dict(),
            **{name: getattr(self, name).state_dict() for name in self._PARTS},
        }

    def load_state_dict(self, state: dict[str, Any], keeps_order: bool = True) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: the whole training.
            keeps_order: whether the stored order of examples goes on; otherwise a new one begins.
        """
        self.step = state["step"]
        self.updated_at = state["updated_at"]
        self.engine.load_weights(self.model, state["model"])
        self.engine.load_weights(self.ema.module, state["ema"])
        self.ema.n_averaged.copy_(state["averaged"])
        self.engine.load_optimizer_state(self.model, self.optimizer, state["optimizer"])
        for name in self._PARTS:
            if keeps_order or name != "batches":
                getattr(self, name).load_state_dict(state[name])
        self.running_means.load_state_dict(state["running_means"], self.engine.is_main)
        if self.selftraining is not None:
            self.selftraining.load_state_dict(state["selftraining"])
        self.updates.load_state_dict(state.get("averaged_gain", {}))

    _PARTS = ("multipliers", "batches", "engine", "best")

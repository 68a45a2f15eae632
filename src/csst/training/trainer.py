"""The one training loop. Every method of the paper runs through it; a method is a row of a table, never a branch.

One step: a labeled and an unlabeled batch → weak and strong views → logits → L_s + unlabeled_weight · L_u → SGD, EMA.
One multiplier update (every `steps_per_update` steps, first before step 0): EMA model on validation → confusion, summed
over processes → payoff → λ → G, Algorithms 1 and 2; or the gain of the present decision rule (`solved_multipliers`).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from csst.data.task import Examples, Task
from csst.errors import InputError
from csst.maths.confusion import Confusion, confusion_counts
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
from csst.training.evaluation import compute_logits
from csst.training.interruption import step_boundary
from csst.training.measurement import Measurement, choose_rows, choose_watched, measured_confusion
from csst.training.multiplier_updates import MultiplierUpdates, make_multipliers
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
from csst.training.teacher import Teacher, Teaching


class Trainer:
    """Trains a model on a task for an objective, by a method.

        for record in Trainer(task, model, "max min(recall)", "csst").run(): ...

    Afterwards `best_model()` is the averaged model that did best on the objective itself, on validation. No test
    example is ever looked at here.

    Args:
        task: what there is to learn from.
        model: the network; it is trained in place.
        objective: a sentence, a short name or an `Objective`.
        method: a name of `csst.selftraining.METHODS`, package.module:name, or a `Method`.
        settings: of training, self-training, the multipliers, selection and hardware.
        seed: of the order of examples and of the views.
        setup: what a method's parts are told of the data; None takes it from the task.
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
        self.task, self.settings, self.seed = task, settings or Settings(), seed
        self.method = read_method(method, task.kind)
        prior, training = task.train_prior, self.settings.training
        self.objective = read_objective(objective).bind(task.classes, task.class_names).bind_prior(prior)
        followed = self.method.objective(self.objective)
        if isinstance(followed, str):
            followed = read_objective(followed).bind(task.classes, task.class_names)
        self.multipliers = make_multipliers(followed, prior, self.settings.dual)
        if setup is None and self.method.generation_schedule(self.settings.selftraining).generations > 1:
            name = self.method.name
            warnings.warn(f"this trains one generation of {name}; csst.runs.execute trains all", stacklevel=2)
        if self.settings.remembers_too_much:
            warnings.warn(describe_long_memory(self.settings), stacklevel=2)
        setup = setup or Setup(task.classes, len(task.unlabeled), prior, training.steps)
        self.selftraining = self.method.selftraining(self.settings.selftraining, setup)
        if self.selftraining is not None and not len(task.unlabeled):
            raise InputError(f"method {self.method.name} needs unlabeled examples; there are none: use csl, la or erm")
        self.engine = Engine(self.settings.hardware)
        if self.selftraining is not None:
            self.selftraining.to(self.engine.device)
        ours, encode = (self.engine.rank, self.engine.processes), getattr(model, "encode", None)
        follows = self.method.gain_follows == "objective"
        self.updates = MultiplierUpdates(self.multipliers, self.settings, follows, task.validation_prior)
        pools = self.updates.pools_rates and len(task.unlabeled) > 0
        self.watched = choose_watched(len(task.unlabeled), seed) if pools else None
        self.teacher = Teacher(self.selftraining)
        self.balance_rows = choose_rows(len(task.unlabeled), seed) if self.teacher.balance is not None else None
        self.batches = Batches(task, training, seed, self.selftraining is not None, *ours, encode, self.watched)
        self.model = self.engine.place(model).train()
        self.ema = self.engine.make_average(self.model, moving_average(self.settings.ema))
        self.template = self.engine.make_template(self.ema.module)
        self.engine.shard(self.model, self.ema.module)
        self.forward, self.optimizer = self.engine.prepare(self.model, make_optimizer(self.model, training))
        self.best, self.running_means = Best(), RunningMeans(task.class_names)
        self.step, self.updated_at = 0, -1

    @property
    def measured_gain(self) -> Gain:
        """The gain behind the averaged model."""
        return self.updates.measured_gain

    def run(self) -> Iterator[Record]:
        """Train to the end, yielding a record at every multiplier update. Resumes where a loaded state left off."""
        every = self.settings.steps_per_update
        while True:
            if self.updated_at != self.step and (self.step % every == 0 or self.is_complete):
                yield self.update_multipliers()
            if self.is_complete:
                return
            for _ in range(min(every - self.step % every, self.settings.training.steps - self.step)):
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
        """One optimizer step on L_s + unlabeled_weight · L_u."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        labeled, parts = self.batches.shard(self.batches.labeled.peek()), self.settings.hardware.accumulate
        batch = self.batches.draw(self.step, self.engine.device)
        self.optimizer.zero_grad(set_to_none=True)
        # Dropout, too, depends on seed, step and rank only.
        seed = self.batches.randomness(self.step, DROPOUT).initial_seed()
        tracked = self.running_means.track_batch(self.step, labeled, batch.index, self.multipliers.gain)
        with self.engine.seeded(seed), tracked:
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
        one = torch.ones(())
        if self.selftraining is None or batch.weak is None or batch.strong is None or batch.index is None:
            labeled = self._labeled_loss(self.forward(batch.x), batch.y)
            self.running_means.add(len(batch.x), steps=one, labeled_loss=labeled)
            return labeled
        first, second = len(batch.x), len(batch.x) + len(batch.strong)
        if self.settings.training.batchnorm == "separate":
            with torch.no_grad():
                weak = self.forward(batch.weak)
            logits = self.forward(torch.cat([batch.x, batch.strong]))
        else:
            logits = self.forward(torch.cat([batch.x, batch.strong, batch.weak]))
            weak = logits[second:].detach()
        labeled = self._labeled_loss(logits[:first], batch.y)
        gain = self.multipliers.gain
        target, used = self.selftraining.pseudo_labels(weak, batch.index.to(weak.device), gain)
        unlabeled = self.selftraining.loss(logits[first:second], target, used, gain)
        if self.task.unlabeled_truth is not None:
            right = used * (as_classes(target) == self.task.unlabeled_truth[batch.index].to(weak.device))
            self.running_means.add(0, right=right.sum())
        seen = {"labeled_loss": labeled, "unlabeled_loss": unlabeled, "used": used.sum()}
        self.running_means.add(len(batch.x) + 2 * len(used), steps=one, unlabeled=torch.tensor(len(used)), **seen)
        return labeled + self.settings.selftraining.unlabeled_weight * unlabeled

    def _labeled_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        losses = cost_sensitive_loss(logits, y, self.multipliers.gain)
        annealing = self.settings.selftraining.annealing
        if annealing == "off":
            return losses.mean()
        likely = torch.softmax(logits.detach(), 1).gather(1, y[:, None]).squeeze(1)
        keep = (likely < training_signal(annealing, self.progress, self.task.classes)).to(losses)
        return (keep * losses).sum() / keep.sum().clamp(min=1)

    def measure(self) -> Measurement:
        """What the averaged model does on validation and, where rates are pooled, on the watched unlabeled rows."""
        measurement = self.measure_validation()
        return replace(measurement, unlabeled=self.watched_logits(), balance=self.balance_logits())

    def watched_logits(self) -> Tensor | None:
        """The averaged model's logits of the watched unlabeled rows, where rates are pooled and there are any."""
        return None if self.watched is None else self.all_logits(self.task.unlabeled, self.watched)

    def balance_logits(self) -> Tensor | None:
        """Those of the unlabeled rows whose class balance is estimated, where it is."""
        return None if self.balance_rows is None else self.all_logits(self.task.unlabeled, self.balance_rows)

    def measure_validation(self) -> Measurement:
        """What the averaged model does on validation, over all processes: counts, and logits where they are needed."""
        validation, classes = self.task.validation, self.task.classes
        if self.updates.pools_rates or self.balance_rows is not None:
            scores = self.validation_logits()
            counted = confusion_counts(validation.labels, scores.argmax(1), classes)
            return Measurement(counted, scores, validation.labels)
        batch = self.settings.training.evaluation_batch
        shard, rounds = self.batches.shard_and_rounds(len(validation), batch)
        scores = compute_logits(self.ema.module, validation.inputs, batch, self.engine.device, shard, rounds)
        counted = confusion_counts(validation.labels[shard], scores.argmax(1), classes)
        return Measurement(self.engine.total(counted))

    def validation_logits(self) -> Tensor:
        """Return the averaged model's logits of all validation rows, (n, K), the same on all processes."""
        validation = self.task.validation
        return self.all_logits(validation.inputs, torch.arange(len(validation)))

    def all_logits(self, inputs: Examples, index: Tensor) -> Tensor:
        """The averaged model's logits of some examples, the same on all processes.

        Args:
            inputs: examples.
            index: which of them, in this order, (n,).

        Returns:
            Logits, (n, K).
        """
        batch = self.settings.training.evaluation_batch
        shard, rounds = self.batches.shard_and_rounds(len(index), batch)
        whole = torch.zeros(len(index), self.task.classes)
        if len(index):
            whole[shard] = compute_logits(self.ema.module, inputs, batch, self.engine.device, index[shard], rounds)
        return self.engine.total(whole)

    def measure_teacher(self, measurement: Measurement) -> Teaching:
        """What the scores say about pseudo-labels, the same on all processes.

        Args:
            measurement: what `measure` gave.

        Returns:
            The balance of the unlabeled examples and the accuracy of pseudo-labels, where they are estimated.
        """
        names, prior = self.task.class_names, self.task.train_prior
        return self.engine.broadcast(self.teacher.measure(measurement, self.measured_gain, prior, names))

    def estimate_confusion(self, measurement: Measurement) -> Confusion:
        """The confusion that drives the multipliers, the same on all processes.

        Args:
            measurement: what `measure` gave.

        Returns:
            The confusion, K classes.
        """
        if not self.updates.pools_rates:
            measurement = Measurement(measurement.counts)
        confusion = measured_confusion(measurement, self.measured_gain, self.task.train_prior, self.task.class_names)
        return Confusion(self.engine.broadcast(confusion.rates), confusion.prior)

    def solve_multipliers(self, measurement: Measurement) -> Solution | None:
        """The gain that the present scores ask for, the same on all processes; None where it is not solved for.

        Args:
            measurement: what `measure` gave.

        Returns:
            The solution of the first process.
        """
        solution = None
        if self.engine.is_main:
            solution = self.updates.solve(measurement, self.task.train_prior, self.task.class_names)
        return self.engine.broadcast(solution)

    def update_multipliers(self, confusion: Confusion | None = None, solution: Solution | None = None) -> Record:
        """Move the multipliers, and remember the model if it is the one to keep (Algorithms 1 and 2).

        Args:
            confusion: if it is to be another than that of `measure`.
            solution: that of `solve_multipliers`, to be given with a confusion.

        Returns:
            The record of the update.
        """
        if confusion is None:
            measurement = self.measure()
            self.teacher.learn(self.measure_teacher(measurement), self.task.train_prior)
            confusion = self.estimate_confusion(measurement)
            solution = self.solve_multipliers(measurement)
        gain, step_size = self.measured_gain, self.updates.move(confusion, solution, self.step)
        self.engine.require_same(self.multipliers.value, "multipliers")
        self.engine.require_same(self.multipliers.entries, "gains")
        score = score_on(self.objective, confusion, self.settings.selection.tolerance)
        selected = self.best.consider(score, self.step, self.last_weights, gain.entries, self.settings.keeps_last)
        self.updated_at = self.step
        return Record(
            step=self.step,
            recall=confusion.recall.tolist(),
            coverage=confusion.coverage.tolist(),
            value=score.value,
            slack=score.slack,
            score=score.score,
            selected=selected,
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
        """A new model with the weights of the averaged model that was selected, in evaluation mode."""
        return self.copy_model(self.best.state)

    def copy_model(self, weights: dict[str, Tensor]) -> nn.Module:
        """A new model in evaluation mode.

        Args:
            weights: its state.

        Returns:
            The model.
        """
        model = copy.deepcopy(self.template)
        model.load_state_dict(weights)
        return model.eval()

    def selected_weights(self) -> dict[str, Tensor]:
        """A copy of the weights of the averaged model that was selected, on the CPU."""
        return self.best.copy_weights()

    def last_weights(self) -> dict[str, Tensor]:
        """A copy of the averaged weights as they are now; where they are sharded, all processes must ask together."""
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
        """The whole game; loading it and running on is bit-identical to never having stopped (on a CPU).

        Where the model is sharded, all processes must ask for it together.
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
            state: the whole game.
            keeps_order: whether its order of examples goes on; else a new one begins.
        """
        self.step, self.updated_at = state["step"], state["updated_at"]
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

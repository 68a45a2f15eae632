"""The one training loop. Every method of the paper runs through it; a method is a row of a table, never a branch.

One step: a labeled and an unlabeled batch → weak and strong views → logits → L_s + unlabeled_weight · L_u → SGD, EMA.
One multiplier update (every `steps_per_update` steps, first before step 0): EMA model on validation → confusion →
payoff → λ → G. These are Algorithms 1 and 2 of the paper, which differ in the objective only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from csst.confusion import Confusion, head_tail
from csst.data.task import Task
from csst.errors import InputError
from csst.evaluation import counts
from csst.language import objective as read_objective
from csst.losses import cost_sensitive_loss
from csst.multipliers import Multipliers
from csst.objectives import Objective, payoff_of
from csst.records import Record, Tally
from csst.sampling import Sampler, stream
from csst.schedules import dual_step, learning_rate, training_signal
from csst.selection import Best, standing
from csst.selftraining import Method
from csst.selftraining import method as read_method
from csst.settings import Settings


class Trainer:
    """Trains a model on a task for an objective, by a method.

        for record in Trainer(task, model, "max min(recall)", "csst").run(): ...

    Afterwards `best_model()` is the averaged model that did best on the objective itself, on validation. No test
    example is ever looked at here.
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        objective: Objective | str,
        method: Method | str = "csst",
        settings: Settings | None = None,
        seed: int = 0,
    ) -> None:
        self.task, self.settings, self.seed = task, settings or Settings(), seed
        self.method = read_method(method, task.kind)
        prior, dual, training = task.train_prior, self.settings.dual, self.settings.training
        goal = read_objective(objective)
        self.objective = goal.bind(task.classes, task.class_names).bound_to(prior)
        follows = read_objective(self.method.objective(self.objective))
        self.multipliers = Multipliers(
            follows.bind(task.classes, task.class_names, head_tail(prior))
            if follows is not self.objective
            else follows,
            prior,
            dual.step_size,
            dual.initial,
            None if dual.metric_prior == "default" else dual.metric_prior,
        )
        self.selftraining = self.method.selftraining(self.settings.selftraining)
        self.device = device_of(training.device)
        self.model = model.to(self.device).train()
        self.ema = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(training.ema), use_buffers=True)
        self.optimizer = self._optimizer()
        if self.selftraining is not None and not len(task.unlabeled):
            raise InputError(f"method {self.method.name} needs unlabeled examples; there are none: use csl, la or erm")
        self.labeled = Sampler(len(task.labeled), training.labeled_batch, stream(seed, 0))
        self.unlabeled = Sampler(max(1, len(task.unlabeled)), training.unlabeled_batch, stream(seed, 1))
        self.views = {"labeled": stream(seed, 2), "unlabeled": stream(seed, 3)}
        self.dropout = stream(seed, 4).get_state()  # torch's global generator, as this run leaves it between steps
        self.best, self.tally = Best(), Tally()
        self.step, self.updated_at = 0, -1

    def run(self) -> Iterator[Record]:
        """Train to the end, yielding a record at every multiplier update. Resumes where a loaded state left off."""
        while True:
            if self.updated_at != self.step:
                yield self.update_multipliers()
            if self.finished:
                return
            until_update = self.settings.dual.steps_per_update - self.step % self.settings.dual.steps_per_update
            for _ in range(min(until_update, self.settings.training.steps - self.step)):
                self.train_step()

    @property
    def finished(self) -> bool:
        patience = self.settings.selection.patience
        return self.step >= self.settings.training.steps or bool(patience and self.best.stale >= patience)

    def train_step(self) -> None:
        """One optimizer step on L_s + unlabeled_weight · L_u."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.dropout)
            loss = self._loss()
            self.dropout = torch.get_rng_state()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.ema.update_parameters(self.model)
        self.step += 1

    def _loss(self) -> Tensor:
        gain, index = self.multipliers.gain, self.labeled.draw()
        x = self.task.weak(self.task.labeled.inputs[index], self.views["labeled"]).to(self.device)
        y = self.task.labeled.labels[index].to(self.device)
        if self.selftraining is None:
            labeled = self._labeled_loss(self.model(x), y)
            self.tally.add(len(x), steps=torch.ones(()), labeled_loss=labeled)
            return labeled
        chosen = self.unlabeled.draw()
        u = self.task.unlabeled[chosen]
        weak_u = self.task.weak(u, self.views["unlabeled"]).to(self.device)
        strong_u = self.task.strong(u, self.views["unlabeled"]).to(self.device)
        with torch.no_grad():
            weak = self.model(weak_u)
        logits = self.model(torch.cat([x, strong_u]))
        labeled = self._labeled_loss(logits[: len(x)], y)
        unlabeled, used = self.selftraining(weak, logits[len(x) :], chosen.to(self.device), gain)
        if self.task.unlabeled_truth is not None:
            right = used * (weak.argmax(1) == self.task.unlabeled_truth[chosen].to(self.device))
            self.tally.add(0, right=right.sum())
        seen = {"labeled_loss": labeled, "unlabeled_loss": unlabeled, "used": used.sum()}
        self.tally.add(len(x) + 2 * len(used), steps=torch.ones(()), unlabeled=torch.tensor(len(used)), **seen)
        return labeled + self.settings.selftraining.unlabeled_weight * unlabeled

    def _labeled_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        losses = cost_sensitive_loss(logits, y, self.multipliers.gain)
        annealing = self.settings.selftraining.annealing
        if annealing == "off":
            return losses.mean()
        likely = torch.softmax(logits.detach(), 1).gather(1, y[:, None]).squeeze(1)
        keep = (likely < training_signal(annealing, self.progress, self.task.classes)).to(losses)
        return (keep * losses).sum() / keep.sum().clamp(min=1)

    def update_multipliers(self) -> Record:
        """Measure the averaged model on validation, take one dual step, remember the model if it is the best yet."""
        batch, classes = self.settings.training.evaluation_batch, self.task.classes
        counted = counts(self.ema.module, self.task.validation, classes, batch, self.device)
        confusion = Confusion.from_counts(counted, self.task.class_names)
        step_size = dual_step(self.settings.dual.schedule, self.settings.dual.step_size, self.progress)
        if self.progress < 1:
            self.multipliers.update(confusion, step_size)
        now = standing(self.objective, confusion, self.settings.selection.tolerance)
        selected = self.best.consider(now, self.step, self.ema.module)
        self.updated_at = self.step
        return Record(
            step=self.step,
            recall=confusion.recall.tolist(),
            coverage=confusion.coverage.tolist(),
            value=now.value,
            slack=now.slack,
            score=now.score,
            selected=selected,
            multipliers=self.multipliers.value.tolist(),
            payoff=payoff_of(self.multipliers.objective, confusion).tolist(),
            step_size=step_size,
            lr=self.lr,
            **self.tally.means(),
        )

    def best_model(self) -> nn.Module:
        """The averaged model that was selected, in evaluation mode."""
        self.ema.module.load_state_dict(self.best.state)
        return self.ema.module.eval()

    @property
    def progress(self) -> float:
        return self.step / self.settings.training.steps

    @property
    def lr(self) -> float:
        return learning_rate(self.settings.training.schedule, self.settings.training.lr, self.progress)

    def state_dict(self) -> dict[str, Any]:
        """The whole game; loading it and running on is bit-identical to never having stopped (on a CPU)."""
        return {
            "step": self.step,
            "updated_at": self.updated_at,
            "model": self.model.state_dict(),
            "ema": self.ema.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "multipliers": self.multipliers.state_dict(),
            "selftraining": self.selftraining.state_dict() if self.selftraining is not None else {},
            "labeled": self.labeled.state_dict(),
            "unlabeled": self.unlabeled.state_dict(),
            "views": {name: generator.get_state() for name, generator in self.views.items()},
            "dropout": self.dropout,
            "best": self.best.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step, self.updated_at, self.dropout = state["step"], state["updated_at"], state["dropout"]
        for name in ("model", "ema", "optimizer", "multipliers", "labeled", "unlabeled", "best"):
            getattr(self, name).load_state_dict(state[name])
        if self.selftraining is not None:
            self.selftraining.load_state_dict(state["selftraining"])
        for name, generator in self.views.items():
            generator.set_state(state["views"][name])

    def _optimizer(self) -> torch.optim.Optimizer:
        training, parameters = self.settings.training, self.model.parameters()
        if training.optimizer == "adamw":
            return torch.optim.AdamW(parameters, lr=training.lr, weight_decay=training.weight_decay)
        nesterov = training.momentum > 0
        return torch.optim.SGD(
            parameters, training.lr, training.momentum, weight_decay=training.weight_decay, nesterov=nesterov
        )


def device_of(name: str) -> torch.device:
    """ "auto" is a CUDA device where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
        return device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"training.device {name!r} cannot be used here: {reason}; use auto or cpu") from None

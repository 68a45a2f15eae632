"""One training behind `CSSTClassifier`: the task, the views, the network, the run, and what came of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csst.data.sampling import stream
from csst.data.splits import split_hash
from csst.data.tabular.table_views import NeighborMix, NumberNoise, ScarfCorruption
from csst.data.tabular.tables import is_sparse, statistics
from csst.data.task import Labeled, Task, View
from csst.errors import InputError
from csst.learners.fit import RowParts
from csst.maths.gain import Gain
from csst.maths.objectives import Objective
from csst.models.table import TableInput
from csst.rules import DecisionRule, FittedRule, fit_evidence
from csst.rules.fit import read_deployment_prior
from csst.settings import Settings
from csst.sklearn.inputs import as_examples
from csst.statistics.evidence import MOST_UNLABELED
from csst.statistics.rates import RateEstimate
from csst.training.crossfit import CrossFit
from csst.training.evaluation import compute_logits
from csst.training.measuring import estimate_from_logits, evidence_from_logits
from csst.training.records import Record
from csst.training.trainer import Trainer

#: rows from which the strong view draws values, and those among which it looks for neighbours
POOL, NEIGHBOURS, POOL_CELLS = 10_000, 2_000, 20_000_000


def hash_rows(data: RowParts) -> str:
    """A fingerprint of the labeled and validation rows with their labels."""
    pairs = [(data.labeled, data.labels), *([data.validation] if data.validation is not None else [])]
    return split_hash(*(part for rows, labels in pairs for part in (*_arrays(rows), labels)))


@dataclass
class Fit:
    """What one training gave: the selected model, what is expected of it, and the decision rule, if any.

    estimate: the rates that labels and unlabeled rows let one expect of the selected model. ended: the model at the end
    of training, which the rule is for. states: of the trainers, to go on from.
    """

    method: str
    selected: nn.Module
    objective: Objective
    estimate: RateEstimate
    multipliers: dict[str, float]
    gain: np.ndarray
    history: list[dict[str, Any]]
    finished: FittedRule | None = None
    ended: nn.Module | None = None
    states: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @property
    def model(self) -> nn.Module:
        """The model that predicts."""
        return self.ended if self.finished is not None and self.ended is not None else self.selected

    @property
    def rule(self) -> DecisionRule | None:
        return None if self.finished is None else self.finished.rule

    @property
    def notes(self) -> list[str]:
        return [] if self.finished is None else list(self.finished.notes)

    @property
    def about(self) -> str:
        """Who decides, in words."""
        return f"network, {self.method}{' + post-hoc' if self.finished else ''}, for"

    def logits(self, rows: Any) -> Tensor:
        return compute_logits(self.model, as_examples(rows), 8192)

    def probs(self, rows: Any) -> np.ndarray:
        """softmax of the logits, (N, K)."""
        return torch.softmax(self.logits(rows).double(), 1).numpy()

    @property
    def expected(self) -> RateEstimate:
        """The rates to expect of what is used in the end: cross-fitted, where a rule was fitted."""
        return self.finished.estimate if self.finished is not None else self.estimate


def task_of(data: RowParts, views: tuple[View, View] | str) -> Task:
    labeled = Labeled(as_examples(data.labeled), torch.from_numpy(data.labels))
    held = labeled
    if data.validation is not None:
        held = Labeled(as_examples(data.validation[0]), torch.from_numpy(data.validation[1]))
    weak, strong = views_of(data, views) if isinstance(views, str) else views
    return Task("arrays", data.class_names, labeled, as_examples(data.unlabeled), held, None, weak=weak, strong=strong)


def views_of(data: RowParts, kind: str) -> tuple[View, View]:
    """Weak and strong view: of embeddings, or of a table of numbers and categories."""
    source = _most(data)
    size = min(NEIGHBOURS if kind == "embedding" else POOL, max(1, POOL_CELLS // source.shape[1]))
    at = np.random.default_rng(0).permutation(source.shape[0])[:size]
    pool = as_examples(source[np.sort(at)])[torch.arange(len(at))]
    mean, std = (torch.from_numpy(values.astype(np.float32)) for values in statistics(source))
    category = torch.tensor(data.sizes) > 0
    scale = torch.where(category, torch.zeros(()), std)
    if kind == "embedding":
        return NumberNoise(scale), NeighborMix(pool, mean, scale)
    return NumberNoise(scale), ScarfCorruption(pool, scale, torch.where(category, -torch.ones(()), mean))


def network(data: RowParts, hidden: int, depth: int, seed: int) -> Callable[[], nn.Module]:
    """Makes the untrained network: standardize and one-hot, then `depth` hidden layers."""
    moments = statistics(_most(data))

    def made() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            first = TableInput(data.sizes).fit(*moments)
            layers: list[nn.Module] = [first]
            width = first.width
            for _ in range(depth):
                layers += [nn.Linear(width, hidden), nn.ReLU()]
                width = hidden
            return nn.Sequential(*layers, nn.Linear(width, len(data.class_names)))

    return made


def trained(
    task: Task,
    make: Callable[[], nn.Module],
    objective: Objective | str,
    method: str,
    settings: Settings,
    seed: int,
    folds: int = 0,
    finishing: bool = False,
    deployment_prior: Any = None,
    watch: Callable[[Trainer, Record], None] | None = None,
    before: Fit | None = None,
) -> Fit:
    """Train; with folds, the multipliers follow out-of-fold predictions. `before` is the fit to go on from."""
    threads = torch.get_num_threads()
    try:
        runner: Trainer | CrossFit
        if folds:
            runner = CrossFit(task, make, objective, method, settings, seed, folds)
            everyone, trainer = runner.trainers, runner.trainer
        else:
            runner = trainer = Trainer(task, make(), objective, method, settings, seed)
            everyone = [trainer]
        if before is not None:
            _go_on(everyone, before)
        history = [] if before is None else list(before.history)
        for record in runner.run():
            history.append(record.as_dict())
            if watch is not None:
                watch(trainer, record)
        # Before the selected model takes the place of the averaged one, with which warm_start goes on.
        states = [_without_order(one.state_dict()) for one in everyone]

        some = torch.randperm(len(task.unlabeled), generator=stream(seed, 0))[:MOST_UNLABELED].sort().values
        batch, device = settings.training.evaluation_batch, trainer.engine.device

        def scored(model: Callable[[Trainer], nn.Module]) -> tuple[Tensor, Tensor, Tensor | None]:
            own = model(trainer)
            unlabeled = compute_logits(own, task.unlabeled, batch, device, some) if len(some) else None
            if isinstance(runner, CrossFit):
                return (*runner.out_of_fold(model), unlabeled)
            return compute_logits(own, task.validation.inputs, batch, device), task.validation.labels, unlabeled

        goal, ended, finished, gain = trainer.objective, None, None, trainer.multipliers.gain
        if finishing:
            last = scored(lambda one: one.ema.module.eval())
            evidence = evidence_from_logits(*last, gain, task.train_prior, task.class_names)
            prior = read_deployment_prior("labels" if deployment_prior is None else deployment_prior, evidence)
            finished = fit_evidence(evidence, goal, prior, gain.softmax_inverse, seed)
            ended = copy.deepcopy(trainer.ema.module).eval().cpu()
        kept = gain if trainer.best.gain is None else Gain(trainer.best.gain)
        estimate = estimate_from_logits(*scored(Trainer.best_model), kept, task.train_prior, task.class_names)
    finally:
        torch.set_num_threads(threads)
    return Fit(
        method,
        trainer.best_model().cpu(),
        goal,
        estimate,
        dict(zip(trainer.multipliers.labels, trainer.multipliers.value.tolist(), strict=True)),
        trainer.multipliers.gain.matrix.cpu().numpy(),
        history,
        finished,
        ended,
        states,
    )


def _go_on(trainers: list[Trainer], last: Fit) -> None:
    for trainer, state in zip(trainers, last.states, strict=True):
        try:
            # The order of examples starts anew: there may be other unlabeled rows than last time.
            trainer.load_state_dict({**state, "batches": trainer.batches.state_dict()})
        except (RuntimeError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"warm_start goes on with the same network, goal and method, and these differ: {reason}"
            ) from None


def _without_order(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key != "batches"}


def _most(data: RowParts) -> Any:
    """The rows whose columns are measured: those without labels, which are many, or else the labeled ones."""
    return data.unlabeled if data.unlabeled.shape[0] else data.labeled


def _arrays(rows: Any) -> list[np.ndarray]:
    return [rows.data, rows.indices, rows.indptr] if is_sparse(rows) else [rows]

"""A complete training of a network as a fitted model: scores, what to expect, the decision rule, stored weights."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csst.data.input_spec import InputSpec
from csst.data.sampling import stream
from csst.data.task import Task
from csst.estimation.class_rates import RateEstimate
from csst.fitting.fitted_model import FittedModel
from csst.fitting.metrics import FitDetails, Outputs
from csst.fitting.model_file import Weights
from csst.maths.gain import Gain
from csst.rules import FittedRule, fit_evidence
from csst.rules.deployment import read_deployment_prior
from csst.rules.fresh_labels import FreshLabels
from csst.rules.promise import promise
from csst.training.crossfit import CrossFit
from csst.training.evaluation import compute_logits
from csst.training.generations import Generations
from csst.training.measurement import estimate_from_logits
from csst.training.trainer import Trainer

#: unlabeled examples that estimates and rules look at: rates within a hundredth, and no second pass over a million
UNLABELED_ROWS = 5000
#: of examples that are not tensors in memory (texts, image files): each goes through a whole fine-tuned network
UNLABELED_RAW_ROWS = 2000


@dataclass(frozen=True, eq=False)
class Conclusion:
    """What follows a complete training.

    Args:
        runner: the training.
        task: its task.
        deployment_prior: see `csst.fitting.fit.fit`.
        seed: seed of the choice of unlabeled rows and of the rule.
    """

    runner: Generations | CrossFit
    task: Task
    deployment_prior: Any
    seed: int

    @cached_property
    def unlabeled_index(self) -> Tensor:
        """Indices of the unlabeled rows that are scored."""
        unlabeled = self.task.unlabeled
        most = UNLABELED_ROWS if isinstance(unlabeled, Tensor) else UNLABELED_RAW_ROWS
        return torch.randperm(len(unlabeled), generator=stream(self.seed, 0))[:most].sort().values

    @property
    def judged_prior(self) -> Any:
        """The class prior under which rates are judged, as `read_deployment_prior` takes it."""
        wanted = self.deployment_prior
        if wanted is None or (isinstance(wanted, str) and wanted in ("labels", "validation")):
            # Cross-fitting judges all labels, but only the validation examples are as balanced as new examples.
            wanted = self.task.validation_prior.numpy()
        return wanted

    def compute_logits(self, model: nn.Module, inputs: Any, index: Tensor | None = None) -> Tensor:
        """Return logits of examples, (N, K)."""
        batch = self.runner.settings.training.evaluation_batch
        return compute_logits(model, inputs, batch, self.runner.engine.device, index)

    def score_parts(self, model: nn.Module, weights: Weights, gain: Gain) -> Outputs:
        """Return the scores of the labels that judge, of the test examples and of some unlabeled rows."""
        task = self.task
        if isinstance(self.runner, CrossFit):
            parts = {"validation": self.runner.out_of_fold(lambda fold: copy_model(fold, weights))}
        else:
            validation = task.require("validation")
            parts = {"validation": (self.compute_logits(model, validation.inputs), validation.labels)}
        if task.test is not None:
            parts["test"] = (self.compute_logits(model, task.test.inputs), task.test.labels)
        unlabeled = torch.zeros(0, task.classes)
        if len(self.unlabeled_index):
            unlabeled = self.compute_logits(model, task.unlabeled, self.unlabeled_index)
        return Outputs(parts, unlabeled, gain)

    def expect(self, outputs: Outputs) -> RateEstimate:
        """Return the rates to expect of the plain argmax."""
        names = self.task.class_names
        train_prior = self.task.train_prior
        validation = outputs.parts["validation"]
        estimate = estimate_from_logits(*validation, outputs.unlabeled, outputs.gain, train_prior, names)
        return estimate.with_prior(read_deployment_prior(self.judged_prior, outputs.evidence(train_prior, names)))

    def fit_rule(self, model: nn.Module, outputs: Outputs) -> FittedRule:
        """Return the decision rule of a model, certified if examples are reserved for that."""
        task = self.task
        evidence = outputs.evidence(task.train_prior, task.class_names)
        prior = read_deployment_prior(self.judged_prior, evidence)
        fitted = fit_evidence(evidence, self.runner.objective, prior, outputs.gain.softmax_inverse, self.seed)
        if task.certifying is None:
            return fitted
        return promise(fitted, self.score_fresh(model), self.deployment_prior, task.class_names)

    def score_fresh(self, model: nn.Module) -> FreshLabels:
        """Return the probabilities of the examples that certify."""
        assert self.task.certifying is not None

        def score(inputs: Any) -> np.ndarray:
            return torch.softmax(self.compute_logits(model, inputs).double(), 1).cpu().numpy()

        unlabeled = None if self.task.kept_apart is None else score(self.task.kept_apart)
        return FreshLabels(score(self.task.certifying.inputs), self.task.certifying.labels.numpy(), unlabeled)

    def describe(self) -> dict[str, Any]:
        """Return entries about the training for metrics.json."""
        runner = self.runner
        return {
            "method": runner.method.name,
            "steps": runner.step,
            "selected_step": runner.best.step,
            "labeled_counts": self.task.train_counts.tolist(),
            "multipliers": dict(zip(runner.multipliers.labels, runner.multipliers.value.tolist(), strict=True)),
            "pseudo_labeled_counts": torch.bincount(runner.labels, minlength=self.task.classes).tolist(),
            "deployment_prior": describe_prior(self.deployment_prior),
        }


def conclude(
    runner: Generations | CrossFit,
    task: Task,
    last: dict[str, Tensor] | None,
    deployment_prior: Any,
    inputs: InputSpec | None,
    seed: int,
) -> FittedModel:
    """Return a complete training as a fitted model.

    Args:
        runner: the training.
        task: its task.
        last: the weights at the end, to which the rule is fitted: the validation examples have not chosen them, so
            that cross-fitting on them is not flattered by the choice. None for no rule.
        deployment_prior: see `csst.fitting.fit.fit`.
        inputs: see `csst.fitting.fit.fit`.
        seed: see `csst.fitting.fit.fit`.
    """
    end = Conclusion(runner, task, deployment_prior, seed)
    gain = runner.measured_gain
    model = runner.best_model()
    outputs = end.score_parts(model, "selected", gain if runner.best.gain is None else Gain(runner.best.gain))
    estimate = end.expect(outputs)
    weights = pack_weights("selected", runner.best.state, outputs.gain)
    rule, rule_outputs = None, None
    if last is not None:
        model = copy.deepcopy(model)
        model.load_state_dict(last)
        rule_outputs = outputs if is_last_selected(runner, outputs.gain) else end.score_parts(model, "last", gain)
        rule = end.fit_rule(model, rule_outputs)
        weights |= pack_weights("last", last, gain)
    notes = () if rule is None else rule.notes
    details = FitDetails(
        outputs,
        estimate,
        rule,
        rule_outputs,
        end.describe(),
        task.train_prior,
        len(task.unlabeled),
        notes,
        weights=weights,
        gain=Gain(runner.multipliers.gain.entries.cpu()),
    )
    spec = inputs or InputSpec(task.kind, task.input_shape)
    batch = runner.settings.training.evaluation_batch
    return FittedModel(
        model,
        None if rule is None else rule.rule,
        runner.objective,
        task.class_names,
        spec,
        batch,
        details=details,
        row_hashes=task.hash_rows(),
    )


def is_last_selected(runner: Generations | CrossFit, gain: Gain) -> bool:
    """Return whether the selected network is the last one, under the same gain, so that its scores are known."""
    same_gain = torch.equal(gain.entries.cpu(), runner.measured_gain.entries.cpu())
    return runner.best.step == runner.step and same_gain and not isinstance(runner, CrossFit)


def pack_weights(name: Weights, state: dict[str, Tensor], gain: Gain) -> dict[str, Tensor]:
    """Return weights and their gain under the names of the model file, on the CPU."""
    tensors = {**{f"{name}.{key}": value for key, value in state.items()}, f"gain.{name}": gain.entries}
    return {key: value.detach().cpu().clone().contiguous() for key, value in tensors.items()}


def describe_prior(deployment_prior: Any) -> Any:
    """Return a deployment prior as it was stated, for metrics.json: a word, or one number per class."""
    if deployment_prior is None or isinstance(deployment_prior, str):
        return deployment_prior
    return np.asarray(deployment_prior, dtype=float).tolist()


def copy_model(trainer: Trainer, weights: Weights) -> nn.Module:
    """Return the averaged model of a trainer, as selected or as it is at the end."""
    model = trainer.best_model()
    if weights == "last":
        model.load_state_dict(trainer.last_weights())
    return model

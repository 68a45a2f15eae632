"""A fit that has begun; of a network: its training, then scores, what to expect, the rule and stored weights."""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csst.data.examples import Examples, InputSpec
from csst.data.sampling import stream
from csst.data.task import Task
from csst.errors import InputError
from csst.estimation.calibration import fit_calibration
from csst.estimation.class_rates import RateEstimate
from csst.fitting.fitted_model import FittedModel
from csst.fitting.metrics import FitDetails, Outputs
from csst.fitting.model_file import Weights
from csst.learners.portfolio import compare_losses, compute_losses
from csst.maths.gain import Gain
from csst.rules import FittedRule, fit_evidence
from csst.rules.cells import RowGroups
from csst.rules.deployment import read_deployment
from csst.rules.fresh_labels import FreshLabels
from csst.rules.groups import bind_groups, fit_groups
from csst.rules.promise import promise
from csst.training.evaluation import compute_logits
from csst.training.measurement import estimate_argmax, evidence_from_logits
from csst.training.records import Record
from csst.training.training_run import TrainingRun, WhichWeights
from csst.training.warnings import CollapseDetector, ReachCheck

#: unlabeled examples that estimates and rules look at: rates within a hundredth, and no second pass over a million
UNLABELED_ROWS = 5000
#: of examples that are not tensors in memory (texts, image files): each goes through a whole fine-tuned network
UNLABELED_RAW_ROWS = 2000


class Fit(ABC):
    """A fit that has begun.

        for record in fit.run(): ...
        model = fit.conclude()

    Args:
        task: the task that is learned from.
        deployment_prior: see `csst.rules.fit_rule`; None for the class balance of the labels that are judged.
        runner: the training of a network; None for other learners.
    """

    task: Task
    deployment_prior: Any
    runner: Any = None

    def run(self) -> Iterator[Record]:
        """Train, yielding a record at every multiplier update of a network; other learners have none."""
        return iter(())

    @abstractmethod
    def conclude(self) -> FittedModel:
        """Return the fitted model; `run` must have ended."""

    @property
    def facts(self) -> dict[str, Any]:
        """Entries about the run for metrics.json."""
        return {}

    @property
    def test_groups(self) -> np.ndarray | None:
        """Groups of the test examples, (n,); None without any."""
        test = self.task.test
        return None if test is None or test.groups is None else test.groups.numpy()

    def certify(self, rule: FittedRule, score: Callable[[Examples], np.ndarray]) -> FittedRule:
        """Return a rule with its certificate if examples are reserved for that.

        Args:
            rule: by the labels of the fit.
            score: probabilities of examples, (N, K).
        """
        task = self.task
        if task.certifying is None:
            return rule
        certifying = task.certifying
        unlabeled = None if task.kept_apart is None else score(task.kept_apart)
        groups = None if certifying.groups is None else certifying.groups.numpy()
        fresh = FreshLabels(score(certifying.inputs), certifying.labels.numpy(), unlabeled, groups)
        return promise(rule, fresh, self.deployment_prior, task.class_names)


class NetworkFit(Fit):
    """The fit of a network that has begun.

    Args:
        runner: the training.
        fits_rule: whether a decision rule is fitted at the end.
        deployment_prior: see `csst.fitting.fit.fit`.
        inputs: see `csst.fitting.fit.fit`.
        seed: seed of the choice of unlabeled rows and of the rule.
        per_group: whether each group of rows gets a decision rule of its own, for a sentence about groups.
    """

    def __init__(
        self,
        runner: TrainingRun,
        fits_rule: bool,
        deployment_prior: Any,
        inputs: InputSpec | None,
        seed: int,
        per_group: bool = False,
    ) -> None:
        self.runner = runner
        self.task = runner.task
        needs_rule = runner.multipliers.objective.confidence is not None or self.task.labeled.groups is not None
        self.fits_rule = fits_rule or needs_rule
        self.per_group = per_group
        self.deployment_prior = deployment_prior
        self.inputs = inputs
        self.seed = seed
        self.detector = CollapseDetector.of(runner)
        self.history: list[dict[str, Any]] = []
        self.last: dict[str, Tensor] | None = None
        self.notes: tuple[str, ...] = ()

    def resume(self, state: dict[str, Any]) -> None:
        """Continue an earlier training of the same network, objective and method; the order of examples begins anew."""
        try:
            # There may be other unlabeled rows than last time.
            self.runner.load_state_dict(state, keeps_order=False)
        except (RuntimeError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"warm_start continues with the same network, objective and method, but these differ: {reason}"
            ) from None

    def run(self) -> Iterator[Record]:
        """Train to the end, yielding a record at every multiplier update; warn of what the records show."""
        reach = ReachCheck(self.runner)
        for record in self.runner.run():
            self.history.append(record.as_dict())
            if self.runner.engine.is_main:
                for note in self.detector.update(self.history[-1]):
                    warnings.warn(note, stacklevel=2)
            reach.warn_once(record.step)
            yield record
        self.keep_better()

    def keep_better(self) -> None:
        """Return to the model that training began with, if any, unless training has made it better, and say so.

        Trained is better if the balanced log-loss of examples that no model has learned from is lower by more than a
        standard error of the difference, as for rounds of self-training (`csst.learners.portfolio`).
        """
        start = self.runner.trainer.start
        if start is None:
            return
        start_losses = self.measure_losses("start", Gain(start.gain))
        losses = self.measure_losses("last", self.runner.measured_gain)
        lead, error = compare_losses(start_losses, losses)
        if lead <= error:
            self.runner.return_to_start()
            self.notes = (
                "training has not improved the linear model that the network starts at (balanced log-loss on labels "
                f"not learned from: {losses.mean():.3g} trained, {start_losses.mean():.3g} before), which is kept",
            )

    def measure_losses(self, weights: WhichWeights, gain: Gain) -> np.ndarray:
        """Return the balanced log-loss of each example that judges, (n,), by calibrated scores of some weights."""
        task = self.task
        logits, labels = self.runner.judge(weights)
        evidence = evidence_from_logits(logits, labels, None, gain, task.train_prior, task.class_names)
        calibration = fit_calibration(evidence.scores, evidence.labels)
        return compute_losses(calibration.apply(evidence.scores), evidence.labels)

    def gather_weights(self) -> None:
        """Collect the weights that the rule is fitted to; all processes must call this together.

        They are the weights at the end: the validation examples have not chosen them, so that cross-fitting on them is
        not flattered by the choice.
        """
        if self.fits_rule and self.last is None:
            self.last = self.runner.last_weights()

    def conclude(self) -> FittedModel:
        """Return the trained network, selected or with the rule that is fitted to its last weights."""
        self.gather_weights()
        runner = self.runner
        model = runner.best_model()
        gain = runner.measured_gain if runner.best.gain is None else Gain(runner.best.gain)
        outputs = self.score_parts(model, "selected", gain)
        details = FitDetails(
            outputs,
            self.expect(outputs),
            None,
            None,
            self.describe(),
            self.task.train_prior,
            len(self.task.unlabeled),
            self.notes,
            history=self.history,
            weights=pack_weights("selected", runner.best.state, outputs.gain),
            gain=Gain(runner.multipliers.gain.entries.cpu()),
        )
        if self.last is not None:
            model = copy.deepcopy(model)
            model.load_state_dict(self.last)
            details = self.add_rule(model, details, self.last)
        return FittedModel(
            model,
            None if details.adjusted is None else details.adjusted.rule,
            runner.objective,
            self.task.class_names,
            self.inputs or InputSpec(self.task.kind, self.task.input_shape),
            runner.settings.training.evaluation_batch,
            details=details,
            row_hashes=self.task.hash_rows(),
        )

    def add_rule(self, model: nn.Module, details: FitDetails, weights: dict[str, Tensor]) -> FitDetails:
        """Return the details of the fit with the decision rule of the last weights, which the model has."""
        gain = self.runner.measured_gain
        outputs = details.outputs
        if not is_last_selected(self.runner, outputs.gain):
            outputs = self.score_parts(model, "last", gain)
        rule = self.fit_rule(model, outputs)
        notes = (*details.notes, *rule.notes)
        all_weights = {**details.weights, **pack_weights("last", weights, gain)}
        return replace(details, adjusted=rule, adjusted_outputs=outputs, notes=notes, weights=all_weights)

    @cached_property
    def unlabeled_index(self) -> Tensor:
        """Indices of the unlabeled rows that are scored."""
        unlabeled = self.task.unlabeled
        limit = UNLABELED_ROWS if isinstance(unlabeled, Tensor) else UNLABELED_RAW_ROWS
        return torch.randperm(len(unlabeled), generator=stream(self.seed, 0))[:limit].sort().values

    @property
    def row_groups(self) -> RowGroups | None:
        """Groups of the labels that judge and of the unlabeled rows that are scored; None without groups."""
        task = self.task
        runner = self.runner
        parts = [judge.task.require("validation").groups for judge in runner.judges]
        if task.unlabeled_groups is None or any(part is None for part in parts):
            return None
        labeled = torch.cat([part for part in parts if part is not None])
        unlabeled = task.unlabeled_groups[self.unlabeled_index]
        return RowGroups(task.group_column, task.group_names, labeled.numpy(), unlabeled.numpy())

    @property
    def judged_prior(self) -> Any:
        """The class prior under which rates are judged, as `read_deployment` takes it."""
        prior = self.deployment_prior
        if prior is None or (isinstance(prior, str) and prior in ("labels", "validation")):
            # Cross-fitting judges all labels, but only the validation examples are as balanced as new examples.
            prior = self.task.validation_prior.numpy()
        return prior

    def compute_logits(self, model: nn.Module, inputs: Any, index: Tensor | None = None) -> Tensor:
        """Return logits of examples, (N, K)."""
        batch = self.runner.settings.training.evaluation_batch
        return compute_logits(model, inputs, batch, self.runner.engine.device, index)

    def score_parts(self, model: nn.Module, weights: Weights, gain: Gain) -> Outputs:
        """Return the scores of the labels that judge, of the test examples and of some unlabeled rows."""
        task = self.task
        parts = {"validation": self.runner.judge(weights)}
        if task.test is not None:
            parts["test"] = (self.compute_logits(model, task.test.inputs), task.test.labels)
        unlabeled = torch.zeros(0, task.classes)
        if len(self.unlabeled_index):
            unlabeled = self.compute_logits(model, task.unlabeled, self.unlabeled_index)
        return Outputs(parts, unlabeled, gain, self.runner.is_cross_fitted, self.test_groups)

    def expect(self, outputs: Outputs) -> RateEstimate:
        """Return the rates to expect of the plain argmax."""
        evidence = outputs.evidence(self.task.train_prior, self.task.class_names)
        estimate = estimate_argmax(evidence, outputs.parts["validation"][0], outputs.unlabeled)
        return estimate.with_prior(read_deployment(self.judged_prior, evidence)[0])

    def fit_rule(self, model: nn.Module, outputs: Outputs) -> FittedRule:
        """Return the decision rule of a model, certified if examples are reserved for that."""
        task = self.task
        evidence = outputs.evidence(task.train_prior, task.class_names)
        prior, evidence = read_deployment(self.judged_prior, evidence)
        groups = self.row_groups
        if groups is None:
            fitted_rule = fit_evidence(evidence, self.runner.objective, prior, self.seed)
        else:
            sentence = bind_groups(self.runner.trainer.stated_objective, groups)
            fitted_rule = fit_groups(evidence, sentence, groups, prior, self.seed, per_group=self.per_group)
        return self.certify(
            fitted_rule, lambda inputs: torch.softmax(self.compute_logits(model, inputs).double(), 1).cpu().numpy()
        )

    @property
    def facts(self) -> dict[str, Any]:
        """Entries about the run for metrics.json: the truth about unlabeled examples, for figures, and warnings."""
        truth = self.task.unlabeled_truth
        counts = None if truth is None else torch.bincount(truth, minlength=self.task.classes).tolist()
        return {"unlabeled_true_counts": counts, "warnings": list(self.detector.notes.values())}

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


def is_last_selected(runner: TrainingRun, gain: Gain) -> bool:
    """Return whether the selected network is the last one, under the same gain, so that its scores are known."""
    same_gain = torch.equal(gain.entries.cpu(), runner.measured_gain.entries.cpu())
    return runner.best.step == runner.step and same_gain and not runner.is_cross_fitted


def pack_weights(name: Weights, state: dict[str, Tensor], gain: Gain) -> dict[str, Tensor]:
    """Return weights and their gain under the names of the model file, on the CPU."""
    tensors = {**{f"{name}.{key}": value for key, value in state.items()}, f"gain.{name}": gain.entries}
    return {key: value.detach().cpu().clone().contiguous() for key, value in tensors.items()}


def describe_prior(deployment_prior: Any) -> Any:
    """Return a deployment prior as it was stated, for metrics.json: a word, or one number per class."""
    if deployment_prior is None or isinstance(deployment_prior, str):
        return deployment_prior
    return np.asarray(deployment_prior, dtype=float).tolist()

"""The results of a run: the content of metrics.json, and the stored outputs of its model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from csst.data.npz import pack_npz, read_npz
from csst.errors import InputError
from csst.estimation.class_rates import RateEstimate
from csst.estimation.expectation import describe_minimum, estimate_intervals
from csst.estimation.held_out_scores import HeldOutScores
from csst.estimation.intervals import all_intervals
from csst.estimation.unlabeled_prior import estimate_balance, estimate_class_balance
from csst.fitting.evaluation import GroupEvaluation
from csst.fitting.folder import Folder
from csst.fitting.plan import read_plan
from csst.maths.confusion import confusion_counts
from csst.maths.costs import cost_table_from_dict
from csst.maths.gain import Gain
from csst.maths.grouped_confusion import count_groups
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.rules import FittedRule, Frontier, Point, trace_frontier
from csst.training.evaluation import summarize_counts
from csst.training.measurement import evidence_from_logits

#: total variation between labeled and estimated unlabeled class fractions above which a run warns
PRIOR_GAP = 0.15
#: outputs of more numbers than this are not stored
MOST_OUTPUTS = 50_000_000
#: number of classes up to which all rates of a frontier point are stored; above, only the largest mistake per class
WHOLE_RATES = 30


@dataclass(frozen=True)
class Outputs:
    """A model's logits and its gain.

    Args:
        parts: logits (N, K) and labels (N,) of "validation" and, if there is one, of "test".
        unlabeled: logits of some unlabeled examples, (m, K); may be empty.
        gain: the gain under which the weights were trained.
        is_cross_fitted: whether "validation" are all labels, out of fold.
        test_groups: groups of the test rows as numbers, (N,); None without groups.
    """

    parts: dict[str, tuple[Tensor, Tensor]]
    unlabeled: Tensor
    gain: Gain
    is_cross_fitted: bool = False
    test_groups: np.ndarray | None = None

    def evidence(self, train_prior: Tensor, class_names: tuple[str, ...]) -> HeldOutScores:
        """Return the scores to which a decision rule is fitted."""
        validation = self.parts["validation"]
        return evidence_from_logits(
            *validation, self.unlabeled, self.gain, train_prior, class_names, self.is_cross_fitted
        )

    def counts(self, part: str, rule: FittedRule | None = None) -> Tensor:
        """Return confusion counts (K, K) of the plain argmax, or of a rule."""
        scores, labels = self.parts[part]
        if rule is not None:
            return confusion_counts(labels, self.decide(part, rule), scores.shape[1], rule.rule.abstains)
        return confusion_counts(labels, scores.argmax(1), scores.shape[1])

    def decide(self, part: str, rule: FittedRule) -> Tensor:
        """Return the predictions of a rule, (N,)."""
        probs = torch.softmax(self.parts[part][0].double(), 1)
        groups = None
        if rule.rule.column and self.test_groups is not None:
            groups = np.array(rule.rule.names)[self.test_groups]
        return rule.rule.predict(probs, groups)


@dataclass(frozen=True, eq=False)
class FitDetails:
    """Details of a fit that exist only right after it.

    Args:
        outputs: scores of the model as trained: the selected network, or the learners.
        estimate: the expected rates of its plain argmax.
        adjusted: the decision rule with its estimate, if one was fitted.
        adjusted_outputs: scores of the model to which the rule belongs.
        about: entries about the learner for metrics.json.
        train_prior: the class fractions of the labels learned from, (K,).
        unlabeled: number of unlabeled examples.
        notes: warnings, in sentences.
        history: the records of training, one per multiplier update.
        weights: stored weights of a network.
        state: state of the training, from which it can continue.
        gain: the gain at the end of a network's training.
    """

    outputs: Outputs
    estimate: RateEstimate
    adjusted: FittedRule | None
    adjusted_outputs: Outputs | None
    about: dict[str, Any]
    train_prior: Tensor
    unlabeled: int
    notes: tuple[str, ...] = ()
    history: list[dict[str, Any]] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    gain: Gain | None = None


def describe_fit(
    details: FitDetails, objective: Objective, class_names: tuple[str, ...], about: dict[str, Any]
) -> dict[str, Any]:
    """Return the content of metrics.json: the expected numbers and, used here for the first time, the test numbers.

    Args:
        details: details of the fit.
        objective: the objective, bound to the classes.
        class_names: class names in order.
        about: entries about the run and its learner.
    """
    labeled = sum(about["labeled_counts"])
    metrics = {**about, "unlabeled_count": details.unlabeled, "unlabeled_ratio": details.unlabeled / labeled}
    counts = torch.from_numpy(details.estimate.counts)
    intervals = estimate_intervals(objective, details.estimate)
    metrics["validation"] = describe_validation(counts, objective, intervals, details.estimate)
    if "test" in details.outputs.parts:
        metrics["test"] = measure(details.outputs.counts("test"), objective)
    if details.adjusted is not None and details.adjusted_outputs is not None:
        outputs = details.adjusted_outputs
        metrics["adjusted"] = describe_rule(details.adjusted, outputs, class_names)
        metrics["adjusted"]["unadjusted"] = {
            name: summarize_counts(outputs.counts(name), objective) for name in outputs.parts
        }
        intervals = details.adjusted.intervals
    if details.unlabeled:
        metrics["prior"], _ = warn_about_balance(details.estimate, details.train_prior)
    notes = list_notes(details)
    note_on_minimum = describe_minimum(intervals, class_names)
    if note_on_minimum:
        notes.append(note_on_minimum)
    metrics["warnings"] = [*about.get("warnings", []), *notes]
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return metrics


def list_notes(details: FitDetails) -> list[str]:
    """Return warnings, in sentences, about the rule and the class prior of the unlabeled rows.

    The command line and the estimator both show them.
    """
    notes = list(details.notes)
    if details.unlabeled and details.estimate.prior_covariance is None:
        _, note = warn_about_balance(details.estimate, details.train_prior)
        if note and not is_chance(details):
            notes.append(note)
    return notes


def is_chance(details: FitDetails) -> bool:
    """Return whether chance may explain that EM finds another class balance of the unlabeled rows.

    EM trusts calibrated scores. Where the scores hardly tell two classes apart, it takes one for the other; what labels
    say of the scores of every class (`csst.estimation.unlabeled_prior`) then leaves the balance as it was.
    """
    names = tuple(map(str, range(len(details.train_prior))))
    evidence = details.outputs.evidence(details.train_prior, names)
    gap = np.abs(estimate_balance(evidence).prior - evidence.labeled_prior).sum() / 2
    return bool(gap <= PRIOR_GAP)


def measure(counts: Tensor, objective: Objective) -> dict[str, Any]:
    """Return the numbers of counted predictions, with simultaneous confidence intervals."""
    return {**summarize_counts(counts, objective), "intervals": all_intervals(objective, counts)}


def describe_validation(
    counts: Tensor, objective: Objective, intervals: dict[str, Any], estimate: RateEstimate
) -> dict[str, Any]:
    """Return the counted numbers of validation, and the estimate from labels and unlabeled rows together."""
    return {**summarize_counts(counts, objective), "intervals": intervals, "estimate": estimate.as_dict()}


def describe_rule(fitted: FittedRule, outputs: Outputs, class_names: tuple[str, ...]) -> dict[str, Any]:
    """Return a fitted rule for metrics.json: its expected numbers, its test numbers, and the trade-offs around it."""
    objective = fitted.objective
    prior = fitted.estimate.confusion.prior.numpy()
    counts = torch.from_numpy(fitted.estimate.counts)
    # Rules along the frontier are estimates: no fresh labels certify them.
    frontier = trace_frontier(fitted.evidence, prior, objective.unpromised)
    description = {
        **fitted.as_dict(),
        "agreement": fitted.estimate.agreement(class_names),
        "validation": describe_validation(counts, objective, fitted.intervals, fitted.estimate),
        "frontier": [point.as_dict() for point in frontier.points],
        "frontier_sentence": frontier.sentence,
        "trades": describe_trades(frontier),
    }
    if "test" in outputs.parts:
        description["test"] = measure(outputs.counts("test", fitted), objective)
    if fitted.groups is not None:
        # The sentence is read from the rates of every group; counts of classes are of all rows.
        slack = [bound.slack for bound in fitted.bounds]
        description["validation"] |= {"objective_value": fitted.value, "constraint_slack": slack}
        if "test" in outputs.parts and outputs.test_groups is not None:
            description["test"] = measure_test_groups(fitted, outputs)
    return description


def measure_test_groups(fitted: FittedRule, outputs: Outputs) -> dict[str, Any]:
    """Return the numbers of a rule on test rows of several groups."""
    assert fitted.groups is not None
    assert outputs.test_groups is not None
    shape = (len(fitted.groups.class_names), len(fitted.groups.groups.names))
    answers = outputs.decide("test", fitted)
    counts = count_groups(outputs.parts["test"][1], answers, torch.from_numpy(outputs.test_groups), *shape)
    return GroupEvaluation.of_groups(fitted.groups.sentence, counts).numbers


def describe_trades(frontier: Frontier) -> dict[str, Any]:
    """Return the trade-offs of a frontier and the objective's own rule, with the numbers of every class."""
    return {
        "basis": frontier.unadjusted.estimate.basis,
        "best": None if frontier.best is None else describe_point(frontier.best),
        "ways": {name: [describe_point(point) for point in points] for name, points in frontier.trades.items()},
        "classes": {
            # Keys are strings, as JSON would make them, so that the result equals what is read back.
            str(k): [{name: round(value, 4) for name, value in point._asdict().items()} for point in points]
            for k, points in frontier.class_trades.items()
        },
    }


def describe_point(point: Point) -> dict[str, Any]:
    """Return a point of a frontier: its sentence and the expected numbers of every class, to four digits."""
    confusion = point.estimate.confusion
    classes = {name: _round(getattr(confusion, name)) for name in ("recall", "precision", "coverage")}
    numbers = {**point.as_dict(), "min_precision": point.min_precision, "sentence": point.sentence, **classes}
    if len(confusion.rates) <= WHOLE_RATES:
        return {**numbers, "rates": _round(confusion.rates)}
    rate, taken_for = (confusion.rates - torch.diag(confusion.recall)).max(1)
    return {**numbers, "taken_for": taken_for.tolist(), "taken_for_rate": _round(rate)}


def _round(values: Tensor) -> list[Any]:
    return torch.round(values, decimals=4).tolist()


def warn_about_balance(estimate: RateEstimate, train_prior: Tensor) -> tuple[dict[str, Any], str | None]:
    """Return the class priors of labeled and (estimated) unlabeled rows, and a sentence if they differ much."""
    unlabeled = torch.from_numpy(estimate.unlabeled_prior)
    gap = float((unlabeled - train_prior).abs().sum() / 2)
    balance = {"labeled": train_prior.tolist(), "unlabeled_estimate": unlabeled.tolist(), "gap": gap}
    chance = 1 / max(1, estimate.unlabeled) ** 0.5  # two standard errors of a fraction, at most
    if gap <= max(PRIOR_GAP, chance):
        return balance, None
    return balance, (
        "the unlabeled data looks differently balanced than the labeled data: the fraction of a class differs by up to "
        f"{float((unlabeled - train_prior).abs().max()):.2f}; if new data will be like the unlabeled rows, add "
        "--deployment_prior unlabeled (in Python deployment_prior='unlabeled')"
    )


def pack_outputs(outputs: Outputs) -> bytes | None:
    """Return logits, labels and gain as an .npz file; None if they are too large to store."""
    arrays: dict[str, np.ndarray] = {"gain": outputs.gain.entries.cpu().numpy()}
    for name, (scores, labels) in outputs.parts.items():
        arrays |= {f"{name}_logits": scores.numpy(), f"{name}_labels": labels.numpy()}
    arrays["unlabeled_logits"] = outputs.unlabeled.numpy()
    arrays["is_cross_fitted"] = np.array(outputs.is_cross_fitted)
    if sum(array.size for array in arrays.values()) > MOST_OUTPUTS:
        return None
    return pack_npz(arrays)


class KeptEvidence(NamedTuple):
    """The scores of a model that was just fitted, or of a finished run, to which further rules can be fitted.

    Args:
        evidence: the scores of its model.
        prior: the deployment prior, (K,).
    """

    evidence: HeldOutScores
    prior: np.ndarray

    @classmethod
    def read(cls, folder: str | Path) -> KeptEvidence:
        """Read the scores of a run."""
        metrics = Folder.open(folder).metrics()
        outputs = read_outputs(folder)
        evidence = outputs.evidence(read_label_prior(metrics), tuple(metrics["class_names"]))
        estimate = metrics.get("adjusted", metrics["validation"])["estimate"]  # under the run's deployment prior
        if estimate.get("prior_error") is not None:  # not stored by earlier versions
            evidence = replace(evidence, prior_covariance=estimate_class_balance(evidence).covariance)
        return cls(evidence, np.array(estimate["prior"]))


def bind_sentence(folder: str | Path, text: str, metrics: Mapping[str, Any]) -> Objective:
    """Return another sentence for the classes, the groups and the costs of a run.

    Args:
        folder: the run's folder.
        text: a sentence or a short name, without a confidence.
        metrics: content of metrics.json.
    """
    if read_objective(text).confidence is not None:
        raise InputError("a rule fitted now has no fresh labels to be certified by: leave the confidence out")
    costs = cost_table_from_dict(metrics.get("costs"))
    objective = read_plan(folder).bind_objective(metrics["class_names"], text, costs)
    return objective.bind_prior(read_label_prior(metrics))


def read_label_prior(metrics: Mapping[str, Any]) -> Tensor:
    """Return the class fractions of the labels in a run's metrics, (K,)."""
    counts = torch.tensor(metrics["labeled_counts"]).double()
    return counts / counts.sum()


def read_outputs(folder: str | Path) -> Outputs:
    """Read the stored outputs of a finished run."""
    path = Path(folder) / "outputs.npz"
    if not path.is_file():
        raise InputError(f"{folder} has no outputs.npz: the run is unfinished, or its outputs were too large to store")
    required_names = ("validation_logits", "validation_labels", "unlabeled_logits", "gain")
    arrays = read_npz(path, (*required_names, "test_logits", "test_labels", "is_cross_fitted"), required_names)
    is_cross_fitted = bool(arrays.pop("is_cross_fitted", False))  # not stored by earlier versions
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    parts = {
        name: (tensors[f"{name}_logits"], tensors[f"{name}_labels"])
        for name in ("validation", "test")
        if f"{name}_logits" in tensors
    }
    return Outputs(parts, tensors["unlabeled_logits"], Gain(tensors["gain"]), is_cross_fitted)

"""What a finished run says: the content of metrics.json, and the model's outputs for whatever comes after."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.data.tabular.arrays import read_npz
from csst.errors import InputError
from csst.maths.confusion import confusion_counts
from csst.maths.gain import Gain
from csst.maths.language import Sentence
from csst.maths.objectives import Objective
from csst.rules import FittedRule, Frontier, Point, trace_frontier
from csst.rules.class_trades import ClassPoint
from csst.runs.folder import Run
from csst.statistics.bootstrap import all_intervals
from csst.statistics.evidence import Evidence
from csst.statistics.expectation import describe_minimum, estimate_intervals
from csst.statistics.rates import RateEstimate
from csst.training.evaluation import summarize_counts
from csst.training.measuring import evidence_from_logits

#: total variation between labeled and estimated unlabeled class fractions above which a run warns
PRIOR_GAP = 0.15
#: outputs of more numbers than this are not kept
MOST_OUTPUTS = 50_000_000
#: up to so many classes the rates of a point of the frontier are kept whole, above only each class's largest mistake
WHOLE_RATES = 30


@dataclass(frozen=True)
class Outputs:
    """A model's logits: of validation and test examples with their labels, of some unlabeled examples, and its gain.

    parts: "validation" and, where there is one, "test". unlabeled: (m, K), m may be 0. gain: the gain that was in force
    when the weights were trained.
    """

    parts: dict[str, tuple[Tensor, Tensor]]
    unlabeled: Tensor
    gain: Gain

    def evidence(self, train_prior: Tensor, class_names: tuple[str, ...]) -> Evidence:
        """What a decision rule is fitted on."""
        return evidence_from_logits(*self.parts["validation"], self.unlabeled, self.gain, train_prior, class_names)

    def counts(self, part: str, rule: FittedRule | None = None) -> Tensor:
        """Confusion counts (K, K) of the plain argmax, or of a rule."""
        scores, labels = self.parts[part]
        if rule is not None:
            return rule.rule.counts(torch.softmax(scores.double(), 1), labels)
        return confusion_counts(labels, scores.argmax(1), scores.shape[1])


@dataclass(frozen=True, eq=False)
class FitDetails:
    """What is known right after fitting and not stored as such.

    Args:
        outputs: scores of the model as trained: the selected network, or the learners.
        estimate: the rates to expect of its plain argmax.
        adjusted: the decision rule with its estimate, if one was fitted.
        adjusted_outputs: scores of the model that the rule is for.
        about: of the learner, for metrics.json.
        train_prior: the class fractions of the labels that were learned from, (K,).
        unlabeled: how many unlabeled examples there were.
        notes: what to be wary of, in sentences.
        history: the records of training, one per multiplier update.
        weights: what is stored of a network.
        state: of the training, to go on from.
        gain: in force at the end of a network's training.
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
    """The content of metrics.json: what to expect of the model and, for the first time, its test numbers.

    Args:
        details: what is known of the fit.
        objective: bound to the classes.
        class_names: in order.
        about: of the run and its learner.
    """
    labeled = sum(about["labeled_counts"])
    metrics = {**about, "unlabeled_count": details.unlabeled, "unlabeled_ratio": details.unlabeled / labeled}
    counts = torch.from_numpy(details.estimate.counts)
    metrics["validation"] = estimated(counts, objective, details.estimate)
    if "test" in details.outputs.parts:
        metrics["test"] = measured(details.outputs.counts("test"), objective)
    shown = metrics["validation"]["intervals"]
    if details.adjusted is not None and details.adjusted_outputs is not None:
        outputs = details.adjusted_outputs
        metrics["adjusted"] = describe_rule(details.adjusted, outputs, class_names)
        metrics["adjusted"]["unadjusted"] = {
            name: summarize_counts(outputs.counts(name), objective) for name in outputs.parts
        }
        shown = details.adjusted.intervals
    if details.unlabeled:
        metrics["prior"], _ = warn_about_balance(details.estimate, details.train_prior)
    small = describe_minimum(shown, class_names)
    notes = [*list_notes(details), *([small] if small else [])]
    metrics["warnings"] = [*about.get("warnings", []), *notes]
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return metrics


def list_notes(details: FitDetails) -> list[str]:
    """Return what to be wary of, in sentences: of the rule, and of the unlabeled rows' class balance.

    The command line and the estimator both show them.
    """
    if not details.unlabeled:
        return list(details.notes)
    _, note = warn_about_balance(details.estimate, details.train_prior)
    return [*details.notes, *([note] if note else [])]


def measured(counts: Tensor, objective: Objective) -> dict[str, Any]:
    """The numbers of one part as counted, with simultaneous confidence intervals."""
    return {**summarize_counts(counts, objective), "intervals": all_intervals(objective, counts)}


def estimated(counts: Tensor, objective: Objective, estimate: RateEstimate) -> dict[str, Any]:
    """The numbers of validation as counted, and what labels and unlabeled rows together let one expect."""
    return {
        **summarize_counts(counts, objective),
        "intervals": estimate_intervals(objective, estimate),
        "estimate": estimate.as_dict(),
    }


def describe_rule(fitted: FittedRule, outputs: Outputs, class_names: tuple[str, ...]) -> dict[str, Any]:
    """A fitted rule for metrics.json: what it is expected to give, its test numbers, and what rules could trade off."""
    objective, prior = fitted.objective, fitted.estimate.confusion.prior.numpy()
    # Rules along the frontier are estimates: no fresh labels certify them.
    plain = replace(objective, confidence=None) if isinstance(objective, Sentence) else objective
    drawn = trace_frontier(fitted.evidence, prior, plain, fitted.rule.undo)
    described = {
        **fitted.as_dict(),
        "agreement": fitted.estimate.agreement(class_names),
        "validation": {
            **summarize_counts(torch.from_numpy(fitted.estimate.counts), objective),
            "intervals": fitted.intervals,
            "estimate": fitted.estimate.as_dict(),
        },
        "frontier": [point.as_dict() for point in drawn.points],
        "frontier_sentence": drawn.sentence,
        "trades": describe_trades(drawn),
    }
    if "test" in outputs.parts:
        described["test"] = measured(outputs.counts("test", fitted), objective)
    return described


def describe_trades(frontier: Frontier) -> dict[str, Any]:
    """The ways of a frontier with the numbers of every class, and the objective's own rule, for metrics.json."""
    return {
        "basis": frontier.unadjusted.estimate.basis,
        "best": None if frontier.best is None else describe_point(frontier.best),
        "ways": {name: [describe_point(point) for point in points] for name, points in frontier.trades.items()},
        "classes": {
            # JSON has texts as keys: what is returned is what is read back.
            str(k): [describe_class_point(point) for point in points]
            for k, points in frontier.class_trades.items()
        },
    }


def describe_point(point: Point) -> dict[str, Any]:
    """A point of a frontier: its sentence, and what its rule is expected to do for every class, to four digits."""
    confusion = point.estimate.confusion
    classes = {name: _rounded(getattr(confusion, name)) for name in ("recall", "precision", "coverage")}
    numbers = {**point.as_dict(), "min_precision": point.min_precision, "sentence": point.sentence, **classes}
    if len(confusion.rates) <= WHOLE_RATES:
        return {**numbers, "rates": _rounded(confusion.rates)}
    rate, taken_for = (confusion.rates - torch.diag(confusion.recall)).max(1)
    return {**numbers, "taken_for": taken_for.tolist(), "taken_for_rate": _rounded(rate)}


def describe_class_point(point: ClassPoint) -> dict[str, float]:
    """A point of one class's trade, to four digits."""
    return {name: round(value, 4) for name, value in point._asdict().items()}


def _rounded(values: Tensor) -> list[Any]:
    return torch.round(values, decimals=4).tolist()


def warn_about_balance(estimate: RateEstimate, train_prior: Tensor) -> tuple[dict[str, Any], str | None]:
    """The class balance of labeled and, as estimated, unlabeled rows, and a sentence where they are far apart."""
    unlabeled = torch.from_numpy(estimate.unlabeled_prior)
    gap = float((unlabeled - train_prior).abs().sum() / 2)
    balance = {"labeled": train_prior.tolist(), "unlabeled_estimate": unlabeled.tolist(), "gap": gap}
    if gap <= PRIOR_GAP:
        return balance, None
    return balance, (
        "the unlabeled data looks differently balanced than the labeled data: the fraction of a class differs by up to "
        f"{float((unlabeled - train_prior).abs().max()):.2f}; if new data will be like the unlabeled rows, add "
        "--deployment_prior unlabeled (in Python deployment_prior='unlabeled')"
    )


def pack_outputs(outputs: Outputs) -> bytes | None:
    """Logits, labels and gain as an .npz file; None where they would be too large to keep."""
    arrays: dict[str, np.ndarray] = {"gain": outputs.gain.entries.cpu().numpy()}
    for name, (scores, labels) in outputs.parts.items():
        arrays |= {f"{name}_logits": scores.numpy(), f"{name}_labels": labels.numpy()}
    arrays["unlabeled_logits"] = outputs.unlabeled.numpy()
    if sum(array.size for array in arrays.values()) > MOST_OUTPUTS:
        return None
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


@dataclass(frozen=True)
class KeptEvidence:
    """What a finished run kept for rules that come later.

    evidence: the scores of its model. prior: the deployment prior, (K,). undo: see `DecisionRule`. train_prior: the
    class fractions of the labels, (K,).
    """

    evidence: Evidence
    prior: np.ndarray
    undo: Tensor | None
    train_prior: Tensor

    @classmethod
    def read(cls, folder: str | Path) -> KeptEvidence:
        """From a run's folder."""
        run = Run.open(folder)
        metrics, outputs = run.metrics(), read_outputs(folder)
        counts = torch.tensor(metrics["labeled_counts"]).double()
        train_prior = counts / counts.sum()
        evidence = outputs.evidence(train_prior, tuple(metrics["class_names"]))
        judged = metrics.get("adjusted", metrics["validation"])["estimate"]  # under the run's deployment prior
        return cls(evidence, np.array(judged["prior"]), outputs.gain.softmax_inverse, train_prior)

    def bind(self, objective: Objective, class_names: tuple[str, ...]) -> Objective:
        """The objective for these classes and the balance of their labels."""
        return objective.bind(len(class_names), class_names).bind_prior(self.train_prior)


def read_outputs(folder: str | Path) -> Outputs:
    """The outputs that a finished run kept."""
    path, names = Path(folder) / "outputs.npz", ("validation", "test")
    if not path.is_file():
        raise InputError(f"{folder} has no outputs.npz: the run is unfinished, or its outputs were too large to keep")
    keys = tuple(f"{name}_{what}" for name in names for what in ("logits", "labels"))
    needed = ("validation_logits", "validation_labels", "unlabeled_logits", "gain")
    stored = {
        name: torch.from_numpy(array)
        for name, array in read_npz(str(path), (*keys, *needed[2:]), needed=needed).items()
    }
    parts = {name: (stored[f"{name}_logits"], stored[f"{name}_labels"]) for name in names if f"{name}_logits" in stored}
    return Outputs(parts, stored["unlabeled_logits"], Gain(stored["gain"]))

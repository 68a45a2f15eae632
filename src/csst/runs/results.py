"""What a finished run says: the content of metrics.json, and the model's outputs for whatever comes after."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csst.data.sampling import stream
from csst.data.tabular.arrays import read_npz
from csst.data.task import Labeled
from csst.errors import InputError
from csst.maths.confusion import confusion_counts
from csst.maths.gain import Gain
from csst.maths.objectives import Objective
from csst.recipes.recipe import Recipe
from csst.rules import FittedRule, fit_evidence, trace_frontier
from csst.rules.fit import read_deployment_prior
from csst.statistics.bootstrap import all_intervals
from csst.statistics.evidence import Evidence
from csst.statistics.expectation import describe_minimum, estimate_intervals
from csst.statistics.rates import RateEstimate
from csst.training.evaluation import compute_logits, summarize_counts
from csst.training.generations import Generations
from csst.training.measuring import estimate_from_logits, evidence_from_logits

#: total variation between labeled and estimated unlabeled class fractions above which a run warns
PRIOR_GAP = 0.15
#: unlabeled examples that estimates and rules look at: rates within a hundredth, and no second pass over a million
UNLABELED_ROWS = 5000
#: outputs of more numbers than this are not kept
MOST_OUTPUTS = 50_000_000


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


def results(
    recipe: Recipe, trainer: Generations, seconds: float, said: list[str], last: dict[str, Tensor] | None = None
) -> tuple[dict[str, Any], bytes | None]:
    """metrics.json: the selected model on validation and, for the first time, on test; and outputs.npz.

    outputs.npz has the outputs of the model that a decision rule is for: the last one of a run with a rule.

    said: warnings that were given during training.
    last: weights of the model at the end of training, which the decision rule is fitted to: the validation examples
    have not chosen it, so that cross-fitting on them is not flattered by the choice.
    """
    task, model = trainer.task, trainer.best_model()
    batch, device = recipe.training.evaluation_batch, trainer.engine.device
    parts: dict[str, Labeled] = {"validation": task.validation, **({"test": task.test} if task.test else {})}
    some = torch.randperm(len(task.unlabeled), generator=stream(recipe.seed, 0))[:UNLABELED_ROWS].sort().values

    def score(model: nn.Module, gain: Gain) -> Outputs:
        scored = {
            name: (compute_logits(model, part.inputs, batch, device), part.labels) for name, part in parts.items()
        }
        unlabeled = (
            compute_logits(model, task.unlabeled, batch, device, some) if len(some) else torch.zeros(0, task.classes)
        )
        return Outputs(scored, unlabeled, gain)

    gain = trainer.multipliers.gain
    outputs, ended = score(model, gain if trainer.best.gain is None else Gain(trainer.best.gain)), None
    if last is not None:
        model.load_state_dict(last)
        ended = score(model, gain)
        trainer.best_model()
    notes: list[str] = []
    found: dict[str, Any] = {
        "recipe": recipe.name,
        "method": trainer.method.name,
        "objective": str(trainer.objective),
        "seed": recipe.seed,
        "steps": trainer.step,
        "selected_step": trainer.best.step,
        "seconds": seconds,
        "split_hash": task.split_hash,
        "class_names": list(task.class_names),
        "kind": task.kind,
        "input_shape": list(task.input_shape),
        "labeled_counts": task.train_counts.tolist(),
        "unlabeled_count": len(task.unlabeled),
        "unlabeled_ratio": len(task.unlabeled) / len(task.labeled),
        "multipliers": dict(zip(trainer.multipliers.labels, trainer.multipliers.value.tolist(), strict=True)),
        "pseudo_labeled_counts": torch.bincount(trainer.labels, minlength=task.classes).tolist(),
        "facts": task.facts,
    }
    scores, labels = outputs.parts["validation"]
    estimate = estimate_from_logits(scores, labels, outputs.unlabeled, outputs.gain, task.train_prior, task.class_names)
    deployment = read_deployment_prior(recipe.deployment_prior, outputs.evidence(task.train_prior, task.class_names))
    estimate = estimate.with_prior(deployment)
    found["validation"] = estimated(outputs.counts("validation"), trainer.objective, estimate)
    if "test" in outputs.parts:
        found["test"] = measured(outputs.counts("test"), trainer.objective)
    if ended is not None:
        found["posthoc"] = fit_posthoc(ended, trainer.objective, task.train_prior, task.class_names, recipe)
        found["posthoc"]["unadjusted"] = {
            name: summarize_counts(ended.counts(name), trainer.objective) for name in ended.parts
        }
        notes += found["posthoc"]["notes"]
    small = describe_minimum((found.get("posthoc") or found["validation"])["intervals"], task.class_names)
    notes += [small] if small else []
    if len(task.unlabeled):
        found["prior"], note = warn_about_balance(estimate, task.train_prior)
        notes += [note] if note else []
    found["warnings"] = [*said, *notes]
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return found, packed(ended or outputs)


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


def fit_posthoc(
    outputs: Outputs, objective: Objective, train_prior: Tensor, class_names: tuple[str, ...], recipe: Recipe
) -> dict[str, Any]:
    """The decision rule: what it is expected to give, measured on test; and what rules could trade off."""
    evidence, undo = outputs.evidence(train_prior, class_names), outputs.gain.softmax_inverse
    prior = read_deployment_prior(recipe.deployment_prior, evidence)
    return describe_rule(fit_evidence(evidence, objective, prior, undo, recipe.seed), outputs, class_names)


def describe_rule(fitted: FittedRule, outputs: Outputs, class_names: tuple[str, ...]) -> dict[str, Any]:
    """A fitted rule for metrics.json: what it is expected to give, its test numbers, and what rules could trade off."""
    objective, prior = fitted.objective, fitted.estimate.confusion.prior.numpy()
    drawn = trace_frontier(fitted.evidence, prior, objective, fitted.rule.undo)
    found = {
        **fitted.as_dict(),
        "agreement": fitted.estimate.agreement(class_names),
        "validation": {
            **summarize_counts(torch.from_numpy(fitted.estimate.counts), objective),
            "intervals": fitted.intervals,
            "estimate": fitted.estimate.as_dict(),
        },
        "frontier": [point.as_dict() for point in drawn.points],
        "frontier_sentence": drawn.sentence,
    }
    if "test" in outputs.parts:
        found["test"] = measured(outputs.counts("test", fitted), objective)
    return found


def warn_about_balance(estimate: RateEstimate, train_prior: Tensor) -> tuple[dict[str, Any], str | None]:
    """The class balance of labeled and, as estimated, unlabeled rows, and a sentence where they are far apart."""
    unlabeled = torch.from_numpy(estimate.unlabeled_prior)
    gap = float((unlabeled - train_prior).abs().sum() / 2)
    balance = {"labeled": train_prior.tolist(), "unlabeled_estimate": unlabeled.tolist(), "gap": gap}
    if gap <= PRIOR_GAP:
        return balance, None
    return balance, (
        f"the unlabeled data looks differently balanced than the labeled data (total variation {gap:.2f}): "
        "compare prior.labeled and prior.unlabeled_estimate"
    )


def packed(outputs: Outputs) -> bytes | None:
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

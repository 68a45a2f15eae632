"""What a finished run says: the content of metrics.json, and the model's outputs for whatever comes after."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.confusion import confusion_counts
from csst.data.arrays import read_npz
from csst.data.task import Labeled
from csst.errors import InputError
from csst.evaluation import logits, summary
from csst.intervals import too_small
from csst.objectives import Objective
from csst.posthoc import cross_fit, frontier
from csst.priors import estimate_prior
from csst.recipes.generations import Generations
from csst.recipes.recipe import Recipe
from csst.resampling import all_intervals
from csst.sampling import stream

#: total variation between labeled and estimated unlabeled class shares above which a run warns
PRIOR_GAP = 0.15
#: unlabeled examples from which their class shares are estimated: within a hundredth, and no second pass over a million
PRIOR_EXAMPLES = 5000
#: outputs of more numbers than this are not kept
MOST_OUTPUTS = 50_000_000
Outputs = dict[str, tuple[Tensor, Tensor]]


def results(
    recipe: Recipe, trainer: Generations, seconds: float, said: list[str], last: dict[str, Tensor] | None = None
) -> tuple[dict[str, Any], bytes | None]:
    """metrics.json: the selected model on validation and, for the first time, on test; and outputs.npz.

    outputs.npz has the outputs of the model that a decision rule is for: the last one of a finished run.

    said: warnings that were given during training.
    last: weights of the model at the end of training, which post-hoc adjustment is fitted to: the validation examples
    have not chosen it, so that cross-fitting on them is not flattered by the choice.
    """
    task, model = trainer.task, trainer.best_model()
    batch, device = recipe.training.evaluation_batch, trainer.engine.device
    parts: dict[str, Labeled] = {"validation": task.validation, **({"test": task.test} if task.test else {})}

    def given() -> Outputs:
        return {name: (logits(model, part.inputs, batch, device), part.labels) for name, part in parts.items()}

    outputs, ended = given(), None
    if last is not None:
        model.load_state_dict(last)
        ended = given()
        model = trainer.best_model()
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
    for name, (scores, labels) in outputs.items():
        found[name] = measured(confusion_counts(labels, scores.argmax(1), task.classes), trainer.objective)
    small = too_small(torch.tensor(found["validation"]["confusion"]))
    notes += [f"on validation {small}"] if small else []
    if ended is not None:
        found["posthoc"] = posthoc(
            ended, trainer.objective, task.train_prior, recipe.seed, randomised=recipe.finish == "randomised"
        )
        found["posthoc"]["unadjusted"] = {
            name: summary(confusion_counts(labels, scores.argmax(1), task.classes), trainer.objective)
            for name, (scores, labels) in ended.items()
        }
    if len(task.unlabeled):
        some = torch.randperm(len(task.unlabeled), generator=stream(recipe.seed, 0))[:PRIOR_EXAMPLES]
        estimate = estimate_prior(
            logits(model, task.unlabeled, batch, device, some.sort().values), *outputs["validation"]
        )
        gap = float((estimate - task.train_prior).abs().sum() / 2)
        found["prior"] = {"labeled": task.train_prior.tolist(), "unlabeled_estimate": estimate.tolist(), "gap": gap}
        if gap > PRIOR_GAP:
            notes.append(
                f"the unlabeled data looks differently balanced than the labeled data (total variation {gap:.2f}): "
                "compare prior.labeled and prior.unlabeled_estimate"
            )
    found["warnings"] = [*said, *notes]
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return found, packed(ended or outputs)


def measured(counts: Tensor, objective: Objective) -> dict[str, Any]:
    """The numbers of one part, with simultaneous confidence intervals."""
    return {**summary(counts, objective), "intervals": all_intervals(objective, counts)}


def posthoc(
    outputs: Outputs, objective: Objective, train_prior: Tensor, seed: int, randomised: bool = False
) -> dict[str, Any]:
    """The decision rule fitted on validation: cross-fitted there, measured on test; and what rules could trade off.

    randomised: it may be a lottery. Where it may not and a lottery does better on validation, the sentence says so.
    """
    probs = {name: torch.softmax(scores.double(), 1) for name, (scores, _) in outputs.items()}
    labels = outputs["validation"][1]
    made = cross_fit(probs["validation"], labels, objective, train_prior, randomised=randomised, seed=seed)
    better = made.fitted.randomising_helps and not randomised
    drawn = frontier(probs["validation"], labels, objective, train_prior, seed=seed)
    found = {
        **made.as_dict(),
        "sentence": made.sentence + (" --finish randomised may use a lottery between rules." if better else ""),
        "validation": summary(made.chosen.counts, objective),
        "frontier": [point.as_dict() for point in drawn.points],
        "frontier_sentence": drawn.sentence,
    }
    if "test" in outputs:
        counts = made.rule.counts(probs["test"], outputs["test"][1])
        found["test"] = measured(counts, objective)
    return found


def packed(outputs: Outputs) -> bytes | None:
    """Logits and labels as an .npz file; None where they would be too large to keep."""
    if sum(scores.numel() for scores, _ in outputs.values()) > MOST_OUTPUTS:
        return None
    arrays: dict[str, np.ndarray] = {}
    for name, (scores, labels) in outputs.items():
        arrays |= {f"{name}_logits": scores.numpy(), f"{name}_labels": labels.numpy()}
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def read_outputs(folder: str | Path) -> Outputs:
    """The outputs that a finished run kept."""
    path, names = Path(folder) / "outputs.npz", ("validation", "test")
    if not path.is_file():
        raise InputError(f"{folder} has no outputs.npz: the run is unfinished, or its outputs were too large to keep")
    keys = tuple(f"{name}_{what}" for name in names for what in ("logits", "labels"))
    stored = read_npz(str(path), keys, needed=("validation_logits", "validation_labels"))
    return {
        name: (torch.from_numpy(stored[f"{name}_logits"]), torch.from_numpy(stored[f"{name}_labels"]))
        for name in names
        if f"{name}_logits" in stored
    }

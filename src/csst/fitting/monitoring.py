"""A fitted model in use: what new rows without labels say, and the model whose rule is solved again for them.

deployed = read_run("runs/mine", model); print(monitor(model, deployed, new_rows))
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from csst.data.tabular.tables import is_sparse
from csst.errors import InputError
from csst.estimation.shift_test import FEWEST_ALONE, MOST_NEW, ShiftTest, measure_shift
from csst.fitting.deciding import read_evidence
from csst.fitting.fitted_model import FittedModel
from csst.fitting.folder import COLUMNS, Folder
from csst.fitting.metrics import KeptEvidence, describe_rule, pack_outputs, read_outputs
from csst.fitting.model_file import MODEL, REFERENCE, ROWS
from csst.maths.objectives import Objective
from csst.rules.fit import FittedRule
from csst.rules.monitor import Deployed, Monitoring, adapt_rule, refuse_few, sample_rows, watch
from csst.rules.rule import DecisionRule

NO_RULE = "a model without a decision rule has none to watch: train it with a rule (--rule fit)"
#: files that an adapted run shares with the one it comes from
SHARED = (MODEL, ROWS, REFERENCE, COLUMNS, "environment.json", "recipe.yaml")


def refuse_unwatched(model: FittedModel) -> None:
    """Raise for a model that cannot be watched: one without a rule, or one that abstains."""
    if model.rule is None:
        raise InputError(NO_RULE)
    if model.objective.abstains:
        raise InputError("a rule that abstains cannot be watched yet: fit one for the sentence without abstaining")
    if model.groups is not None:
        raise InputError("a rule for groups of rows cannot be watched yet: fit one for a sentence without 'by'")


def read_fit(model: FittedModel) -> Deployed:
    """Return the rule of a model as it was just fitted."""
    refuse_unwatched(model)
    rule = model.full_details.adjusted
    assert rule is not None
    return _deploy(model, rule.objective, read_evidence(model), rule.estimate.counts, rule.value)


def read_run(folder: str | Path, model: FittedModel) -> Deployed:
    """Return the rule of a model as its run's folder keeps it."""
    refuse_unwatched(model)
    numbers = model.metrics["adjusted"]
    counts = numbers["validation"]["confusion"]
    return _deploy(model, model.objective, KeptEvidence.read(folder), counts, numbers["value"])


def _deploy(model: FittedModel, objective: Objective, scores: KeptEvidence, counts: Any, value: float) -> Deployed:
    assert isinstance(model.rule, DecisionRule)
    counts = np.asarray(counts, dtype=float)
    return Deployed(model.rule, objective, scores.evidence, counts, scores.prior, value, model.class_names)


def watch_inputs(model: FittedModel, deployed: Deployed, inputs: Any) -> tuple[np.ndarray, Monitoring]:
    """Return the probabilities of new examples, (N, K), and what the examples say about the rule."""
    refuse_few(inputs.shape[0] if hasattr(inputs, "shape") else len(inputs))
    spec = model.inputs
    rows = inputs if spec.embed is None else spec.embed(inputs)
    plain_model = replace(model, inputs=replace(spec, embed=None))
    probs = plain_model.probs(rows).cpu().numpy()
    return probs, watch(deployed, probs, compare_rows(model, deployed, rows, probs))


def compare_rows(model: FittedModel, deployed: Deployed, rows: Any, probs: np.ndarray) -> ShiftTest | None:
    """Return whether the labeled classes explain new rows; None if there is nothing to compare them with.

    A fit that has no unlabeled rows, or none that its classes explain, has its labels; then many new rows are needed.

    Args:
        model: the model, with the rows of its fit.
        deployed: the rule of the model.
        rows: N new rows, as the model takes them after its encoder.
        probs: probabilities of the new rows, (N, K).
    """
    reference = model.reference
    if reference is None or (not len(reference.unlabeled) and len(probs) < FEWEST_ALONE):
        return None
    sample = np.sort(np.random.default_rng(0).permutation(len(probs))[:MOST_NEW])
    sample_rows = rows[sample] if isinstance(rows, np.ndarray) or is_sparse(rows) else rows[torch.from_numpy(sample)]
    flat = sample_rows if is_sparse(sample_rows) else np.asarray(sample_rows).reshape(len(sample), -1)
    result = measure_shift(reference, flat, deployed.estimate_prior(probs))
    strangeness = np.full(len(probs), -np.inf)
    strangeness[sample] = result.strangeness
    return replace(result, strange_rows=sample[result.strange_rows], strangeness=strangeness)


def monitor(model: FittedModel, deployed: Deployed, inputs: Any) -> Monitoring:
    """Return what new examples without labels say about a model in use.

    Args:
        model: the model in use.
        deployed: the rule of the model, and the scores that it was fitted to.
        inputs: N examples, as the model takes them.
    """
    return watch_inputs(model, deployed, inputs)[1]


@dataclass(frozen=True, eq=False)
class Adapted:
    """A rule solved again for new rows.

    Args:
        fitted: the rule, and what to expect of it on the new rows.
        monitoring: what the new rows say about the former rule.
        probs: probabilities of the new rows by the model, (N, K).
    """

    fitted: FittedRule
    monitoring: Monitoring
    probs: np.ndarray


def adapt(model: FittedModel, deployed: Deployed, inputs: Any, seed: int = 0) -> Adapted:
    """Return the rule solved again for the class balance of new examples; raise where that would not make it right.

    Args:
        model: the model in use.
        deployed: the rule of the model, and the scores that it was fitted to.
        inputs: N examples, as the model takes them.
        seed: seed of the folds on which rules are judged.
    """
    probs, monitoring = watch_inputs(model, deployed, inputs)
    return Adapted(adapt_rule(deployed, monitoring, probs, seed), monitoring, probs)


def write_adapted(folder: str | Path, target: str | Path, model: FittedModel, adapted: Adapted) -> dict[str, Any]:
    """Write a run whose rule is an adapted one, and return its metrics.

    Args:
        folder: the run of the former rule.
        target: the folder to write, which must be new.
        model: the former model.
        adapted: the new rule.
    """
    if Path(target).exists() and any(Path(target).iterdir()):
        raise InputError(f"{target} is not empty: an adapted run needs a folder of its own")
    run = Folder(target)
    run.make_folder()
    for name in SHARED:
        if (Path(folder) / name).is_file():
            shutil.copyfile(Path(folder) / name, run.path(name))
    outputs = read_outputs(folder)
    logits = torch.from_numpy(np.log(np.maximum(adapted.probs, 1e-300)))
    outputs = replace(outputs, unlabeled=logits[torch.from_numpy(sample_rows(len(logits)))])
    rule = adapted.fitted
    former = {name: value for name, value in model.metrics.items() if name not in ("monitoring", "prior")}
    metrics = {
        **former,
        "adjusted": {
            **describe_rule(rule, outputs, model.class_names),
            "unadjusted": former["adjusted"]["unadjusted"],
        },
        "deployment_prior": rule.estimate.confusion.prior.tolist(),
        "adapted_from": str(folder),
        "monitoring": adapted.monitoring.as_dict(),
        "warnings": [*former.get("warnings", []), *rule.notes],
    }
    content = pack_outputs(outputs)
    if content is not None:
        run.write("outputs.npz", content)
    run.write_metrics(metrics)
    return metrics

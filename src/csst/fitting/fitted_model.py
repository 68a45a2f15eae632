"""A fitted model: what `csst.fit` gives, and what predict, evaluate, export, frontier and theory load from a folder.

model = FittedModel.load("runs/mine")
model.predict(inputs); model.measure(examples); model.export("mine.onnx")
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as pack_tensors
from torch import Tensor, nn

from csst.comparison.rows import refuse_numbers_only
from csst.data.embeddings import Embedder
from csst.data.input_spec import InputSpec
from csst.data.row_hashes import hash_rows, pack_hashes, read_hashes
from csst.data.tabular.rows import as_examples, as_rows
from csst.data.tabular.tables import is_sparse
from csst.data.task import Examples, Labeled
from csst.errors import InputError
from csst.estimation.class_rates import RateEstimate
from csst.fitting.export import (
    Exportable,
    Format,
    describe_card,
    describe_inputs,
    describe_preprocessing,
    export,
    make_graph,
)
from csst.fitting.metrics import FitDetails, KeptEvidence, describe_fit, pack_outputs
from csst.learners.portfolio import Portfolio
from csst.learners.store import pack, unpack
from csst.maths.confusion import confusion_counts
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.models import Projected, build
from csst.models.encoders import encoder
from csst.recipes import Recipe, from_dict
from csst.rules import DecisionRule, fit_point, rule_from_dict
from csst.rules.certification import Certification, certify_labels, read_certified, refuse_seen
from csst.rules.certified import Certificate, certificate_from_dict
from csst.runs.folder import Run
from csst.training.evaluation import compute_logits, summarize_counts

#: files in a run's folder: the model, and hashes of the rows it was fitted on
MODEL, ROWS = "model.safetensors", "rows.npz"

Weights = Literal["selected", "last"]


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A model with its decision rule, ready for new inputs.

    Args:
        model: a network, or learners.
        rule: what decides; None for the most probable class.
        objective: bound to the classes.
        class_names: in the order of the outputs.
        inputs: what the model takes.
        batch: examples at a time.
        metrics: what metrics.json holds, after loading.
        details: what is known right after fitting; None after loading.
        row_hashes: of the rows of the fit, which cannot certify, (N,); None if they are not known.
    """

    model: nn.Module | Portfolio
    rule: DecisionRule | None
    objective: Objective
    class_names: tuple[str, ...]
    inputs: InputSpec
    batch: int = 8192
    metrics: dict[str, Any] = field(default_factory=dict)
    details: FitDetails | None = None
    row_hashes: np.ndarray | None = None

    def logits(self, inputs: Any) -> Tensor:
        """Scores of raw examples; the rule looks at their softmax.

        Args:
            inputs: N examples of the kind that `inputs` names: rows, images or texts.

        Returns:
            Scores, (N, K).
        """
        rows = inputs if self.inputs.embed is None else self.inputs.embed(inputs)
        if isinstance(self.model, Portfolio):
            return torch.from_numpy(self.model.probs(as_rows(rows))).clamp(min=1e-300).log()
        if not isinstance(rows, Tensor) and (isinstance(rows, np.ndarray) or is_sparse(rows)):
            rows = as_examples(rows)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return compute_logits(self.model.to(device), rows, self.batch, device)

    def probs(self, inputs: Any) -> Tensor:
        """What the rule looks at: the softmax of the logits.

        Args:
            inputs: N examples, see `logits`.

        Returns:
            Probabilities, (N, K), float64.
        """
        return torch.softmax(self.logits(inputs).double(), 1)

    def predict_proba(self, inputs: Any) -> Tensor:
        """Calibrated probabilities under the deployment prior where there is a rule, else those of the model.

        Their argmax is not `predict`, which follows the rule.

        Args:
            inputs: N examples, see `logits`.

        Returns:
            Probabilities, (N, K), float64.
        """
        probs = self.probs(inputs)
        return probs if self.rule is None else self.rule.posterior(probs)

    def predict(self, inputs: Any) -> Tensor:
        """The class of every example.

        Args:
            inputs: N examples, see `logits`.

        Returns:
            Class indices, (N,); K for no answer, if the rule may abstain.
        """
        probs = self.probs(inputs)
        return probs.argmax(1) if self.rule is None else self.rule.predict(probs)

    def measure(self, examples: Labeled) -> dict[str, Any]:
        """Recalls, coverages, confusion and the objective's value on labeled examples.

        Args:
            examples: with their classes, every class at least once.

        Returns:
            The numbers by name, as in metrics.json.
        """
        abstains = self.rule is not None and self.rule.abstains
        predictions = self.predict(examples.inputs)
        counts = confusion_counts(examples.labels, predictions, len(self.class_names), abstains)
        return summarize_counts(counts, self.objective)

    @property
    def certificate(self) -> Certificate | None:
        """Whether the bounds are promised; None where no confidence was stated."""
        if self.details is not None and self.details.adjusted is not None:
            return self.details.adjusted.certificate
        stored = self.metrics.get("adjusted", {}).get("certificate")
        return None if stored is None else certificate_from_dict(stored)

    def certify(
        self, objective: Objective | str, inputs: Any, labels: Any, confidence: float | None = None
    ) -> Certification:
        """Return whether fresh labels prove or disprove the bounds of a sentence for this model as it is.

        Labels may come one by one: pass all in the order of their arrival, as often as you like.

        Args:
            objective: a sentence, or only its bounds, such as "precision['fraud'] >= 0.9".
            inputs: N fresh examples, a random sample of the rows where it is used; for recall, of their class.
            labels: class indices, (N,).
            confidence: how sure one must be; None for what the sentence says, or else 0.95.

        Returns:
            certified, refuted or undecided, and how many labels would decide.
        """
        wanted = read_certified(objective, confidence, self.objective, self.class_names)
        refuse_seen(hash_rows(inputs), self.row_hashes)
        prior = (self.metrics if self.details is None else self.details.about).get("deployment_prior")
        predictions = self.predict(inputs).cpu().numpy()
        return certify_labels(wanted, np.asarray(labels), predictions, prior, self.class_names)

    @property
    def expected(self) -> RateEstimate:
        """The rates to expect of what is used in the end: cross-fitted, where a rule was fitted."""
        details = self.full_details
        return details.estimate if details.adjusted is None else details.adjusted.estimate

    @property
    def learner_name(self) -> str:
        """Who decides, in words."""
        details = self.full_details
        if not isinstance(self.model, Portfolio):
            return f"network, {details.about['method']}{'' if details.adjusted is None else ' + rule'}"
        names = " + ".join(self.model.names)
        left_out = f" (clearly worse and left out: {', '.join(self.model.left_out)})" if self.model.left_out else ""
        return f"{names}{left_out}, rule: {details.adjusted.chosen if details.adjusted else 'none'}"

    @property
    def history(self) -> list[dict[str, Any]]:
        """The records of training, one per multiplier update."""
        return self.full_details.history

    def describe(self, **about: Any) -> dict[str, Any]:
        """What metrics.json holds.

        Args:
            **about: more to put into it.

        Returns:
            Plain values for JSON.
        """
        details = self.full_details
        shared = {
            "objective": str(self.objective),
            "class_names": list(self.class_names),
            "kind": self.inputs.kind,
            "input_shape": list(self.inputs.shape),
            "is_embedded": self.inputs.is_embedded,
        }
        return describe_fit(details, self.objective, self.class_names, {**shared, **details.about, **about})

    def save(self, folder: str | Path, **about: Any) -> dict[str, Any]:
        """Write the model, its outputs and metrics.json into a run's folder.

        Args:
            folder: the run's, made if need be.
            **about: more for metrics.json.

        Returns:
            What metrics.json holds.
        """
        run, details = Run(folder), self.full_details
        run.make_folder()
        run.path("metrics.json").unlink(missing_ok=True)  # model and numbers never contradict each other
        content = pack(self.model) if isinstance(self.model, Portfolio) else pack_tensors(details.weights)
        digest = run.write_checked(MODEL, content)
        metrics = self.describe(**about, checksums={MODEL: digest})
        outputs = pack_outputs(details.adjusted_outputs or details.outputs)
        if outputs is not None:
            run.write("outputs.npz", outputs)
        if self.row_hashes is not None:
            run.write(ROWS, pack_hashes(self.row_hashes))
        run.write("metrics.json", json.dumps(metrics, indent=2))
        return metrics

    @classmethod
    def load(
        cls,
        folder: str | Path,
        weights: Weights | None = None,
        make: Callable[[], nn.Module] | None = None,
    ) -> FittedModel:
        """The model of a complete run, from its folder alone; or one that `save` wrote.

        Args:
            folder: the run's.
            weights: "selected" for the model as trained, without a rule; None for what the run uses in the end.
            make: makes an untrained network, for one fitted in Python: no recipe in the folder tells which it is.

        Returns:
            The model, without the details of its fit.
        """
        run = Run(folder)
        recipe = None if run.is_complete and not Run.exists(folder) else read_recipe(folder)
        metrics = run.metrics()
        refuse_numbers_only(folder, metrics)
        names, shape = tuple(metrics["class_names"]), tuple(metrics["input_shape"])
        counts = torch.tensor(metrics["labeled_counts"]).double()
        if recipe is None:
            objective = read_objective(metrics["objective"]).bind(len(names), names)
        else:
            objective = recipe.bind_objective(names)
        objective = objective.bind_prior(counts / counts.sum())
        has_rule = "adjusted" in metrics and weights is None
        rule = rule_from_dict(metrics["adjusted"]["rule"]) if has_rule else None
        content = run.read_checked(MODEL, metrics.get("checksums", {}).get(MODEL, ""))
        model: nn.Module | Portfolio
        if "members" in metrics:
            model = unpack(content, str(run.path(MODEL)))
        else:
            model = make_network(folder, recipe, shape, len(names)) if make is None else make()
            wide = metrics.get("facts", {}).get("embedding_width")
            if recipe is not None and recipe.frozen and shape != (wide,):
                model, shape = Projected(model, torch.zeros(wide), torch.zeros(wide, *shape)), (wide,)
            kept = "last." if has_rule else "selected."
            stored = {k[len(kept) :]: v for k, v in load_tensors(content).items() if k.startswith(kept)}
            try:
                model.load_state_dict(stored)
            except RuntimeError as error:
                reason = " ".join(str(error).split())[:200]
                raise InputError(f"the weights of the run {folder} no longer fit its network: {reason}") from None
            model.eval()
        hashes = read_hashes(run.path(ROWS))
        if recipe is None:
            spec = InputSpec(metrics["kind"], shape, is_embedded=metrics["is_embedded"])
            return cls(model, rule, objective, names, spec, metrics=metrics, row_hashes=hashes)
        embed = make_embedder(recipe, metrics["kind"], metrics["facts"].get("encoder", "")) if recipe.frozen else None
        spec = InputSpec(metrics["kind"], shape, describe_preprocessing(recipe, model, shape), embed, recipe.frozen)
        batch = recipe.training.evaluation_batch
        return cls(model, rule, objective, names, spec, batch, metrics, row_hashes=hashes)

    def with_objective(self, folder: str | Path, objective: str) -> FittedModel:
        """The same model deciding for another sentence, by a rule fitted on the examples whose scores its run kept.

        Args:
            folder: of the run that this model was loaded from.
            objective: a sentence or a short name.

        Returns:
            The model with the other rule and objective.
        """
        if read_objective(objective).confidence is not None:
            raise InputError("a rule fitted now has no fresh labels to be certified by: leave the confidence out")
        kept = KeptEvidence.read(folder)
        wanted = kept.bind(read_recipe(folder).bind_objective(self.class_names, objective), self.class_names)
        return replace(self, rule=fit_point(kept.evidence, kept.prior, wanted, kept.undo).rule, objective=wanted)

    def export(self, path: str | Path, to: Format = "onnx", **card: Any) -> list[Path]:
        """Write the model with its decision rule, and a model card.

        Args:
            path: of the model's file.
            to: onnx, torch-export or safetensors.
            **card: more for the card.

        Returns:
            The files that were written.
        """
        return export(self.as_exportable(**card), path, to)

    def as_exportable(self, **card: Any) -> Exportable:
        """The model as a graph, an input for it, its rule, and what its card says.

        Args:
            **card: more for the card.

        Returns:
            What `csst.fitting.export.export` writes.
        """
        spec = self.inputs
        example, preprocessing = describe_inputs(self.model, spec.kind, spec.shape, spec.is_embedded)
        known = {
            "objective": str(self.objective),
            "preprocessing": spec.preprocessing or preprocessing,
            **describe_card(self.metrics, self.rule is not None),
            **card,
        }
        return Exportable(make_graph(self.model), example, self.class_names, self.rule, known)

    @property
    def full_details(self) -> FitDetails:
        """`details`, or a sentence where there are none."""
        if self.details is None:
            raise InputError("this model was loaded from a folder, which keeps numbers but not how it was fitted")
        return self.details


def read_recipe(folder: str | Path) -> Recipe:
    """The recipe of a run; one of another version of csst gets a sentence."""
    run = Run.open(folder)
    try:
        return from_dict(run.recipe())
    except InputError as error:
        raise InputError(
            f"the settings of the run {folder} do not fit this version of csst ({error}): use the one that its "
            "environment.json names, or train again in another folder"
        ) from None


def make_network(folder: str | Path, recipe: Recipe | None, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The untrained network of a run."""
    if recipe is None:
        raise InputError(
            f"{folder} has no recipe.yaml, which says what its network is: give FittedModel.load the function that "
            "makes an untrained one, make=..."
        )
    return build(recipe.network, shape, classes, recipe.seed)


def make_embedder(recipe: Recipe, kind: str, fingerprint: str) -> Callable[[Examples], Examples]:
    """Raw examples through the recipe's frozen encoder, which must be the one of the training."""

    def embed(inputs: Examples) -> Examples:
        frozen: Any = encoder(recipe.encoder, kind, recipe.embedding.max_length)  # type: ignore[arg-type]
        if fingerprint not in ("", frozen.fingerprint):
            raise InputError(
                f"the encoder {recipe.encoder} differs from the one used in training: restore that one, or train again"
            )
        return Embedder(frozen, recipe.embedding)(inputs, "examples")

    return embed

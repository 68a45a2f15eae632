"""A fitted model: what `csst.fit` gives, and what predict, evaluate, export, frontier and theory load from a folder.

model = FittedModel.load("runs/mine")
model.predict(inputs); model.measure(examples); model.export("mine.onnx")
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as pack_tensors
from torch import Tensor, nn

from csst.data.examples import InputSpec, as_examples, as_rows
from csst.data.npz import pack_npz
from csst.data.row_hashes import hash_rows
from csst.data.tabular.tables import is_sparse
from csst.data.task import Labeled
from csst.errors import InputError
from csst.estimation.class_rates import RateEstimate
from csst.estimation.reference import Reference
from csst.fitting.evaluation import Evaluation, GroupEvaluation
from csst.fitting.export import Exportable, Format, describe_card, describe_inputs, export, make_graph
from csst.fitting.folder import Folder
from csst.fitting.metrics import FitDetails, KeptEvidence, bind_sentence, describe_fit, pack_outputs, read_label_prior
from csst.fitting.model_file import MODEL, REFERENCE, ROWS, ModelFile, Weights, pack_reference, read_reference
from csst.learners.protocol import FittedLearner
from csst.maths.confusion import confusion_counts
from csst.maths.grouped_confusion import count_groups
from csst.maths.language import Sentence
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.models.stored import pack
from csst.rules import Rule
from csst.rules.certification import Certification, certify_labels, name_row_groups, read_certified, refuse_seen
from csst.rules.claims import Certificate, certificate_from_dict
from csst.rules.frontier import fit_again
from csst.rules.rule import read_group_values
from csst.training.evaluation import compute_logits


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A model with its decision rule, ready for new inputs.

    Args:
        model: a network, or learners.
        rule: the decision rule; None for the most probable class.
        objective: the objective, bound to the classes.
        class_names: K names, in the order of the outputs.
        inputs: inputs of the model.
        batch: number of examples scored at a time.
        metrics: content of metrics.json, after loading.
        details: details that exist only right after fitting; None after loading.
        row_hashes: hashes of the rows of the fit, which cannot certify, (N,); None if unknown.
        reference: rows of the fit that new rows are compared with; None for examples that are no rows of numbers.
    """

    model: nn.Module
    rule: Rule | None
    objective: Objective
    class_names: tuple[str, ...]
    inputs: InputSpec
    batch: int = 8192
    metrics: dict[str, Any] = field(default_factory=dict)
    details: FitDetails | None = None
    row_hashes: np.ndarray | None = None
    reference: Reference | None = None

    def logits(self, inputs: Any) -> Tensor:
        """Return scores of raw examples; the rule looks at their softmax.

        Args:
            inputs: N examples of the kind that `inputs` names: rows, images or texts.

        Returns:
            Scores, (N, K).
        """
        rows = inputs if self.inputs.embed is None else self.inputs.embed(inputs)
        if isinstance(self.model, FittedLearner):  # it takes all rows at once, and sparse ones as they are
            return torch.from_numpy(self.model.log_probs(as_rows(rows)))
        if not isinstance(rows, Tensor) and (isinstance(rows, np.ndarray) or is_sparse(rows)):
            rows = as_examples(rows)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return compute_logits(self.model.to(device), rows, self.batch, device)

    def probs(self, inputs: Any) -> Tensor:
        """Return the probabilities that the rule looks at: the softmax of the logits.

        Args:
            inputs: N examples, see `logits`.

        Returns:
            Probabilities, (N, K), float64.
        """
        return torch.softmax(self.logits(inputs).double(), 1)

    def predict_proba(self, inputs: Any, groups: Any = None) -> Tensor:
        """Return calibrated probabilities under the deployment prior; without a rule, the softmax of the model.

        Their argmax is not `predict`, which follows the rule.

        Args:
            inputs: N examples, see `logits`.
            groups: the group of every example, (N,), if each group has a rule of its own.

        Returns:
            Probabilities, (N, K), float64.
        """
        probs = self.probs(inputs)
        return probs if self.rule is None else self.rule.posterior(probs, groups)

    def predict(self, inputs: Any, groups: Any = None) -> Tensor:
        """Return the class of every example.

        Args:
            inputs: N examples, see `logits`.
            groups: the group of every example, (N,), if each group has a rule of its own.

        Returns:
            Class indices, (N,); K for no answer, if the rule may abstain.
        """
        probs = self.probs(inputs)
        return probs.argmax(1) if self.rule is None else self.rule.predict(probs, groups)

    def measure(self, examples: Labeled) -> dict[str, Any]:
        """Return recalls, coverages, confusion and the objective's value on labeled examples, with intervals.

        Args:
            examples: examples with their classes, every class at least once.

        Returns:
            The numbers by name, as in metrics.json; see `csst.fitting.evaluation`.
        """
        groups = None
        if self.groups is not None and examples.groups is not None:
            groups = np.array(self.groups["names"])[examples.groups.numpy()]
        return self.evaluate(self.count(examples.inputs, examples.labels, groups)).numbers

    def count(self, inputs: Any, labels: Any, groups: Any = None) -> Tensor:
        """Count rows by true class and predicted class, and by group first for a sentence about groups.

        Args:
            inputs: N examples, see `logits`.
            labels: class indices, (N,).
            groups: the group of every example, (N,).

        Returns:
            Counts, (K, K), (K, K + 1) with a rule that may give no answer, or (A, K, K).
        """
        predictions = self.predict(inputs, groups)
        classes = len(self.class_names)
        if groups is None:
            return confusion_counts(labels, predictions, classes, self.rule is not None and self.rule.abstains)
        sentence = self.stated
        assert isinstance(sentence, Sentence)
        names = sentence.binding.row_groups
        places = torch.from_numpy(read_group_values(groups, names, str(sentence.column), len(labels)))
        return count_groups(labels, predictions, places, classes, len(names))

    def evaluate(self, counts: Tensor) -> Evaluation:
        """Return what labeled examples say about the model.

        Args:
            counts: counts of the examples, (K, K), (K, K + 1) or (A, K, K), see `count`.

        Returns:
            Every metric with its interval, the sentence and its bounds.
        """
        if counts.ndim == 2:
            return Evaluation(self.objective, self.class_names, counts)
        sentence = self.stated
        assert isinstance(sentence, Sentence)
        return GroupEvaluation.of_groups(sentence, counts)

    @property
    def certificate(self) -> Certificate | None:
        """Whether the bounds are promised; None where no confidence was stated."""
        if self.details is not None and self.details.adjusted is not None:
            return self.details.adjusted.certificate
        values = self.metrics.get("adjusted", {}).get("certificate")
        return None if values is None else certificate_from_dict(values)

    def certify(
        self, objective: Objective | str, inputs: Any, labels: Any, confidence: float | None = None, groups: Any = None
    ) -> Certification:
        """Return whether fresh labels prove or disprove the bounds of a sentence for this model as it is.

        Labels may come one by one: pass all in the order of their arrival, as often as you like.

        Args:
            objective: a sentence, or only its bounds, such as "precision['fraud'] >= 0.9".
            inputs: N fresh examples, a random sample of the rows where it is used; for recall, of their class.
            labels: class indices, (N,).
            confidence: how sure one must be; None for what the sentence says, or else 0.95.
            groups: the group of every example, (N,), for a sentence about groups.

        Returns:
            certified, refuted or undecided, and how many labels would decide.
        """
        names = name_row_groups(self.groups, groups)
        goal = read_certified(objective, confidence, self.objective, self.class_names, names)
        refuse_seen(hash_rows(inputs), self.row_hashes)
        prior = self._about.get("deployment_prior")
        predictions = self.predict(inputs, groups).cpu().numpy()
        places = None if not names else read_group_values(groups, names, str(goal.column), len(predictions))
        return certify_labels(goal, np.asarray(labels), predictions, prior, self.class_names, groups=places)

    @property
    def _about(self) -> dict[str, Any]:
        """Entries about the learner and its labels, as in metrics.json."""
        return self.metrics if self.details is None else self.details.about

    @property
    def groups(self) -> dict[str, Any] | None:
        """What to expect in each group of rows, for a sentence about groups, as in metrics.json; else None."""
        if self.details is None:
            return self.metrics.get("adjusted", {}).get("groups")
        rule = self.details.adjusted
        return None if rule is None or rule.groups is None else rule.groups.as_dict()

    @property
    def stated(self) -> Objective:
        """The objective as it was stated, bound to its groups of rows if it is about them."""
        groups = self.groups
        if groups is None:
            return self.objective
        sentence = read_objective(groups["sentence"], class_names=self.class_names)
        assert isinstance(sentence, Sentence)
        return sentence.bind_prior(read_label_prior(self._about)).bind_row_groups(groups["names"])

    @property
    def expected(self) -> RateEstimate:
        """The expected rates of the model in use: cross-fitted if a rule was fitted."""
        details = self.full_details
        return details.estimate if details.adjusted is None else details.adjusted.estimate

    @property
    def learner_name(self) -> str:
        """The learners and the rule, as a phrase."""
        details = self.full_details
        method = details.about["method"]
        if "members" not in details.about:
            return f"network, {method}{'' if details.adjusted is None else ' + rule'}"
        dropped_names = ", ".join(details.about["left_out"])
        left_out = f" (clearly worse and left out: {dropped_names})" if dropped_names else ""
        return f"{method}{left_out}, rule: {details.adjusted.chosen if details.adjusted else 'none'}"

    @property
    def history(self) -> list[dict[str, Any]]:
        """The records of training, one per multiplier update."""
        return self.full_details.history

    def describe(self, **about: Any) -> dict[str, Any]:
        """Return the content of metrics.json.

        Args:
            **about: further entries.

        Returns:
            Plain values for JSON.
        """
        details = self.full_details
        entries: dict[str, Any] = {
            "objective": str(self.stated),
            "class_names": list(self.class_names),
            "kind": self.inputs.kind,
            "input_shape": list(self.inputs.shape),
            "is_embedded": self.inputs.is_embedded,
        }
        if isinstance(self.objective, Sentence) and self.objective.binding.costs is not None:
            entries["costs"] = asdict(self.objective.binding.costs)
        return describe_fit(details, self.objective, self.class_names, {**entries, **details.about, **about})

    def save(self, folder: str | Path, **about: Any) -> dict[str, Any]:
        """Write the model, its outputs and metrics.json into a run's folder.

        Args:
            folder: the run's folder, made if need be.
            **about: further entries for metrics.json.

        Returns:
            The content of metrics.json.
        """
        run = Folder(folder)
        details = self.full_details
        run.make_folder()
        run.path("metrics.json").unlink(missing_ok=True)  # model and numbers never contradict each other
        content = pack(self.model) if isinstance(self.model, FittedLearner) else pack_tensors(details.weights)
        digest = run.write_checked(MODEL, content)
        metrics = self.describe(**about, checksums={MODEL: digest})
        outputs = pack_outputs(details.adjusted_outputs or details.outputs)
        if outputs is not None:
            run.write("outputs.npz", outputs)
        if self.row_hashes is not None:
            run.write(ROWS, pack_npz({"rows": np.sort(self.row_hashes)}))
        if self.reference is not None:
            run.write(REFERENCE, pack_reference(self.reference))
        run.write_metrics(metrics)
        return metrics

    @classmethod
    def load(
        cls,
        folder: str | Path,
        weights: Weights | None = None,
        make: Callable[[], nn.Module] | None = None,
    ) -> FittedModel:
        """Load the model of a complete run, from its folder alone, or a model that `save` wrote.

        Args:
            folder: the run's folder.
            weights: "selected" for the model as trained, without a rule; None for the model in use at the end.
            make: function that makes the untrained network, for a model fitted in Python: its folder has no recipe.

        Returns:
            The model, without the details of its fit.
        """
        file = ModelFile.read(folder)
        rule = file.read_rule() if weights is None else None
        model = file.build_model("selected" if rule is None else "last", make)
        return cls(
            model,
            rule,
            file.objective,
            file.class_names,
            file.describe_inputs(model),
            batch=8192 if file.plan is None else file.plan.training.evaluation_batch,
            metrics=file.metrics,
            row_hashes=file.row_hashes,
            reference=read_reference(Folder(folder)),
        )

    def with_objective(self, folder: str | Path, objective: str) -> FittedModel:
        """Return the same model with a rule for another sentence, fitted to the scores that its run has stored.

        Args:
            folder: folder of the run that this model was loaded from.
            objective: a sentence or a short name.

        Returns:
            The model with the other rule and objective.
        """
        evidence = KeptEvidence.read(folder)
        goal = bind_sentence(folder, objective, self.metrics)
        rule, notes = fit_again(evidence.evidence, evidence.prior, goal)
        for note in notes:
            warnings.warn(note, stacklevel=2)
        return replace(self, rule=rule, objective=goal)

    def export(self, path: str | Path, to: Format = "onnx", **card: Any) -> list[Path]:
        """Write the model with its decision rule, and a model card.

        Args:
            path: the model's file.
            to: onnx, torch-export or safetensors.
            **card: further entries for the card.

        Returns:
            The files that were written.
        """
        return export(self.as_exportable(**card), path, to)

    def as_exportable(self, **card: Any) -> Exportable:
        """Return the model as a graph, inputs for it, its rule, and the entries of its card.

        Args:
            **card: further entries for the card.

        Returns:
            The model as `csst.fitting.export.export` takes it.
        """
        spec = self.inputs
        example, preprocessing = describe_inputs(self.model, spec.kind, spec.shape, spec.is_embedded)
        entries = {
            "objective": str(self.stated),
            "preprocessing": spec.preprocessing or preprocessing,
            **describe_card(self.metrics, self.rule is not None),
            **card,
        }
        return Exportable(make_graph(self.model), example, self.class_names, self.rule, entries)

    @property
    def full_details(self) -> FitDetails:
        """`details`; raises an error if there are none."""
        if self.details is None:
            raise InputError("this model was loaded from a folder, which keeps numbers but not how it was fitted")
        return self.details

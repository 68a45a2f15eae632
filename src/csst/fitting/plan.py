"""The plan of a fit: the objective, the learner, the encoder and all settings; a recipe adds the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from csst.data.costs import read_costs
from csst.errors import InputError
from csst.fitting.folder import Folder
from csst.learners import LEARNERS
from csst.maths.costs import CostTable
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.setting_checks import override
from csst.settings import Model, Settings

#: entries of recipe.yaml that say where the data comes from
OF_DATA = ("name", "data")


@dataclass(frozen=True, kw_only=True)
class Plan(Settings):
    """Everything that defines a fit, except its data.

    Args:
        method: how the network learns: csst, csl, erm, la, fixmatch, uda ... (all in csst.selftraining.METHODS), or
            package.module:name.
        learner: network; or auto, or one or several names of csst.learners.LEARNERS (linear,kernel), which take
            seconds. auto is the network where an encoder is fine-tuned or another method than csst is asked for.
        objective: the goal: a sentence ("max min(recall)"), a short name (min-recall), or package.module:Name.
        seed: seed of the split, the weights and the order of examples.
        encoder: words, hf:NAME_OR_FOLDER or package.module:name; frozen, it turns every example into a vector once and
            `model` is a head on those; else it is fine-tuned and is the model.
        frozen: whether the encoder stays as it is, and a head is trained on its embeddings.
        groups: classes that the objective names together, such as head, each as 0,1,2 or cat,dog; head and tail are the
            paper's, by frequency, unless they are named here.
        per_group: for an objective about groups of rows, whether each group gets a decision rule of its own, so that
            predictions need the group of every row.
        deployment_prior: the class balance under which estimates and rules are judged: validation (without validation
            rows, as estimated from labels and unlabeled rows), labeled, unlabeled (as estimated), uniform, or one
            number per class, such as 0.9,0.1.
        costs: CSV file with the cost of every prediction, for an objective with `cost`: a row per true class.
        confidence: how sure one must be that all bounds of the objective hold; None for what its sentence says.
    """

    method: str = "csst"
    learner: str = "network"
    objective: str = "min-recall"
    seed: int = 0
    encoder: str = ""
    frozen: bool = False
    per_group: bool = False
    deployment_prior: str = "validation"
    costs: str = ""
    confidence: float | None = None
    groups: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(name not in LEARNERS and ":" not in name for name in self.learner.split(",")):
            raise InputError(
                f"learner is {', '.join(LEARNERS)} or package.module:name, or several such as linear,kernel; "
                f"found {self.learner!r}"
            )
        if self.folds and self.uses_network and self.hardware.strategy == "fsdp":
            raise InputError("cross-fitting does not shard its models: use --hardware.strategy ddp, or --folds 0")
        if self.rounds and self.uses_network:
            raise InputError("rounds of self-training are for learners other than a network: leave out --rounds")
        if not isinstance(self.groups, dict):
            raise InputError(f"groups must be names with their classes, such as head: 0,1,2; found {self.groups!r}")
        for name, members in self.groups.items():
            if not all(isinstance(word, (str, int)) for word in (members if isinstance(members, list) else [members])):
                raise InputError(f"groups.{name} must be classes such as 0,1,2 or cat,dog; found {members!r}")
        words = ("validation", "labeled", "unlabeled", "uniform")
        if self.deployment_prior not in words and "," not in self.deployment_prior:
            raise InputError(
                f"deployment_prior is {', '.join(words)} or one number per class, such as 0.9,0.1; "
                f"found {self.deployment_prior!r}"
            )
        if self.frozen and not self.encoder:
            raise InputError("--frozen needs an encoder: --encoder words, hf:NAME_OR_FOLDER or package.module:name")
        if self.encoder and not self.frozen and not self.encoder.startswith("hf:"):
            raise InputError(f"the encoder {self.encoder} cannot be fine-tuned: add --frozen, or name one as hf:NAME")

    @property
    def uses_network(self) -> bool:
        """Whether a network is trained."""
        fine_tuned = bool(self.encoder) and not self.frozen
        return self.learner == "network" or (self.learner == "auto" and (fine_tuned or self.method != "csst"))

    @property
    def holds_out(self) -> bool:
        """Whether the source holds out validation examples: for a network, or to be learned from in folds."""
        return self.uses_network or self.folds > 0

    @property
    def judges_out_of_fold(self) -> bool:
        """Whether every label is learned from, so that those for validation cannot be measured again."""
        return not self.uses_network or self.folds > 0

    @property
    def network(self) -> Model:
        """The model that is trained: the encoder itself if it is fine-tuned."""
        return replace(self.model, name=self.encoder) if self.encoder and not self.frozen else self.model

    def bind_objective(self, class_names: Sequence[str], text: str = "", costs: CostTable | None = None) -> Objective:
        """Return the objective for these classes and the named groups of them.

        Args:
            class_names: names of the classes in order.
            text: another objective in words; empty for the plan's own.
            costs: cost of every prediction, as a run has stored it; None reads the file of `costs`.
        """
        groups = {name: read_group(members, class_names) for name, members in self.groups.items()}
        if costs is None and self.costs:
            costs = read_costs(self.costs)
        if text:
            objective = read_objective(text, costs=costs)
        else:
            objective = read_objective(self.objective, confidence=self.confidence, costs=costs)
        return objective.bind(len(class_names), class_names, groups)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for YAML."""
        return asdict(self)


def read_group(members: Any, class_names: Sequence[str]) -> list[int | str]:
    """Return the classes of a group, written 0,1,2 or cat,dog or as a list; a number that is no name is an index."""
    words = [word.strip() for word in members.split(",")] if isinstance(members, str) else members
    words = words if isinstance(words, (list, tuple)) else [words]
    return [int(word) if str(word) not in class_names and str(word).isdecimal() else str(word) for word in words]


def read_plan(folder: str | Path) -> Plan:
    """Return what the fit in a folder was asked for; raise an error if another version of csst wrote it."""
    values = Folder.open(folder).recipe()
    with naming_version(folder):
        plan: Plan = override(Plan(), {name: value for name, value in values.items() if name not in OF_DATA})
        return plan


@contextmanager
def naming_version(folder: str | Path) -> Iterator[None]:
    """Add to an error about stored settings that another version of csst may have written them."""
    try:
        yield
    except InputError as error:
        raise InputError(
            f"the settings of the run {folder} do not fit this version of csst ({error}): use the one that its "
            "environment.json names, or train again in another folder"
        ) from None

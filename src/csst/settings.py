"""What a run can be told, as frozen, typed values; the command line and YAML files mirror them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from csst.errors import InputError, nearest

#: of cross-fitting, at most
MOST_FOLDS = 20
#: the part of the steps that an averaged model remembers unless told otherwise, and the most steps
MEMORY, LONGEST_MEMORY = 0.1, 1000
#: an average that remembers a larger part of the run measures a model of the past
MOST_MEMORY = 0.2
#: multiplier updates of a run unless told otherwise
UPDATES = 50
#: the fewest and most steps between two of them
SHORTEST_INTERVAL, LONGEST_INTERVAL = 5, 500
#: the part of the steps before a solved gain first moves
WARMUP = 0.05


@dataclass(frozen=True)
class Training:
    """How the classifier learns.

    Args:
        steps: optimizer steps in all.
        labeled_batch: labeled examples per step.
        unlabeled_batch: unlabeled examples per step.
        optimizer: sgd (Nesterov momentum) or adamw.
        lr: learning rate at the start.
        schedule: fixmatch is lr cos(7 pi step / (16 steps)); linear goes down to 0; constant keeps lr.
        warmup: steps at the start in which the learning rate grows linearly to its value.
        momentum: of sgd.
        weight_decay: of either optimizer.
        ema: decay of the averaged model that is measured and kept; 0 measures the model itself; None remembers a tenth
            of the steps, and at most 1,000.
        evaluation_batch: examples per forward pass when measuring.
        batchnorm: whether weak views of unlabeled examples are normalized in a batch of their own (separate: faster,
            they need no gradient) or in one batch with all others (joint: as the published codes do).
    """

    steps: int = 1000
    labeled_batch: int = 64
    unlabeled_batch: int = 256
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.03
    schedule: Literal["fixmatch", "linear", "constant"] = "fixmatch"
    warmup: int = 0
    momentum: float = 0.9
    weight_decay: float = 5e-4
    ema: float | None = None
    evaluation_batch: int = 1024
    batchnorm: Literal["separate", "joint"] = "separate"

    def __post_init__(self) -> None:
        check_choices(self)
        _positive(self, "steps", "labeled_batch", "unlabeled_batch", "lr", "evaluation_batch")
        _within(self, 0, 1, "momentum", "ema")
        _within(self, 0, float("inf"), "weight_decay", "warmup")


@dataclass(frozen=True)
class SelfTrainingSettings:
    """How unlabeled examples are used.

    Args:
        unlabeled_weight: weight of the consistency loss (the paper's lambda_u).
        tau: pseudo-labels with KL(norm(G^T p) || p_m) <= tau are used by csst methods.
        confidence: pseudo-labels with max p_m >= confidence are used by all other methods.
        temperature: sharpening of the soft targets of uda methods.
        unlabeled_prior: class balance of the unlabeled examples, which pseudo-labels and their selection follow:
            labeled (that of the labels), or estimated at every multiplier update from validation and unlabeled rows.
        teacher: pseudo-labels of csst methods are those of the softmax, in which the gain is (tilted, as in the paper),
            or of the class probabilities behind it (untilted): a classifier that is tilted to rare classes mislabels
            examples that mostly are of frequent ones. An estimated unlabeled_prior makes it untilted.
        hold_back: whether pseudo-labels count less where those of their class are wrong on validation rows: auto where
            the unlabeled_prior is estimated, as csst-balanced does, and off for the paper's methods; or off.
        annealing: UDA's training-signal annealing of the labeled loss; the paper leaves it off on long tails.
        darp_warmup: fraction of the steps before darp methods refine pseudo-labels.
        darp_every: steps between two refinements.
        darp_delta: a class keeps its darp_delta * (expected count) most probable entries when refined; 0 keeps all.
        crest_generations: trainings from scratch of crest methods; training.steps is split among them.
        crest_alpha: class l gives the fraction (N_(L+1-l) / N_1)^crest_alpha of its pseudo-labels to the labeled set.
        crest_temperature: the power of the prior that crest+ aligns to falls from 1 to this over the generations.
    """

    unlabeled_weight: float = 1.0
    tau: float = 0.05
    confidence: float = 0.95
    temperature: float = 0.4
    unlabeled_prior: Literal["labeled", "estimated"] = "labeled"
    annealing: Literal["off", "linear", "log", "exp"] = "off"
    teacher: Literal["tilted", "untilted"] = "tilted"
    hold_back: Literal["auto", "off"] = "auto"
    darp_warmup: float = 0.4
    darp_every: int = 10
    darp_delta: float = 2.0
    crest_generations: int = 3
    crest_alpha: float = 1 / 3
    crest_temperature: float = 0.5

    def __post_init__(self) -> None:
        check_choices(self)
        _within(self, 0, float("inf"), "unlabeled_weight", "tau", "darp_delta", "crest_alpha")
        _within(self, 0, 1, "confidence", "temperature", "darp_warmup", "crest_temperature")
        _positive(self, "darp_every", "crest_generations")


@dataclass(frozen=True)
class Dual:
    """How the multipliers move.

    Args:
        update: how they move: gradient (Algorithms 1 and 2 of the paper), solve (at every update part of the way to the
            gain of the decision rule that is best for the present scores, as far as the labels carry it), or fixed
            (as they start).
        steps_per_update: optimizer steps between two multiplier updates; None for a fiftieth of all steps, 5 to 500.
        step_size: the dual step (the paper's omega) at the start, of gradient.
        share: the part of the way at the start, of solve.
        farthest: how far the logarithm of a class's weight may go from where it starts, of solve.
        schedule: constant, or linear or cosine decay of the step size or share to 0.
        warmup: steps before the multipliers first move; None for none by gradient, as in the paper, and a twentieth of
            all steps by solve.
        windup: of gradient: free (as in the paper), or wait: the multiplier of a class that the network has not begun
            to learn, whose recall is low whatever it is, stands still.
        initial: uniform (classes weigh alike), prior (start as accuracy does, G = I), zero (constraints start at 0).
        metric_prior: prior under which the gain is derived; default: the objective's own.
        rates: what the multipliers follow: validation (confusion counts, the paper's way) or pooled (counts together
            with unlabeled rows by their calibrated posterior, for few validation labels; at most 2,000 unlabeled rows,
            and a fifth of them, are then measured instead of learned from); solve always pools.
    """

    steps_per_update: int | None = None
    step_size: float = 0.25
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    initial: Literal["uniform", "prior", "zero"] = "uniform"
    metric_prior: Literal["default", "train", "evaluation"] = "default"
    rates: Literal["validation", "pooled"] = "validation"
    update: Literal["gradient", "solve", "fixed"] = "gradient"
    share: float = 0.3
    farthest: float = 2.0
    warmup: int | None = None
    windup: Literal["free", "wait"] = "free"

    def __post_init__(self) -> None:
        check_choices(self)
        _positive(self, "steps_per_update")
        _within(self, 0, float("inf"), "step_size", "farthest", "warmup")
        _within(self, 0, 1, "share")


@dataclass(frozen=True)
class Selection:
    """Which of the models met on the way is kept.

    Args:
        keep: best (on the objective itself, measured on validation), last (few labels would choose by noise), or auto:
            best where multipliers move by gradient, which may overshoot, and last where they are solved for or fixed.
        tolerance: a constraint missed by no more than this counts as met.
        patience: stop after this many multiplier updates without a better model; 0 never stops early.
    """

    keep: Literal["auto", "best", "last"] = "auto"
    tolerance: float = 1e-3
    patience: int = 0

    def __post_init__(self) -> None:
        check_choices(self)
        _within(self, 0, float("inf"), "tolerance", "patience")


@dataclass(frozen=True)
class Hardware:
    """Where it runs. Under torchrun the number of processes comes from there.

    Args:
        accelerator: auto takes CUDA if there is any, else the CPU.
        devices: processes per node, one device each.
        nodes: machines.
        strategy: with several processes, ddp (each holds the whole model) or fsdp (weights, gradients and optimizer
            state are sharded).
        precision: auto is 32 on a CPU, bf16 (or fp16) autocast on CUDA.
        accumulate: parts into which each batch is cut to save memory; the gradient is that of the whole.
        clip: largest gradient norm; 0 does not clip.
        compile: compile the model with torch.compile.
        sync_batchnorm: normalize over the batches of all processes (CUDA only).
        channels_last: keep convolutions in the layout that is fastest.
        threads: torch's CPU threads; 0 leaves torch's default. Small networks are fastest with 1.
    """

    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    devices: int = 1
    nodes: int = 1
    strategy: Literal["ddp", "fsdp"] = "ddp"
    precision: Literal["auto", "32", "bf16", "fp16"] = "auto"
    accumulate: int = 1
    clip: float = 0.0
    compile: bool = False
    sync_batchnorm: bool = False
    channels_last: bool = True
    threads: int = 0

    def __post_init__(self) -> None:
        check_choices(self)
        _positive(self, "devices", "nodes", "accumulate")
        _within(self, 0, float("inf"), "clip", "threads")


@dataclass(frozen=True)
class TableNetwork:
    """The network of a table's rows, and how they are varied.

    Args:
        hidden: width of the hidden layers.
        depth: how many there are; 0 is linear.
        views: auto (those of embeddings where there is an encoder or one common scale, else those of tables), table,
            embedding, or a weak and a strong view, functions (batch, generator) -> batch.
        scale: how columns of numbers are standardized: each by its own deviation (column), all by a common one
            (common: for embeddings and pixels, whose small columns are noise), or as suits the labels better (auto).
    """

    hidden: int = 128
    depth: int = 2
    views: Any = "auto"
    scale: Literal["auto", "column", "common"] = "auto"

    def __post_init__(self) -> None:
        check_choices(self)
        _positive(self, "hidden")
        _within(self, 0, float("inf"), "depth")


@dataclass(frozen=True)
class Fitting:
    """What is done around learning.

    Args:
        rule: fit fits the decision rule after a network's training; the other learners always have it.
        folds: of a network's cross-fitting, where no validation rows are given.
        rounds: of self-training for learners other than a network, which uses `selftraining.tau`.
        warm_start: fitting a network again goes on from where the last fit ended, for `training.steps` more steps.
        cache: folder of embeddings; empty for the user's cache folder.
        certifying: share of the labels that certify bounds with a stated confidence, where no validation rows do.
    """

    rule: Literal["none", "fit"] = "none"
    folds: int = 3
    rounds: int = 0
    warm_start: bool = False
    cache: str = ""
    certifying: float = 0.5

    def __post_init__(self) -> None:
        check_choices(self)
        _positive(self, "folds", "certifying")
        _within(self, 0, 0.99, "certifying")
        _within(self, 0, 20, "rounds")


@dataclass(frozen=True)
class Settings:
    """Every setting of a training, in groups; what is left open (None) follows from the length of the run.

    Args:
        training: how long and with which optimizer a network learns.
        selftraining: how pseudo-labels are made, selected and weighed.
        dual: how the multipliers start and move.
        selection: which model is kept, and when to stop early.
        hardware: device, precision, processes.
        network: the network of a table.
        fitting: folds, the decision rule and self-training of learners other than a network.
    """

    training: Training = field(default_factory=Training)
    selftraining: SelfTrainingSettings = field(default_factory=SelfTrainingSettings)
    dual: Dual = field(default_factory=Dual)
    selection: Selection = field(default_factory=Selection)
    hardware: Hardware = field(default_factory=Hardware)
    network: TableNetwork = field(default_factory=TableNetwork)
    fitting: Fitting = field(default_factory=Fitting)

    @property
    def ema(self) -> float:
        """The decay of the averaged model."""
        if self.training.ema is not None:
            return self.training.ema
        memory = min(LONGEST_MEMORY, MEMORY * self.training.steps)
        return 1 - 1 / memory if memory > 1 else 0.0

    @property
    def remembers_too_much(self) -> bool:
        """Whether the averaged model remembers so much of the run that what is measured is a model of the past."""
        is_longer = MOST_MEMORY * self.training.steps * (1 - self.ema) < 1 - 1e-9
        return self.training.ema is not None and self.ema > 0 and is_longer

    @property
    def steps_per_update(self) -> int:
        """Optimizer steps between two multiplier updates."""
        if self.dual.steps_per_update is not None:
            return self.dual.steps_per_update
        return max(SHORTEST_INTERVAL, min(LONGEST_INTERVAL, self.training.steps // UPDATES))

    @property
    def dual_warmup(self) -> int:
        """Steps before the multipliers first move."""
        if self.dual.warmup is not None:
            return self.dual.warmup
        return int(WARMUP * self.training.steps) if self.dual.update == "solve" else 0

    @property
    def keeps_last(self) -> bool:
        """Whether the last model is kept, instead of the best on validation."""
        if self.selection.keep == "auto":
            return self.dual.update != "gradient"
        return self.selection.keep == "last"


def override(old: Any, values: dict[str, Any], where: str = "") -> Any:
    """Settings with these nested values, {"training": {"steps": 100}}; an unknown name or another type is an error."""
    known, new = {f.name: getattr(old, f.name) for f in fields(old)}, {}
    kinds = get_type_hints(type(old))
    for name, value in values.items():
        if name not in known:
            raise InputError(f"there is no setting {where}{name}{nearest(str(name), known)}")
        nested = is_dataclass(known[name])
        if nested and not isinstance(value, dict):
            raise InputError(f"{where}{name} is a group of settings; found {value!r}")
        if not nested and not _fits(value, kinds[name]):
            wanted = getattr(kinds[name], "__name__", str(kinds[name]))
            raise InputError(f"{where}{name} must be of type {wanted}; found {value!r}")
        new[name] = override(known[name], value, f"{where}{name}.") if nested else value
    return replace(old, **new)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value from a file has a setting's type; whole numbers are numbers, and True and False are not."""
    if get_origin(kind) in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(kind))
    if get_origin(kind) is Literal:  # which word it is, the settings themselves check
        return any(isinstance(value, type(each)) for each in get_args(kind))
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    is_plain = isinstance(kind, type) and kind is not Any and get_origin(kind) is None
    return isinstance(value, kind) if is_plain else True


def _positive(settings: Any, *names: str) -> None:
    for name in names:
        if getattr(settings, name) is None:  # left open, where the type allows it
            continue
        if not 0 < getattr(settings, name) < float("inf"):
            raise InputError(f"{_path(settings, name)} must be positive; found {getattr(settings, name)!r}")


def _within(settings: Any, low: float, high: float, *names: str) -> None:
    for name in names:
        if getattr(settings, name) is None:
            continue
        if not low <= getattr(settings, name) <= high or getattr(settings, name) == float("inf"):
            raise InputError(
                f"{_path(settings, name)} must be a number from {low} to {high}; found {getattr(settings, name)!r}"
            )


def check_choices(settings: Any, where: str | None = None) -> None:
    """Refuse a word that the `Literal` of a field does not list, with the nearest that it does.

    Args:
        settings: a dataclass.
        where: what comes before a field's name on the command line; None for the group of `Settings`.
    """
    for name, hint in get_type_hints(type(settings)).items():
        words, value = get_args(hint) if get_origin(hint) is Literal else (), getattr(settings, name)
        if words and value not in words:
            place = _path(settings, name) if where is None else f"{where}{name}"
            raise InputError(f"{place} must be one of {', '.join(words)}; found {value!r}{nearest(str(value), words)}")


def _path(settings: Any, name: str) -> str:
    group = next((f.name for f in fields(Settings) if f.type == type(settings).__name__), type(settings).__name__)
    return f"{group}.{name}"


#: of a network on few rows, as `CSSTClassifier` and `csst train array` have it
TABULAR = Settings(
    dual=Dual(step_size=0.5, schedule="linear", rates="pooled"),
    selection=Selection("last"),
    hardware=Hardware(threads=1),
)

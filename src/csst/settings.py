"""What a run can be told, as frozen, typed values; the command line and YAML files mirror them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from csst.setting_checks import check_choices, check_positive, check_within

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
#: pixels that a network of images sees on the shorter side, at least, of images that are larger
SMALLEST_SIDE = 14


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
        check_positive(self, "steps", "labeled_batch", "unlabeled_batch", "lr", "evaluation_batch")
        check_within(self, 0, 1, "momentum", "ema")
        check_within(self, 0, float("inf"), "weight_decay", "warmup")


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
        check_within(self, 0, float("inf"), "unlabeled_weight", "tau", "darp_delta", "crest_alpha")
        check_within(self, 0, 1, "confidence", "temperature", "darp_warmup", "crest_temperature")
        check_positive(self, "darp_every", "crest_generations")


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
        check_positive(self, "steps_per_update")
        check_within(self, 0, float("inf"), "step_size", "farthest", "warmup")
        check_within(self, 0, 1, "share")


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
        check_within(self, 0, float("inf"), "tolerance", "patience")


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
        check_positive(self, "devices", "nodes", "accumulate")
        check_within(self, 0, float("inf"), "clip", "threads")


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
        check_positive(self, "hidden")
        check_within(self, 0, float("inf"), "depth")


@dataclass(frozen=True)
class ImageNetwork:
    """The network of an array of images, and how they are varied; what is left open follows from their size.

    Args:
        model: a wide residual network, wrn-DEPTH-WIDTH.
        reduce: the network sees images this many times smaller, averaged; None for a shorter side of 14 to 27 pixels.
        views: symbols (shifts, RandAugment and Cutout: digits, letters, signs), photos (also mirrored), or a weak and a
            strong view, functions (batch, generator) -> batch of uint8 (B, C, H, W).
        padding: how far, in pixels, views shift an image; None for an eighth of the shorter side.
        cutout: side of the gray square in strong views, as a fraction of the shorter side; None for a half, and a
            quarter of images below 16 pixels, of which a half would leave nothing to recognize.
        batchnorm_momentum: how fast BatchNorm's running statistics follow; 0 for the network's own, for long runs.
    """

    model: str = "wrn-10-1"
    reduce: int | None = None
    views: Any = "symbols"
    padding: int | None = None
    cutout: float | None = None
    batchnorm_momentum: float = 0.05

    def __post_init__(self) -> None:
        check_positive(self, "reduce")
        check_within(self, 0, float("inf"), "padding")
        check_within(self, 0, 1, "cutout", "batchnorm_momentum")

    def reduce_of(self, side: int) -> int:
        """How many times smaller the network sees images of this shorter side."""
        return max(1, side // SMALLEST_SIDE) if self.reduce is None else self.reduce

    def padding_of(self, side: int) -> int:
        """How far views shift images of this shorter side, in pixels."""
        return max(1, side // 8) if self.padding is None else self.padding

    def cutout_of(self, side: int) -> float:
        """The side of the gray square in images of this shorter side, as a fraction of it."""
        if self.cutout is not None:
            return self.cutout
        return 0.5 if side >= 16 else 0.25


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
        check_positive(self, "folds", "certifying")
        check_within(self, 0, 0.99, "certifying")
        check_within(self, 0, 20, "rounds")


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
        image: the network of an array of images.
    """

    training: Training = field(default_factory=Training)
    selftraining: SelfTrainingSettings = field(default_factory=SelfTrainingSettings)
    dual: Dual = field(default_factory=Dual)
    selection: Selection = field(default_factory=Selection)
    hardware: Hardware = field(default_factory=Hardware)
    network: TableNetwork = field(default_factory=TableNetwork)
    fitting: Fitting = field(default_factory=Fitting)
    image: ImageNetwork = field(default_factory=ImageNetwork)

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


#: of a network on few rows, as `CSSTClassifier` and `csst train array` have it
TABULAR = Settings(
    dual=Dual(step_size=0.5, schedule="linear", rates="pooled"),
    selection=Selection("last"),
    hardware=Hardware(threads=1),
)
#: of a network on small images, as `CSSTClassifier` has it
IMAGES = Settings(
    training=Training(600, 32, 96),
    dual=Dual(update="solve", step_size=0.5, schedule="linear", rates="pooled"),
    hardware=Hardware(threads=1),
)

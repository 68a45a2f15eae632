"""What a run can be told, as frozen, typed values; the command line and YAML files mirror them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from csst.errors import InputError
from csst.setting_checks import check_choices, check_positive, check_within

#: of cross-fitting, and of self-training, at most
MOST_FOLDS = 20
MOST_ROUNDS = 20
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
            (as they start). A sentence about groups of rows is solved for where this says gradient.
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
class Model:
    """Which network.

    Args:
        name: mlp, linear, wrn-DEPTH-WIDTH (wrn-28-2), hf:NAME_OR_FOLDER (a Hugging Face classifier of the task's texts
            or images), hf-config:TYPE (one of images, from its default configuration), or package.module:name of a
            function (input_shape, classes) -> nn.Module.
        hidden: width of an mlp's hidden layers.
        depth: number of an mlp's hidden layers.
        batchnorm_momentum: how fast BatchNorm's running statistics follow; 0 keeps the network's own (FixMatch's
            0.001 for a wrn, right for a million steps and too slow for a thousand).
        max_length: tokens of a text that are read; longer ones are cut.
        reduce: a wrn sees images this many times smaller, averaged; 2 makes a step on a CPU about four times faster;
            None for a shorter side of 14 to 27 pixels.
        start: weights at the start: random, or linear, which is the learner of that name and is returned to unless
            training improves on it. Linear is for mlp and linear, with at least two hidden units per class; other
            networks start at random.
    """

    name: str = "mlp"
    hidden: int = 128
    depth: int = 2
    batchnorm_momentum: float = 0.0
    max_length: int = 256
    reduce: int | None = 1
    start: Literal["random", "linear"] = "random"

    def __post_init__(self) -> None:
        check_choices(self)
        check_positive(self, "hidden", "max_length", "reduce")
        check_within(self, 0, float("inf"), "depth")
        check_within(self, 0, 1, "batchnorm_momentum")
        if self.reduce != 1 and not self.name.startswith("wrn-"):
            raise InputError(f"model.reduce is for wide residual networks (wrn-DEPTH-WIDTH); found it with {self.name}")

    @property
    def layers(self) -> int:
        """Number of hidden layers of a network for vectors."""
        return 0 if self.name == "linear" else self.depth


@dataclass(frozen=True)
class Embedding:
    """Settings of frozen embeddings (with --encoder ... --frozen).

    Args:
        max_length: tokens read of a text; longer texts are cut.
        draws: strong views embedded per unlabeled example; training samples from them.
        views: weak views embedded per training image; training samples from them and the image itself.
        components: principal components to which the vectors of images are reduced, fitted on the training images; 0
            keeps the vectors unchanged.
        noise: noise added to the strong view, in standard deviations of each feature.
        batch: examples per forward pass of the encoder.
        cache: folder of the embeddings; default $CSST_CACHE or the user's cache folder.
    """

    max_length: int = 256
    draws: int = 2
    views: int = 2
    components: int = 0
    noise: float = 0.0
    batch: int = 64
    cache: str = ""

    def __post_init__(self) -> None:
        for name in ("max_length", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"embedding.{name} must be at least 1; found {getattr(self, name)}")
        if min(self.draws, self.views, self.noise) < 0:
            raise InputError(f"embedding.draws, embedding.views and embedding.noise must not be negative; found {self}")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting of a fit, in groups; what is left open (None) follows from the length of the run.

    Args:
        training: how long and with which optimizer a network learns.
        selftraining: how pseudo-labels are made, selected and weighed.
        dual: how the multipliers start and move.
        selection: which model is kept, and when to stop early.
        hardware: device, precision, processes.
        model: which network.
        embedding: how a frozen encoder is used.
        rule: fit also fits the decision rule for the objective, on validation and unlabeled examples; predictions then
            follow it. Learners other than a network always have one.
        folds: 0 keeps the validation examples for judging, as the paper does; 2 or more learn from them, too, and judge
            every label by a model that has not seen it. A network is then trained folds + 1 times; other learners
            always have folds of their own.
        rounds: rounds of self-training of learners other than a network, which use `selftraining.tau`.
        certifying: share of the labels that certify bounds with a stated confidence and that nothing is fitted to: of
            a network's those for validation; validation examples of other learners certify all.
    """

    training: Training = field(default_factory=Training)
    selftraining: SelfTrainingSettings = field(default_factory=SelfTrainingSettings)
    dual: Dual = field(default_factory=Dual)
    selection: Selection = field(default_factory=Selection)
    hardware: Hardware = field(default_factory=Hardware)
    model: Model = field(default_factory=Model)
    embedding: Embedding = field(default_factory=Embedding)
    rule: Literal["none", "fit"] = "none"
    folds: int = 0
    rounds: int = 0
    certifying: float = 0.5

    def __post_init__(self) -> None:
        check_choices(self, "")
        if self.folds != 0 and not 2 <= self.folds <= MOST_FOLDS:
            raise InputError(
                f"folds is 0, which keeps the validation examples apart, or 2 to {MOST_FOLDS}; found {self.folds}"
            )
        if not 0 <= self.rounds <= MOST_ROUNDS:
            raise InputError(f"rounds of self-training are 0 to {MOST_ROUNDS}; found {self.rounds}")
        if not 0 < self.certifying < 1:
            raise InputError(f"certifying is a share of the labels, between 0 and 1; found {self.certifying}")

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
    folds=3,
    # From a linear model on, small steps: larger ones forget it for what few labels and wrong pseudo-labels say.
    model=Model(start="linear"),
    training=Training(lr=0.003),
    dual=Dual(update="solve", step_size=0.5, schedule="linear", rates="pooled"),
    selection=Selection("last"),
    hardware=Hardware(threads=1),
)

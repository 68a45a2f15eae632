"""The settings of `CSSTClassifier`: the settings of every fit, and how its network sees rows or images."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from csst.setting_checks import check_choices, check_within
from csst.settings import TABULAR, Dual, Hardware, Model, Settings, Training


@dataclass(frozen=True)
class Inputs:
    """How an estimator's network sees rows or images; what is left open follows from them.

    Args:
        views: for rows: table, embedding, or auto (embedding if there is an encoder or one common scale);
            for images: symbols (auto: shifts, RandAugment and Cutout, for digits, letters and signs) or photos (also
            mirrored); or a weak and a strong view, functions (batch, generator) -> batch, of images uint8 (B, C, H, W).
        scale: how columns of numbers are standardized: each by its own deviation (column), all by a common one
            (common: for embeddings and pixels, whose small columns are noise), or as suits the labels better (auto).
        padding: how far, in pixels, views shift an image; None for an eighth of the shorter side.
        cutout: side of the gray square in strong views of images, as a fraction of the shorter side; None for a half,
            and a quarter of images below 16 pixels, of which a half would leave nothing to recognize.
    """

    views: Any = "auto"
    scale: Literal["auto", "column", "common"] = "auto"
    padding: int | None = None
    cutout: float | None = None

    def __post_init__(self) -> None:
        check_choices(self)
        check_within(self, 0, float("inf"), "padding")
        check_within(self, 0, 1, "cutout")

    def padding_of(self, side: int) -> int:
        """Return how far views shift images with this shorter side, in pixels."""
        return max(1, side // 8) if self.padding is None else self.padding

    def cutout_of(self, side: int) -> float:
        """Return the side of the gray square, as a fraction of the shorter side of the images."""
        if self.cutout is not None:
            return self.cutout
        return 0.5 if side >= 16 else 0.25


@dataclass(frozen=True, kw_only=True)
class EstimatorSettings(Settings):
    """The settings of `CSSTClassifier`; a recipe has its data instead of `inputs`, and `--resume`.

    Args:
        inputs: how a network sees rows or images.
        warm_start: fitting a network again goes on from where the last fit ended, for `training.steps` more steps.
    """

    inputs: Inputs = field(default_factory=Inputs)
    warm_start: bool = False

    @classmethod
    def of(cls, settings: Settings) -> EstimatorSettings:
        """Return settings as settings of an estimator."""
        if isinstance(settings, EstimatorSettings):
            return settings
        return cls(**{setting.name: getattr(settings, setting.name) for setting in fields(settings)})


#: of a network on few rows, as `csst train array` has it
ROWS = EstimatorSettings.of(TABULAR)
#: of a network on small images, as `CSSTClassifier` has it
IMAGES = EstimatorSettings(
    folds=3,
    model=Model("wrn-10-1", batchnorm_momentum=0.05, reduce=None),
    training=Training(600, 32, 96),
    dual=Dual(update="solve", step_size=0.5, schedule="linear", rates="pooled"),
    hardware=Hardware(threads=1),
)

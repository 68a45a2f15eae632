"""The network that the estimator trains, of a table, of embeddings or of images, and arrays of images for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csst.data.examples import InputSpec
from csst.data.images.arrays import as_images
from csst.data.images.views import make_views
from csst.data.task import Task, View
from csst.errors import InputError
from csst.estimators.settings import IMAGES, EstimatorSettings, Inputs, read_views
from csst.learners.network import choose_scale
from csst.models import build
from csst.models.table import make_table_network
from csst.settings import Model

#: what becomes of images before the exported graph, in words
PREPROCESSING = (
    "images uint8, channels first; floats in 0...1 are multiplied by 255 and rounded first; scaling is part of "
    "the graph"
)


def is_image_array(values: Any) -> bool:
    """Return whether values are images, (N, H, W) or with channels, and not rows of a table."""
    if isinstance(values, (list, tuple)):
        return len(values) > 0 and isinstance(values[0], (np.ndarray, Tensor)) and values[0].ndim in (2, 3)
    return isinstance(values, (np.ndarray, Tensor)) and values.ndim >= 3


def refuse_other_shape(shape: tuple[int, int, int] | None, fitted_shape: tuple[int, int, int] | None) -> None:
    """Raise an error if examples have another shape than in the fit; None stands for rows of a table."""
    if shape != fitted_shape:
        words = [
            f"images of shape {image_shape}" if image_shape else "rows of numbers"
            for image_shape in (shape, fitted_shape)
        ]
        raise InputError(f"X holds {words[0]}; the model was fitted on {words[1]}")


def stack_images(values: Any) -> np.ndarray:
    """Return images as one array; raise an error if their sizes differ."""
    if isinstance(values, np.ndarray | Tensor) and values.ndim > 1:
        return np.asarray(values)
    try:
        return np.stack([np.asarray(image) for image in values])
    except ValueError:
        raise InputError("all images of X must have one size; found several: resize them first") from None


def read_image_rows(values: Any, learner: Any) -> tuple[np.ndarray, tuple[int, int, int]]:
    """Return images as rows of pixels, uint8 (N, C H W), and their shape (C, H, W); only a network takes them.

    Pixels are uint8 in 0 ... 255, or floats in 0 ... 1, which are multiplied by 255 and rounded.
    """
    if not (isinstance(learner, str) and learner == "network"):
        raise InputError(
            f"X holds images, shape {np.shape(values)}, and learner {learner!r} takes rows of numbers: set "
            'learner="network", name an encoder, or flatten them with X.reshape(len(X), -1)'
        )
    array = stack_images(values)
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise InputError("Input X contains NaN or infinity; pixels are uint8, or floats in 0...1")
        if array.size and not 0 <= array.min() <= array.max() <= 1:
            raise InputError(
                f"images of floats have pixels in 0...1; found {array.min():g} to {array.max():g}: divide them by "
                "their largest possible value"
            )
        array = np.round(array * 255).astype(np.uint8)
    if array.dtype != np.uint8:
        raise InputError(f"images are uint8, 0...255, or floats in 0...1; found {array.dtype}: convert them first")
    images = as_images(array, "X")
    channels, height, width = images.shape[1:]
    return images.reshape(len(images), -1), (channels, height, width)


@dataclass(frozen=True)
class PixelRows:
    """Rows of pixels (N, C H W) as images (N, C, H, W).

    Args:
        shape: shape of one image, (C, H, W).
    """

    shape: tuple[int, int, int]

    def __call__(self, rows: Any) -> Tensor:
        pixels = rows if isinstance(rows, Tensor) else torch.as_tensor(np.ascontiguousarray(rows))
        return pixels.view(len(pixels), *self.shape)


def make_image_task(task: Task, as_pictures: PixelRows, inputs: Inputs) -> Task:
    """Return the task of a network on images, with the views that the settings name."""
    task = replace(task, row_hashes=task.hash_rows(), columns=None, kind="image")
    task = task.with_inputs(lambda rows, _: as_pictures(rows))
    return replace(task, views=read_image_views(inputs, as_pictures.shape))


def read_image_views(inputs: Inputs, shape: tuple[int, int, int]) -> tuple[View, View]:
    """Return the weak and the strong view of images with this shape."""
    if not isinstance(inputs.views, str):
        weak, strong = inputs.views
        return weak, strong
    if inputs.views not in ("auto", "symbols", "photos"):
        raise InputError(f"views of images are symbols, photos or a pair of functions; found {inputs.views!r}")
    side = min(shape[1:])
    return make_views(inputs.padding_of(side), inputs.cutout_of(side), inputs.views == "photos")


def plan_network(
    rows: Task, settings: EstimatorSettings, image_shape: tuple[int, int, int] | None, is_embedded: bool, seed: int
) -> tuple[Task, Callable[[], nn.Module], InputSpec | None]:
    """Return the task of a network with its views, a function that makes the network, and the inputs of the model.

    The inputs are None if the task tells them.

    Args:
        rows: rows of numbers or of pixels.
        settings: settings of the network and of its views.
        image_shape: (C, H, W) if rows are pixels, else None.
        is_embedded: whether an encoder made the rows.
        seed: seed of the weights and of the folds that choose a scale.
    """
    if image_shape is not None:
        as_images = PixelRows(image_shape)
        task = make_image_task(rows, as_images, settings.inputs)
        model = IMAGES.model if settings.model == Model() else settings.model
        make = partial(build, model, image_shape, rows.classes, seed)
        return task, make, InputSpec("image", image_shape, embed=as_images)
    if settings.model.name not in ("mlp", "linear"):
        raise InputError(f"the network of a table is mlp or linear; found model.name {settings.model.name!r}")
    table, is_common = choose_scale(rows, settings.inputs.scale, seed)
    task = rows.with_views(read_views(settings.inputs.views, is_embedded or is_common))
    layers = (settings.model.hidden, settings.model.layers)
    make = partial(make_table_network, list(rows.column_sizes), (table.mean, table.std), *layers, rows.classes, seed)
    return task, make, None

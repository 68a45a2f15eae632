"""The network that the estimator trains: of a table, of embeddings or of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from csst.data.input_spec import InputSpec
from csst.data.task import Task
from csst.errors import InputError
from csst.estimators.images import PixelRows, make_image_task
from csst.estimators.parameters import read_views
from csst.estimators.settings import IMAGES, EstimatorSettings
from csst.learners.network import choose_scale
from csst.models import build
from csst.models.table import table_network
from csst.settings import Model


@dataclass(frozen=True)
class NetworkPlan:
    """What a network learns from, and what it is.

    Args:
        task: with the views.
        make: makes the untrained network.
        inputs: what the fitted model takes; None for what the task says.
    """

    task: Task
    make: Callable[[], nn.Module]
    inputs: InputSpec | None = None


def plan_network(
    rows: Task, settings: EstimatorSettings, image_shape: tuple[int, int, int] | None, is_embedded: bool, seed: int
) -> NetworkPlan:
    """Return the task and the network of these rows.

    Args:
        rows: rows of numbers or of pixels.
        settings: of the network and of its views.
        image_shape: (C, H, W) where rows are pixels.
        is_embedded: whether an encoder made the rows.
        seed: of the weights and of the folds that choose a scale.
    """
    if image_shape is not None:
        as_images = PixelRows(image_shape)
        task = make_image_task(rows, as_images, settings.inputs)
        model = IMAGES.model if settings.model == Model() else settings.model
        make = partial(build, model, image_shape, rows.classes, seed)
        return NetworkPlan(task, make, InputSpec("image", image_shape, embed=as_images))
    if settings.model.name not in ("mlp", "linear"):
        raise InputError(f"the network of a table is mlp or linear; found model.name {settings.model.name!r}")
    table, is_common = choose_scale(rows, settings.inputs.scale, seed)
    task = rows.with_views(read_views(settings.inputs.views, is_embedded or is_common))
    moments = table.mean, table.std
    sizes = list(rows.column_sizes)
    return NetworkPlan(
        task, partial(table_network, sizes, moments, settings.model.hidden, settings.model.layers, rows.classes, seed)
    )

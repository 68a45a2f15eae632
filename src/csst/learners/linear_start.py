"""Networks of rows that start at the learner `linear`.

With few labels a network of random weights learns little in a thousand steps where a linear model is good at once. A
network with hidden ReLUs can be that model from the start, in its own shape: 2K units of every hidden layer carry
relu(z) and relu(-z) of the logits z = W x + b, whose difference is z, and the weights from all other units to the
outputs begin at 0.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from csst.data.examples import as_rows
from csst.data.task import Task
from csst.learners.catalog import describe_rows, make_variants
from csst.learners.linear import FittedLinear
from csst.learners.portfolio import LabeledRows, Portfolio, fit_portfolio
from csst.models.table import Projected, Standardize, TableInput

#: labeled rows that a start is fitted to, about; more labels teach the network themselves
MOST_ROWS = 5000


def choose_rows(labels: Tensor) -> Tensor:
    """Return indices of rows to fit a start to: all, or about `MOST_ROWS` at random with some of every class.

    Args:
        labels: classes of the labeled rows, (n,).
    """
    if len(labels) <= MOST_ROWS:
        return torch.arange(len(labels))
    rng = np.random.default_rng(0)
    share = MOST_ROWS / len(labels)
    members = [rng.permutation(np.flatnonzero(labels.numpy() == k)) for k in range(int(labels.max()) + 1)]
    return torch.from_numpy(np.sort(np.concatenate([rows[: int(np.ceil(share * len(rows)))] for rows in members])))


def find_layers(network: nn.Module, classes: int) -> tuple[Standardize | TableInput, list[nn.Linear]] | None:
    """Return the standardization and the layers of an mlp that has room for a linear model, else None.

    Args:
        network: a network; those of `mlp`, `make_table_network` and `Projected` are mlps.
        classes: K; hidden layers need 2K units.
    """
    head = network.head if isinstance(network, Projected) else network
    if not isinstance(head, nn.Sequential) or not isinstance(head[0], Standardize | TableInput):
        return None
    layers = [layer for layer in head if isinstance(layer, nn.Linear)]
    if not layers or any(layer.out_features < 2 * classes for layer in layers[:-1]):
        return None
    return head[0], layers


def fit_linear(task: Task, seed: int) -> Portfolio:
    """Return the learner `linear`, fitted to some of the labeled rows of a task.

    Args:
        task: rows of numbers, every class at least once.
        seed: seed of its folds.
    """
    problem = describe_rows(task)
    sample = task.labeled.part(choose_rows(task.labeled.labels).numpy())
    labeled = LabeledRows(as_rows(sample.inputs), sample.labels.numpy())
    unlabeled = problem.rows if problem.unlabeled else labeled.rows[:0]
    portfolio, _ = fit_portfolio([make_variants("linear", problem)], labeled, unlabeled, seed=seed)
    return portfolio


def join_weights(portfolio: Portfolio, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """Return W (K, D) and b (K,) of a portfolio of linear models, on numbers standardized in another way.

        W x' + b = log pi + sum over models m of w_m (T_m (W_m x'_m + b_m - log pi) + a_m)

    up to a constant for each row, which a softmax does not see.

    Args:
        portfolio: linear models alone.
        mean: mean of each column of numbers in x'.
        std: deviation of each column of numbers in x'.
    """
    log_prior = portfolio.prior.log()
    bias = log_prior.clone()
    weights = torch.zeros(())
    numbers = mean.numel()
    for member in portfolio.members:
        model = member.model
        assert isinstance(model, FittedLinear)
        # Numbers come first, and the indicators of categories, which are not standardized, behind them.
        scale = torch.ones(model.weights.shape[1], dtype=torch.float64)
        shift = torch.zeros_like(scale)
        scale[:numbers] = std.flatten() / model.input.std
        shift[:numbers] = (mean.flatten() - model.input.mean) / model.input.std
        member_bias = model.weights @ shift + model.bias
        weights = weights + member.weight * member.temperature * model.weights * scale
        bias += member.weight * (member.temperature * (member_bias - log_prior) + member.bias)
    return weights, bias


@torch.no_grad()
def start_at_linear(network: nn.Module, task: Task, diagonal: Tensor, seed: int = 0) -> bool:
    """Set the weights of an mlp so that its softmax is norm(D p), with p by the learner `linear`.

    Other networks, and an mlp with fewer than 2K hidden units, keep their weights.

    Args:
        network: untrained network, changed in place.
        task: rows of numbers, every class at least once.
        diagonal: diagonal D of the gain that the network is trained under, (K,).
        seed: seed of the folds that calibrate the linear models.

    Returns:
        Whether the network has room for a linear model.
    """
    classes = len(diagonal)
    parts = find_layers(network, classes)
    if parts is None:
        return False
    standardization, layers = parts
    weights, bias = join_weights(fit_linear(task, seed), standardization.mean, standardization.std)
    bias += diagonal.log()
    *hidden_layers, output = layers
    if hidden_layers:
        width = 2 * classes
        hidden_layers[0].weight[:width] = torch.cat([weights, -weights]).float()
        hidden_layers[0].bias[:width] = torch.cat([bias, -bias]).float()
        for layer in hidden_layers[1:]:
            layer.weight[:width] = torch.eye(width, layer.in_features)
            layer.bias[:width] = 0
        identity = torch.eye(classes)
        weights = torch.zeros_like(output.weight)
        weights[:, :width] = torch.cat([identity, -identity], 1)
        bias = torch.zeros_like(output.bias)
    output.weight.copy_(weights)
    output.bias.copy_(bias)
    return True

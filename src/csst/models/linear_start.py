"""Networks of rows that start at logistic regression.

With few labels a network of random weights learns little in a thousand steps where a linear model is good at once. A
network with hidden ReLUs can be that model from the start, in its own shape: 2K units of every hidden layer carry
relu(z) and relu(-z) of the logits z = W x + b, whose difference is z, and the weights from all other units to the
outputs begin at 0.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor, nn

from csst.models.table import Projected

#: iterations of the solver, at most
MOST_ITERATIONS = 300
#: gradient at which the solver stops
TOLERANCE = 1e-3
#: inverse penalty of the logistic regression
PENALTY = 0.1
#: labeled rows that a start is fitted to, about; more labels teach the network themselves
MOST_ROWS = 5000


def fit_logistic(features: Any, labels: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Return W (K, D) and b (K,) of scikit-learn's logistic regression with inverse penalty C.

    Whether the solver has converged does not matter: the scores are calibrated later.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=penalty, max_iter=MOST_ITERATIONS, tol=TOLERANCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(features, labels)
    weights = model.coef_.astype(np.float64)
    bias = model.intercept_.astype(np.float64)
    if len(weights) == 1:  # scikit-learn stores a single row for two classes
        weights = np.stack([-weights[0] / 2, weights[0] / 2])
        bias = np.stack([-bias[0] / 2, bias[0] / 2])
    return weights, bias


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


def find_layers(network: nn.Module, classes: int) -> tuple[nn.Module, list[nn.Linear]] | None:
    """Return the parts before the first layer and the layers of an mlp that has room for a linear model, else None.

    Args:
        network: a network; those of `mlp`, `make_table_network` and `Projected` are mlps.
        classes: K; hidden layers need 2K units.
    """
    head = network.head if isinstance(network, Projected) else network
    if not isinstance(head, nn.Sequential):
        return None
    layers = [layer for layer in head if isinstance(layer, nn.Linear)]
    if not layers or any(layer.out_features < 2 * classes for layer in layers[:-1]):
        return None
    return head[: list(head).index(layers[0])], layers


@torch.no_grad()
def start_at_logistic(network: nn.Module, inputs: Any, labels: Tensor, diagonal: Tensor) -> None:
    """Set the weights of an mlp so that its softmax is norm(D p), with p by logistic regression.

    Other networks, and an mlp with fewer than 2K hidden units, keep their weights.

    Args:
        network: untrained network, changed in place.
        inputs: labeled rows, (n, ...), which give a tensor for a tensor of indices.
        labels: classes of the rows, (n,), every class at least once.
        diagonal: diagonal D of the gain that the network is trained under, (K,).
    """
    classes = len(diagonal)
    parts = find_layers(network, classes)
    if parts is None:
        return
    preparation, layers = parts
    rows = choose_rows(labels)
    features = preparation(inputs[rows])
    if features.layout is torch.sparse_csr:
        parts_of_rows = features.values(), features.col_indices(), features.crow_indices()
        features_of_rows: Any = csr_matrix(tuple(part.numpy() for part in parts_of_rows), shape=tuple(features.shape))
    else:
        features_of_rows = features.numpy()
    solution = fit_logistic(features_of_rows, labels[rows].numpy(), PENALTY)
    weights, bias = (torch.from_numpy(values).float() for values in solution)
    bias += diagonal.log().float()
    *hidden_layers, output = layers
    if hidden_layers:
        width = 2 * classes
        hidden_layers[0].weight[:width] = torch.cat([weights, -weights])
        hidden_layers[0].bias[:width] = torch.cat([bias, -bias])
        for layer in hidden_layers[1:]:
            layer.weight[:width] = torch.eye(width, layer.in_features)
            layer.bias[:width] = 0
        identity = torch.eye(classes)
        weights = torch.zeros_like(output.weight)
        weights[:, :width] = torch.cat([identity, -identity], 1)
        bias = torch.zeros_like(output.bias)
    output.weight.copy_(weights)
    output.bias.copy_(bias)

"""Plain floats of `reference.py` against the library's tensors."""

import torch


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def close(found, values, rtol=1e-10, atol=1e-12):
    torch.testing.assert_close(found, tensor(values), rtol=rtol, atol=atol)

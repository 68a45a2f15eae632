"""What the tests of exports share."""

from __future__ import annotations

import importlib

import pytest

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="needs csst-learn[export]",
)


def onnx(test):
    """Leave a test out where ONNX cannot be written or run."""
    return needs_onnx(pytest.mark.usefixtures("operators_read_once")(test))


def run_onnx(path, x):
    """The outputs of an exported graph, by name."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return dict(zip(("probabilities", "label"), session.run(["probabilities", "label"], {"x": x}), strict=True))

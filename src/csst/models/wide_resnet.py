"""Wide residual networks for small images, as FixMatch uses them.

    WideResNet(28, 2, classes=10)     1,467,610 parameters; wrn-28-8: 23.4 million; wrn-10-1: 77,850, for a CPU
    parse("wrn-28-2")                 (28, 2)
    Pixels(mean, std)                 uint8 images -> what a network wants, inside the model

Zagoruyko & Komodakis 2016, pre-activation blocks; FixMatch (Sohn et al. 2020) for what they leave open: leaky ReLU 0.1,
BatchNorm with decay 0.999 and epsilon 0.001, the first activation shared by both branches of the network's first block.

A step on a CPU is mostly convolutions at 60-100 GFLOP/s per AVX2 core, close to the machine's limit; layout and memory
are what is left. `model.to(memory_format=torch.channels_last)` takes wrn-10-1 from 0.79-0.83 s to 0.58-0.62 s per step
of 256 + 320 images (CPU seconds, one thread of an AMD EPYC, medians of 7, two runs, busy machine). Activations and
residual sums in place save 29 % of the memory of wrn-28-2; in time they save nothing that stands out of the noise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from csst.errors import InputError

CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR_STD = (0.2471, 0.2435, 0.2616)
#: slope of the leaky ReLUs below 0
SLOPE = 0.1


def parse(name: str) -> tuple[int, int]:
    """Return the depth and the width in a network's name: "wrn-28-2" -> (28, 2)."""
    match = re.fullmatch(r"wrn-(\d{1,4})-(\d{1,4})", name)
    if match is None:
        raise InputError(f"a wide residual network is named wrn-DEPTH-WIDTH, such as wrn-28-2; found {name!r}")
    return int(match[1]), int(match[2])


class Pixels(nn.Module):
    """(x - mean) / std per channel, for x in 0...1: uint8 images are divided by 255, float ones are so already."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not mean or not min(std) > 0:
            raise InputError(f"pixels need one mean and one std > 0 per channel; found mean {mean} and std {std}")
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    @classmethod
    def of(cls, channels: int) -> Pixels:
        """Return CIFAR-10's statistics for three channels, 0.5 and 0.25 for any other number."""
        return cls(CIFAR_MEAN, CIFAR_STD) if channels == 3 else cls((0.5,) * channels, (0.25,) * channels)

    def forward(self, x: Tensor, channels_last: bool = False) -> Tensor:
        channels = self.mean.shape[1]
        if x.ndim != 4 or x.shape[1] != channels:  # one channel would be broadcast to three without a word
            raise InputError(
                f"this network takes images of shape (batch, {channels}, height, width), uint8 or float in 0...1; "
                f"found shape {tuple(x.shape)}"
            )
        scale = 1 / self.std if x.is_floating_point() else 1 / (255 * self.std)
        x = torch.addcmul(-self.mean / self.std, x.to(self.mean.dtype), scale)
        return x.contiguous(memory_format=torch.channels_last) if channels_last else x


def _make_convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class _Activation(nn.Module):
    """leaky ReLU(BatchNorm(x)), the second in place.

    BatchNorm's backward reads its input and leaky ReLU's the sign of its output, so that nothing overwritten is needed.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, eps=1e-3, momentum=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(self.norm(x), SLOPE, inplace=True)


class _Block(nn.Module):
    """shortcut(x) + conv2(act2(conv1(act1(x)))); the shortcut is a 1x1 convolution where the width changes.

    `is_first`: the shortcut starts from act1(x) instead of x, as in FixMatch for the first block of the network.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, is_first: bool) -> None:
        super().__init__()
        self.is_first = is_first
        self.act1 = _Activation(inputs)
        self.conv1 = _make_convolution(inputs, outputs, 3, stride)
        self.act2 = _Activation(outputs)
        self.conv2 = _make_convolution(outputs, outputs, 3)
        self.shortcut = nn.Identity() if inputs == outputs else _make_convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        active: Tensor = self.act1(x)
        residual: Tensor = self.conv2(self.act2(self.conv1(active)))
        return residual.add_(self.shortcut(active if self.is_first else x))  # a convolution's backward needs no output


class WideResNet(nn.Module):
    """Logits (B, classes) of images (B, channels, H, W) of any size, uint8 or float in 0...1.

    Three groups of (depth - 4) / 6 blocks with 16, 32 and 64 times `width` channels; the second and the third halve
    the image; then the mean over all positions and a linear classifier. Weights converted to `torch.channels_last` take
    the images with them. With `reduce` = r every square of r x r pixels is averaged to one first.
    """

    def __init__(self, depth: int, width: int, classes: int, channels: int = 3, reduce: int = 1) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            next_depth = max(10, 4 + 6 * round((depth - 4) / 6))
            raise InputError(
                f"a wide residual network has 4 + 6 n layers (three groups of n blocks of two convolutions); "
                f"found depth {depth}: use {next_depth}"
            )
        if min(width, classes, channels) < 1:
            raise InputError(
                f"a wide residual network needs a width of at least 1, a class and a channel; "
                f"found width {width}, {classes} classes, {channels} channels"
            )
        if reduce < 1:
            raise InputError(f"images can be reduced by a whole number of at least 1 (1 leaves them); found {reduce}")
        self.reduce = reduce
        self.pixels = Pixels.of(channels)
        self.stem = _make_convolution(channels, 16, 3)
        blocks: list[_Block] = []
        inputs = 16
        for group, outputs in enumerate((16 * width, 32 * width, 64 * width)):
            for block in range((depth - 4) // 6):
                stride = 2 if group and not block else 1
                blocks.append(_Block(inputs, outputs, stride, is_first=not blocks))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.act = _Activation(inputs)
        self.classifier = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, a=SLOPE, mode="fan_out", nonlinearity="leaky_relu")
        nn.init.xavier_normal_(self.classifier.weight)
        nn.init.zeros_(self.classifier.bias)

    def features(self, x: Tensor) -> Tensor:
        """Return the features that the classifier sees, (B, 64 width)."""
        # The weights' layout decides that of the whole network; images that have it already save the stem two copies.
        channels_last = self.stem.weight.is_contiguous(memory_format=torch.channels_last)
        x = self.pixels(x, channels_last)
        if self.reduce > 1:
            if min(x.shape[2:]) < self.reduce:
                size = f"{x.shape[2]} x {x.shape[3]}"
                raise InputError(f"images of {size} pixels cannot be reduced {self.reduce} times; lower model.reduce")
            x = F.avg_pool2d(x, self.reduce)
        x = self.act(self.blocks(self.stem(x)))
        return x.mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))

"""The operations of RandAugment on whole batches, equal to Pillow's to the last bit.

    OPERATIONS    name -> (function, low, high)         FixMatch (Sohn et al. 2020), Table 12

A function takes images (b, C, H, W), uint8, C = 1 or 3, and one magnitude per image (b,), float, on the images'
device; it returns new uint8 images. All images of a batch go through one operation together, each by its own
magnitude, with no Python per image. Pillow's rounding is kept: blends truncate in float32, autocontrast truncates
in float64, affine maps are 16.16 fixed point. Float64 is needed, so devices are the CPU and CUDA.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from csst.errors import InputError

Operation = Callable[[Tensor, Tensor], Tensor]
Coefficients = Callable[[Tensor, int, int], Tensor]  # (magnitude, height, width) -> a, b, c, d, e, f


def check_images(images: Tensor) -> Tensor:
    """Return images unchanged if they are a uint8 batch (B, C, H, W) of one or three channels, with a pixel or more."""
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3) or 0 in images.shape[2:]:
        raise InputError(
            f"image views need torch.uint8 of shape (B, C, H, W) with C = 1 or 3 and H, W >= 1; "
            f"found {tuple(images.shape)} of {images.dtype}"
        )
    return images


def identity(images: Tensor, magnitude: Tensor) -> Tensor:
    """Return the same images; the magnitude plays no role."""
    return check_images(images).clone()


# ── Point operations: a new value per old value ──


def autocontrast(images: Tensor, magnitude: Tensor) -> Tensor:
    """Stretch each channel's values to 0 ... 255: v -> (v - min) 255 / (max - min); the magnitude plays no role.

    In float64 and in the order v * scale + offset, because truncation shows the last bit.
    """
    pixels = check_images(images).flatten(2)
    low = pixels.amin(2, keepdim=True).double()
    span = pixels.amax(2, keepdim=True).double() - low
    constant = span == 0
    # A true division: PyTorch's 255.0 / span is span.reciprocal() * 255.0, which rounds twice.
    scale = (torch.full_like(span, 255.0) / span).masked_fill_(constant, 1.0)
    offset = (-low * scale).masked_fill_(constant, 0.0)
    return _truncate(pixels.double().mul_(scale).add_(offset)).view(images.shape)


def equalize(images: Tensor, magnitude: Tensor) -> Tensor:
    """Make each channel's histogram flat: v -> (step/2 + #{pixels < v}) / step; the magnitude plays no role.

    step = #{pixels < max} / 255, in whole numbers; a channel with step = 0 stays as it is.
    """
    pixels = check_images(images).flatten(2)
    values = pixels.long()
    counts = torch.zeros(*pixels.shape[:2], 256, dtype=torch.int32, device=images.device)
    counts.scatter_add_(2, values, counts.new_ones(()).expand_as(values))
    largest_value = pixels.amax(2, keepdim=True).long()
    step = (pixels.shape[2] - counts.gather(2, largest_value)).div_(255, rounding_mode="floor")
    count_below = counts.cumsum(2, dtype=torch.int32).sub_(counts)
    table = count_below.add_(step // 2).div_(step.clamp(min=1), rounding_mode="floor").clamp_(max=255)
    table = torch.where(step == 0, torch.arange(256, dtype=torch.int32, device=images.device), table)
    return table.to(torch.uint8).gather(2, values).view(images.shape)


def posterize(images: Tensor, magnitude: Tensor) -> Tensor:
    """Keep the highest bits; the magnitude is their number, cut to a whole one as in the published codes."""
    bits = _expand_levels(images, magnitude).to(torch.int32).clamp_(0, 8)
    return images & (255 << (8 - bits)).to(torch.uint8)


def solarize(images: Tensor, magnitude: Tensor) -> Tensor:
    """Invert bright values: v -> 255 - v where v >= 256 magnitude."""
    threshold = _expand_levels(images, magnitude).double().mul(256).ceil_().clamp_(0, 256).to(torch.int16)
    return images ^ (images >= threshold).to(torch.uint8).neg_()  # -1 is 255, and v ^ 255 = 255 - v


# ── Blends: degenerate + magnitude (image - degenerate) ──


def brightness(images: Tensor, magnitude: Tensor) -> Tensor:
    """Blend with black: 0 is black, 1 is the image."""
    return _blend(images.new_zeros(()), images, _expand_levels(images, magnitude))


def color(images: Tensor, magnitude: Tensor) -> Tensor:
    """Blend with the gray image: 0 is gray, 1 is the image. One channel stays as it is."""
    level = _expand_levels(images, magnitude)
    return _blend(_compute_luma(images), images, level)


def contrast(images: Tensor, magnitude: Tensor) -> Tensor:
    """Blend with the gray image's mean, rounded: 0 is flat, 1 is the image."""
    level = _expand_levels(images, magnitude)
    pixels = images.shape[2] * images.shape[3]
    total = _compute_luma(images).sum((1, 2, 3), keepdim=True)
    return _blend((2 * total + pixels) // (2 * pixels), images, level)


def sharpness(images: Tensor, magnitude: Tensor) -> Tensor:
    """Blend with the smoothed image (weights 5 in the middle, 1 around, over 13): 0 is smooth, 1 is the image.

    The outermost pixels stay as they are.
    """
    level = _expand_levels(images, magnitude)[..., 0]
    result = images.clone(memory_format=torch.contiguous_format)
    height, width = images.shape[2:]
    if min(height, width) < 3:
        return result
    # In a flattened image the neighbors are at fixed distances; sums across a row's end fall on border pixels only.
    pixels = result.flatten(2)
    values = pixels.to(torch.int16)
    rows = values[..., : -2 * width] + values[..., width:-width] + values[..., 2 * width :]
    middle = slice(width + 1, -width - 1)
    total = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * values[..., middle]
    # total / 13 + 1/2 is never within 1/26 of a whole number, so float32 rounds it rightly.
    smooth_pixels = total.float().add_(6.5).mul_(1 / 13).floor_()
    pixels[..., middle] = _blend(smooth_pixels, pixels[..., middle], level)
    result[..., :: width - 1] = images[..., :: width - 1]
    return result


def _expand_levels(images: Tensor, magnitude: Tensor) -> Tensor:
    """Return the magnitudes as (b, 1, 1, 1); raise an error for images or magnitudes that no operation takes."""
    check_images(images)
    if magnitude.shape != images.shape[:1] or not magnitude.is_floating_point():
        raise InputError(
            f"there must be one floating-point magnitude per image; "
            f"found {tuple(magnitude.shape)} of {magnitude.dtype} for {len(images)} images"
        )
    return magnitude[:, None, None, None]


def _blend(degenerate: Tensor, images: Tensor, level: Tensor) -> Tensor:
    """Return degenerate + level (image - degenerate), each step rounded to float32, clipped and truncated."""
    start = degenerate.float()
    return _truncate(images.float().sub_(start).mul_(level.float()).add_(start).clamp_(0, 255))


def _truncate(values: Tensor) -> Tensor:
    """Return values in 0 ... 255 as uint8; by way of int16, as PyTorch does both steps in SIMD, but not the one."""
    return values.to(torch.int16).to(torch.uint8)


def _compute_luma(images: Tensor) -> Tensor:
    """Return luma (b, 1, H, W) in int32: (19595 R + 38470 G + 7471 B + 2^15) / 2^16, the ITU-R 601 weights."""
    values = images.to(torch.int32)
    if values.shape[1] == 1:
        return values
    red, green, blue = values.split(1, 1)
    total: Tensor = red * 19595 + green * 38470 + blue * 7471 + 0x8000
    return total.bitwise_right_shift_(16)


# ── Geometry: pixel (x, y) becomes the one at (a x + b y + c, d x + e y + f), black if that is outside ──


def _make_rotation(degrees: Tensor, height: int, width: int) -> Tensor:
    """Return the coefficients of a turn about the center, counter-clockwise, (6, b)."""
    x = width / 2
    y = height / 2
    angle = degrees.double() * (-math.pi / 180)
    cos = angle.cos()
    sin = angle.sin()
    return torch.stack((cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y))


def _change_identity(which: int, value: Tensor) -> Tensor:
    """Return the coefficients of (x, y) -> (x, y) with one of the six replaced, (6, b)."""
    coefficients = value.new_zeros(6, len(value), dtype=torch.float64)
    coefficients[0::4] = 1.0
    coefficients[which] = value
    return coefficients


def _count_pixels(part: Tensor, length: int) -> Tensor:
    """Return a part of a length in whole pixels, halves up; float64 makes a float32 part times a length exact."""
    return (part.double() * length + 0.5).floor()


def affine(images: Tensor, coefficients: Tensor) -> Tensor:
    """Return the pixels nearest to (a x + b y + c, d x + e y + f), from pixel centers, in 16.16 fixed point.

    `coefficients` are a, b, c, d, e, f, (6, b) in float64.
    """
    channels, height, width = images.shape[1:]
    a, b, c, d, e, f = coefficients
    coordinates = torch.stack((a, b, c + (a + b) * 0.5, d, e, f + (d + e) * 0.5))
    a, b, c, d, e, f = coordinates.mul_(65536).add_(0.5).floor_().to(torch.int32)[..., None, None]
    x = torch.arange(width, dtype=torch.int32, device=images.device)
    y = torch.arange(height, dtype=torch.int32, device=images.device)[:, None]
    column = (a * x + (b * y + c)).bitwise_right_shift_(16)
    row = (d * x + (e * y + f)).bitwise_right_shift_(16)
    # A place is outside if any of four numbers is negative: their union's sign bit, spread to 0 or 255. (Comparisons
    # and booleans would be several times slower on a CPU.)
    outside = ((width - 1 - column) | (height - 1 - row)).bitwise_or_(column).bitwise_or_(row) >> 31
    keep = outside.to(torch.uint8).bitwise_not_().flatten(1)[:, None]
    source = row.mul_(width).add_(column).clamp_(0, height * width - 1).flatten(1)[:, None].long()
    moved_images = images.flatten(2).gather(2, source.expand(-1, channels, -1))
    return moved_images.bitwise_and_(keep).view(images.shape)


def _make_move(name: str) -> Operation:
    """Return the geometric operation of this name."""

    def move(images: Tensor, magnitude: Tensor) -> Tensor:
        return affine(images, GEOMETRY[name](_expand_levels(images, magnitude).flatten(), *images.shape[2:]))

    return move


GEOMETRY: dict[str, Coefficients] = {
    "rotate": _make_rotation,
    "shear_x": lambda m, height, width: _change_identity(1, m),  # x + m y
    "shear_y": lambda m, height, width: _change_identity(3, m),  # y + m x
    "translate_x": lambda m, height, width: _change_identity(2, _count_pixels(m, width)),  # x + m W
    "translate_y": lambda m, height, width: _change_identity(5, _count_pixels(m, height)),  # y + m H
}

# The geometric operations are the last of the table, so that a sorted batch can do all of them in one `affine`.
OPERATIONS: dict[str, tuple[Operation, float, float]] = {
    "autocontrast": (autocontrast, 0.0, 1.0),
    "brightness": (brightness, 0.05, 0.95),
    "color": (color, 0.05, 0.95),
    "contrast": (contrast, 0.05, 0.95),
    "equalize": (equalize, 0.0, 1.0),
    "identity": (identity, 0.0, 1.0),
    "posterize": (posterize, 4.0, 8.0),
    "sharpness": (sharpness, 0.05, 0.95),
    "solarize": (solarize, 0.0, 1.0),
    "rotate": (_make_move("rotate"), -30.0, 30.0),
    "shear_x": (_make_move("shear_x"), -0.3, 0.3),
    "shear_y": (_make_move("shear_y"), -0.3, 0.3),
    "translate_x": (_make_move("translate_x"), -0.3, 0.3),
    "translate_y": (_make_move("translate_y"), -0.3, 0.3),
}

"""Image views per second: whole batches in PyTorch against Pillow image by image, side by side on one thread.

    python -m benchmarks.speed.views [--images 256] [--repeats 9] [--data-dir DIR]

The images are 32x32 pieces of scikit-learn's two photographs, or CIFAR-10 from DIR/cifar10_pool.npz. The Pillow side is
the way of the published FixMatch codes: for each image a reflect-padded crop and a flip, two random operations, a gray
square, back to an array. Its reflection is done by indexing, several times faster than the `np.pad` inside torchvision.
The two sides take turns; each number is a median over the repeats.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from csst.data.images.views import GRAY, OPERATIONS, Strong, Weak

SIDE, PADDING, CUT = 32, 4, 16
REFLECTED = np.pad(np.arange(SIDE), PADDING, mode="reflect")


def affine(image: Image.Image, *coefficients: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, coefficients)


PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "autocontrast": lambda image, m: ImageOps.autocontrast(image),
    "brightness": lambda image, m: ImageEnhance.Brightness(image).enhance(m),
    "color": lambda image, m: ImageEnhance.Color(image).enhance(m),
    "contrast": lambda image, m: ImageEnhance.Contrast(image).enhance(m),
    "equalize": lambda image, m: ImageOps.equalize(image),
    "identity": lambda image, m: image,
    "posterize": lambda image, m: ImageOps.posterize(image, int(m)),
    "rotate": lambda image, m: image.rotate(m),
    "sharpness": lambda image, m: ImageEnhance.Sharpness(image).enhance(m),
    "shear_x": lambda image, m: affine(image, 1, m, 0, 0, 1, 0),
    "shear_y": lambda image, m: affine(image, 1, 0, 0, m, 1, 0),
    "solarize": lambda image, m: ImageOps.solarize(image, int(256 * m)),
    "translate_x": lambda image, m: affine(image, 1, 0, m * image.size[0], 0, 1, 0),
    "translate_y": lambda image, m: affine(image, 1, 0, 0, 0, 1, m * image.size[1]),
}


def pillow_weak(array: np.ndarray, draw: random.Random) -> Image.Image:
    image = Image.fromarray(array[REFLECTED][:, REFLECTED])
    x, y = draw.randint(0, 2 * PADDING), draw.randint(0, 2 * PADDING)
    image = image.crop((x, y, x + SIDE, y + SIDE))
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draw.random() < 0.5 else image


def pillow_strong(array: np.ndarray, draw: random.Random) -> Image.Image:
    image = pillow_weak(array, draw)
    for name in draw.choices(list(PILLOW), k=2):
        _, low, high = OPERATIONS[name]
        image = PILLOW[name](image, draw.uniform(low, high))
    x, y = draw.randrange(SIDE) - CUT // 2, draw.randrange(SIDE) - CUT // 2
    image = image.copy()
    ImageDraw.Draw(image).rectangle((x, y, x + CUT - 1, y + CUT - 1), (GRAY, GRAY, GRAY))
    return image


def pieces(images: int, folder: Path | None) -> np.ndarray:
    """Real images (B, 32, 32, 3), uint8."""
    draw = np.random.default_rng(0)
    if folder is not None:
        with np.load(folder / "cifar10_pool.npz") as pool:
            every = pool["x_train"]
        return every[draw.choice(len(every), images, replace=images > len(every))]
    from sklearn.datasets import load_sample_images

    photos = load_sample_images().images
    tops = draw.integers(0, [photo.shape[:2] - np.array(SIDE) for photo in photos], (images, 2, 2))
    return np.stack([photos[i % 2][y : y + SIDE, x : x + SIDE] for i, (y, x) in enumerate(tops[:, 0])])


def measure(images: int = 256, repeats: int = 9, folder: Path | None = None) -> dict[str, dict[str, float]]:
    """Images per second of the weak and the strong view: ours, Pillow's and the ratio of the two."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    arrays = pieces(images, folder)
    batch = torch.from_numpy(arrays).permute(0, 3, 1, 2).contiguous()
    generator, draw = torch.Generator().manual_seed(0), random.Random(0)
    table = {}
    for name, view, one in (("weak", Weak(PADDING), pillow_weak), ("strong", Strong(padding=PADDING), pillow_strong)):
        ours: list[float] = []
        pillow: list[float] = []
        for _ in range(repeats + 2):
            start = time.perf_counter()
            view(batch, generator)
            middle = time.perf_counter()
            np.stack([np.asarray(one(array, draw)) for array in arrays])
            end = time.perf_counter()
            ours.append(images / (middle - start))
            pillow.append(images / (end - middle))
        here, there = statistics.median(ours[2:]), statistics.median(pillow[2:])  # the first two warm up
        table[name] = {"csst": here, "pillow": there, "ratio": here / there}
    torch.set_num_threads(threads)
    return table


def main() -> dict[str, dict[str, float]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=256, help="images in a batch")
    parser.add_argument("--repeats", type=int, default=9, help="interleaved repeats, at least 5")
    parser.add_argument("--data-dir", type=Path, help="folder of cifar10_pool.npz")
    given = parser.parse_args()
    table = measure(given.images, max(5, given.repeats), given.data_dir)
    print(f"images/s, {given.images} images of {SIDE}x{SIDE}x3, one thread, medians of {max(5, given.repeats)} repeats")
    print(f"{'':8}{'csst':>12}{'Pillow':>12}{'ratio':>8}")
    for name, row in table.items():
        print(f"{name:8}{row['csst']:12,.0f}{row['pillow']:12,.0f}{row['ratio']:8.1f}")
    return table


if __name__ == "__main__":
    main()

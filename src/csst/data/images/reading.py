"""Image files on disk as examples: decoded when asked for, by several threads if wanted, or ahead of time.

decode        one file -> RGB, the center square, size x size
Readers       threads that decode, shared by all parts of one data set
ImageFiles    files as examples: `files[indices]` is uint8 (B, 3, size, size)
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from csst.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")  # and no other: Pillow starts programs for some, such as PostScript
CHUNK = 256  # files per job at most: keeps the threads equally busy
AHEAD = 4  # batches read ahead at most
Reading = tuple[np.ndarray, list[Future[dict[int, str]]]]  # images that jobs fill; they tell which cannot be read


def decode(path: str, size: int) -> np.ndarray:
    """Return an image as RGB uint8 (3, size, size): turned upright, its center square resized.

    The shorter side is resized to `size`, and the center cut out. Transparent pixels become white, 16 bits become 8.
    """
    from PIL import Image, ImageOps

    with _open(path) as image:
        image.draft(None, (2 * size, 2 * size))  # a large JPEG is decoded smaller, but never below twice `size`
        image.load()
        try:
            picture = ImageOps.exif_transpose(image)
        except Exception:  # a camera's broken EXIF block; the pixels are fine
            picture = image
        if picture.mode.startswith("I"):
            picture = Image.fromarray((np.asarray(picture).clip(0, 65535) / 257).round().astype(np.uint8))
        if "transparency" in picture.info or {"A", "a"} & set(picture.getbands()):
            picture = picture.convert("RGBA")
            picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
        square = ImageOps.fit(picture.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
        return np.asarray(square).transpose(2, 0, 1)


def check(path: str) -> None:
    """Raise if the file is not a complete image; decodes it only where Pillow's `verify` cannot tell."""
    with _open(path) as image:
        kind = image.format
        image.verify()
    if kind == "PNG":  # its check sums were compared
        return
    if kind == "JPEG":
        with open(path, "rb") as file:
            file.seek(-2, os.SEEK_END)
            if file.read() == b"\xff\xd9":  # the end-of-image marker
                return
    with _open(path) as image:
        image.draft(None, (1, 1))
        image.load()


def _open(path: str) -> Image.Image:
    from PIL import Image, UnidentifiedImageError

    if not os.path.getsize(path):
        raise InputError("the file is empty")
    try:
        return Image.open(path, formats=FORMATS)
    except UnidentifiedImageError:
        raise InputError("not a PNG, JPEG, WebP, BMP or GIF image") from None


@contextmanager
def _use_strict_pillow() -> Iterator[None]:
    """Silence Pillow's warnings, except for an image with too many pixels, which becomes an error."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError("reading image files needs Pillow: pip install pillow") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


# ── Many files ──


class Readers:
    """Threads that read images, which Pillow decodes beside each other; with `workers` 0 the caller's own reads."""

    def __init__(self, workers: int = 0) -> None:
        if workers < 0:
            raise InputError(f"workers must be at least 0; found {workers}")
        self.workers = workers
        self._pool = ThreadPoolExecutor(workers, "images") if workers else None

    def __reduce__(self) -> tuple[type[Readers], tuple[int]]:
        return Readers, (self.workers,)

    def read(self, paths: Sequence[str], size: int) -> tuple[np.ndarray, dict[int, str]]:
        """Return decoded files (N, 3, size, size), and by position why files cannot be read.

        `size` 0 only checks the files.
        """
        with _use_strict_pillow():
            return self.collect(self.start(paths, size))

    def start(self, paths: Sequence[str], size: int) -> Reading:
        """Begin to read; `collect` waits for it."""
        images = np.zeros((len(paths) if size else 0, 3, size, size), dtype=np.uint8)
        if self._pool is None:
            result: Future[dict[int, str]] = Future()
            result.set_result(_read_into(images, paths, range(len(paths))))
            return images, [result]
        piece_size = max(1, min(CHUNK, -(-len(paths) // self.workers)))
        pieces = [
            range(len(paths))[start_row : start_row + piece_size] for start_row in range(0, len(paths), piece_size)
        ]
        return images, [self._pool.submit(_read_into, images, paths, piece) for piece in pieces]

    def collect(self, reading: Reading) -> tuple[np.ndarray, dict[int, str]]:
        images, jobs = reading
        return images, {i: reason for job in jobs for i, reason in job.result().items()}


def _read_into(images: np.ndarray, paths: Sequence[str], positions: range) -> dict[int, str]:
    """Decode files into their places, or only check them if there are none; return why bad files cannot be read."""
    reasons = {}
    for i in positions:
        try:
            if len(images):
                images[i] = decode(paths[i], images.shape[-1])
            else:
                check(paths[i])
        except Exception as error:  # a damaged image can raise anything
            reasons[i] = (str(error) or type(error).__name__).splitlines()[0].replace(repr(paths[i]), "the file")
    return reasons


class ImageFiles:
    """Image files as examples, decoded when asked for.

    `prefetch(indices)` begins to read a batch in other threads, so that `files[indices]` only collects it.
    `part(indices)` are some of the files, read by the same threads.
    """

    def __init__(self, paths: Sequence[str], size: int, readers: Readers) -> None:
        if size < 1:
            raise InputError(f"the size of the images must be at least 1 pixel; found {size}")
        self.paths = list(paths)
        self.size = size
        self.readers = readers
        self._ahead: dict[bytes, Reading] = {}

    def __reduce__(self) -> tuple[type[ImageFiles], tuple[list[str], int, Readers]]:
        return ImageFiles, (self.paths, self.size, self.readers)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, indices: Tensor) -> Tensor:
        paths, key = self._locate(indices)
        with _use_strict_pillow():
            reading = self._ahead.pop(key) if key in self._ahead else self.readers.start(paths, self.size)
            images, reasons = self.readers.collect(reading)
        if reasons:
            i, reason = next(iter(reasons.items()))
            raise InputError(f"the image {paths[i]} cannot be read ({reason}): restore it, or leave it out")
        return torch.from_numpy(images)

    def prefetch(self, indices: Tensor) -> None:
        """Begin to read these; does nothing without workers. The oldest batches are given up after a few."""
        paths, key = self._locate(indices)
        if self.readers.workers and key not in self._ahead:
            self._ahead[key] = self.readers.start(paths, self.size)
            while len(self._ahead) > AHEAD:
                for job in self._ahead.pop(next(iter(self._ahead)))[1]:
                    job.cancel()

    def part(self, indices: np.ndarray) -> ImageFiles:
        return ImageFiles([self.paths[i] for i in indices.tolist()], self.size, self.readers)

    def _locate(self, indices: Tensor) -> tuple[list[str], bytes]:
        index = indices.detach().cpu().to(torch.int64).numpy()
        return [self.paths[i] for i in index.tolist()], index.tobytes()

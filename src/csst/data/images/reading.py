"""Image files on disk as examples: decoded when asked for, in worker processes if wanted, or ahead of time.

decode        one file -> RGB, the center square, size x size
Readers       worker processes that decode, shared by all parts of one data set
ImageFiles    files as examples: `files[indices]` is uint8 (B, 3, size, size)
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from csst.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")  # and no other: Pillow starts programs for some, such as PostScript
CHUNK = 256  # files per job at most: keeps results small and workers equally busy
AHEAD = 4  # batches read ahead at most
Job = Future[tuple[np.ndarray, dict[int, str]]]


def decode(path: str, size: int) -> np.ndarray:
    """An image as RGB uint8 (3, size, size): turned upright, its center square resized.

    That is the shorter side resized to `size`, then the center crop. Transparent pixels become white, 16 bits become 8.
    """
    from PIL import Image, ImageOps

    with _opened(path) as image:
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
        side, (width, height) = min(picture.size), picture.size
        left, top = (width - side) / 2, (height - side) / 2
        square = picture.convert("RGB").resize(
            (size, size), Image.Resampling.BILINEAR, (left, top, left + side, top + side)
        )
        return np.asarray(square).transpose(2, 0, 1)


def check(path: str) -> None:
    """Raise if the file is not a complete image; decodes it only where Pillow's `verify` cannot tell."""
    with _opened(path) as image:
        kind = image.format
        image.verify()
    if kind == "PNG":  # its check sums were compared
        return
    if kind == "JPEG":
        with open(path, "rb") as file:
            file.seek(-2, os.SEEK_END)
            if file.read() == b"\xff\xd9":  # the end-of-image marker
                return
    with _opened(path) as image:
        image.draft(None, (1, 1))
        image.load()


def _opened(path: str) -> Image.Image:
    from PIL import Image, UnidentifiedImageError

    if not os.path.getsize(path):
        raise InputError("the file is empty")
    try:
        return Image.open(path, formats=FORMATS)
    except UnidentifiedImageError:
        raise InputError("not a PNG, JPEG, WebP, BMP or GIF image") from None


@contextmanager
def _pixel_limit(pixels: int | None) -> Iterator[None]:
    """Pillow's limit on the size of an image as the caller had set it, which a worker process has not seen."""
    from PIL import Image

    before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, pixels
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


def read(paths: Sequence[str], size: int, pixels: int | None) -> tuple[np.ndarray, dict[int, str]]:
    """Decoded files (N, 3, size, size), and what is wrong with those that cannot be read, by position.

    `size` 0 only checks the files. `pixels` is Pillow's limit on the size of an image, above which it is refused.
    """
    from PIL import Image

    images, bad = np.zeros((len(paths) if size else 0, 3, size, size), dtype=np.uint8), {}
    with warnings.catch_warnings(), _pixel_limit(pixels):
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for i, path in enumerate(paths):
            try:
                if size:
                    images[i] = decode(path, size)
                else:
                    check(path)
            except Exception as error:  # a damaged image can raise anything
                bad[i] = (str(error) or type(error).__name__).splitlines()[0].replace(repr(path), "the file")
    return images, bad


# ── Many files ──


class Readers:
    """Worker processes that read images, started when first needed, ended with this object or the program.

    With `workers` 0 the calling process reads. They are started afresh rather than forked, which is safe beside
    threads and GPUs, so a script that uses them needs the usual `if __name__ == "__main__":`.
    """

    def __init__(self, workers: int = 0) -> None:
        if workers < 0:
            raise InputError(f"workers must be at least 0; found {workers}")
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def __reduce__(self) -> tuple[type[Readers], tuple[int]]:
        return Readers, (self.workers,)

    def read(self, paths: Sequence[str], size: int) -> tuple[np.ndarray, dict[int, str]]:
        """What the function `read` returns, from all workers at once."""
        return self.collect(self.start(paths, size), paths, size)

    def start(self, paths: Sequence[str], size: int) -> list[Job]:
        """Begin to read; `collect` waits for it."""
        if not self.workers or not paths:
            return []
        pieces = [list(paths[i : i + self._each(paths)]) for i in range(0, len(paths), self._each(paths))]
        try:
            return [self._started().submit(read, piece, size, _pixels()) for piece in pieces]
        except BrokenProcessPool as error:
            raise self._died(error) from None

    def collect(self, jobs: list[Job], paths: Sequence[str], size: int) -> tuple[np.ndarray, dict[int, str]]:
        if not jobs:
            return read(paths, size, _pixels())
        images, bad, at = np.empty((len(paths) if size else 0, 3, size, size), dtype=np.uint8), {}, 0
        try:
            for start in range(0, len(paths), self._each(paths)):
                piece, wrong = jobs.pop(0).result()
                images[at : at + len(piece)] = piece
                at += len(piece)
                bad.update({start + i: reason for i, reason in wrong.items()})
        except BrokenProcessPool as error:
            raise self._died(error) from None
        return images, bad

    def _each(self, paths: Sequence[str]) -> int:
        return min(CHUNK, -(-len(paths) // self.workers))

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            server = "forkserver" in multiprocessing.get_all_start_methods()
            context: Any = multiprocessing.get_context("forkserver" if server else "spawn")
            if server:
                context.set_forkserver_preload([__name__])  # imported once for all workers
            self._pool = ProcessPoolExecutor(self.workers, mp_context=context, initializer=_begin)
            weakref.finalize(self, self._pool.shutdown, cancel_futures=True)
            # A child process waits for its own children before `atexit`, so there this must end them.
            Finalize(None, lambda pool: pool() and pool().shutdown(), (weakref.ref(self._pool),), exitpriority=20)
        return self._pool

    def _died(self, error: BrokenProcessPool) -> InputError:
        self._pool = None
        return InputError(
            f"a worker process that reads images died ({error}): it ran out of memory or was killed, or the script "
            'lacks `if __name__ == "__main__":`; use fewer workers, or 0'
        )


def _begin() -> None:
    """In a worker: signals to stop are the parent's business, and the end of the parent is the worker's end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _pixels() -> int | None:
    try:
        from PIL import Image
    except ImportError:
        raise InputError("reading image files needs Pillow: pip install pillow") from None
    return Image.MAX_IMAGE_PIXELS


class ImageFiles:
    """Image files as examples, decoded when asked for.

    `prefetch(indices)` begins to read a batch in the worker processes, so that `files[indices]` only collects it.
    `part(indices)` are some of the files, read by the same workers.
    """

    def __init__(self, paths: Sequence[str], size: int = 224, workers: int | Readers = 0) -> None:
        if size < 1:
            raise InputError(f"the size of the images must be at least 1 pixel; found {size}")
        self.paths, self.size = list(paths), size
        self.readers = workers if isinstance(workers, Readers) else Readers(workers)
        self._ahead: dict[bytes, list[Job]] = {}

    def __reduce__(self) -> tuple[type[ImageFiles], tuple[list[str], int, Readers]]:
        return ImageFiles, (self.paths, self.size, self.readers)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, indices: Tensor) -> Tensor:
        paths, key = self._asked(indices)
        jobs = self._ahead.pop(key, None) or self.readers.start(paths, self.size)
        images, bad = self.readers.collect(jobs, paths, self.size)
        if bad:
            i, reason = next(iter(bad.items()))
            raise InputError(f"the image {paths[i]} can no longer be read ({reason}): restore it or start without it")
        return torch.from_numpy(images)

    def prefetch(self, indices: Tensor) -> None:
        """Begin to read these; does nothing without workers. The oldest batches are given up after a few."""
        paths, key = self._asked(indices)
        if self.readers.workers and key not in self._ahead:
            self._ahead[key] = self.readers.start(paths, self.size)
            while len(self._ahead) > AHEAD:
                for job in self._ahead.pop(next(iter(self._ahead))):
                    job.cancel()

    def part(self, indices: np.ndarray) -> ImageFiles:
        return ImageFiles([self.paths[i] for i in indices.tolist()], self.size, self.readers)

    def _asked(self, indices: Tensor) -> tuple[list[str], bytes]:
        chosen = indices.detach().cpu().to(torch.int64).numpy()
        return [self.paths[i] for i in chosen.tolist()], chosen.tobytes()

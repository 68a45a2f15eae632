"""Frozen embeddings: every example is embedded once, and only a small head is trained on the vectors.

Strong views cannot be embedded anew at every step, so a few of each unlabeled example are embedded beforehand and
drawn from during training.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from csst.data.content_store import ContentStore
from csst.data.sampling import stream
from csst.data.task import Examples, Labeled, Task, identity_view
from csst.errors import InputError

CHUNK = 2048  # examples in memory at once
_COLUMNS = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


def locate_cache(folder: str = "") -> Path:
    """Where embeddings are kept: in this folder, else in $CSST_CACHE, else in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(folder or os.environ.get("CSST_CACHE") or f"{base}/csst").expanduser() / "embeddings"


class Encoder(Protocol):
    """A function from a batch (texts, or images uint8) to vectors (B, width).

    `fingerprint` names it in the cache; where it is empty, vectors are kept in memory only.
    """

    fingerprint: str

    def __call__(self, batch: Any) -> Tensor | np.ndarray: ...


@dataclass(frozen=True)
class Embedding:
    """How frozen embeddings are made (with --encoder ... --frozen).

    Args:
        max_length: tokens of a text that are read; longer ones are cut.
        draws: strong views of each unlabeled example that are embedded; training draws from them.
        noise: noise of the strong view beside that, in standard deviations of each feature.
        batch: examples per forward pass of the encoder.
        cache: folder of the embeddings; default $CSST_CACHE or the user's cache folder.
    """

    max_length: int = 256
    draws: int = 2
    noise: float = 0.0
    batch: int = 64
    cache: str = ""

    def __post_init__(self) -> None:
        for name in ("max_length", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"embedding.{name} must be at least 1; found {getattr(self, name)}")
        if self.draws < 0 or self.noise < 0:
            raise InputError(f"embedding.draws and embedding.noise must not be negative; found {self}")


@runtime_checkable
class IndexedView(Protocol):
    """A view that was computed for every unlabeled example beforehand, and is fetched by index."""

    def of_index(self, index: Tensor, generator: torch.Generator) -> Any: ...


@dataclass(frozen=True, eq=False)
class Prepared:
    """The strong view of embeddings: one of the vectors (draws, N, width) computed beforehand, with noise."""

    vectors: Tensor
    scale: Tensor
    noise: float = 0.0

    def of_index(self, index: Tensor, generator: torch.Generator) -> Tensor:
        draw = torch.randint(len(self.vectors), (len(index),), generator=generator)
        return self._add_noise(self.vectors[draw, index], generator)

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Of examples that are not among the unlabeled ones: noise alone."""
        return self._add_noise(batch, generator)

    def _add_noise(self, vectors: Tensor, generator: torch.Generator) -> Tensor:
        if not self.noise:
            return vectors
        return vectors + self.noise * self.scale * torch.randn(vectors.shape, generator=generator)


class Embedder:
    """Embeds examples in batches, each content once, with a progress bar where a person is watching.

    vectors = Embedder(encoder, Embedding(cache="cache"))(texts, "texts")
    """

    def __init__(self, encoder: Encoder, settings: Embedding) -> None:
        self.encoder, self.settings, self.fingerprint = encoder, settings, encoder.fingerprint
        path = locate_cache(settings.cache) / f"{self.fingerprint}.sqlite" if self.fingerprint else None
        again = "delete it, and they are computed again"
        self.store = ContentStore(path, "embeddings", again, "name another folder with --embedding.cache")

    def __call__(self, inputs: Examples, what: str, view: Callable[[Any], Any] | None = None) -> Tensor:
        """The vectors (N, width), float32, of the examples or of a view of them."""
        vectors = []
        console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        with Progress(*_COLUMNS, console=console, transient=True, disable=not console.is_terminal) as bar:
            shown = bar.add_task(f"embedding {what}", total=len(inputs))
            for index in torch.arange(len(inputs)).split(CHUNK):
                batch = inputs[index] if view is None else view(inputs[index])
                vectors.append(self._embed_chunk(batch, lambda done: bar.advance(shown, done)))
        return torch.from_numpy(np.concatenate(vectors))

    def _embed_chunk(self, batch: Any, advance: Callable[[int], None]) -> np.ndarray:
        keys = hash_contents(batch)
        first = {key: place for place, key in reversed(list(enumerate(keys))) if key not in self.store}
        todo = sorted(first.values(), key=lambda place: len(batch[place]))  # texts of similar length together
        for start in range(0, len(todo), self.settings.batch):
            places = todo[start : start + self.settings.batch]
            with self.store.transaction():  # another process waits here, and then finds the work done
                new = [place for place in places if keys[place] not in self.store]
                if new:
                    rows = (row.tobytes() for row in self._compute_vectors(batch, new))
                    self.store.put(zip((keys[place] for place in new), rows, strict=True))
            advance(len(places))
        advance(len(keys) - len(todo))  # those that were there
        return np.stack([np.frombuffer(value, dtype="<f4") for value in self.store.get(keys)])

    def _compute_vectors(self, batch: Any, places: list[int]) -> np.ndarray:
        chosen = batch[torch.tensor(places)] if isinstance(batch, Tensor) else [batch[place] for place in places]
        rows = self.encoder(chosen)
        try:
            vectors = np.asarray(rows.detach().cpu() if isinstance(rows, Tensor) else rows, dtype="<f4")
        except (TypeError, ValueError) as error:
            raise InputError(f"an encoder must give rows of numbers, all of one width: {error}") from None
        if vectors.ndim != 2 or len(vectors) != len(places) or not vectors.shape[1]:
            raise InputError(f"an encoder must give one row for each of {len(places)} examples; found {vectors.shape}")
        if not np.isfinite(vectors).all():
            raise InputError("the encoder gave vectors that are not finite: NaN or infinity")
        width = self.store.keep_setting("width", vectors.shape[1])
        if vectors.shape[1] != width:
            raise InputError(f"an encoder must give vectors of one width; found {width} and then {vectors.shape[1]}")
        return vectors


def hash_contents(batch: Any) -> list[bytes]:
    """16 bytes of SHA-256 of each example's content."""
    if isinstance(batch, Tensor):
        head = f"{batch.dtype}{tuple(batch.shape[1:])}".encode()
        contents = [head + example.numpy().tobytes() for example in batch.cpu()]
    else:
        contents = [text.encode("utf-8", "surrogatepass") for text in batch]
    return [hashlib.sha256(content).digest()[:16] for content in contents]


def embedded(task: Task, embedder: Embedder) -> Task:
    """The task with every example replaced by its embedding; the weak view is the embedding itself."""
    settings = embedder.settings

    def part(labeled: Labeled, what: str) -> Labeled:
        return Labeled(embedder(labeled.inputs, what), labeled.labels)

    def drawn(draw: int) -> Tensor:
        def view(batch: Any) -> Any:
            """Each example's view depends on its content and the draw only, so that the cache finds it again."""
            views = [
                task.strong(batch[place : place + 1], stream(draw, int.from_bytes(key[:7], "big")))
                for place, key in enumerate(hash_contents(batch))
            ]
            return torch.cat(views) if isinstance(batch, Tensor) else [text for texts in views for text in texts]

        return embedder(task.unlabeled, f"strong views {draw + 1}/{settings.draws}", view)

    labeled = part(task.labeled, "labeled examples")
    width = labeled.inputs[torch.tensor([0])].shape[1]
    unlabeled = embedder(task.unlabeled, "unlabeled examples") if len(task.unlabeled) else torch.zeros(0, width)
    draws = [drawn(draw) for draw in range(settings.draws)] if len(unlabeled) else []
    spread = unlabeled.std(0, correction=0) if len(unlabeled) else torch.zeros(width)
    return replace(
        task,
        labeled=labeled,
        unlabeled=unlabeled,
        validation=part(task.validation, "validation examples"),
        test=None if task.test is None else part(task.test, "test examples"),
        weak=identity_view,
        strong=Prepared(torch.stack(draws or [unlabeled]), spread, settings.noise),
        facts={**task.facts, "encoder": embedder.fingerprint, "embedding_width": width},
    )

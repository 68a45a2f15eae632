"""Frozen embeddings: every example is embedded once, and only a small head is trained on the vectors.

Embedding new views at every step would be too slow, so a few views of each training example are embedded beforehand
and sampled during training: weak and strong views of an image, and strong views of a text, whose weak view is the text.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from csst.data.content_store import ContentStore
from csst.data.examples import Examples
from csst.data.images.views import SeededDraws
from csst.data.prepared_views import Prepared, StorableView, WeakViews, project, view_keys
from csst.data.sampling import stream
from csst.data.task import Task, View, identity_view
from csst.errors import InputError
from csst.settings import Embedding

CHUNK = 2048  # examples in memory at once
VIEW_TYPE = "<f2"  # views of images are stored in half precision
_COLUMNS = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


def locate_cache(folder: str = "") -> Path:
    """Return the folder of embeddings: in this folder, else in $CSST_CACHE, else in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(folder or os.environ.get("CSST_CACHE") or f"{base}/csst").expanduser() / "embeddings"


class Encoder(Protocol):
    """A function from a batch (texts, or images uint8) to vectors (B, width).

    `fingerprint` identifies it in the cache; without one, vectors are kept in memory only.
    """

    fingerprint: str

    def __call__(self, batch: Any) -> Tensor | np.ndarray: ...


class Embedder:
    """Embeds examples in batches, equal examples once, with a progress bar in a terminal.

    vectors = Embedder(encoder, Embedding(cache="cache"))(texts, "texts")
    """

    def __init__(self, encoder: Encoder, settings: Embedding) -> None:
        self.encoder = encoder
        self.settings = settings
        self.fingerprint = encoder.fingerprint
        path = locate_cache(settings.cache) / f"{self.fingerprint}.sqlite" if self.fingerprint else None
        advice = "delete it, and they are computed again"
        self.store = ContentStore(path, "embeddings", advice, "name another folder with --embedding.cache")

    def __call__(self, inputs: Examples, what: str, view: Callable[[Any], Any] | None = None) -> Tensor:
        """Return the vectors of the examples or of a view of them, (N, width), float32."""

        def embed(batch: Any, advance: Callable[[int], None]) -> np.ndarray:
            examples = batch if view is None else view(batch)

            def take(places: list[int]) -> Any:
                if isinstance(examples, Tensor):
                    return examples[torch.tensor(places)]
                return [examples[place] for place in places]

            return self._embed_chunk(hash_contents(examples), list(map(len, examples)), take, advance)

        return self._embed_all(inputs, what, embed)

    def embed_view(self, inputs: Examples, what: str, view: StorableView, draw: int) -> Tensor:
        """Return the vectors of one view of every image, (N, width), float16.

        A view depends on the image, the view and the draw only, so that a stored vector is found by these three.
        """

        def embed(images: Any, advance: Callable[[int], None]) -> np.ndarray:
            keys = view_keys(hash_contents(images), view, draw)

            def draw_views(places: list[int]) -> Tensor:
                return view(images[torch.tensor(places)], SeededDraws([keys[place] for place in places]))

            return self._embed_chunk(keys, [0] * len(keys), draw_views, advance, VIEW_TYPE)

        return self._embed_all(inputs, what, embed)

    def _embed_all(self, inputs: Examples, what: str, embed: Callable[..., np.ndarray]) -> Tensor:
        vectors = []
        console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        with Progress(*_COLUMNS, console=console, transient=True, disable=not console.is_terminal) as bar:
            bar_task = bar.add_task(f"embedding {what}", total=len(inputs))
            for index in torch.arange(len(inputs)).split(CHUNK):
                vectors.append(embed(inputs[index], lambda count: bar.advance(bar_task, count)))
        return torch.from_numpy(np.concatenate(vectors))

    def _embed_chunk(
        self,
        keys: list[bytes],
        lengths: list[int],
        take: Callable[[list[int]], Any],
        advance: Callable[[int], None],
        kind: str = "<f4",
    ) -> np.ndarray:
        """Return the vectors of these keys, (n, width) of this type; compute vectors that the store lacks."""
        place_of_key = {key: place for place, key in reversed(list(enumerate(keys))) if key not in self.store}
        todo = sorted(place_of_key.values(), key=lambda place: lengths[place])  # texts of similar length together
        for start in range(0, len(todo), self.settings.batch):
            batch_places = todo[start : start + self.settings.batch]
            with self.store.transaction():  # another process waits here, and then finds the work done
                places = [place for place in batch_places if keys[place] not in self.store]
                if places:
                    vectors = self._compute_vectors(take(places), len(places)).astype(kind)
                    values = (vector.tobytes() for vector in vectors)
                    self.store.put(zip((keys[place] for place in places), values, strict=True))
            advance(len(batch_places))
        advance(len(keys) - len(todo))  # vectors that were in the store before
        return np.stack([np.frombuffer(value, dtype=kind) for value in self.store.get(keys)])

    def _compute_vectors(self, batch: Any, count: int) -> np.ndarray:
        rows = self.encoder(batch)
        try:
            vectors = np.asarray(rows.detach().cpu() if isinstance(rows, Tensor) else rows, dtype="<f4")
        except (TypeError, ValueError) as error:
            raise InputError(f"an encoder must give rows of numbers, all of one width: {error}") from None
        if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1]:
            raise InputError(f"an encoder must give one row for each of {count} examples; found {vectors.shape}")
        if not np.isfinite(vectors).all():
            raise InputError("the encoder gave vectors that are not finite: NaN or infinity")
        width = self.store.keep_setting("width", vectors.shape[1])
        if vectors.shape[1] != width:
            raise InputError(f"an encoder must give vectors of one width; found {width} and then {vectors.shape[1]}")
        return vectors


def hash_contents(batch: Any) -> list[bytes]:
    """Return the first 16 bytes of the SHA-256 of each example."""
    if isinstance(batch, Tensor):
        head = f"{batch.dtype}{tuple(batch.shape[1:])}".encode()
        contents = [head + example.numpy().tobytes() for example in batch.cpu()]
    else:
        contents = [text.encode("utf-8", "surrogatepass") for text in batch]
    return [hashlib.sha256(content).digest()[:16] for content in contents]


def embed_parts(task: Task, embedder: Embedder) -> Task:
    """Return the task with examples replaced by their embeddings, without views."""

    def embed(inputs: Examples, what: str) -> Tensor:
        if len(inputs):
            return embedder(inputs, what)
        return embedder(task.labeled.inputs[torch.tensor([0])], "one example")[:0]

    facts = {**task.facts, "encoder": embedder.fingerprint}
    return replace(task.with_inputs(embed), views=None, columns=None, facts=facts)


def embed_task(task: Task, embedder: Embedder) -> Task:
    """Return the task with examples replaced by their embeddings, and views by embeddings of views.

    The settings say how many views of an image are embedded; the weak view of other examples is the embedding itself.
    """
    settings = embedder.settings

    def embed_strong_views(draw: int) -> Tensor:
        what = f"strong views {draw + 1}/{settings.draws}"
        if isinstance(task.strong, StorableView):
            return embedder.embed_view(task.unlabeled, what, task.strong, draw)

        def view(batch: Any) -> Any:
            """Return views that depend on content and draw only, so that the cache finds them again."""
            views = [
                task.strong(batch[place : place + 1], stream(draw, int.from_bytes(key[:7], "big")))
                for place, key in enumerate(hash_contents(batch))
            ]
            return torch.cat(views) if isinstance(batch, Tensor) else [text for texts in views for text in texts]

        return embedder(task.unlabeled, what, view)

    announce(task, embedder)
    vectors = embed_parts(task, embedder)
    labeled = vectors.labeled.inputs
    unlabeled = vectors.unlabeled
    assert isinstance(labeled, Tensor)
    assert isinstance(unlabeled, Tensor)
    width = labeled.shape[1]
    weak = embed_weak_views(task, embedder, torch.cat([labeled, unlabeled]))
    strong_views = unlabeled[None]
    scale = torch.zeros(width)
    if len(unlabeled):
        if settings.draws:
            strong_views = torch.stack([embed_strong_views(draw) for draw in range(settings.draws)])
        scale = unlabeled.std(0, correction=0)
    embedded_task = replace(
        vectors,
        views=(weak, Prepared(strong_views, scale, settings.noise)),
        facts={**vectors.facts, "embedding_width": width},
    )
    return project(embedded_task, settings.components) if 0 < settings.components < width else embedded_task


def embed_weak_views(task: Task, embedder: Embedder, vectors: Tensor) -> View:
    """Return the weak view of an embedded task: views of the training images, or the embedding itself.

    Args:
        task: the task before embedding.
        embedder: embeds the views.
        vectors: embeddings of the labeled and then the unlabeled examples, (N, width).
    """
    count = embedder.settings.views
    if not count or not isinstance(task.weak, StorableView):
        return identity_view
    parts = [task.labeled.inputs]
    if len(task.unlabeled):
        parts.append(task.unlabeled)
    views = []
    for draw in range(count):
        what = f"weak views {draw + 1}/{count}"
        views.append(torch.cat([embedder.embed_view(part, what, task.weak, draw) for part in parts]))
    return WeakViews(vectors, torch.stack(views))


def announce(task: Task, embedder: Embedder) -> None:
    """Print how many views will be embedded and how much space they take."""
    settings = embedder.settings
    store = embedder.store
    weak = settings.views if isinstance(task.weak, StorableView) else 0
    strong = settings.draws if isinstance(task.strong, StorableView) else 0
    views = weak * (len(task.labeled) + len(task.unlabeled)) + strong * len(task.unlabeled)
    if not views:
        return
    width = embedder(task.labeled.inputs[torch.tensor([0])], "one example").shape[1]
    held_out = sum(len(part) for part in (task.validation, task.test) if part is not None)
    images = len(task.labeled) + len(task.unlabeled) + held_out
    size = (2 * views + 4 * images) * width / 1e6
    where = "memory" if store.path is None else str(store.path)
    Console(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False).print(
        f"embedding {images} images and {views} views of them ({weak} weak, {strong} strong of each): at most "
        f"{size:.0f} MB in {where}, which already holds {len(store)} vectors; an interrupted run resumes there"
    )

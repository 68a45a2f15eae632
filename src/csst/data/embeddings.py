"""Frozen embeddings: every example is embedded once, and only a small head is trained on the vectors.

Views cannot be embedded anew at every step, so a few of each training example are embedded beforehand and drawn from
during training: of an image weak and strong ones, of a text, whose weak view is the text itself, strong ones.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from csst.data.content_store import ContentStore
from csst.data.images.views import SeededDraws
from csst.data.prepared_views import Prepared, StorableView, WeakViews, project, view_keys
from csst.data.sampling import stream
from csst.data.task import Examples, Labeled, Task, View, identity_view
from csst.errors import InputError

CHUNK = 2048  # examples in memory at once
VIEW_TYPE = "<f2"  # views of images are kept in half precision
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
        views: weak views of each training image that are embedded; training draws from them and the image itself.
        components: principal components that are kept of the vectors of images, fitted on the training images; 0 keeps
            the vectors as they are.
        noise: noise of the strong view beside that, in standard deviations of each feature.
        batch: examples per forward pass of the encoder.
        cache: folder of the embeddings; default $CSST_CACHE or the user's cache folder.
    """

    max_length: int = 256
    draws: int = 2
    views: int = 2
    components: int = 0
    noise: float = 0.0
    batch: int = 64
    cache: str = ""

    def __post_init__(self) -> None:
        for name in ("max_length", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"embedding.{name} must be at least 1; found {getattr(self, name)}")
        if min(self.draws, self.views, self.noise) < 0:
            raise InputError(f"embedding.draws, embedding.views and embedding.noise must not be negative; found {self}")


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

        def embed(batch: Any, advance: Callable[[int], None]) -> np.ndarray:
            batch = batch if view is None else view(batch)
            return self._embed_chunk(hash_contents(batch), _measure_lengths(batch), _take(batch), advance)

        return self._embed_all(inputs, what, embed)

    def embed_view(self, inputs: Examples, what: str, view: StorableView, draw: int) -> Tensor:
        """The vectors (N, width), float16, of one view of every image, which depends on image, view and draw only.

        They are found by the image's content, so that a view that is there is not drawn again.
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
            shown = bar.add_task(f"embedding {what}", total=len(inputs))
            for index in torch.arange(len(inputs)).split(CHUNK):
                vectors.append(embed(inputs[index], lambda done: bar.advance(shown, done)))
        return torch.from_numpy(np.concatenate(vectors))

    def _embed_chunk(
        self,
        keys: list[bytes],
        lengths: list[int],
        take: Callable[[list[int]], Any],
        advance: Callable[[int], None],
        kind: str = "<f4",
    ) -> np.ndarray:
        """The vectors of these keys, (n, width) of this type; what the store lacks is taken, embedded and kept."""
        first = {key: place for place, key in reversed(list(enumerate(keys))) if key not in self.store}
        todo = sorted(first.values(), key=lambda place: lengths[place])  # texts of similar length together
        for start in range(0, len(todo), self.settings.batch):
            places = todo[start : start + self.settings.batch]
            with self.store.transaction():  # another process waits here, and then finds the work done
                new = [place for place in places if keys[place] not in self.store]
                if new:
                    rows = (row.tobytes() for row in self._compute_vectors(take(new), len(new)).astype(kind))
                    self.store.put(zip((keys[place] for place in new), rows, strict=True))
            advance(len(places))
        advance(len(keys) - len(todo))  # those that were there
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


def _take(batch: Any) -> Callable[[list[int]], Any]:
    """A function from places to the examples there."""
    if isinstance(batch, Tensor):
        return lambda places: batch[torch.tensor(places)]
    return lambda places: [batch[place] for place in places]


def _measure_lengths(batch: Any) -> list[int]:
    return [len(example) for example in batch]


def hash_contents(batch: Any) -> list[bytes]:
    """16 bytes of SHA-256 of each example's content."""
    if isinstance(batch, Tensor):
        head = f"{batch.dtype}{tuple(batch.shape[1:])}".encode()
        contents = [head + example.numpy().tobytes() for example in batch.cpu()]
    else:
        contents = [text.encode("utf-8", "surrogatepass") for text in batch]
    return [hashlib.sha256(content).digest()[:16] for content in contents]


def embedded(task: Task, embedder: Embedder) -> Task:
    """The task with every example replaced by its embedding, and its views by embeddings of views.

    Views of images that can be stored are embedded so many times as the settings say; the weak view of all others is
    the embedding itself.
    """
    settings = embedder.settings

    def part(labeled: Labeled, what: str) -> Labeled:
        return Labeled(embedder(labeled.inputs, what), labeled.labels)

    def drawn(draw: int) -> Tensor:
        what = f"strong views {draw + 1}/{settings.draws}"
        if isinstance(task.strong, StorableView):
            return embedder.embed_view(task.unlabeled, what, task.strong, draw)

        def view(batch: Any) -> Any:
            """Each example's view depends on its content and the draw only, so that the cache finds it again."""
            views = [
                task.strong(batch[place : place + 1], stream(draw, int.from_bytes(key[:7], "big")))
                for place, key in enumerate(hash_contents(batch))
            ]
            return torch.cat(views) if isinstance(batch, Tensor) else [text for texts in views for text in texts]

        return embedder(task.unlabeled, what, view)

    announce(task, embedder)
    labeled = part(task.labeled, "labeled examples")
    width = labeled.inputs[torch.tensor([0])].shape[1]
    unlabeled = embedder(task.unlabeled, "unlabeled examples") if len(task.unlabeled) else torch.zeros(0, width)
    validation = part(task.validation, "validation examples")
    test = None if task.test is None else part(task.test, "test examples")
    weak = embed_weak_views(task, embedder, torch.cat([labeled.inputs, unlabeled]))  # type: ignore[list-item]
    draws = [drawn(draw) for draw in range(settings.draws)] if len(unlabeled) else []
    spread = unlabeled.std(0, correction=0) if len(unlabeled) else torch.zeros(width)
    vectors = replace(
        task,
        labeled=labeled,
        unlabeled=unlabeled,
        validation=validation,
        test=test,
        certifying=None if task.certifying is None else part(task.certifying, "certifying examples"),
        kept_apart=None if task.kept_apart is None else embedder(task.kept_apart, "unlabeled examples kept apart"),
        weak=weak,
        strong=Prepared(torch.stack(draws or [unlabeled]), spread, settings.noise),
        facts={**task.facts, "encoder": embedder.fingerprint, "embedding_width": width},
    )
    return project(vectors, settings.components) if 0 < settings.components < width else vectors


def embed_weak_views(task: Task, embedder: Embedder, plain: Tensor) -> View:
    """The weak view of an embedded task: views of the training images, or the embedding itself.

    Args:
        task: of raw examples.
        embedder: embeds their views.
        plain: embeddings of the labeled and then the unlabeled examples, (N, width).
    """
    count = embedder.settings.views
    if not count or not isinstance(task.weak, StorableView):
        return identity_view
    views = []
    for draw in range(count):
        what = f"weak views {draw + 1}/{count}"
        parts = [task.labeled.inputs, *([task.unlabeled] if len(task.unlabeled) else [])]
        views.append(torch.cat([embedder.embed_view(part, what, task.weak, draw) for part in parts]))
    return WeakViews(plain, torch.stack(views))


def announce(task: Task, embedder: Embedder) -> None:
    """Say how many views there are to embed, and how much room they take, before it begins."""
    settings, store = embedder.settings, embedder.store
    weak = settings.views if isinstance(task.weak, StorableView) else 0
    strong = settings.draws if isinstance(task.strong, StorableView) else 0
    vectors = weak * (len(task.labeled) + len(task.unlabeled)) + strong * len(task.unlabeled)
    if not vectors:
        return
    width = embedder(task.labeled.inputs[torch.tensor([0])], "one example").shape[1]
    plain = len(task.labeled) + len(task.unlabeled) + len(task.validation) + (len(task.test) if task.test else 0)
    size = (2 * vectors + 4 * plain) * width / 1e6
    where = "memory" if store.path is None else str(store.path)
    Console(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False).print(
        f"embedding {plain} images and {vectors} views of them ({weak} weak, {strong} strong of each): at most "
        f"{size:.0f} MB in {where}, which already holds {len(store)} vectors; an interrupted run resumes there",
        highlight=False,
        markup=False,
    )

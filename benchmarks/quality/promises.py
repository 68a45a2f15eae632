"""Whether bounds said to be met are met: python -m benchmarks.quality.promises --data-dir DIR [--draws 20] [--sets a,b]
    [--methods csst,untold,0.9,0.95,tuned,mapie]

Ten real sets × five sentences with bounds × 20 draws of 50 to 500 labels at natural frequency (at least three of every
class), up to 2,000 unlabeled rows, and test rows that nobody has seen. Methods:

- csst: `CSSTClassifier()`, one fit for all five sentences, each with the default margin;
- csst, balance not told: the same, which estimates the class balance from labels and unlabeled rows;
- csst, confidence 0.9 and 0.95: the sentence ends with "with confidence ...", so that half of the labels certify; with
  the linear learner, as every sentence and confidence is a fit of its own;
- TunedThresholdClassifierCV: logistic regression and scikit-learn's tuned threshold, two classes only;
- MAPIE, confidence 0.9: logistic regression on half of the labels, a threshold certified on the others, two classes
  only; run where mapie can be imported and left out elsewhere.

Other rows of csst are told the class balance of deployment (deployment_prior: the fractions of the test rows), as the
floor of three labels makes rare classes look more frequent than they are. How large a margin
bounds need was chosen on made worlds with a rare class, not here; draws 0 to 11 of these sets were looked at while that
was built, so draws begin at 12.

A bound is judged by at least 50 test rows that decide it: those of the class for a recall, those predicted as the class
for a precision. What could be reached is what the best rule on the same probabilities reaches, fitted on the test rows
themselves ("oracle"). Every line is of one set, draw and method, with the commit and a hash of its rows; lines are kept
in benchmarks/results/promises.jsonl and never measured again. Writes results/promises.md (--report: only that).
Sets are those of `DIR/natural` (csv.gz, label last), digits and breast cancer; beijing-air is dealt at random, without
its drift.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lines import Line, Log
from benchmarks.results_check import write_results

RESULTS = Path(__file__).parents[1] / "results"
KEYS = ("set", "draw", "method")
MODULES = ("learners", "rules", "estimators", "estimation")
OURS = "csst"
UNTOLD = "csst, balance not told"
CONFIDENT = {"csst, confidence 0.9": 0.9, "csst, confidence 0.95": 0.95}
TUNED, MAPIE = "TunedThresholdClassifierCV", "MAPIE, confidence 0.9"
METHODS = (OURS, UNTOLD, *CONFIDENT, TUNED, MAPIE)
#: names for --methods
SHORT = dict(zip(("csst", "untold", "0.9", "0.95", "tuned", "mapie"), METHODS, strict=True))
DELTAS = {**{name: 1 - level for name, level in CONFIDENT.items()}, MAPIE: 0.1}
BUDGETS = (50, 100, 200, 500)
LEAST_LABELS, MOST_UNLABELED, MOST_TEST = 3, 2000, 6000
#: draws before this one were looked at while the code was built
FIRST_DRAW = 12
#: test rows that decide a bound, at least
DECIDING = 50
#: a bound that the oracle meets by this much could have been promised
REACHABLE = 0.05
#: a miss that nobody should see
FAR = 0.2


@dataclass(frozen=True)
class Plan:
    """The class that sentences are about, and the levels that they ask of it.

    Args:
        rare: the class.
        common: the most frequent class.
        precision: bound on the precision of `rare`.
        recall: bound on its recall.
    """

    rare: str
    common: str
    precision: float
    recall: float


PLANS = {
    "sick": Plan("sick", "negative", 0.6, 0.7),
    "hypothyroid": Plan("compensated_hypothyroid", "negative", 0.6, 0.7),
    "anneal": Plan("2", "3", 0.8, 0.8),
    "mammography": Plan("'1'", "'-1'", 0.4, 0.7),
    "wine-red": Plan("7", "5", 0.4, 0.5),
    "adult": Plan(">50K", "<=50K", 0.6, 0.7),
    "fars": Plan("Incapaciting_Injury", "Fatal_Injury", 0.4, 0.5),
    "beijing-air": Plan("hazardous", "good", 0.4, 0.6),
    "digits": Plan("8", "1", 0.8, 0.8),
    "breast_cancer": Plan("0", "1", 0.9, 0.9),
}


# Sentences: a goal and one bound, each of one number.


@dataclass(frozen=True)
class Quantity:
    """A metric of one class, its mean or minimum over classes, or accuracy; `of` is a class's name or a function."""

    metric: str
    of: str = ""

    @property
    def text(self) -> str:
        if self.metric == "accuracy":
            return self.metric
        return f"{self.of}({self.metric})" if self.of in ("mean", "min") else f"{self.metric}[{self.of!r}]"

    def evaluate(self, recall: np.ndarray, coverage: np.ndarray, prior: np.ndarray, names: list[str]) -> np.ndarray:
        """Its values (M,) for recalls (M, K) and coverages (M, K)."""
        hits = recall * prior
        if self.metric == "accuracy":
            return hits.sum(1)
        values = recall
        if self.metric == "precision":
            values = np.divide(hits, coverage, out=np.zeros_like(hits), where=coverage > 0)
        if self.of in ("mean", "min"):
            return values.mean(1) if self.of == "mean" else values.min(1)
        return values[:, names.index(self.of)]


@dataclass(frozen=True)
class Sentence:
    """max goal s.t. quantity >= level."""

    goal: Quantity
    bounded: Quantity
    level: float

    @property
    def text(self) -> str:
        return f"max {self.goal.text} s.t. {self.bounded.text} >= {self.level:g}"


def list_sentences(plan: Plan) -> list[Sentence]:
    recall = Quantity("recall", plan.rare)
    precision = Quantity("precision", plan.rare)
    return [
        Sentence(recall, precision, plan.precision),
        Sentence(precision, recall, plan.recall),
        Sentence(Quantity("recall", "mean"), precision, plan.precision),
        Sentence(Quantity("accuracy"), recall, plan.recall),
        Sentence(Quantity("recall", "min"), Quantity("recall", plan.common), 0.9),
    ]


# Rows.


@dataclass(frozen=True, eq=False)
class Split:
    """Rows as they come (frames or arrays) and class names as labels."""

    x_labeled: Any
    y_labeled: np.ndarray
    x_unlabeled: Any
    x_test: Any
    y_test: np.ndarray
    names: list[str]
    digest: str

    @property
    def prior(self) -> list[float]:
        """The class fractions of the test rows, which csst is told: those of the labels have a floor."""
        return [float((self.y_test == name).mean()) for name in self.names]


@lru_cache(maxsize=1)
def read_table(name: str, data_dir: Path | None) -> tuple[Any, np.ndarray]:
    """Rows and labels as text; classes with fewer than 20 rows are left out."""
    from sklearn import datasets

    if name in ("digits", "breast_cancer"):
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True, as_frame=True)
        y = y.to_numpy().astype(str)
    else:
        if data_dir is None:
            raise SystemExit(f"{name} is read from a folder: give --data-dir")
        import pandas

        frame = pandas.read_csv(data_dir / "natural" / f"{name}.csv.gz")
        y = frame["label"].to_numpy().astype(str)
        x = frame.drop(columns="label")
        x = x[[column for column in x.columns if x[column].notna().any()]]
    classes, counts = np.unique(y, return_counts=True)
    rows = np.isin(y, classes[counts >= 20])
    return x[rows].reset_index(drop=True), y[rows]


def deal_rows(name: str, draw: int, data_dir: Path | None) -> Split:
    """About half of every class for test; of the rest, random labels with a few of every class, and unlabeled rows."""
    x, y = read_table(name, data_dir)
    names = sorted(set(y))
    rng = np.random.default_rng(5000 + draw)
    order = rng.permutation(len(y))
    by_class = {c: order[y[order] == c] for c in names}
    # enough rows of a rare class to judge it by, where some are left to learn from
    sizes = {c: max(len(rows) // 2, min(DECIDING + 10, len(rows) - 20)) for c, rows in by_class.items()}
    test = np.concatenate([rows[: sizes[c]] for c, rows in by_class.items()])
    pool = rng.permutation(np.concatenate([rows[sizes[c] :] for c, rows in by_class.items()]))
    budget = min(BUDGETS[draw % len(BUDGETS)], len(pool) // 2)
    labeled = list(pool[:budget])
    for c in names:
        # a class that chance left out cannot be learned: a few labels of it come first
        missing = LEAST_LABELS - int((y[labeled] == c).sum())
        spare = [row for row in pool[budget:] if y[row] == c]
        labeled += spare[: max(0, missing)]
    unlabeled = np.setdiff1d(pool, labeled)
    unlabeled = rng.permutation(unlabeled)[:MOST_UNLABELED]
    test = rng.permutation(test)[:MOST_TEST]
    parts = [np.array(labeled), unlabeled, test]
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(part, dtype=np.int64).tobytes() for part in parts))
    digest.update("\n".join(y).encode())
    return Split(
        x.iloc[parts[0]], y[parts[0]], x.iloc[unlabeled], x.iloc[test], y[test], names, digest.hexdigest()[:16]
    )


# What test rows say of decisions, and what the best rule reaches on them.


@dataclass(frozen=True, eq=False)
class TestRows:
    """Labels as one of K columns, (N, K), and the class fractions, (K,)."""

    truth: np.ndarray
    names: list[str]

    @classmethod
    def from_labels(cls, labels: np.ndarray, names: list[str]) -> TestRows:
        return cls((labels[:, None] == np.array(names)).astype(float), names)

    @property
    def prior(self) -> np.ndarray:
        return self.truth.mean(0)

    def measure(self, sentence: Sentence, decisions: np.ndarray) -> Line:
        """Value, slack and the number of deciding rows of decisions (N,), class indices."""
        chosen = np.eye(len(self.names))[decisions]
        recall = (self.truth * chosen).sum(0) / self.truth.sum(0)
        value, slack = self.evaluate(sentence, recall[None], chosen.mean(0)[None])
        k = self.names.index(sentence.bounded.of)
        deciding = self.truth if sentence.bounded.metric == "recall" else chosen
        return {"value": float(value[0]), "slack": float(slack[0]), "deciding": int(deciding[:, k].sum())}

    def evaluate(self, sentence: Sentence, recall: np.ndarray, coverage: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values (M,) and slacks (M,) for recalls and coverages (M, K)."""
        values = [one.evaluate(recall, coverage, self.prior, self.names) for one in (sentence.goal, sentence.bounded)]
        return values[0], values[1] - sentence.level

    def sweep(self, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Every rule when the bias of class k is raised: steps (N + 1,), recalls and coverages (N + 1, K)."""
        rows = np.arange(len(scores))
        others = scores.copy()
        others[:, k] = -np.inf
        runner_up = others.argmax(1)
        cuts = others[rows, runner_up] - scores[:, k]
        order = np.argsort(cuts)
        table = []
        for weight in (self.truth / self.truth.sum(0), np.full(self.truth.shape, 1 / len(rows))):
            change = np.zeros(weight.shape)
            change[rows, runner_up] = -weight[rows, runner_up]
            start = -change.sum(0)
            change[:, k] = weight[:, k]
            table.append(np.vstack([start, start + np.cumsum(change[order], axis=0)]))
        cuts = cuts[order]
        steps = np.concatenate([[cuts[0] - 1], (cuts[:-1] + cuts[1:]) / 2, [cuts[-1] + 1]])
        return steps, table[0], table[1]

    def find_best(self, sentence: Sentence, probs: np.ndarray) -> Line:
        """What class biases on these probabilities (N, K) can reach: the value with the bound met, and with slack.

        Coordinate sweeps from the plain argmax and from probabilities divided by the class fractions; at least
        `DECIDING` rows decide the bound.
        """
        logs = np.log(np.maximum(probs, 1e-12))
        least = DECIDING / len(probs) if sentence.bounded.metric == "precision" else 0.0
        k = self.names.index(sentence.bounded.of)
        reached: dict[float, float] = {}
        for wanted in (0.0, REACHABLE):
            tops = []
            for start in (np.zeros(len(self.names)), -np.log(self.prior)):
                bias = start
                top = -np.inf
                for _ in range(4):
                    before = top
                    for j in range(len(self.names)):
                        steps, recall, coverage = self.sweep(logs + bias, j)
                        value, slack = self.evaluate(sentence, recall, coverage)
                        score = np.where(slack >= wanted - 1e-9, value, slack - wanted - 1)
                        score = np.where(coverage[:, k] >= least, score, -3.0)
                        place = int(score.argmax())
                        if score[place] > top:
                            top = float(score[place])
                            bias = bias + steps[place] * (np.arange(len(bias)) == j)
                    if top <= before + 1e-6:
                        break
                tops.append(top)
            reached[wanted] = max(tops)
        return {
            "oracle": reached[0.0] if reached[0.0] >= 0 else None,
            "reachable": bool(reached[REACHABLE] >= 0),
        }


# Methods. Each gives, for every sentence, decisions on test rows and whether the bound is said to be met.


def measure_ours(split: Split, sentences: list[Sentence], seed: int, prior: list[float] | None) -> Line:
    """csst with its default margin: one fit, and a rule for each sentence on the scores of that fit.

    prior: the class balance that it is told; None for none.
    """
    from csst import CSSTClassifier
    from csst.rules.fit import bind, fit_evidence

    begin = time.process_time()
    model = CSSTClassifier(sentences[0].text, deployment_prior=prior, random_state=seed)
    model.fit(split.x_labeled, split.y_labeled, X_unlabeled=split.x_unlabeled)
    adjusted = model.fit_.full_details.adjusted
    assert adjusted is not None
    used_prior = adjusted.estimate.confusion.prior.numpy()
    seconds = time.process_time() - begin
    probs = model.fit_.probs(model._rows(split.x_test, reset=False))
    test = TestRows.from_labels(split.y_test, split.names)
    measured = {}
    for sentence in sentences:
        begin = time.process_time()
        objective = bind(sentence.text, adjusted.evidence, split.names)
        fitted = fit_evidence(adjusted.evidence, objective, used_prior, seed)
        seconds += time.process_time() - begin
        measured[sentence.text] = {
            **test.measure(sentence, np.asarray(fitted.rule.predict(probs))),
            **test.find_best(sentence, probs.numpy()),
            "met": bool(fitted.is_met),
            "expected": round(min(fitted.expected.slack), 4),
            "errors": round(min(bound.slack / max(bound.error, 1e-9) for bound in fitted.bounds), 3),
        }
    return {"sentences": measured, "seconds": round(seconds, 2)}


def measure_confident(split: Split, sentences: list[Sentence], seed: int, confidence: float) -> Line:
    """csst with a stated confidence; half of the labels certify, so that every sentence is a fit of its own."""
    from csst import CSSTClassifier

    begin = time.process_time()
    test = TestRows.from_labels(split.y_test, split.names)
    measured = {}
    for sentence in sentences:
        text = f"{sentence.text} with confidence {confidence:g}"
        model = CSSTClassifier(text, learner="linear", deployment_prior=split.prior, random_state=seed)
        model.fit(split.x_labeled, split.y_labeled, X_unlabeled=split.x_unlabeled)
        decisions = np.searchsorted(split.names, model.predict(split.x_test))
        probs = model.predict_proba(split.x_test)
        measured[sentence.text] = {
            **test.measure(sentence, decisions),
            **test.find_best(sentence, probs),
            "met": is_certified(model),
        }
    return {"sentences": measured, "seconds": round(time.process_time() - begin, 2)}


def is_certified(model: Any) -> bool:
    """Whether a fitted classifier says that its bounds are certified."""
    return bool(model.certificate_.is_certified)


def make_regression(split: Split) -> Any:
    """Logistic regression on standardized numbers and one column for every category."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler())
    categories = OneHotEncoder(handle_unknown="ignore")
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include=np.number)),
        (categories, make_column_selector(dtype_exclude=np.number)),
    )
    return make_pipeline(columns, LogisticRegression(max_iter=2000))


def measure_tuned(split: Split, sentences: list[Sentence], seed: int) -> Line:
    """scikit-learn's threshold for the goal where the bound is met in cross-validation; "met" where it then is."""
    from sklearn.metrics import make_scorer
    from sklearn.model_selection import StratifiedKFold, TunedThresholdClassifierCV

    test = TestRows.from_labels(split.y_test, split.names)
    begin = time.process_time()
    measured = {}
    for sentence in sentences:

        def score(truth: np.ndarray, predicted: np.ndarray, sentence: Sentence = sentence) -> float:
            rows = TestRows.from_labels(truth, split.names)
            if not rows.truth.sum(0).all():
                return -1.0
            found = rows.measure(sentence, np.searchsorted(split.names, predicted))
            return found["value"] if found["slack"] >= 0 else found["slack"] - 1

        folds = StratifiedKFold(LEAST_LABELS, shuffle=True, random_state=seed)
        model = TunedThresholdClassifierCV(make_regression(split), scoring=make_scorer(score), cv=folds)
        model.fit(split.x_labeled, split.y_labeled)
        measured[sentence.text] = {
            **test.measure(sentence, np.searchsorted(split.names, model.predict(split.x_test))),
            **test.find_best(sentence, model.predict_proba(split.x_test)),
            "met": bool(model.best_score_ >= 0),
        }
    return {"sentences": measured, "seconds": round(time.process_time() - begin, 2)}


def measure_mapie(split: Split, sentences: list[Sentence], seed: int) -> Line:
    """MAPIE's certified threshold for a bound on recall or precision; its own choice among those that are valid."""
    import warnings

    from mapie.risk_control import BinaryClassificationController

    test = TestRows.from_labels(split.y_test, split.names)
    begin = time.process_time()
    order = np.random.default_rng(seed).permutation(len(split.y_labeled))
    parts = [np.concatenate([order[split.y_labeled[order] == c][side::2] for c in split.names]) for side in (0, 1)]
    model = make_regression(split).fit(split.x_labeled.iloc[parts[0]], split.y_labeled[parts[0]])
    measured = {}
    for sentence in sentences:
        k = split.names.index(sentence.bounded.of)
        positive = (split.y_labeled[parts[1]] == split.names[k]).astype(int)

        def predict(x: Any, k: int = k) -> np.ndarray:
            probs = model.predict_proba(x)
            return np.column_stack([1 - probs[:, k], probs[:, k]])

        controller = BinaryClassificationController(
            predict, sentence.bounded.metric, target_level=sentence.level, confidence_level=1 - DELTAS[MAPIE]
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            controller.calibrate(split.x_labeled.iloc[parts[1]], positive)
        is_valid = controller.best_predict_param is not None
        positives = controller.predict(split.x_test) if is_valid else predict(split.x_test)[:, 1] >= 0.5
        decisions = np.where(np.asarray(positives) == 1, k, 1 - k)
        measured[sentence.text] = {
            **test.measure(sentence, decisions),
            **test.find_best(sentence, model.predict_proba(split.x_test)),
            "met": is_valid,
        }
    return {"sentences": measured, "seconds": round(time.process_time() - begin, 2)}


def measure_cell(cell: Line, data_dir: Path | None, commit: str) -> Line:
    split = deal_rows(cell["set"], cell["draw"], data_dir)
    sentences = list_sentences(PLANS[cell["set"]])
    about = {"commit": commit, "rows": split.digest, "labels": len(split.y_labeled)}
    try:
        if cell["method"] in (OURS, UNTOLD):
            prior = split.prior if cell["method"] == OURS else None
            return about | measure_ours(split, sentences, cell["draw"], prior)
        if cell["method"] in CONFIDENT:
            return about | measure_confident(split, sentences, cell["draw"], CONFIDENT[cell["method"]])
        if cell["method"] == TUNED:
            return about | measure_tuned(split, sentences, cell["draw"])
        return about | measure_mapie(split, sentences, cell["draw"])
    except Exception as error:
        return about | {"error": f"{type(error).__name__}: {str(error)[:200]}"}


def list_cells(draws: int, sets: Iterable[str], methods: Iterable[str], data_dir: Path | None) -> Iterator[Line]:
    """Every cell, draw by draw; methods for two classes only where there are two."""
    sets = list(sets)
    two_classes = {name for name in sets if len(set(read_table(name, data_dir)[1])) == 2}
    for draw in range(FIRST_DRAW, FIRST_DRAW + draws):
        for name in sets:
            for method in methods:
                if method in (TUNED, MAPIE) and name not in two_classes:
                    continue
                yield {"set": name, "draw": draw, "method": method}


# The report.


@dataclass(frozen=True)
class Promise:
    """One sentence in one draw: what was said and what came of it."""

    set: str
    method: str
    met: bool
    slack: float
    value: float
    deciding: int
    oracle: float | None
    reachable: bool

    @property
    def is_judged(self) -> bool:
        return self.deciding >= DECIDING


def list_promises(lines: Iterable[Line]) -> list[Promise]:
    promises = []
    for line in lines:
        for found in line.get("sentences", {}).values():
            wanted = ("met", "slack", "value", "deciding", "oracle", "reachable")
            promises.append(Promise(line["set"], line["method"], *(found[key] for key in wanted)))
    return promises


def count_share(hits: int, total: int) -> str:
    return f"{hits} of {total} ({hits / total:.0%})" if total else "–"


def summarize(promises: list[Promise]) -> dict[str, str]:
    """The scores of a method."""
    said = [promise for promise in promises if promise.met and promise.is_judged]
    true = [promise for promise in said if promise.slack >= 0]
    far = [promise for promise in said if promise.slack < -FAR]
    reachable = [promise for promise in promises if promise.reachable]
    told = [promise for promise in reachable if promise.met]
    ratios = [promise.value / promise.oracle for promise in told if promise.oracle]
    return {
        "draws × sentences": str(len(promises)),
        "said met, and judged": str(len(said)),
        "truly met": count_share(len(true), len(said)),
        f"missed by more than {FAR}": count_share(len(far), len(said)),
        "said met where the oracle meets it by .05": count_share(len(told), len(reachable)),
        "value ÷ oracle's, median there": f"{np.median(ratios):.2f}" if ratios else "–",
        "at ≥ .9 of it": count_share(sum(ratio >= 0.9 for ratio in ratios), len(ratios)),
    }


def judge_certificates(method: str, promises: list[Promise]) -> list[str]:
    """Certified and untrue among all draws that could be judged, and the limit for it."""
    # a draw that is not certified cannot be a false certificate, however few rows would have decided it
    counted = [promise for promise in promises if promise.is_judged or not promise.met]
    untrue = sum(promise.met and promise.slack < 0 for promise in counted)
    delta = DELTAS[method]
    limit = delta + 2 * (delta * (1 - delta) / max(1, len(counted))) ** 0.5
    certified = sum(promise.met for promise in counted)
    share = count_share(untrue, len(counted))
    verdict = "holds" if untrue <= limit * len(counted) else "**broken**"
    return [method, str(len(counted)), str(certified), share, f"{limit:.1%}", verdict]


def format_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *rows])


def write_report(lines: list[Line]) -> str:
    promises = list_promises(lines)
    methods = [method for method in METHODS if any(promise.method == method for promise in promises)]
    draws = len({line["draw"] for line in lines})
    sets = len({line["set"] for line in lines})
    summaries = {method: summarize([p for p in promises if p.method == method]) for method in methods}
    head = ("method", *next(iter(summaries.values()))) if summaries else ("method",)
    parts = [
        "# Promises",
        f"{sets} real sets × 5 sentences with a bound × up to {draws} draws of {BUDGETS[0]} to {BUDGETS[-1]} labels; "
        f"on new rows, judged where at least {DECIDING} of them decide the bound (those of the class for a recall, "
        "those predicted as the class for a precision). The oracle is the best rule on the same probabilities, fitted "
        "on the test rows. By how many standard errors a bound has to be expected to be *met* was chosen on "
        "made worlds with a rare class; these sets were then measured once, in draws that nobody had seen. csst "
        f"is told the class balance of deployment (`deployment_prior`), as labels have a floor of {LEAST_LABELS} per "
        f"class; “{UNTOLD}” estimates it, and the other methods read the labels as they are. "
        "Methods are described in `benchmarks/quality/promises.py`, which writes this page; "
        "TunedThresholdClassifierCV and "
        "MAPIE are for two classes.",
        format_table(head, ([method, *summary.values()] for method, summary in summaries.items())),
    ]
    certified = [judge_certificates(m, [p for p in promises if p.method == m]) for m in methods if m in DELTAS]
    if certified:
        parts += [
            "## Certificates",
            "Certified and untrue, of all draws (those not certified count, too); the limit is δ + 2√(δ(1−δ)/n).",
            format_table(("method", "n", "certified", "certified and untrue", "limit", ""), certified),
        ]
    if OURS in methods:
        rows = []
        for name in PLANS:
            summary = summarize([p for p in promises if p.method == OURS and p.set == name])
            if summary["draws × sentences"] != "0":
                rows.append([name, *summary.values()])
        parts += ["## csst, set by set", format_table(("set", *head[1:]), rows)]
    seconds = {m: [line["seconds"] for line in lines if line["method"] == m and "seconds" in line] for m in methods}
    costs = ", ".join(f"{m} {np.median(found):.1f}" for m, found in seconds.items() if found)
    errors = [f"{x['set']}, draw {x['draw']}, {x['method']}: {x['error']}" for x in lines if "error" in x]
    numbers = {m: sorted({line["draw"] for line in lines if line["method"] == m}) for m in methods}
    budgets = {m: max(BUDGETS[draw % len(BUDGETS)] for draw in found) for m, found in numbers.items()}
    measured = "; ".join(f"{m}: {len(found)}, up to {budgets[m]} labels" for m, found in numbers.items())
    parts.append(f"Draws of each set: {measured}.")
    parts.append(f"Median CPU seconds of a draw with all five sentences: {costs}.")
    if errors:
        parts.append(f"Errors: {len(errors)}; first: {errors[0]}")
    return "\n\n".join(parts) + "\n"


def read_commit() -> str:
    found = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--sets", default=",".join(PLANS))
    parser.add_argument("--methods", default="csst,untold,0.9,0.95,tuned", help=f"of {', '.join(SHORT)}")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    log = Log(options.results / "promises.jsonl", KEYS)
    lines = list(log.lines.values())
    if not options.report:
        commit = read_commit()
        methods = [SHORT[word] for word in options.methods.split(",")]
        cells = list_cells(options.draws, options.sets.split(","), methods, options.data_dir)
        lines = log.measure(cells, lambda cell: measure_cell(cell, options.data_dir, commit))
    write_results(options.results / "promises.md", write_report(lines), MODULES, not options.report)


if __name__ == "__main__":
    main()

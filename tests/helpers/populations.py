"""Gaussian worlds whose posteriors are known, sentences about them, and the best rule for each by brute force.

A world has unit Gaussians as classes and a long tail as prior. Its population is a large sample that is counted by
exact likelihoods, so that no label noise is left:

    R_kj = sum_i W_ik 1[F(x_i) = j] / sum_i W_ik,      W_ik = f_k(x_i) / sum_l f_l(x_i),

with as many rows x_i drawn from every class. All metrics of the language follow from recall R_kk and coverage
sum_k pi_k R_kj. Nothing here is shared with the search under test: sentences are built from parts and evaluated by a
few lines of numpy, and rules are swept exactly along the bias of every set of classes from many starts.

    python -m tests.helpers.populations [--classes 2,3,5] [--distance 2] [--imbalance 9] [--seed 0] [--labels 200]
        [--unlabeled 10000] [--every] [--own-references] [--write]

prints every case: sentence, value and slack of the fitted rule on the population without and with a margin, what brute
force reaches, verdicts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import csst
from csst.rules import fit_rule

#: stored results of brute force, by world and sentence
REFERENCES = Path(__file__).parent / "references.json"
#: rows of a population
ROWS = 24_000
#: random rules, the rows they are tried on, the rows on which the most promising are worked out, and how many those are
TRIALS, TRIAL_ROWS, PART_ROWS, STARTS = 2000, 4000, 6000, 4
#: metrics that divide by a coverage are not maximized by predicting next to nothing
LEAST_COVERAGE = 0.004
#: a bound counts as met by the reference within this
EXACT = 1e-3
#: a sentence is judged where some rule meets its bounds by this much
FEASIBLE = 0.02
#: what the fitted rule may lose in value, and by how much it may miss a bound, without a margin
LOSS, MISS = 0.03, 0.02
#: with a margin: bounds are met by 0 to SAFE, and the value is that of bounds tightened by SAFE
SAFE = 0.05

#: bounds of every goal in the small battery, none being the first
BOUNDS_PER_GOAL = 3
METRICS = ("recall", "precision", "coverage", "f1", "jaccard")


# Worlds.


@dataclass(frozen=True)
class World:
    """Unit Gaussians about `distance` apart; class k has a prior ∝ imbalance^(-k / (K - 1)).

    Args:
        classes: K.
        seed: of means, labels, unlabeled rows and the population.
        distance: between any two means before they are moved at random by `jitter`; two classes are not moved.
        imbalance: how many times more frequent the first class is than the last.
        labels: of every class.
        unlabeled: rows without a label.
        jitter: standard deviation of the move of every coordinate of a mean.
    """

    classes: int
    seed: int = 0
    distance: float = 2.0
    imbalance: float = 9.0
    labels: int = 200
    unlabeled: int = 10_000
    jitter: float = 0.3

    @property
    def key(self) -> str:
        """What the population depends on."""
        return f"{self.classes} {self.seed} {self.distance} {self.imbalance} {self.jitter}"

    @cached_property
    def prior(self) -> np.ndarray:
        raw = self.imbalance ** (-np.arange(self.classes) / (self.classes - 1))
        return raw / raw.sum()

    @cached_property
    def means(self) -> np.ndarray:
        corners = np.eye(self.classes) * self.distance / 2**0.5
        if self.classes == 2:
            return corners
        return corners + self.jitter * np.random.default_rng(1000 + self.seed).normal(size=corners.shape)

    @property
    def groups(self) -> dict[str, list[int]]:
        """A group of classes: the frequent one of two, the rarer ones of several."""
        return {"some": [0] if self.classes == 2 else list(range(self.classes // 2, self.classes))}

    def log_likelihoods(self, x: np.ndarray) -> np.ndarray:
        """log f_k(x_i) up to a constant, (N, K)."""
        return -0.5 * ((x[:, None] - self.means) ** 2).sum(2)

    def draw(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self.means[labels] + rng.normal(size=(len(labels), self.classes))

    def posterior(self, x: np.ndarray) -> np.ndarray:
        """P(y | x) under the world's prior, (N, K)."""
        raw = self.log_likelihoods(x) + np.log(self.prior)
        raw = np.exp(raw - raw.max(1, keepdims=True))
        return raw / raw.sum(1, keepdims=True)

    @cached_property
    def evidence(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Posteriors of labeled rows, their labels, posteriors of unlabeled rows."""
        rng = np.random.default_rng(2000 + self.seed)
        labels = np.repeat(np.arange(self.classes), self.labels)
        hidden = rng.choice(self.classes, self.unlabeled, p=self.prior)
        return self.posterior(self.draw(labels, rng)), labels, self.posterior(self.draw(hidden, rng))

    @cached_property
    def population(self) -> Population:
        rng = np.random.default_rng(3000 + self.seed)
        x = self.draw(np.arange(ROWS) % self.classes, rng)
        scores = self.log_likelihoods(x)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        return Population(scores, weights / weights.sum(0), self.prior, self.posterior(x))


@dataclass(frozen=True, eq=False)
class Population:
    """Log-likelihoods z (N, K), the part of class k in row i (N, K, columns sum to 1), prior and posterior."""

    scores: np.ndarray
    fractions: np.ndarray
    prior: np.ndarray
    posterior: np.ndarray

    @property
    def classes(self) -> int:
        return len(self.prior)

    @cached_property
    def pulls(self) -> np.ndarray:
        """How much a row counts for coverage, (N,)."""
        return self.fractions @ self.prior

    def head(self, rows: int) -> Population:
        """The same with the first rows only."""
        fractions = self.fractions[:rows]
        return Population(self.scores[:rows], fractions / fractions.sum(0), self.prior, self.posterior[:rows])

    def measure(self, decisions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Recall (K,) and coverage (K,) of decisions (N,)."""
        own = np.take_along_axis(self.fractions, decisions[:, None], 1)[:, 0]
        recall = np.bincount(decisions, own, minlength=self.classes)
        return recall, np.bincount(decisions, self.pulls, minlength=self.classes)

    def sweep(self, bias: np.ndarray, members: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Every different rule when the bias of some classes is raised by t: t (M,), recall (M, K), coverage (M, K).

        members: mask of the classes, (K,). Row i moves from the best class outside to the best one inside at
        t_i = max_outside - max_inside.
        """
        shifted = self.scores + bias
        rows = np.arange(len(shifted))
        inside = np.where(members, shifted, -np.inf).argmax(1)
        outside = np.where(members, -np.inf, shifted).argmax(1)
        cuts = shifted[rows, outside] - shifted[rows, inside]
        order = np.argsort(cuts)
        # all thresholds of two classes; of more, steps of equal population that are fine enough and cheap
        fineness = len(rows) if self.classes == 2 else 3000
        stops = np.unique(np.linspace(0, len(rows), fineness + 1).astype(int))
        margins = []
        for amount in (self.fractions, np.broadcast_to(self.pulls[:, None], self.fractions.shape)):
            recalls = np.zeros((len(rows) + 1, self.classes))
            gain = np.zeros_like(self.fractions)
            gain[rows, inside] = amount[rows, inside]
            loss = np.zeros_like(self.fractions)
            loss[rows, outside] = amount[rows, outside]
            recalls[1:] = np.cumsum((gain - loss)[order], axis=0)
            margins.append((recalls + loss.sum(0))[stops])
        ends = np.concatenate([[cuts[order[0]] - 1], (cuts[order[:-1]] + cuts[order[1:]]) / 2, [cuts[order[-1]] + 1]])
        return ends[stops], np.maximum(margins[0], 0), np.maximum(margins[1], 0)


# Sentences, built from parts.


@dataclass(frozen=True)
class Quantity:
    """A metric of a class, of a group (mean over it), of all classes (mean, min or each), or accuracy.

    Args:
        metric: one of `METRICS`, or "accuracy".
        of: a class, "some" or "head" for a group's mean, "mean", "min", "every", or "each head".
    """

    metric: str
    of: int | str = ""

    @property
    def text(self) -> str:
        if self.metric == "accuracy":
            return self.metric
        if self.of in ("mean", "min"):
            return f"{self.of}({self.metric})"
        if self.of == "each head":
            return f"each({self.metric}, head)"
        return self.metric if self.of == "every" else f"{self.metric}[{self.of}]"

    def evaluate(self, recall: np.ndarray, coverage: np.ndarray, world: World) -> np.ndarray:
        """Its entries (M, entries) for recalls (M, K) and coverages (M, K)."""
        hits = recall * world.prior
        if self.metric == "accuracy":
            return hits.sum(1, keepdims=True)
        values = {
            "recall": recall,
            "coverage": coverage,
            "precision": np.divide(hits, coverage, out=np.zeros_like(hits), where=coverage > 1e-12),
            "f1": 2 * hits / (world.prior + coverage),
            "jaccard": hits / (world.prior + coverage - hits),
        }[self.metric]
        if isinstance(self.of, int):
            return values[:, [self.of]]
        if self.of == "mean":
            return values.mean(1, keepdims=True)
        if self.of == "min":
            return values.min(1, keepdims=True)
        if self.of == "every":
            return values
        members = world.groups["some"] if self.of == "some" else list(range(world.classes - 1))
        return values[:, members] if self.of == "each head" else values[:, members].mean(1, keepdims=True)

    def read_classes(self, world: World) -> list[int]:
        """The classes it reads."""
        if isinstance(self.of, int):
            return [self.of]
        return world.groups["some"] if self.of == "some" else list(range(world.classes))


@dataclass(frozen=True)
class Bound:
    """low <= quantity <= high; None for one side that is open."""

    quantity: Quantity
    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        if self.low is None:
            return f"{self.quantity.text} <= {self.high:g}"
        if self.high is None:
            return f"{self.quantity.text} >= {self.low:g}"
        return f"{self.low:g} <= {self.quantity.text} <= {self.high:g}"

    def slack(self, recall: np.ndarray, coverage: np.ndarray, world: World) -> np.ndarray:
        """The smallest slack of its entries, (M,)."""
        values = self.quantity.evaluate(recall, coverage, world)
        sides = [np.full((len(values), 1), np.inf)]
        if self.low is not None:
            sides.append(values - self.low)
        if self.high is not None:
            sides.append(self.high - values)
        return np.hstack(sides).min(1)


@dataclass(frozen=True)
class Case:
    """A sentence about a world."""

    world: World
    goal: Quantity
    bounds: tuple[Bound, ...] = ()

    @property
    def text(self) -> str:
        conditions = ", ".join(bound.text for bound in self.bounds)
        return f"max {self.goal.text}" + (f" s.t. {conditions}" if conditions else "")

    @property
    def objective(self) -> Any:
        """The sentence as `fit_rule` takes it."""
        return csst.objective(self.text).bind(self.world.classes, groups=self.world.groups)

    def value(self, recall: np.ndarray, coverage: np.ndarray) -> np.ndarray:
        return self.goal.evaluate(recall, coverage, self.world)[:, 0]

    def slack(self, recall: np.ndarray, coverage: np.ndarray) -> np.ndarray:
        """The smallest slack of all bounds, (M,); infinite where there is none."""
        slack = np.full(len(recall), np.inf)
        for bound in self.bounds:
            slack = np.minimum(slack, bound.slack(recall, coverage, self.world))
        return slack

    @cached_property
    def predicted(self) -> list[int]:
        """Classes that the reference must predict, for their precision to be one that can be measured."""
        quantities = (self.goal, *(bound.quantity for bound in self.bounds))
        return sorted({k for q in quantities if q.metric == "precision" for k in q.read_classes(self.world)})


# The bounds and goals of a battery; levels come from what random rules reach.


def list_goals(world: World) -> list[Quantity]:
    rare = world.classes - 1
    return [Quantity(m, of) for m in METRICS for of in (rare, "some", "mean", "min")] + [Quantity("accuracy")]


def list_bounds(world: World) -> list[tuple[Bound, ...]]:
    """Every kind of bound, at levels that some but not most random rules meet."""
    rare = world.classes - 1
    lower = [
        Quantity("recall", rare),
        Quantity("precision", rare),
        Quantity("recall", 0),
        Quantity("f1", rare),
        Quantity("recall", "every"),
        Quantity("accuracy"),
        Quantity("precision", "some"),
        Quantity("recall", "mean"),
        Quantity("precision", "every"),
        Quantity("recall", "some"),
        Quantity("f1", "every"),
        Quantity("coverage", "every"),
        Quantity("precision", 0),
        Quantity("f1", "mean"),
        Quantity("recall", "each head"),
        Quantity("coverage", "some"),
    ]
    upper = [
        Quantity("coverage", rare),
        Quantity("recall", 0),
        Quantity("coverage", 0),
        Quantity("precision", rare),
        Quantity("coverage", "some"),
        Quantity("f1", rare),
    ]
    kinds: list[tuple[Bound, ...]] = [()]
    kinds += [(Bound(quantity, low=level(world, quantity, 0.7)),) for quantity in lower]
    kinds += [(Bound(quantity, high=level(world, quantity, 0.3)),) for quantity in upper]
    covered = Quantity("coverage", rare)
    kinds.append((Bound(covered, low=level(world, covered, 0.4), high=level(world, covered, 0.6)),))
    recalled = Quantity("recall", rare)
    kinds.append((Bound(recalled, low=level(world, recalled, 0.4), high=level(world, recalled, 0.7)),))
    kinds.append((Bound(recalled, low=level(world, recalled, 0.5)), Bound(lower[1], low=level(world, lower[1], 0.5))))
    kinds.append((Bound(covered, high=level(world, covered, 0.5)), Bound(lower[7], low=level(world, lower[7], 0.5))))
    return kinds


def level(world: World, quantity: Quantity, part: float) -> float:
    """The value that this part of reasonable random rules stays below, to .01; of a vector, of its lowest entry."""
    _, recall, coverage = try_rules(world)
    sensible = (coverage > LEAST_COVERAGE).all(1)
    values = quantity.evaluate(recall[sensible], coverage[sensible], world).min(1)
    return round(float(np.quantile(values, part)), 2)


def list_cases(world: World, bounds_per_goal: int | None = BOUNDS_PER_GOAL) -> list[Case]:
    """Goals × bounds; with a number, each goal has so many bounds and every bound about as many goals."""
    goals, kinds = list_goals(world), list_bounds(world)
    cases = []
    for number, goal in enumerate(goals):
        if bounds_per_goal is None:
            picks = list(range(len(kinds)))
        else:
            # 0 is the sentence without a bound; the others take turns
            others = bounds_per_goal - 1
            picks = [0, *(1 + (number * others + k) % (len(kinds) - 1) for k in range(others))]
        cases += [Case(world, goal, kinds[k]) for k in picks]
    return cases


# Brute force.


@lru_cache(maxsize=16)
def try_rules(world: World) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random biases (M, K) with the recall and coverage (M, K) that they have on a part of the population."""
    rng, part = np.random.default_rng(7), world.population.head(TRIAL_ROWS)
    spread = rng.choice([0.7, 1.5, 3.0], size=(TRIALS, 1))
    biases = rng.normal(size=(TRIALS, world.classes)) * spread
    # half around the plain argmax, half around equal recalls
    biases[::2] += np.log(world.prior)
    biases[0] = np.log(world.prior)
    biases[1] = 0
    measured = [part.measure((part.scores + bias).argmax(1)) for bias in biases]
    return biases, np.array([m[0] for m in measured]), np.array([m[1] for m in measured])


@dataclass(frozen=True)
class Reference:
    """What brute force finds.

    Args:
        value: of the best rule that meets the bounds; None where none does.
        tight: of the best rule that meets them by `SAFE`; None where none does.
        slack: by how much all bounds can be met: SAFE, FEASIBLE, 0, or less; None where there are none.
    """

    value: float | None
    tight: float | None
    slack: float | None


def score(case: Case, recall: np.ndarray, coverage: np.ndarray, tightened: float, strict: bool) -> np.ndarray:
    """Value where the bounds are met, else less by ten times the miss, or, strictly, below any value."""
    value, miss = case.value(recall, coverage), np.maximum(0, tightened - case.slack(recall, coverage))
    for k in case.predicted:
        miss = np.maximum(miss, 2 * np.maximum(0, LEAST_COVERAGE - coverage[:, k]) / LEAST_COVERAGE)
    if strict:
        return np.where(miss <= EXACT, value, -1 - miss)
    return value - 10 * miss


def climb(
    case: Case, population: Population, start: np.ndarray, tightened: float, strict: bool, rounds: int = 6
) -> tuple[np.ndarray, float]:
    """Exact sweeps of the bias of every set of classes, until none is better; the bias and its score."""
    classes = case.world.classes
    # raising a set is lowering the others, so the first class stays where it is
    subsets = [np.array((False, *rest)) for rest in itertools.product([False, True], repeat=classes - 1) if any(rest)]
    subsets.sort(key=sum)
    bias = start.copy()
    top = -np.inf
    for _ in range(rounds):
        before = top
        for members in subsets:
            steps, recall, coverage = population.sweep(bias, members)
            scores = score(case, recall, coverage, tightened, strict)
            k = int(scores.argmax())
            if scores[k] > top + 1e-9:
                top = float(scores[k])
                bias = bias + steps[k] * members
        if top < before + 1e-4 or classes == 2:
            break
    return bias, top


def shake(case: Case, bias: np.ndarray, top: float, tightened: float, tries: int = 40) -> tuple[np.ndarray, float]:
    """Random small moves of all biases together, which leave corners that sweeps of sets cannot."""
    rng = np.random.default_rng(11)
    population = case.world.population
    for size in (0.3, 0.1, 0.03):
        for _ in range(tries):
            trial = bias + size * rng.normal(size=len(bias))
            recall, coverage = population.measure((population.scores + trial).argmax(1))
            value = float(score(case, recall[None], coverage[None], tightened, strict=True)[0])
            if value > top:
                bias, top = trial, value
    return bias, top


def search(case: Case, tightened: float = 0.0, more_starts: tuple[np.ndarray, ...] = ()) -> tuple[np.ndarray, float]:
    """The best bias for a sentence, and its score; below -1 where no rule was found that meets the bounds."""
    population = case.world.population
    biases, recall, coverage = try_rules(case.world)
    if case.world.classes == 2:
        return climb(case, population, biases[0], tightened, strict=True)
    order = np.argsort(-score(case, recall, coverage, tightened, strict=False))
    # starts are worked out on a part of the rows, and the best of them on all
    part = population.head(PART_ROWS)
    starts = [climb(case, part, biases[k], tightened, strict=False) for k in order[:STARTS]]
    starts += [climb(case, part, bias, tightened, strict=False) for bias in more_starts]
    start = max(starts, key=lambda outcome: outcome[1])[0]
    bias, _ = climb(case, population, start, tightened, strict=False, rounds=2)
    bias, top = climb(case, population, bias, tightened, strict=True, rounds=3)
    bias, top = shake(case, bias, top, tightened)
    return climb(case, population, bias, tightened, strict=True, rounds=1) if top > -1 else (bias, top)


def refer(case: Case) -> Reference:
    """Brute force for a case."""
    bias, top = search(case)
    if not case.bounds:
        return Reference(top, top, None)
    if top <= -1:
        return Reference(None, None, min(0.0, top + 1))
    tight = search(case, SAFE, (bias,))[1]
    if tight > -1:
        return Reference(max(top, tight), tight, SAFE)
    feasible = search(case, FEASIBLE, (bias,))[1] > -1
    return Reference(top, None, FEASIBLE if feasible else 0.0)


class References:
    """Stored results of brute force; others are computed when asked for."""

    def __init__(self, file: Path | None = REFERENCES) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        if file is not None and file.exists():
            self.stored = json.loads(file.read_text(encoding="utf-8"))

    def get(self, case: Case) -> Reference:
        stored = self.stored.setdefault(case.world.key, {})
        if case.text not in stored:
            reached = asdict(refer(case))
            stored[case.text] = {k: None if v is None else round(v, 4) for k, v in reached.items()}
        return Reference(**stored[case.text])

    def write(self, file: Path = REFERENCES) -> None:
        worlds = []
        for key, sentences in sorted(self.stored.items()):
            lines = [f"  {json.dumps(text)}: {json.dumps(value)}" for text, value in sorted(sentences.items())]
            worlds.append(f" {json.dumps(key)}: {{\n" + ",\n".join(lines) + "\n }")
        file.write_text("{\n" + ",\n".join(worlds) + "\n}\n", encoding="utf-8")


# The rule under test, and the verdict.


@dataclass(frozen=True)
class Outcome:
    """What a fitted rule does on the population; slack is infinite where there is no bound."""

    value: float
    slack: float
    seconds: float
    chosen: str


def measure_rule(case: Case, rule: Any) -> tuple[float, float]:
    """Value and smallest slack of a `DecisionRule` on the population."""
    population = case.world.population
    decisions = np.asarray(rule.predict(population.posterior))
    recall, coverage = population.measure(decisions)
    return float(case.value(recall[None], coverage[None])[0]), float(case.slack(recall[None], coverage[None])[0])


def solve(case: Case, margin: bool) -> Outcome:
    """`fit_rule` on the world's labels and unlabeled rows, all priors given, measured on the population."""
    probs, labels, unlabeled = case.world.evidence
    prior = case.world.prior
    begin = time.process_time()
    options = {} if margin else {"margin": 0.0}
    fitted = fit_rule(probs, labels, case.objective, unlabeled, train_prior=prior, deployment_prior=prior, **options)
    seconds = time.process_time() - begin
    value, slack = measure_rule(case, fitted.rule)
    return Outcome(value, slack, seconds, fitted.chosen)


def judge(
    outcome: Outcome,
    reference: Reference,
    margin: bool,
    loss: float = LOSS,
    miss: float = MISS,
    miss_with_margin: float = 0.0,
) -> str:
    """ "" for a rule that is near the best, else what is wrong with it; "not judged" where no rule can do it.

    Without a margin the value must be within `loss` of brute force and no bound missed by more than `miss`. With one,
    none by more than `miss_with_margin`, and the value is compared with the best rule that meets the bounds by SAFE.
    """
    if reference.value is None or (reference.slack is not None and reference.slack < FEASIBLE):
        return "not judged"
    faults = []
    allowed = miss_with_margin if margin else miss
    if outcome.slack < -allowed:
        faults.append(f"missed by {-outcome.slack:.3f}")
    wanted = reference.tight if margin else reference.value
    if wanted is not None and outcome.value < wanted - loss:
        faults.append(f"value {wanted - outcome.value:.3f} too low")
    return ", ".join(faults)


def main() -> None:
    """Print every case of some worlds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", default="2,3,5")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--distance", type=float, default=2.0)
    parser.add_argument("--imbalance", type=float, default=9.0)
    parser.add_argument("--labels", type=int, default=200)
    parser.add_argument("--unlabeled", type=int, default=10_000)
    parser.add_argument("--every", action="store_true", help="every goal with every bound")
    parser.add_argument("--own-references", action="store_true", help="compute brute force again")
    parser.add_argument("--write", action="store_true", help="store brute force for the tests")
    options = parser.parse_args()
    references = References(None if options.own_references else REFERENCES)
    base = World(2, options.seed, options.distance, options.imbalance, options.labels, options.unlabeled)
    worlds = [replace(base, classes=int(k)) for k in options.classes.split(",")]
    verdicts: dict[tuple[int, bool], list[str]] = {}
    for world in worlds:
        for case in list_cases(world, None if options.every else BOUNDS_PER_GOAL):
            reference = references.get(case)
            print(
                f"K={world.classes} {case.text:<75}", *(format_reference(value) for value in asdict(reference).values())
            )
            for margin in (False, True) if case.bounds else (False,):
                outcome = solve(case, margin)
                verdict = judge(outcome, reference, margin)
                verdicts.setdefault((world.classes, margin), []).append(verdict)
                slack = "      " if outcome.slack == np.inf else f"{outcome.slack:+.3f}"
                print(
                    f"    {'with a margin' if margin else 'without      '} value {outcome.value:.3f} slack {slack} "
                    f"{outcome.seconds:.2f} s {outcome.chosen:<11} {verdict or 'ok'}",
                    flush=True,
                )
            if options.write:
                references.write()
    for (classes, margin), found in verdicts.items():
        judged = [verdict for verdict in found if verdict != "not judged"]
        print(
            f"K={classes}, {'with' if margin else 'without'} a margin: {sum(map(bool, judged))} of {len(judged)} fail; "
            f"{len(found) - len(judged)} not judged"
        )


def format_reference(value: float | None) -> str:
    return "  –  " if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()

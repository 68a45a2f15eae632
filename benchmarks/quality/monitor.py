"""What new rows without labels say, where the truth is known.

    python -m benchmarks.quality.monitor --data-dir DIR [--draws 20] [--sets a,b] [--labels 300,5] [--kinds a,b]
    [--learner linear] [--whole 6]

Ten real sets: tables of `DIR/natural` (csv.gz, label last), satimage and segment (`DIR/*.npz`) and digits, dealt at
random: about 300 labels at natural frequency with at least 5 of every class, or 5 of every class; up to 2,000
unlabeled rows, up to 4,000 new rows, and test rows. New rows are

- without shift: as they are (draws from `--whole` on have no other shift);
- of another balance: the fraction of a class is multiplied by a factor between 1 and 10, in random order of classes;
- with other columns: a deviation is added to one number column or to a fifth of them, or noise of 1.5 deviations;
- with a new class: a random class that is not the majority has no label and no unlabeled row, and is a tenth of them.

Values on test rows weigh classes by the balance of the new rows. The rule "with the true balance" is solved on the same
scores for the balance from which the new rows were drawn. How far a new class differs is the area under the curve of a
forest that is told which rows are new, out of fold. Ways of testing were chosen on other draws of seven of these sets.

Every line is of one set, draw, number of labels and kind, with the commit and a hash of its rows; lines are kept in
benchmarks/results/monitor.jsonl and never measured again. Writes results/monitor.md (--report: only that).
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lines import Line, Log
from benchmarks.quality.promises import count_share, format_table, read_commit, read_table
from benchmarks.results_check import write_results

RESULTS = Path(__file__).parents[1] / "results"
MODULES = ("estimation", "rules/monitor.py", "fitting/monitoring.py")
KEYS = ("learner", "set", "labels", "draw", "kind")
SETS = (
    *("sick", "hypothyroid", "mammography", "wine-red", "adult", "fars", "beijing-air"),
    *("digits", "satimage", "segment"),
)
KINDS = ("same classes", "new class", "no shift", "speed")
LEAST_LABELS, MOST_UNLABELED, MOST_NEW, MOST_TEST = 5, 2000, 4000, 4000
#: labels: 300 at natural frequency, or 5 of every class
LABELS = (300, 5)
LARGEST_FACTOR, NEW_SHARE, LEAST_NEW = 10.0, 0.1, 20
#: a new class is unlike the others from this area under the curve on
UNLIKE = 0.9
HARM = 0.1
MEAN_F1, BOUNDED = "max mean(f1)", "max recall[{r!r}] s.t. precision[{r!r}] >= 0.5"
CHANGES = ("a column", "a fifth of the columns", "noise")
#: what is asked for
IN_INTERVAL, F1_LOSS, MET_LOSS, FLAGGED, MOST_ALARMS, SECONDS = 0.9, 0.02, 0.05, 0.8, 0.08, 1.0


@dataclass(frozen=True, eq=False)
class Part:
    """Rows as they come (a frame) and their classes."""

    x: Any
    y: np.ndarray

    def take(self, rows: np.ndarray) -> Part:
        return Part(self.x.iloc[rows].reset_index(drop=True), self.y[rows])

    def without(self, name: str) -> Part:
        return self.take(np.flatnonzero(self.y != name))


@dataclass(frozen=True, eq=False)
class Deal:
    """Labeled, unlabeled, new and test rows, and a hash of which rows these are."""

    labeled: Part
    unlabeled: Part
    new: Part
    test: Part
    digest: str

    @property
    def names(self) -> list[str]:
        return sorted(set(self.labeled.y))


def read_rows(name: str, data_dir: Path | None) -> Part:
    if name not in ("satimage", "segment"):
        return Part(*read_table(name, data_dir))
    if data_dir is None:
        raise SystemExit(f"{name} is read from a folder: give --data-dir")
    import pandas

    with np.load(data_dir / f"{name}.npz", allow_pickle=True) as stored:
        frame = pandas.DataFrame(stored["x"])
        frame.columns = [f"x{place}" for place in range(frame.shape[1])]
        return Part(frame, stored["y"].astype(str))


def deal_rows(name: str, labels: int, draw: int, data_dir: Path | None) -> Deal:
    """Deal labels with a few of every class; a third of the rest each are unlabeled, new and test rows."""
    rows = read_rows(name, data_dir)
    rng = np.random.default_rng([9000, draw, labels])
    order = rng.permutation(len(rows.y))
    budget = labels if labels > LEAST_LABELS else 0
    labeled = list(order[:budget])
    for c in sorted(set(rows.y)):
        spare_rows = order[budget:][rows.y[order[budget:]] == c]
        labeled += list(spare_rows[: max(0, LEAST_LABELS - int((rows.y[labeled] == c).sum()))])
    rest = np.array_split(rng.permutation(np.setdiff1d(order, labeled)), 3)
    parts = [np.array(labeled), rest[0][:MOST_UNLABELED], rest[1][:MOST_NEW], rest[2][:MOST_TEST]]
    digest = hashlib.sha256(b"".join(part.astype(np.int64).tobytes() for part in parts) + "".join(rows.y).encode())
    return Deal(*(rows.take(part) for part in parts), digest.hexdigest()[:16])


# Shifts.


def tilt_balance(deal: Deal, rng: np.random.Generator) -> tuple[Part, np.ndarray]:
    """Return new rows of another balance, and the balance from which they are drawn, (K,)."""
    factors = LARGEST_FACTOR ** rng.permutation(np.linspace(0, 1, len(deal.names)))
    weights = factors[np.searchsorted(deal.names, deal.new.y)]
    rows = deal.new.take(np.flatnonzero(rng.random(len(weights)) < weights / weights.max()))
    pool = np.concatenate([deal.unlabeled.y, deal.new.y, deal.test.y])
    balance = np.array([(pool == c).mean() for c in deal.names]) * factors
    return rows, balance / balance.sum()


def change_columns(parts: Sequence[Part], change: str, rng: np.random.Generator) -> list[Part]:
    """Return parts with the same change of some number columns."""
    frame = parts[0].x
    numbers = [column for column in frame.columns if frame[column].dtype.kind in "iuf" and frame[column].std() > 0]
    columns = rng.permutation(numbers)[: 1 if change == "a column" else max(1, len(numbers) // 5)]
    frames = [part.x.astype(dict.fromkeys(columns, float)) for part in parts]
    for column in columns:
        deviation = float(frame[column].std())
        step = deviation * rng.choice([-1.0, 1.0])
        for each in frames:
            each[column] += 1.5 * deviation * rng.normal(size=len(each)) if change == "noise" else step
    return [Part(x, part.y) for x, part in zip(frames, parts, strict=True)]


# Measurements.


def make_classifier(learner: str, deal: Deal, draw: int) -> Any:
    from csst import CSSTClassifier

    classifier = CSSTClassifier(MEAN_F1, learner=None if learner == "default" else learner, random_state=draw)
    return classifier.fit(deal.labeled.x, deal.labeled.y, X_unlabeled=deal.unlabeled.x)


def count_rates(truth: np.ndarray, decisions: np.ndarray, names: list[str]) -> np.ndarray:
    """Return R_kj, (K, K); a class without a row counts as never found."""
    counts = np.array([[((truth == a) & (decisions == b)).sum() for b in names] for a in names], dtype=float)
    return counts / np.maximum(counts.sum(1, keepdims=True), 1)


def evaluate(rates: np.ndarray, prior: np.ndarray, rare: int) -> Line:
    """Return the mean F1 and the recall and precision of the rare class under a class balance (K,)."""
    hits = np.diag(rates) * prior
    coverage = prior @ rates
    precision = hits[rare] / coverage[rare] if coverage[rare] > 0 else 1.0  # no prediction breaks no bound
    f1 = (2 * hits / (coverage + prior)).mean()
    return {"f1": round(f1, 4), "recall": round(rates[rare, rare], 4), "precision": round(precision, 4)}


def measure_sentence(classifier: Any, deal: Deal, rows: Part, balance: np.ndarray, sentence: str, rare: int) -> Line:
    """Return the numbers of the rule as it was, adapted, and solved for the true balance."""
    from csst import InputError
    from csst.rules.fit import fit_evidence

    classifier = classifier.decide(sentence)
    rule = classifier.fit_.full_details.adjusted
    probs = classifier.predict_proba(deal.test.x)
    true_rule = fit_evidence(rule.evidence, rule.objective, balance, classifier.seed_).rule
    decisions = {"before": classifier.predict(deal.test.x)}
    decisions["true balance"] = np.array(deal.names)[true_rule.predict(probs).numpy()]
    try:
        decisions["adapted"] = classifier.adapt(rows.x).predict(deal.test.x)
    except InputError:
        decisions["adapted"] = decisions["before"]
    return {
        name: evaluate(count_rates(deal.test.y, answers, deal.names), balance, rare)
        for name, answers in decisions.items()
    }


def measure_same_classes(deal: Deal, cell: Line) -> Line:
    """Return what the monitor says without a shift, of another balance, and of other columns."""
    rng = np.random.default_rng([9001, cell["draw"]])
    classifier = make_classifier(cell["learner"], deal, cell["draw"])
    names = deal.names
    begin = time.process_time()
    alarm = not classifier.monitor(deal.new.x).is_explained
    seconds = time.process_time() - begin
    rows, balance = tilt_balance(deal, rng)
    seen = classifier.monitor(rows.x)
    low, high = seen.balance.interval()
    truth = np.array([(rows.y == c).mean() for c in names])
    rare = int(np.bincount(np.searchsorted(names, deal.test.y), minlength=len(names)).argmin())
    sentences = {"f1": MEAN_F1, "bounded": BOUNDED.format(r=str(names[rare]))}
    recall = np.diag(count_rates(deal.test.y, classifier.predict(deal.test.x), names)).min()
    changes = {}
    for change in CHANGES:
        changed_rows, changed_test = change_columns([deal.new, deal.test], change, rng)
        lowest = np.diag(count_rates(deal.test.y, classifier.predict(changed_test.x), names)).min()
        flag = not classifier.monitor(changed_rows.x).is_explained
        changes[change] = {"drop": round(float(recall - lowest), 4), "alarm": flag}
    return {
        "alarm": alarm,
        "seconds": round(seconds, 3),
        "balance": {
            "rows": len(rows.y),
            "alarm": not seen.is_explained,
            "inside": bool(((low <= truth) & (truth <= high)).all()),
            "error": round(float(np.abs(seen.balance.prior - truth).sum() / 2), 4),
            "width": round(float((high - low).mean()), 4),
            **{
                key: measure_sentence(classifier, deal, rows, balance, sentence, rare)
                for key, sentence in sentences.items()
            },
        },
        "columns": changes,
    }


def measure_no_shift(deal: Deal, cell: Line) -> Line:
    """Return whether new rows without a shift are flagged."""
    return {"alarm": not make_classifier(cell["learner"], deal, cell["draw"]).monitor(deal.new.x).is_explained}


def measure_new_class(deal: Deal, cell: Line) -> Line:
    """Return whether a class without labels and unlabeled rows is flagged among new rows."""
    import pandas
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng([9002, cell["draw"]])
    pool = Part(pandas.concat([deal.new.x, deal.test.x], ignore_index=True), np.append(deal.new.y, deal.test.y))
    counts = {c: int((pool.y == c).sum()) for c in deal.names}
    candidates = [c for c in deal.names if LEAST_NEW <= counts[c] < len(pool.y) / 2]
    if len(deal.names) < 3 or not candidates:
        return {"left out": True}
    name = str(rng.choice(candidates))
    strangers = np.flatnonzero(pool.y == name)
    others = np.flatnonzero(pool.y != name)
    number = min(len(strangers), int(NEW_SHARE / (1 - NEW_SHARE) * len(others)), int(NEW_SHARE * MOST_NEW))
    rows = pool.take(np.append(others[: round(number / NEW_SHARE) - number], strangers[:number]))
    smaller = Deal(deal.labeled.without(name), deal.unlabeled.without(name), rows, deal.test, deal.digest)
    classifier = make_classifier(cell["learner"], smaller, cell["draw"])
    seen = classifier.monitor(rows.x)
    is_new = rows.y == name
    forest = RandomForestClassifier(100, oob_score=True, random_state=0)
    forest.fit(classifier._rows(rows.x, reset=False), is_new)
    area = roc_auc_score(is_new, np.nan_to_num(forest.oob_decision_function_[:, 1]))
    strange_rows = is_new[seen.shift.strange_rows]
    return {
        "class": name,
        "rows": len(rows.y),
        "alarm": not seen.is_explained,
        "area": round(float(area), 3),
        "strange": round(float(strange_rows.mean()), 2) if len(strange_rows) else None,
    }


def measure_speed(cell: Line) -> Line:
    """Return CPU seconds for 10,000 rows of Gaussian classes: scoring, and what monitor and adapt take beyond it."""
    from csst import CSSTClassifier

    rng = np.random.default_rng([9003, cell["draw"]])
    columns, classes = 20, 5
    means = np.eye(columns)[:classes] * 2.5

    def draw_rows(number: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.choice(classes, number, p=[0.4, 0.3, 0.15, 0.1, 0.05])
        return means[y] + rng.normal(size=(number, columns)), y

    learner = None if cell["learner"] == "default" else cell["learner"]
    seconds: Line = {}
    for key, sentence in (("f1", MEAN_F1), ("bounded", BOUNDED.format(r=4))):
        classifier = CSSTClassifier(sentence, learner=learner).fit(*draw_rows(300), X_unlabeled=draw_rows(2000)[0])
        rows = draw_rows(10_000)[0]
        while not classifier.monitor(rows).is_explained:  # a false alarm, which adapt refuses
            rows = draw_rows(10_000)[0]
        steps: dict[str, Callable[[Any], Any]] = {
            "scoring": classifier.predict_proba,
            "monitor": classifier.monitor,
            "adapt": classifier.adapt,
        }
        for name, step in steps.items():
            begin = time.process_time()
            step(rows)
            seconds[f"{name}, {key}"] = time.process_time() - begin
        for name in ("monitor", "adapt"):
            seconds[f"{name}, {key}"] -= seconds[f"scoring, {key}"]
    return {name: round(value, 3) for name, value in seconds.items()}


def measure_cell(cell: Line, data_dir: Path | None, commit: str) -> Line:
    if cell["kind"] == "speed":
        return {"commit": commit, **measure_speed(cell)}
    deal = deal_rows(cell["set"], cell["labels"], cell["draw"], data_dir)
    ways = {"same classes": measure_same_classes, "new class": measure_new_class, "no shift": measure_no_shift}
    return {"commit": commit, "rows_hash": deal.digest, **ways[cell["kind"]](deal, cell)}


def list_cells(options: argparse.Namespace) -> Iterator[Line]:
    kinds = options.kinds.split(",")
    for draw in range(options.draws):
        if "speed" in kinds and draw < 3:
            yield {"learner": options.learner, "set": "Gaussians", "labels": 300, "draw": draw, "kind": "speed"}
        chosen_kinds = ("same classes", "new class") if draw < options.whole else ("no shift",)
        for labels in map(int, options.labels.split(",")):
            for name in options.sets.split(","):
                cell = {"learner": options.learner, "set": name, "labels": labels, "draw": draw}
                yield from (cell | {"kind": kind} for kind in chosen_kinds if kind in kinds)


# The page.


def summarize(lines: Iterable[Line]) -> dict[str, str]:
    """Return the numbers of some lines, by the heads of a table."""
    lines = [line for line in lines if "left out" not in line]
    same = [line for line in lines if line["kind"] == "same classes"]
    new = [line for line in lines if line["kind"] == "new class"]
    alarms = [line["alarm"] for line in lines if line["kind"] in ("same classes", "no shift")]
    balances = [line["balance"] for line in same]
    harms = [change for line in same for change in line["columns"].values() if change["drop"] >= HARM]
    losses = [each["f1"]["true balance"]["f1"] - each["f1"]["adapted"]["f1"] for each in balances]
    gains = [each["f1"]["adapted"]["f1"] - each["f1"]["before"]["f1"] for each in balances]
    met = {
        name: sum(each["bounded"][name]["precision"] >= 0.5 for each in balances)
        for name in ("before", "adapted", "true balance")
    }
    unlike = [line for line in new if line["area"] >= UNLIKE]
    return {
        "no shift: alarms": count_share(sum(alarms), len(alarms)),
        "balance: inside the interval": count_share(sum(each["inside"] for each in balances), len(same)),
        "alarms": count_share(sum(each["alarm"] for each in balances), len(same)),
        "mean F1, adapted − before": f"{np.mean(gains):+.3f}" if gains else "–",
        "− true balance": f"{-np.mean(losses):+.3f}" if losses else "–",
        "precision met before, adapted, true balance": ", ".join(map(str, met.values())) + f" of {len(same)}",
        "harmful columns: flagged": count_share(sum(change["alarm"] for change in harms), len(harms)),
        "new class: flagged": count_share(sum(line["alarm"] for line in new), len(new)),
        "unlike the others": count_share(sum(line["alarm"] for line in unlike), len(unlike)),
    }


def judge_targets(lines: list[Line]) -> list[list[str]]:
    """Return a row for every target: what is asked for, what was measured, whether it is met."""
    lines = [line for line in lines if "left out" not in line]
    same = [line for line in lines if line["kind"] == "same classes"]
    new = [line["alarm"] for line in lines if line["kind"] == "new class"]
    unlike = [line["alarm"] for line in lines if line["kind"] == "new class" and line["area"] >= UNLIKE]
    balances = [line["balance"] for line in same]
    harms = [c["alarm"] for line in same for c in line["columns"].values() if c["drop"] >= HARM]
    loss = np.mean([each["f1"]["true balance"]["f1"] - each["f1"]["adapted"]["f1"] for each in balances])
    met = [
        np.mean([each["bounded"][name]["precision"] >= 0.5 for each in balances])
        for name in ("adapted", "true balance")
    ]
    alarms = [line["alarm"] for line in lines if line["kind"] in ("same classes", "no shift")]
    inside = [each["inside"] for each in balances]
    rows = [
        (
            f"another balance, 10-fold: within its interval ≥ {IN_INTERVAL:.0%}",
            count_share(sum(inside), len(inside)),
            np.mean(inside) >= IN_INTERVAL,
        ),
        (f"adapted, mean F1: at most {F1_LOSS} below the true balance", f"{loss:.4f} below", loss <= F1_LOSS),
        (
            f"adapted, precision[r] ≥ .5: met as often as with the true balance − {100 * MET_LOSS:.0f} points",
            f"{met[0]:.1%}, {met[1]:.1%}",
            met[0] >= met[1] - MET_LOSS,
        ),
        (
            f"columns that lower the lowest recall by ≥ {HARM}: flagged ≥ {FLAGGED:.0%}",
            count_share(sum(harms), len(harms)),
            np.mean(harms) >= FLAGGED,
        ),
        (f"a new class: flagged ≥ {FLAGGED:.0%}", count_share(sum(new), len(new)), np.mean(new) >= FLAGGED),
        (
            f"the same, where it is unlike the others (area ≥ {UNLIKE})",
            count_share(sum(unlike), len(unlike)),
            np.mean(unlike) >= FLAGGED,
        ),
        (
            f"no shift: alarms ≤ {MOST_ALARMS:.0%}",
            count_share(sum(alarms), len(alarms)),
            np.mean(alarms) <= MOST_ALARMS,
        ),
    ]
    return [[asked, measured, "met" if is_met else "**missed**"] for asked, measured, is_met in rows]


def write_report(lines: list[Line]) -> str:
    parts = [
        "# New rows without labels",
        "What `monitor` and `adapt` make of new rows whose truth is known: ten real sets, dealt at random, and "
        "Gaussian classes for the time it takes. New rows, shifts and values are described in "
        "`benchmarks/quality/monitor.py`, which writes this page.",
    ]
    for learner, labels in dict.fromkeys((line["learner"], line["labels"]) for line in lines):
        chosen_lines = [line for line in lines if (line["learner"], line["labels"]) == (learner, labels)]
        chosen_lines = [line for line in chosen_lines if line["kind"] != "speed"]
        if not {"same classes", "new class"} <= {line["kind"] for line in chosen_lines}:
            continue
        words = "about 300 labels" if labels > LEAST_LABELS else f"{LEAST_LABELS} labels of every class"
        names = [name for name in SETS if any(line["set"] == name for line in chosen_lines)]
        rows = [[name, *summarize(line for line in chosen_lines if line["set"] == name).values()] for name in names]
        parts += [
            f"## {learner}, {words}",
            format_table(("asked for", "measured", ""), judge_targets(chosen_lines)),
            format_table(("set", *summarize(chosen_lines)), rows),
        ]
    speed = [line for line in lines if line["kind"] == "speed"]
    if speed:
        keys = [key for key in speed[0] if ", " in key]
        rows = []
        for learner in dict.fromkeys(line["learner"] for line in speed):
            medians = [np.median([line[key] for line in speed if line["learner"] == learner]) for key in keys]
            rows.append([learner, *(f"{value:.2f}" for value in medians)])
        parts += [
            "## Time",
            "CPU seconds for 10,000 new rows with 20 columns, 5 classes; `monitor` and `adapt` beyond scoring (asked "
            f"for: at most {SECONDS:g}); median of up to three runs on a shared machine.",
            format_table(("learner", *keys), rows),
        ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--whole", type=int, default=20, help="draws with all shifts")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--labels", default=",".join(map(str, LABELS)))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--learner", default="linear")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true", help="only write the page")
    options = parser.parse_args()
    log = Log(options.results / "monitor.jsonl", KEYS)
    lines = list(log.lines.values())
    if not options.report:
        commit = read_commit()
        lines = log.measure(list_cells(options), lambda cell: measure_cell(cell, options.data_dir, commit))
    page = options.results / "monitor.md"
    before = page.read_text(encoding="utf-8") if page.is_file() else ""
    _, mark, notes = before.partition("\n## What it says")  # written by hand
    write_results(page, write_report(lines) + mark + notes, MODULES, not options.report)


if __name__ == "__main__":
    main()

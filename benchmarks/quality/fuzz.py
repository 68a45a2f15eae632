"""Bad input by the million.

    python -m benchmarks.quality.fuzz [--sentences 1000000] [--recipes 20000] [--files 10000] [--tables 15000]
        [--runs 6000] [--seed 0]

Mutated and random objective sentences, recipes, data files, tables with what describes them, and runs with their models
and exports (`benchmarks/quality/fuzz_files.py`). Each must be accepted or refused with a sentence (`csst.InputError`),
and within two seconds. Prints one table; ends with code 1 and shows the input otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import csst
from benchmarks.quality.fuzz_files import damages, run_user, table_user, tables
from csst.data import Arrays
from csst.data.images.reading import Readers
from csst.data.text.files import read_label_words, read_table, read_texts
from csst.maths.confusion import Confusion
from csst.maths.costs import CostTable
from csst.maths.gain import gain_matrix
from csst.maths.grouped_confusion import GroupedConfusion
from csst.maths.language import ALIASES, Sentence
from csst.maths.objectives import payoff_of
from csst.recipes import RECIPES, from_dict, recipe

SENTENCES = [
    *ALIASES,
    *ALIASES.values(),
    "max mean(f1) s.t. recall['cat'] >= 0.3, 0.1 <= coverage <= 0.9, precision[2] >= 1e-2",
    'max 0.5*min(recall) + 0.5*hmean(each(recall, tail)) s.t. recall["a \\" b"] - recall[0] ≤ .1/K',
    "max -qmean(jaccard, recall[head]) + gmean(precision)/3 subject to accuracy >= 1/(K+1)",
    "max min(recall by region) s.t. recall['cat'] by region['north'] >= 70%, coverage by region <= 0.9",
    "maximize mean(recall) such that max(recall by region) - min(recall by region) <= 0.05",
    "max accuracy s.t. coverage['dog'] by region >= 0.8*max(coverage['dog'] by region) with confidence 0.95",
    "max mean(recall) s.t. precision['cat'] >= 0.9, recall >= 0.2 with confidence 0.9",
    "min abstain s.t. precision['cat'] >= 0.95, abstain['dog'] <= 0.2",
    "max min(recall) s.t. abstain <= 0.1",
    "min cost s.t. recall['cat'] >= 0.8, cost <= 3",
    "minimize fpr['cat'] s.t. fnr['cat'] < 0.1, fbeta(2)['dog'] > 20%",
    "max mcc + 0.1*balanced_accuracy s.t. macro_f1 >= 0.3, specificity >= 0.5, error <= 0.4",
]
TOKENS = ["max", "min", "mean(", "gmean(", "hmean(", "qmean(", "each(", "recall", "precision", "coverage", "f1", "K"]
TOKENS += ["accuracy", "jaccard", "head", "tail", "'cat'", '"dog"', "(", ")", "[", "]", ",", "+", "-", "*", "/", "**"]
TOKENS += ["s.t.", "subject to", ">=", "<=", "≥", "<", "==", "0", "1", "0.5", "1e-3", "1e999", ".5", "7", "99999999999"]
TOKENS += ["by", "by region", "region['north']", "with confidence", "0.95", "abstain", "cost", "mcc", "fbeta(2)", "90%"]
TOKENS += ["specificity", "fpr", "fnr", "error", "macro_f1", "maximize", "minimize", "such that", "max(", "min("]
CHARACTERS = "abKmx019 .,:;()[]{}'\"\\+-*/<>=≥_\n\t\x00é漢😀\u202e\ud800"
METRICS = ("recall", "precision", "coverage", "f1", "jaccard", "specificity", "fbeta(2)", "fpr")
NAMES = ("cat", "dog", 'a " b', "tail", "=1+1")
PLAIN = Confusion.from_counts(torch.tensor([[8, 1, 1, 0, 0]] * 5) + 5 * torch.eye(5, dtype=torch.int64))
#: costs of the classes, and rates of rows that two groups share
COSTS = CostTable(tuple(tuple(float(abs(i - j)) for j in range(5)) for i in range(5)), NAMES, "EUR")
GROUPED = GroupedConfusion.from_counts(torch.stack([counts := torch.eye(5) * 6 + 1, counts.flip(0) + 1]))
PRIOR = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05])
LONGEST = 2.0


# ── Inputs ──


def mutated(text: str, rng: random.Random) -> str:
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, to = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        kind = rng.randrange(7)
        if kind == 0:
            text = text[:at] + text[to:]
        elif kind == 1:
            text = text[:at] + rng.choice(CHARACTERS) + text[at:]
        elif kind == 2:
            text = text[:at] + chr(rng.randrange(0x110000)) + text[at + 1 :]
        elif kind == 3:
            text = text[:to] + text[at:to] * rng.choice((1, 2, 50)) + text[to:]
        elif kind == 4:
            other = rng.choice(SENTENCES)
            text = text[:at] + other[rng.randint(0, len(other)) :]
        elif kind == 5:
            text = text[:at] + rng.choice(TOKENS) + text[at:]
        else:
            text = text[:at] + rng.choice(("(" * 60, "-" * 60, "9" * 400, "[" * 9, "'", "1/" * 30)) + text[at:]
    return text[:5000]


def grown(rng: random.Random, depth: int = 0) -> str:
    """A random expression of the grammar; most have a meaning."""
    metric, name = rng.choice(METRICS), rng.choice(NAMES)
    if rng.random() < 0.1:
        metric += rng.choice([" by region", " by region['north']", " by sex"])
    kind = rng.randrange(3 if depth > 1 else 11)
    if kind == 0:
        return metric
    if kind == 1:
        return f"{metric}[{rng.choice([json.dumps(name, ensure_ascii=False), 'head', 'tail', rng.randrange(6)])}]"
    if kind == 2:
        number = rng.choice(["K", "accuracy", "0.5", "1", "mcc", "cost", "abstain", "20%", f"{rng.random():.3g}"])
        return f"each({metric}, tail)" if rng.random() < 0.15 else number
    if kind <= 6:
        inside = ", ".join(grown(rng, depth + 1) for _ in range(rng.choice((1, 1, 2, 3))))
        return f"{rng.choice(['mean', 'min', 'gmean', 'hmean', 'qmean'])}({inside})"
    if kind == 7:
        return f"-{grown(rng, depth + 1)}"
    return f"({grown(rng, depth + 1)} {rng.choice('+-*/')} {grown(rng, depth + 1)})"


def sentences(rng: random.Random) -> Iterator[str]:
    """Mutated sentences, sentences of the grammar, and both at once; some random words."""
    while True:
        kind = rng.random()
        if kind < 0.1:
            yield ("max " if rng.random() < 0.7 else "") + " ".join(rng.choices(TOKENS, k=rng.randint(0, 14)))
            continue
        text = rng.choice(SENTENCES)
        if kind < 0.6:
            goal = rng.choice([f"mean({grown(rng)})", f"0.5*min({grown(rng)}) + accuracy", grown(rng)])
            text = rng.choice(("max ", "max ", "min ")) + goal
            if rng.random() < 0.4:
                text += f" s.t. {grown(rng)} {rng.choice(('>=', '<='))} {grown(rng)}"
                text += rng.choice(("", "", "", " with confidence 0.9"))
        yield text if 0.3 < kind < 0.6 else mutated(text, rng)


VALUES: list[Any] = [None, True, 0, -1, 1, 10**30, 0.5, float("nan"), float("inf"), "", "csst", "x:y", [], [1], {}]
VALUES += [{"a": 1}, b"x", (1, 2), "max min(recall)", "\x00", {1: 2}, {None: None}]


def recipes(rng: random.Random) -> Iterator[Any]:
    known = [recipe(name).as_dict() for name in RECIPES]
    while True:
        made: Any = json.loads(json.dumps(rng.choice(known)))
        for _ in range(rng.randint(1, 3)):
            place = made
            while isinstance(place, dict) and place:
                key = rng.choice(list(place))
                if not isinstance(place[key], dict) or rng.random() < 0.3:
                    break
                place = place[key]
            if isinstance(place, dict):
                kind = rng.randrange(3)
                if kind == 0 and place:
                    place[rng.choice(list(place))] = rng.choice(VALUES)
                elif kind == 1:
                    place[rng.choice(["nope", "seed", 3, None, "name", ""])] = rng.choice(VALUES)
                elif place:
                    del place[rng.choice(list(place))]
        yield made if rng.random() < 0.95 else rng.choice(VALUES)


def seeds_of_files() -> dict[str, list[bytes]]:
    rng, npz, png, jpeg = np.random.default_rng(0), io.BytesIO(), io.BytesIO(), io.BytesIO()
    y = np.r_[np.arange(40) % 3, np.full(20, -1)]
    np.savez(npz, x=rng.normal(size=(60, 2)).astype(np.float32), y=y, class_names=np.array(["a", "b", "c"]))
    picture = Image.fromarray(rng.integers(0, 255, (20, 30, 3), dtype=np.uint8))
    picture.save(png, "PNG")
    picture.save(jpeg, "JPEG")
    table = b'text,label\n"good, really",yes\nbad,no\nfine,\n'
    lines = b'{"text": "good", "label": 1}\n{"text": "bad", "label": null}\n'
    return {
        "npz": [npz.getvalue()],
        "csv": [table, table.decode().encode("utf-16"), b"\xef\xbb\xbf" + table, b"text\n" + b"\xe9\n"],
        "jsonl": [lines, b"[" * 3000, b'{"text": 1e999, "label": NaN}\n', lines.decode().encode("utf-16-le")],
        "png": [png.getvalue(), jpeg.getvalue(), b"", table],
    }


def files(rng: random.Random) -> Iterator[tuple[str, bytes]]:
    known = seeds_of_files()
    while True:
        ending = rng.choice(list(known))
        data = bytearray(rng.choice(known[ending]))
        for _ in range(rng.randint(0, 6)):
            if not data:
                break
            at, kind = rng.randrange(len(data)), rng.randrange(4)
            if kind == 0:
                data[at] = rng.randrange(256)
            elif kind == 1:
                data = data[:at]
            elif kind == 2:
                data[at:at] = rng.choice((b"\x00", b'"', b"\n", b"\xff\xfe", b"\x80", b"9" * 30, b"[" * 2000))
            else:
                data[at : at + rng.randint(1, 20)] = b""
        yield ending, bytes(data)


# ── What is done with them ──


def use_sentence(text: str) -> None:
    made = csst.objective(text, costs=COSTS)
    again = csst.objective(str(made), costs=COSTS)
    if again != made:
        raise AssertionError(f"{made} is read back as {again}")
    bound = made.bind(5, NAMES).bind_prior(PRIOR)
    if isinstance(bound, Sentence) and bound.column is not None:
        grouped = bound.bind_row_groups(("north", "south"))
        if len(grouped.labels) not in (0, len(payoff_of(grouped, GROUPED))):
            raise AssertionError("labels and payoff of groups differ in number")
        bound = bound.ungrouped
    payoff = payoff_of(bound, PLAIN)
    if len(bound.labels) not in (0, len(payoff)):
        raise AssertionError("labels and payoff differ in number")
    gain_matrix(bound, bound.domain.start(len(payoff), 5), PLAIN, PRIOR)


def use_recipe(values: Any) -> None:
    made = from_dict(values)
    if from_dict(made.as_dict()) != made and "nan" not in str(made):
        raise AssertionError("a recipe is read back as another")


def file_user(folder: Path) -> Callable[[tuple[str, bytes]], None]:
    def use(given: tuple[str, bytes]) -> None:
        ending, data = given
        path = folder / f"file.{ending}"
        path.write_bytes(data)
        if ending == "npz":
            Arrays(str(path)).load(0)
        elif ending == "png":
            Readers().read([str(path)], 16)
        else:
            table = read_table(str(path))
            read_texts(table, "text", str(path))
            read_label_words(table.get("label", []))

    return use


def fuzz(name: str, inputs: Iterator[Any], use: Callable[[Any], None], count: int) -> tuple[str, int, int, float]:
    """Name, inputs, how many were accepted, and the longest time."""
    accepted, slowest = 0, 0.0
    for _ in range(count):
        given, begun = next(inputs), time.perf_counter()
        try:
            use(given)
            accepted += 1
        except csst.InputError:
            pass
        except BaseException:
            print(f"{name}: {given!r}", file=sys.stderr)
            raise
        took = time.perf_counter() - begun
        if took > slowest:
            slowest = took
            if took > LONGEST and not _quick(use, given):
                raise SystemExit(f"{name}: {given!r} took {took:.1f} s")
    return name, count, accepted, slowest


def _quick(use: Callable[[Any], None], given: Any) -> bool:
    """Whether it was the machine that was slow, and not the input."""
    begun = time.process_time()
    with contextlib.suppress(csst.InputError):
        use(given)
    return time.process_time() - begun < LONGEST


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=1_000_000)
    parser.add_argument("--recipes", type=int, default=20_000)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--tables", type=int, default=15_000)
    parser.add_argument("--runs", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rng = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder:
        done = [
            fuzz("tables, columns.json, costs.csv", tables(rng), table_user(Path(folder)), given.tables),
            fuzz("runs, models, exports", damages(rng), run_user(Path(folder)), given.runs),
            fuzz("data files", files(rng), file_user(Path(folder)), given.files),
            fuzz("recipes", recipes(rng), use_recipe, given.recipes),
            fuzz("objective sentences", sentences(rng), use_sentence, given.sentences),
        ]
    print("| input | tries | accepted | refused with a sentence | crashes | slowest |\n|---|---|---|---|---|---|")
    for name, count, accepted, slowest in done:
        print(f"| {name} | {count:,} | {accepted:,} | {count - accepted:,} | 0 | {slowest:.2f} s |")


if __name__ == "__main__":
    main()

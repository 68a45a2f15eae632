"""Folders of made-up runs, written as `csst train` writes them, so that a page can be made without training."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from matplotlib.figure import Figure

from csst.report.figures import svg

WRITE_SVG = svg.write_svg

XSS = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "$x_1^{2$",
    "_hidden",
    "a\"b'c&d",
    "漢字 \n é",
]


@contextmanager
def draw_figures() -> Iterator[None]:
    """Figures are written inside; elsewhere tests only paint them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(svg, "write_svg", WRITE_SVG)
        yield


class Corner(NamedTuple):
    """Where the axes of a panel begin."""

    x: float
    y: float


def read_limits(paint: Callable[[Any], None], *about: Any) -> list[Corner]:
    """Stands in for `draw`: paint, and return where the axes of every panel begin."""
    figure = Figure()
    paint(figure)
    return [Corner(axes.get_xlim()[0], axes.get_ylim()[0]) for axes in figure.axes]


def measured(counts: np.ndarray, bound: float | None) -> dict[str, Any]:
    """The numbers of metrics.json from confusion counts, on a balanced set."""
    rates = counts / counts.sum(1, keepdims=True)
    coverage = rates.mean(0)
    return {
        "accuracy": float(np.diag(counts).sum() / counts.sum()),
        "mean_recall": float(np.diag(rates).mean()),
        "min_recall": float(np.diag(rates).min()),
        "min_coverage": float(coverage.min()),
        "objective_value": float(np.diag(rates).mean()),
        "constraint_slack": [] if bound is None else (coverage - bound).tolist(),
        "recall": np.diag(rates).tolist(),
        "precision": (np.diag(rates) / np.maximum(rates.sum(0), 1e-9)).tolist(),
        "coverage": coverage.tolist(),
        "confusion": counts.astype(int).tolist(),
        "intervals": {
            "level": 0.95,
            "min_recall": {"low": 0.11, "high": 0.87},
            "recall": [{"low": max(0, r - 0.1), "high": min(1, r + 0.1)} for r in np.diag(rates)],
            "constraints": [
                {"constraint": f"coverage[{k}] >= {bound}", "slack": c - bound, "low": c - bound - 0.03, "high": c}
                for k, c in enumerate([] if bound is None else coverage.tolist())
            ],
        },
    }


def confusion(rng: np.random.Generator, classes: int, skill: float) -> np.ndarray:
    """100 examples of every class; later classes are recognized less often."""
    right = np.clip(100 * skill * np.linspace(1, 0.5, classes) + rng.normal(0, 4, classes), 1, 99).astype(int)
    counts = np.diag(right)
    for row in range(classes):
        for column in rng.choice([c for c in range(classes) if c != row], 100 - right[row]):
            counts[row, column] += 1
    return counts


def write_run(
    folder: Path,
    names: list[str] | int = 5,
    updates: int = 20,
    method: str = "csst-fixmatch",
    objective: str = "max mean(recall) s.t. coverage >= 0.95/K",
    seed: int = 0,
    skill: float = 0.9,
    finished: bool = True,
    posthoc: bool = False,
    truth: bool = True,
    warnings: tuple[str, ...] = (),
) -> Path:
    names = names if isinstance(names, list) else [f"class {n}" for n in range(names)]
    classes, rng = len(names), np.random.default_rng(seed)
    bound = 0.95 / classes if "coverage" in objective else None
    folder.mkdir(parents=True)
    recipe = {
        "name": "made-up",
        "method": method,
        "objective": objective,
        "seed": seed,
        "training": {"steps": 20 * updates},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True), encoding="utf-8")
    environment = {"csst": "0", "python": "3", "command": ["csst", "train", "made-up", "--out", "a b"]}
    (folder / "environment.json").write_text(json.dumps(environment), encoding="utf-8")
    end = confusion(rng, classes, skill)
    with (folder / "journal.jsonl").open("w", encoding="utf-8") as journal:
        for n in range(updates + 1 if updates else 0):
            grown = np.diag(end) / 100 * (1 - np.exp(-5 * n / updates))
            coverage = np.full(classes, 1 / classes) * (1 + rng.normal(0, 0.05, classes))
            record = {
                "step": 20 * n,
                "used": 0.8 * n / updates if n else None,
                "pseudo_accuracy": 0.9 if n and truth else None,
                "recall": np.clip(grown + rng.normal(0, 0.02, classes), 0, 1).round(4).tolist(),
                "coverage": coverage.round(5).tolist(),
                "value": 0.5,
                "slack": [] if bound is None else (coverage - bound).tolist(),
                "score": n / updates,
                "multipliers": rng.random(classes).round(4).tolist(),
                "payoff": rng.random(classes).round(4).tolist(),
                "step_size": 0.1,
            }
            journal.write(json.dumps(record) + "\n")
    if not finished:
        return folder
    metrics: dict[str, Any] = {
        "recipe": "made-up",
        "method": method,
        "objective": objective,
        "seed": seed,
        "steps": 20 * updates,
        "selected_step": 20 * (updates - 1),
        "seconds": 12.25,
        "split_hash": "abc123",
        "class_names": names,
        "labeled_counts": [max(1, round(1000 * 0.01 ** (n / max(1, classes - 1)))) for n in range(classes)],
        "unlabeled_count": 4000,
        "multipliers": {f"coverage['{name}'] >= 0.95/K": 0.1 for name in names},
        "facts": {},
        "validation": measured(confusion(rng, classes, skill), bound),
        "test": measured(end, bound),
        "warnings": list(warnings),
    }
    if posthoc:
        expected = measured(confusion(rng, classes, 0.93), bound)
        metrics["adjusted"] = {
            "value": expected["objective_value"],
            "bounds": [
                {"constraint": row["constraint"], "slack": row["slack"], "error": 0.01, "status": "unsure"}
                for row in expected["intervals"]["constraints"]
            ],
            "estimate": {"basis": "estimated from <i>7</i> labels"},
            "unadjusted": {"validation": metrics["validation"], "test": metrics["test"]},
            "sentence": "Adjusted <b>on validation</b> by cross-fitting.",
            "frontier_sentence": "No rule meets <all> constraints.",
            "validation": expected,
            "test": measured(confusion(rng, classes, 0.95), bound),
            "frontier": [
                {"mean_recall": 0.6 + 0.02 * n, "min_recall": 0.6 - 0.003 * n * n, "min_coverage": 0.1 - 0.004 * n}
                for n in range(12)
            ],
        }
    (folder / "metrics.json").write_text(json.dumps(metrics, indent=2), encoding="utf-8")
    return folder

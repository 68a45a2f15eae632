"""Time of the mathematics at K = 10, 100, 1000 classes, batch 512: python -m benchmarks.speed.maths

One run, side by side: medians of interleaved repeats, as ratios to a plain cross-entropy forward + backward of the
same shape. Writes benchmarks/results/maths.md.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

import csst
from benchmarks.results_check import write_results
from csst.selftraining import KLThreshold

#: modules of csst that are measured
MEASURED = ("maths",)

BATCH, REPEATS = 512, 41
SENTENCES = ("max min(recall)", "max mean(recall) s.t. coverage >= 0.95/K", "max mean(f1) s.t. recall >= 0.3")


def median_seconds(work: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Medians of interleaved repeats, so that a busy moment of the machine hits all of them alike."""
    seen: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, call in work.items():
            start = time.perf_counter()
            call()
            seen[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seen.items()}


def losses(classes: int) -> dict[str, float]:
    torch.manual_seed(0)
    prior = torch.softmax(torch.linspace(0, -4.6, classes, dtype=torch.float64), 0)
    full = csst.Multipliers(csst.objective("mean-recall-coverage"), prior).gain
    diagonal = csst.Multipliers(csst.objective("min-recall"), prior).gain
    logits = torch.randn(BATCH, classes, requires_grad=True)
    labels = torch.randint(classes, (BATCH,))
    soft = torch.softmax(torch.randn(BATCH, classes), 1)
    probs, index, select = torch.softmax(logits.detach(), 1), torch.arange(BATCH), KLThreshold(0.05)

    def plain() -> None:
        logits.grad = None
        F.cross_entropy(logits, labels).backward()

    def ours(target: torch.Tensor, gain: csst.Gain) -> Callable[[], None]:
        def step() -> None:
            logits.grad = None
            used = select(target, probs, gain, index)
            (used * csst.cost_sensitive_loss(logits, target, gain)).mean().backward()

        return step

    work: dict[str, Callable[[], object]] = {
        "cross_entropy": plain,
        "hard, full G": ours(labels, full),
        "hard, diagonal G": ours(labels, diagonal),
        "soft, full G": ours(soft, full),
        "soft, diagonal G": ours(soft, diagonal),
    }
    return median_seconds(work, REPEATS)


def updates(classes: int) -> dict[str, float]:
    prior = torch.softmax(torch.linspace(0, -4.6, classes, dtype=torch.float64), 0)
    confusion = csst.Confusion.from_counts(torch.rand(classes, classes) + torch.eye(classes))
    games = {sentence: csst.Multipliers(csst.objective(sentence), prior) for sentence in SENTENCES}
    work = {name: (lambda game=game: (game.update(confusion), game.gain.mixing)) for name, game in games.items()}
    return median_seconds(work, 5)


def main() -> None:
    lines = [
        "# The mathematics, timed",
        "",
        f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, batch {BATCH}, "
        f"medians of {REPEATS} interleaved repeats. Loss = loss + KL selector, forward + backward.",
        "",
        "| K | cross-entropy | hard, full G | hard, diagonal G | soft, full G | soft, diagonal G |",
        "|---|---|---|---|---|---|",
    ]
    for classes in (10, 100, 1000):
        times = losses(classes)
        base = times.pop("cross_entropy")
        lines.append(
            f"| {classes} | {base * 1e3:.2f} ms | " + " | ".join(f"{t / base:.2f}×" for t in times.values()) + " |"
        )
    lines += [
        "",
        "One multiplier update (payoff, λ, gain by autograd, M):",
        "",
        "| K | " + " | ".join(SENTENCES) + " |",
    ]
    lines.append("|---" * (len(SENTENCES) + 1) + "|")
    for classes in (10, 100, 1000):
        lines.append(f"| {classes} | " + " | ".join(f"{t * 1e3:.1f} ms" for t in updates(classes).values()) + " |")
    text = "\n".join(lines) + "\n"
    print(text)
    results = Path(__file__).parents[1] / "results"
    results.mkdir(exist_ok=True)
    write_results(results / "maths.md", text, MEASURED)


if __name__ == "__main__":
    main()

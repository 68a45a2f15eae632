"""Speed of a training step on a CPU, side by side: python -m benchmarks.speed.speed [--data-dir DIR] [--only wrn-10-1]

(a) our whole step against the naive FixMatch step (64 + 2×256 CIFAR images, Pillow views not counted, one concatenated
    forward, NCHW, default malloc), (b) our step against the bare forward and backward of the same images in the best
    known layout, (c) strong views against Pillow per image, (d) two processes against one, (e) peak memory against
    data size. Ratios are medians of interleaved repeats. Writes benchmarks/results/speed.md.

Each contestant runs in a process of its own, because malloc's settings belong to a process; they take turns.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.results_check import write_results

#: modules of csst that are measured
MEASURED = ("data/images", "maths/losses.py", "selftraining", "training")

LABELED, UNLABELED = 64, 256
REPEATS = {"wrn-10-1": 9, "wrn-28-2": 5}


def images(data_dir: str, count: int) -> np.ndarray:
    """CIFAR-10 pixels (N, 3, 32, 32), or crops of scikit-learn's photographs where there are none."""
    path = Path(data_dir) / "cifar10_pool.npz"
    if data_dir and path.is_file():
        return np.load(path)["x_train"][:count].transpose(0, 3, 1, 2).copy()
    from sklearn.datasets import load_sample_images

    photos, rng = load_sample_images().images, np.random.default_rng(0)
    at = [(photos[i % 2], rng.integers(0, 390), rng.integers(0, 600)) for i in range(count)]
    return np.stack([photo[y : y + 32, x : x + 32].transpose(2, 0, 1) for photo, y, x in at])


def naive_step(net: str, data_dir: str):
    """The step of the published codes: three batches in one forward with gradient, plain layout, nothing in place."""
    import csst.models.wide_resnet as network
    from csst.models import Model, build

    def activation(self, x):  # type: ignore[no-untyped-def]
        return F.leaky_relu(self.norm(x), self.slope)

    def block(self, x):  # type: ignore[no-untyped-def]
        active = self.act1(x)
        return self.shortcut(active if self.first else x) + self.conv2(self.act2(self.conv1(active)))

    network._Activation.forward, network._Block.forward = activation, block  # type: ignore[method-assign]
    pixels = torch.from_numpy(images(data_dir, LABELED + 2 * UNLABELED))
    model = build(Model(net), (3, 32, 32), 10, 0).train()
    optimizer = torch.optim.SGD(model.parameters(), 0.03, 0.9, nesterov=True, weight_decay=5e-4)
    average = {k: v.clone() for k, v in model.state_dict().items()}
    labels = torch.arange(LABELED) % 10

    def step() -> None:
        logits = model(pixels)
        supervised = F.cross_entropy(logits[:LABELED], labels)
        weak, strong = logits[LABELED:].chunk(2)
        confidence, target = torch.softmax(weak.detach(), 1).max(1)
        loss = supervised + (F.cross_entropy(strong, target, reduction="none") * (confidence >= 0.95)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                average[name].mul_(0.999).add_(value, alpha=0.001)

    return step


def bare_step(net: str, data_dir: str):
    """Forward and backward only, in the best layout known: the floor under any implementation."""
    from csst.models import Model, build
    from csst.training.engine import keep_freed_memory

    keep_freed_memory()
    pixels = torch.from_numpy(images(data_dir, LABELED + 2 * UNLABELED))
    model = build(Model(net), (3, 32, 32), 10, 0).train().to(memory_format=torch.channels_last)
    learned, weak = pixels[: LABELED + UNLABELED], pixels[LABELED + UNLABELED :]

    def step() -> None:
        with torch.no_grad():
            model(weak)
        model.zero_grad()
        model(learned).sum().backward()

    return step


def our_step(net: str, data_dir: str):
    """csst's whole step: sampling, views, losses, selection, SGD, EMA, tally."""
    from csst.data.images.views import Strong, Weak
    from csst.data.task import Labeled, Task
    from csst.models import Model, build
    from csst.training.trainer import Trainer

    pixels, labels = torch.from_numpy(images(data_dir, 2000)), torch.arange(2000) % 10
    part = Labeled(pixels[:200], labels[:200])
    task = Task(
        "speed", tuple("0123456789"), part, pixels, part, None, Weak(), Strong(), "image", unlabeled_truth=labels
    )
    trainer = Trainer(task, build(Model(net), (3, 32, 32), 10, 0), "min-recall", "csst")
    return trainer.train_step


CONTESTANTS = {"naive": naive_step, "bare": bare_step, "ours": our_step}


def serve(kind: str, net: str, data_dir: str) -> None:
    """A contestant's process: one timed step for every line that comes in."""
    torch.manual_seed(0)
    step = CONTESTANTS[kind](net, data_dir)
    for _ in range(2):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        step()
        print(time.perf_counter() - start, flush=True)


def race(net: str, data_dir: str, repeats: int, threads: int) -> dict[str, float]:
    """Median seconds per step of each contestant, taking turns."""
    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    runners = {
        kind: subprocess.Popen(
            [sys.executable, "-m", "benchmarks.speed.speed", "--serve", kind, "--net", net, "--data-dir", data_dir],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        for kind in CONTESTANTS
    }
    seen: dict[str, list[float]] = {kind: [] for kind in runners}
    for runner in runners.values():
        assert runner.stdout is not None
        runner.stdout.readline()
    for _ in range(repeats):
        for kind, runner in runners.items():
            assert runner.stdin is not None
            assert runner.stdout is not None
            runner.stdin.write("go\n")
            runner.stdin.flush()
            seen[kind].append(float(runner.stdout.readline()))
    for runner in runners.values():
        runner.communicate()
    return {kind: median(times) for kind, times in seen.items()}


def peak_memory(count: int) -> float:
    """Peak MB of a process that holds so many CIFAR-sized images and trains three steps on them."""
    code = (
        "import resource, torch\nfrom csst.data.images.views import Strong, Weak\n"
        "from csst.data.task import Labeled, Task\n"
        "from csst.models import Model, build; from csst.training.trainer import Trainer\n"
        f"x = torch.zeros({count}, 3, 32, 32, dtype=torch.uint8); y = torch.arange({count}) % 10\n"
        "part = Labeled(x[:200], y[:200])\n"
        "t = Task('m', tuple('0123456789'), part, x, part, None, Weak(), Strong(), 'image')\n"
        "trainer = Trainer(t, build(Model('wrn-10-1'), (3, 32, 32), 10, 0), 'min-recall', 'csst')\n"
        "[trainer.train_step() for _ in range(3)]\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def processes(data_dir: str, count: int) -> float:
    """Seconds per WRN-10-1 step of the same global batch, by one or two single-threaded processes."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    command = [sys.executable, *launcher, "-m", "benchmarks.speed.speed", "--serve-processes", "--data-dir", data_dir]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return float(done.stdout.strip().splitlines()[-1])


def serve_processes(data_dir: str) -> None:
    step = our_step("wrn-10-1", data_dir)
    times = []
    for _ in range(7):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    if os.environ.get("RANK", "0") == "0":
        print(median(times[2:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--only", choices=list(REPEATS), help="race this network only and write nothing")
    parser.add_argument("--serve", choices=list(CONTESTANTS), help=argparse.SUPPRESS)
    parser.add_argument("--serve-processes", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--net", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve(given.serve, given.net, given.data_dir)
    if given.serve_processes:
        return serve_processes(given.data_dir)
    threads = os.cpu_count() or 1
    lines = [
        "# Speed on a CPU",
        "",
        f"{platform.processor() or platform.machine()}, {threads} threads, torch {torch.__version__}; "
        f"{LABELED} + 2×{UNLABELED} images of 32×32, medians of interleaved repeats, one process each.",
        "",
        "| network | naive s/step | bare s/step | csst s/step | csst vs naive | overhead over bare | repeats |",
        "|---|---|---|---|---|---|---|",
    ]
    for net, repeats in REPEATS.items():
        if given.only in (None, net):
            t = race(net, given.data_dir, repeats, threads)
            ratio, overhead = t["naive"] / t["ours"], t["ours"] / t["bare"] - 1
            cells = [f"{t[k]:.3f}" for k in ("naive", "bare", "ours")]
            lines.append(f"| {net} | {' | '.join(cells)} | **{ratio:.2f}×** | {overhead:+.1%} | {repeats} |")
            print(lines[-1], flush=True)
    if given.only:
        return None
    from benchmarks.speed.views import measure  # benchmarks/speed/views.py, next to this file

    lines += ["", "| views, one thread | csst images/s | Pillow per image | ratio |", "|---|---|---|---|"]
    for name, row in measure(folder=Path(given.data_dir) if given.data_dir else None).items():
        lines.append(f"| {name} | {row['csst']:,.0f} | {row['pillow']:,.0f} | **{row['ratio']:.1f}×** |")
    one, two = processes(given.data_dir, 1), processes(given.data_dir, 2)
    lines += [
        "",
        f"Two processes of one thread against one, WRN-10-1, same global batch: **{one / two:.2f}×** the throughput.",
    ]
    sizes = {count: peak_memory(count) for count in (1000, 50_000, 200_000)}
    lines += ["", "| images in memory | their size | peak RSS |", "|---|---|---|"]
    lines += [f"| {n:,} | {n * 3072 / 2**20:.0f} MB | {mb:.0f} MB |" for n, mb in sizes.items()]
    text = "\n".join(lines) + "\n"
    print(text)
    write_results(Path(__file__).parents[1] / "results" / "speed.md", text, MEASURED)


if __name__ == "__main__":
    main()

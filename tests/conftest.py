"""One torch thread, no hypothesis deadline and no cache outside the tests, so that they run the same everywhere.

And no work that no test looks at: the same numbers are not computed again, intervals come from few draws.
"""

import gc
import os
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial

import pytest
import sklearn.datasets
import torch
import yaml
from hypothesis import settings

torch.set_num_threads(1)
# Virtual machines may announce AMX and end with "Illegal instruction" when bf16 uses it; read at the first convolution.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
settings.register_profile("csst", deadline=None)
settings.load_profile("csst")


# What is imported and collected stays: the garbage collector need not walk over it again and again.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _cache_of_the_tests(tmp_path_factory):
    os.environ["CSST_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True, scope="session")
def _little_work():
    with pytest.MonkeyPatch.context() as patch:
        leave_out_work(patch)
        yield patch


@pytest.fixture
def full_work(_little_work):
    """Everything is computed as users get it, for one test."""
    _little_work.undo()
    yield
    leave_out_work(_little_work)


def leave_out_work(patch):
    """Most of the time of a short run; tests of statistics, reports and learners take what they are about in full."""
    from csst.data.toy import Gaussians
    from csst.estimation import expectation
    from csst.learners import catalog
    from csst.report.figures import svg
    from csst.rules import trace_frontier

    patch.setattr(expectation, "DRAWS", 40)
    patch.setattr(catalog, "TREES", 10)  # of a forest, for 200
    patch.setattr(catalog, "PENALTIES", (0.1,))
    patch.setattr("csst.fitting.metrics.trace_frontier", trace_ends)
    patch.setattr("csst.cli.frontier.trace_frontier", partial(trace_frontier, steps=2))  # ends, for eleven points
    patch.setattr("csst.cli.train.report_page", lambda runs: "")  # drawn by `pages`
    patch.setattr(svg, "write_svg", lambda figure: "<svg></svg>")  # painted, and not written
    patch.setattr(Gaussians, "minimax", cache(Gaussians.minimax))  # 400 rounds for each task, always the same
    patch.setattr("lightning_fabric.fabric._load_external_callbacks", lambda group: [])  # looked for on the disk
    patch.setattr(sklearn.datasets, "load_digits", compute_once(sklearn.datasets.load_digits))
    patch.setattr(yaml, "safe_load", compute_once(yaml.safe_load))  # a run's settings, by every verb
    if not torch.cuda.is_available():  # torch would keep the stack of every seed, once per step, until there is
        patch.setattr(torch.cuda, "manual_seed_all", lambda seed: None)


@pytest.fixture(scope="module")
def pages():
    """Runs write their pages, for a module that looks at them."""
    from csst.report import report_page

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("csst.cli.train.report_page", report_page)
        yield


@pytest.fixture(scope="session")
def operators_read_once():
    """ONNX's operators, which torch reads anew for every export, half of the time of a small one."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib)))
        yield


def compute_once(function):
    """Return the function, computed once for the same arguments; every caller gets a copy."""
    compute = cache(function)
    return lambda *arguments, **options: deepcopy(compute(*arguments, **options))


def trace_ends(*arguments):
    """Return the frontier of a fit with the ends of one trade-off, out of three and one for each class.

    `tests/rules/test_frontier.py` and `tests/rules/test_trades.py` are about all of them.
    """
    from csst.rules import frontier

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontier, "trade_coverage", lambda steps: [])
        patch.setattr(frontier, "trade_precision", lambda low, high, steps: [])
        patch.setattr(frontier, "trace_classes", lambda evidence, prior: {})
        return frontier.trace_frontier(*arguments, steps=2)


@pytest.fixture
def short():
    """A recipe of twenty steps."""
    from csst.recipes import recipe

    base = recipe("toy")
    data = replace(base.data, labeled=90, unlabeled=120, validation=20, test=40)
    return replace(base, data=data, training=replace(base.training, steps=20))

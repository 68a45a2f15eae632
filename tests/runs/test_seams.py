"""Where one room hands a number to the next: the gain, the class balance and the prior are those of the run."""

from __future__ import annotations

import shutil
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import csst
from csst.comparison import compare
from csst.comparison.rows import Row
from csst.data.task import make_task
from csst.estimation.class_rates import estimate_rates
from csst.estimation.held_out_scores import HeldOutScores
from csst.fitting.export import Exportable, export
from csst.fitting.fitted_model import FittedModel
from csst.fitting.metrics import KeptEvidence, read_outputs, warn_about_balance
from csst.learners.network import Network
from csst.models.table import mlp
from csst.runs.execute import execute
from csst.runs.folder import Run
from tests.helpers import toys
from tests.helpers.comparisons import make_line
from tests.helpers.runs import QUICK
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

DEPLOYED = [0.1, 0.2, 0.7]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """A network trained under a gain, with a rule for another class balance than that of its labels."""
    place = tmp_path_factory.mktemp("seams") / "run"
    execute(replace(QUICK, rule="fit", deployment_prior=",".join(map(str, DEPLOYED))), place)
    return place


def test_another_objective_keeps_the_gain_and_the_balance_of_the_run(deployed):
    """What a rule sees before it weighs the classes does not depend on the sentence."""
    model = FittedModel.load(deployed)
    other = model.with_objective(deployed, "max mean(precision)")
    kept = read_outputs(deployed)
    probs = torch.softmax(kept.parts["validation"][0].double(), 1)
    inverse = kept.gain.softmax_inverse.double()
    assert float(inverse.max() / inverse.min()) > 1.05, "a gain that weighs all classes alike would show nothing"
    torch.testing.assert_close(other.rule.undo, inverse)
    # Calibrated on the same rows: T log p + d, where d holds the deployment prior.
    counts = torch.tensor(model.metrics["labeled_counts"]).double()
    evidence = kept.evidence(counts / counts.sum(), model.class_names)
    without_gain = probs * inverse
    without_gain = without_gain / without_gain.sum(1, keepdim=True)
    scores = (without_gain.log() - torch.from_numpy(evidence.train_prior).log()).numpy()
    calibrated = torch.from_numpy(evidence.calibration.apply(scores)) + torch.tensor(DEPLOYED).double().log()
    torch.testing.assert_close(other.rule.posterior(probs), torch.softmax(calibrated, 1), atol=1e-6, rtol=1e-6)


def test_later_rules_are_for_the_balance_of_the_runs_own_rule(deployed, tmp_path):
    """Estimated from unlabeled rows, it may differ from that of the network as selected."""
    place = tmp_path / "run"
    shutil.copytree(deployed, place)
    metrics = Run(place).metrics()
    assert metrics["adjusted"]["estimate"]["prior"] == pytest.approx(DEPLOYED)
    metrics["validation"]["estimate"]["prior"] = [0.5, 0.3, 0.2]
    Run(place).write_metrics(metrics)
    assert KeptEvidence.read(place).prior == pytest.approx(DEPLOYED)
    del metrics["adjusted"]
    Run(place).write_metrics(metrics)
    assert KeptEvidence.read(place).prior == pytest.approx([0.5, 0.3, 0.2]), "without a rule, the network's"


def test_head_and_tail_of_a_loaded_model_are_those_of_its_labels(tmp_path):
    """The rarest class is the first, so that the order of the classes does not tell."""
    x, labels = toys.sample(300, prior=[0.1, 0.3, 0.6])
    rows = np.stack([x, x**2], 1).astype(np.float32)
    task = make_task("toy", (rows[:100], labels[:100]), rows[100:], class_names=("a", "b", "c"))
    fitted = csst.fit(task, "linear", "max min(recall[head], recall[tail])")
    fitted.save(tmp_path / "mine")
    loaded = FittedModel.load(tmp_path / "mine").objective
    assert dict(loaded.binding.groups) == {"head": (1, 2), "tail": (0,)}
    assert loaded == fitted.objective


@pytest.mark.parametrize(("labeled", "gap"), [([0.5, 0.3, 0.2], 0.12), ([0.1, 0.3, 0.6], 0.52)])
def test_the_gap_between_two_balances_is_their_total_variation(labeled, gap):
    """Half of the sum of the differences: the fraction of the rows that would have to be of another class."""
    x, classes = toys.sample(200)
    evidence = HeldOutScores.from_probs(toys.probs(x), classes, toys.probs(x), train_prior=toys.PRIOR)
    decided = toys.plain(toys.probs(x))
    estimate = replace(
        estimate_rates(evidence, decided, decided, toys.PRIOR), unlabeled_prior=np.array([0.62, 0.28, 0.1])
    )
    balance, note = warn_about_balance(estimate, torch.tensor(labeled).double())
    assert balance["gap"] == pytest.approx(gap)
    assert balance["labeled"] == pytest.approx(labeled)
    assert balance["unlabeled_estimate"] == pytest.approx([0.62, 0.28, 0.1])
    assert (note is None) == (gap < 0.15)


def leave_behind(method, lr, step_size):
    """A network whose best weights are not its last: its task, the model, and the gain after every update."""
    gains = {}

    def remember(runner, record):
        gains[record.step] = runner.multipliers.gain.entries.clone()

    task = QUICK.data.load(0)
    # Without an average of the weights, large steps end where the worst recall is lower than it was.
    settings = replace(
        QUICK, training=replace(QUICK.training, lr=lr, ema=0.0), dual=replace(QUICK.dual, step_size=step_size)
    )

    def make():
        torch.manual_seed(0)
        return mlp(task.input_shape, task.classes, hidden=8, depth=1)

    fitted = csst.fit(task, Network(make, method, settings), "max min(recall)", on_record=remember)
    assert 0 < fitted.full_details.about["selected_step"] < fitted.full_details.about["steps"]
    return task, fitted, gains


def test_outputs_carry_the_gain_that_their_weights_were_trained_under():
    _, fitted, gains = leave_behind("csst", 0.3, 1.5)
    details = fitted.full_details
    before = details.about["selected_step"] - QUICK.dual.steps_per_update
    assert torch.equal(details.outputs.gain.entries.cpu(), gains[before].cpu())
    assert not torch.equal(gains[before], gains[details.about["steps"]])
    assert torch.equal(details.adjusted_outputs.gain.entries.cpu(), gains[details.about["steps"]].cpu())
    torch.testing.assert_close(fitted.rule.undo, details.adjusted_outputs.gain.softmax_inverse.double().cpu())


@pytest.mark.parametrize(("method", "lr", "step_size"), [("csst", 0.3, 1.5), ("la", 0.03, 0.5)])
def test_the_rule_is_fitted_to_the_scores_of_the_last_weights(method, lr, step_size):
    """The gain of la never changes, so that only the step tells which weights a score is of."""
    task, fitted, _ = leave_behind(method, lr, step_size)
    details = fitted.full_details
    scores = fitted.logits(task.validation.inputs)
    torch.testing.assert_close(details.adjusted_outputs.parts["validation"][0], scores)
    assert not torch.allclose(details.outputs.parts["validation"][0], scores, atol=1e-3)


def test_a_fit_in_python_says_early_that_constraints_are_out_of_reach():
    task = QUICK.data.load(0)
    settings = replace(QUICK, training=replace(QUICK.training, steps=20))
    learner = Network(lambda: mlp(task.input_shape, task.classes, hidden=8, depth=1), "csl", settings)
    with pytest.warns(UserWarning, match="at step 10 no decision rule on the network so far meets all constraints"):
        csst.fit(task, learner, "max mean(recall) s.t. recall >= 0.97", fits_rule=False)


class MeanEmbedding(torch.nn.Module):
    """Tokens to logits, whatever their number."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 3)

    def forward(self, tokens):
        return self.embedding(tokens).mean(1)


def test_an_exported_model_of_tokens_takes_texts_of_any_length(tmp_path):
    model = MeanEmbedding().eval()
    exportable = Exportable(model, torch.zeros(2, 5, dtype=torch.int64), ("a", "b", "c"), None, {})
    path = export(exportable, tmp_path / "model.pt2", "torch-export")[0]
    loaded = torch.export.load(path).module()
    tokens = torch.arange(21).reshape(3, 7) % 10
    torch.testing.assert_close(loaded(tokens)[0], torch.softmax(model(tokens), 1), check_dtype=False)


@pytest.mark.parametrize(("cores", "jobs", "threads"), [(2, 4, 1), (8, 4, 2), (None, 2, 1)])
def test_the_processes_of_a_comparison_share_the_cores(monkeypatch, cores, jobs, threads):
    given = {}

    class Pool:
        """Carries out nothing, and remembers how its processes would begin."""

        def __init__(self, workers, initargs=(), **_):
            given.update(workers=workers, threads=initargs[0])

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def submit(self, function, run):
            future = Future()
            future.set_result(None)
            return future

    monkeypatch.setattr(compare, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    run = compare.PlannedRun(Row("erm", "erm", "max min(recall)"), QUICK, Path("a-run"))
    assert list(compare._carry_out([run], jobs)) == [("a-run", None)]
    assert given == {"workers": jobs, "threads": threads}


def test_the_constraint_that_is_missed_most_counts():
    row = make_line("erm", [0.5, 0.6, 0.7], slacks=[[0.2, -0.3, -0.1], [0.1, 0.0, 0.2], [-0.1, 0.4, 0.0]])
    assert [result.missed for result in row.results] == [0.3, 0.0, 0.1]
    assert row.missed == pytest.approx(0.4 / 3)

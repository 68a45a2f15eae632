"""The gain is solved for: exact answers on Gaussians, late classes, wrong posteriors, and the trainer around it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

import csst
from csst.data.task import make_task
from csst.errors import InputError
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.domains import Domain
from csst.maths.gain import Gain
from csst.models import mlp
from csst.selftraining import METHODS
from csst.settings import Dual, Selection, Settings, Training
from csst.training.crossfit import CrossFit
from csst.training.solved_multipliers import (
    AveragedGain,
    Solver,
    deal_judges,
    decide,
    find_reason_to_hold,
    limit_distance,
    measure_trust,
    mix,
    parameters_of_gain,
    parameters_of_rule,
    simplify,
)
from csst.training.trainer import Trainer
from tests.helpers import toys
from tests.helpers.estimators import blobs
from tests.helpers.trainers import DIGITS, SMALL, lines, trainer

SOLVE = replace(SMALL, dual=replace(SMALL.dual, update="solve"))
EVEN = np.full(3, 1 / 3)
PRIOR = torch.from_numpy(toys.PRIOR)
UPDATES = ("gradient", "solve", "fixed")
SENTENCES = [
    "max min(recall)",
    "max mean(recall) s.t. coverage >= 0.095",
    "max min(recall[head], recall[tail]) s.t. accuracy >= 0.5",
    "max mean(f1)",
]


def evidence_of(rows, gain, distort=lambda z: z, seed=0):
    """What a network that answers the gain exactly shows: softmax = norm(G^T p), with the gain taken out again."""
    x, y = toys.sample(rows, EVEN, seed)
    more, _ = toys.sample(2 * rows, toys.PRIOR, seed + 1)

    def network(places):
        likelihood = distort(-0.5 * (places[:, None] - toys.MEANS) ** 2)
        return torch.softmax(torch.from_numpy(likelihood) + PRIOR.log() + gain.diagonal.log(), 1)

    def taken_out(places):
        return gain.posterior(network(places))

    return HeldOutScores.from_probs(taken_out(x), y, taken_out(more), train_prior=toys.PRIOR)


def play(sentence, rows=2000, updates=6, share=0.5, **options):
    """Multipliers after updates against such a network, and the classes it predicts for probabilities p."""
    objective = csst.objective(sentence).bind(3)
    game = csst.Multipliers(objective, toys.PRIOR)
    solver = Solver(game, torch.from_numpy(EVEN), farthest=4.0)
    for _ in range(updates):
        solver.move(game, solver.solve(evidence_of(rows, game.gain, **options)), share)
    return game, lambda p: (torch.from_numpy(p) @ game.gain.matrix).argmax(1).numpy()


def best_by_brute_force(value):
    """The largest value of recall and coverage, (pairs, 3) each, over pairs of thresholds: all good rules on a line."""
    cuts = np.linspace(-0.5, 5.0, 111)
    below = np.stack([np.interp(cuts, toys.GRID, np.cumsum(toys.DENSITY[:, k])) for k in range(3)], 1)
    first, second = np.triu_indices(len(cuts))
    rates = np.stack([below[first], below[second] - below[first], 1 - below[second]], 2)  # (pairs, truth, prediction)
    return value(np.diagonal(rates, axis1=1, axis2=2), rates.mean(1)).max()


def test_a_worst_case_converges_to_the_minimax_weights():
    game, decisions = play("max min(recall)", rows=3000, updates=8)
    assert toys.lowest_recall(decisions) == pytest.approx(toys.best_lowest_recall(), abs=0.01)
    # At the boundaries of the minimax rule the weighted densities of neighbors are alike: this is lambda.
    recall = toys.best_lowest_recall()
    first = np.interp(recall, np.cumsum(toys.DENSITY[:, 0]), toys.GRID)
    second = np.interp(1 - recall, np.cumsum(toys.DENSITY[:, 2]), toys.GRID)
    logs = np.array([0.0, first * (toys.MEANS[0] - toys.MEANS[1]) + toys.MEANS[1] ** 2 / 2, 0.0])
    logs[2] = logs[1] + second * (toys.MEANS[1] - toys.MEANS[2]) + (toys.MEANS[2] ** 2 - toys.MEANS[1] ** 2) / 2
    expected = np.exp(logs) / np.exp(logs).sum()
    assert game.value.tolist() == pytest.approx(expected.tolist(), rel=0.15)
    assert game.gain.diagonal.numpy() * toys.PRIOR == pytest.approx(
        game.value.numpy() * float((game.gain.diagonal * PRIOR).sum()), rel=1e-6
    )


def test_bounds_on_coverage_are_met_at_the_best_value():
    bound = 0.32
    _, decisions = play(f"max mean(recall) s.t. coverage >= {bound}")
    c = csst.Confusion(torch.from_numpy(toys.rates_of(decisions)), torch.from_numpy(EVEN))

    def value(recall, coverage):
        return np.where(coverage.min(1) >= bound, recall.mean(1), -1.0)

    assert float(c.coverage.min()) >= bound - 0.01
    assert float(c.recall.mean()) == pytest.approx(best_by_brute_force(value), abs=0.01)


def test_f1_comes_within_five_thousandths_of_brute_force():
    _, decisions = play("max mean(f1)")
    c = csst.Confusion(torch.from_numpy(toys.rates_of(decisions)), torch.from_numpy(EVEN))

    def mean_f1(recall, coverage):
        return (2 * EVEN * recall / (EVEN + coverage)).mean(1)

    assert float(c.f1.mean()) > best_by_brute_force(mean_f1) - 0.005


def test_posteriors_that_are_wrong_do_not_make_a_class_collapse():
    """Three times too sure of itself, and biased by class."""
    _, decisions = play("max min(recall)", distort=lambda z: 3 * z + np.array([2.0, 0.0, -2.0]))

    def network(p):
        likelihood = np.log(p / toys.PRIOR)
        return decisions(np.exp(3 * likelihood + np.array([2.0, 0.0, -2.0])) * toys.PRIOR)

    assert toys.lowest_recall(network) > toys.best_lowest_recall() - 0.03


def play_late(update):
    """The lowest recall over time of a network that confuses class 2 with class 1 until update 20."""
    objective = csst.objective("max min(recall)").bind(3)
    game = csst.Multipliers(objective, toys.PRIOR, waits=update == "wait")
    solver = Solver(game, torch.from_numpy(EVEN), farthest=2.0)
    lowest = []
    for t in range(30):

        def network(z, is_late=t < 20):
            return np.stack([z[:, 0], z[:, 1], z[:, 1] - 8], 1) if is_late else z

        evidence = evidence_of(300, game.gain, network)
        logits = evidence.scores + np.log(game.gain.diagonal.numpy() * toys.PRIOR)
        c = csst.Confusion.from_predictions(evidence.labels, logits.argmax(1), 3)
        lowest.append(float(c.recall.min()))
        if update == "solve":
            solver.move(game, solver.solve(evidence), 0.3)
        else:
            game.update(c, 0.5)
    return lowest


def test_a_class_that_arrives_late_makes_the_gradient_overshoot_and_the_solution_not():
    by_gradient, by_waiting, solved = (play_late(update) for update in ("gradient", "wait", "solve"))
    assert by_gradient[20] < 0.2, "lambda has run to the class that could not be learned, and others are lost"
    assert min(by_gradient[20:26]) < 0.3
    assert min(solved[20:]) > 0.75
    assert min(by_waiting[20:]) > 0.7


def test_a_rule_with_offsets_has_the_gain_to_which_it_is_the_best_response():
    from csst.estimation.calibration import Calibration
    from csst.rules.candidates import Candidate

    rng = np.random.default_rng(0)
    scores, prior = rng.normal(size=(500, 4)) * 2, np.array([0.4, 0.3, 0.2, 0.1])
    train_prior = np.array([0.1, 0.2, 0.3, 0.4])
    calibration = Calibration(1.0, np.array([0.3, -0.1, 0.2, -0.4]))
    matrix = rng.uniform(0.5, 1.5, (4, 4)) + 2 * np.eye(4)
    shapes = ({"scale": np.array([1.0, 2.0, 0.5, 3.0])}, {"scale": matrix}, {"bias": np.array([1.0, -1.0, 0.5, 0.0])})
    for shape in shapes:
        offset = np.array([0.1, 0.4, 0.0, 0.2])
        rule = Candidate("pooled", calibration, prior, offset=None if "bias" in shape else offset, **shape)
        parameters = parameters_of_rule(rule)
        np.testing.assert_array_equal(decide(parameters, scores), rule.decide(scores))
        game = csst.Multipliers(csst.objective("max min(recall)"), train_prior)
        weights = np.exp(parameters) if parameters.ndim == 1 else parameters
        game.adopt(torch.from_numpy(weights), game.value)
        posterior = torch.softmax(torch.from_numpy(scores + np.log(train_prior)), 1)
        answer = (posterior @ game.gain.matrix).argmax(1).numpy()
        np.testing.assert_array_equal(answer, rule.decide(scores))
        back = parameters_of_gain(game.gain, game.train_prior)
        np.testing.assert_array_equal(decide(back, scores), rule.decide(scores))


def test_a_gain_that_differs_by_constants_of_rows_is_simplified_to_a_diagonal():
    weights = np.diag([1.0, 2.0, 4.0])
    shifted = weights + np.array([[0.5], [0.1], [3.0]])
    expected = np.log([1.0, 2.0, 4.0]) - np.log([1.0, 2.0, 4.0]).mean()
    np.testing.assert_allclose(simplify(shifted), expected)
    assert simplify(weights + np.array([0.0, 0.5, 0.1])).ndim == 2


def test_trust_is_one_minus_the_spread_over_the_squared_distance():
    parts = [np.array([1.0, 0.0, -1.0]), np.array([1.2, 0.0, -1.2]), np.array([0.8, 0.0, -0.8])]
    target, start = np.array([1.0, 0.0, -1.0]), np.zeros(3)
    assert measure_trust(target, parts, start) == pytest.approx(1 - (2 / 3 * 0.16) / 2)
    assert measure_trust(0.1 * target, parts, start) == 0.0
    assert measure_trust(start, parts, start) == 0.0
    matrices = [np.eye(3) / np.eye(3).mean(), *(np.diag(np.exp(p)) for p in parts)]
    assert 0 < measure_trust(np.diag([3.0, 1.0, 0.2]), matrices[:2], start) < 1


def test_no_class_goes_farther_than_the_limit():
    start = np.array([0.5, 0.0, -0.5])
    np.testing.assert_allclose(limit_distance(np.array([4.5, 0.0, -0.6]), start, 2.0), [2.5, 0.0, -0.6])
    far = np.diag([30.0, 1.0, 1.0]) + 0.1
    near = limit_distance(far, np.zeros(3), 1.0)
    logs = np.log(np.diag(near) / np.diag(near).mean())
    assert np.abs(logs).max() < 1.3
    np.testing.assert_allclose(limit_distance(near, near, 1.0), near)


def test_mixing_goes_part_of_the_way_in_logarithms_or_in_decision_scores():
    np.testing.assert_allclose(mix(np.zeros(2), np.array([1.0, -1.0]), 0.3), [0.3, -0.3])
    mixed = mix(np.zeros(2), np.array([[2.0, 1.0], [0.0, 1.0]]), 0.5)
    np.testing.assert_allclose(mixed, (np.eye(2) / 0.5 + np.array([[2.0, 1.0], [0.0, 1.0]])) / 2)


def test_the_averaged_gain_is_averaged_as_the_weights_are():
    first, second = Gain(torch.tensor([1.0, 4.0])), Gain(torch.tensor([9.0, 1.0]))
    averaged = AveragedGain(Gain(torch.ones(2)), 0.75)
    averaged.update(first)
    torch.testing.assert_close(averaged.gain.diagonal, first.diagonal.double())
    for _ in range(3):
        averaged.update(second)
    kept = 0.75**3
    logs = kept * np.log([1.0, 4.0]) + (1 - kept) * np.log([9.0, 1.0])
    assert float(averaged.gain.diagonal.log().diff()) == pytest.approx(logs[1] - logs[0])
    whole = Gain(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
    before = torch.diag(averaged.entries) / averaged.entries.sum() * 4
    averaged.update(whole)
    torch.testing.assert_close(averaged.entries, 0.75 * before + 0.25 * whole.entries.double() / 1.5)
    other = AveragedGain(Gain(torch.ones(2)), 0.75)
    other.load_state_dict(averaged.state_dict())
    assert torch.equal(other.entries, averaged.entries)


@pytest.mark.parametrize(
    ("probs", "labels", "reason"),
    [
        (np.full((30, 3), 1 / 3), np.arange(30) % 3, "same for every row"),
        (np.random.default_rng(0).dirichlet(np.ones(3), 90), np.arange(90) % 3, "no information"),
    ],
)
def test_nothing_moves_while_scores_say_nothing(probs, labels, reason):
    game = csst.Multipliers(csst.objective("max min(recall)"), toys.PRIOR)
    solver = Solver(game, torch.from_numpy(EVEN), 2.0)
    before = game.gain.diagonal.clone()
    solution = solver.solve(HeldOutScores.from_probs(probs, labels, train_prior=toys.PRIOR))
    assert reason in solution.hold
    solver.move(game, solution, 0.5)
    assert torch.equal(game.gain.diagonal, before)


def test_nothing_moves_while_a_class_has_no_judged_label():
    game = csst.Multipliers(csst.objective("max min(recall)"), toys.PRIOR)
    x, y = toys.sample(90)
    evidence = HeldOutScores.from_probs(toys.probs(x), y, train_prior=toys.PRIOR)
    solution = Solver(game, torch.from_numpy(EVEN), 2.0).solve(evidence.part(np.flatnonzero(y != 2)))
    assert solution.hold == "a class has no judged label"


def test_few_labels_move_the_gain_less_than_many():
    def solve(rows, seed):
        game = csst.Multipliers(csst.objective("max min(recall)"), toys.PRIOR)
        return Solver(game, torch.from_numpy(EVEN), 4.0).solve(evidence_of(rows, game.gain, seed=seed)).trust

    few = np.mean([solve(12, seed) for seed in range(8)])
    assert few < 0.75 * np.mean([solve(2000, seed) for seed in range(2)])


def test_a_goal_on_one_class_starts_from_accuracy():
    """Its own gain at the first multipliers calls every row that class, and no network learns scores under it."""
    game = csst.Multipliers(csst.objective("max recall[1] s.t. precision[1] >= 0.5").bind(3), toys.PRIOR)
    assert game.gain.diagonal.max() > 10 * game.gain.diagonal.min()
    Solver(game, torch.from_numpy(EVEN), 2.0)
    torch.testing.assert_close(game.gain.diagonal, torch.ones(3, dtype=torch.float64))


def test_groups_report_the_weight_of_their_classes():
    game = csst.Multipliers(csst.objective("min-ht-recall"), torch.full((10,), 0.1))
    weights = torch.arange(1.0, 11.0)
    game.adopt(weights, game.value)
    tail = weights[9] / weights.sum()
    assert game.value.tolist() == pytest.approx([1 - float(tail), float(tail)])
    torch.testing.assert_close(game.gain.diagonal, 10 * weights.double())


def test_an_objective_that_has_no_rule_is_refused_before_training():
    class Ball(Domain):
        """Multipliers that neither weigh a worst case nor price a constraint."""

        def start(self, size, classes):
            return torch.full((size,), 0.1, dtype=torch.float64)

        def step(self, multipliers, payoff, step_size):
            return multipliers

        def contains(self, multipliers):
            return True

        def worst(self, payoff):
            return payoff.sum()

        def slack(self, payoff):
            return payoff[:0]

    class Own(csst.Objective):
        domain = Ball()

        def utility(self, c):
            return c.recall.mean()

        def payoff(self, c):
            return c.recall

    with pytest.raises(InputError, match="needs worst cases"):
        trainer("csst", Own(), SOLVE)
    trainer("csst", Own())


# The trainer around it


def test_the_solved_gain_is_the_one_trained_under_and_lambda_says_so():
    training = trainer("csst", "min-recall", replace(SOLVE, training=replace(SOLVE.training, steps=50)))
    start = training.multipliers.gain.diagonal.clone()
    records = list(training.run())
    assert not torch.equal(training.multipliers.gain.diagonal, start)
    assert records[0].hold
    assert any(record.trust for record in records)
    weights = training.multipliers.gain.diagonal * training.multipliers.train_prior
    torch.testing.assert_close(training.multipliers.value, weights / weights.sum())
    assert records[-1].multipliers == records[-2].multipliers, "nothing moves after the last step"


def test_the_first_move_is_the_share_of_the_solution_from_where_lambda_starts():
    longer = replace(SOLVE.training, steps=50, lr=0.1)
    settings = replace(SOLVE, training=longer, dual=replace(SOLVE.dual, warmup=0, share=0.4))
    training = trainer("csst", "min-recall", settings)
    for _ in range(25):
        training.train_step()
    before = parameters_of_gain(training.multipliers.gain, training.multipliers.train_prior)
    solution = training.solve_multipliers(training.measurer.measure(training.watched, training.balance_rows))
    assert np.abs(solution.parameters[0] - before).max() > 0.01
    training.update_multipliers()
    after = parameters_of_gain(training.multipliers.gain, training.multipliers.train_prior)
    np.testing.assert_allclose(after, before + 0.4 * (solution.parameters[0] - before), atol=1e-9)


def test_fixed_multipliers_never_move_and_warm_up_delays_the_first_move():
    for dual in (Dual(10, update="fixed"), Dual(10, step_size=0.5, warmup=30)):
        training = trainer("csst", "min-recall", replace(SMALL, dual=dual))
        start = training.multipliers.gain.diagonal.clone()
        for record in training.run():
            assert record.multipliers == [0.1] * 10
        assert torch.equal(training.multipliers.gain.diagonal, start)


def test_a_method_with_a_fixed_gain_has_nothing_to_solve_for():
    for name in ("la", "fixmatch"):
        training = trainer(name, "min-recall", SOLVE)
        assert training.updates.solver is None
        assert [record.trust for record in training.run()] == [None] * 4
    own = csst.ConstantGain(torch.eye(10) + 0.1)
    assert trainer("csst", own, SOLVE).updates.solver is None


def test_what_is_measured_has_the_averaged_gain_taken_out():
    settings = replace(SOLVE, dual=replace(SOLVE.dual, warmup=0), training=replace(SOLVE.training, steps=50))
    training = trainer("csst", "min-recall", settings)
    seen = []
    for record in training.run():
        seen.append(training.multipliers.gain.diagonal.clone())
        if record.step == 30:
            break
    kept = 0.6**5
    logs = [gain.log() for gain in seen]
    expected = logs[0]
    for gain in logs[1:-1]:
        expected = kept * expected + (1 - kept) * gain
    result = training.measured_gain.diagonal.log()
    torch.testing.assert_close(result - result.mean(), expected - expected.mean())
    list(training.run())
    torch.testing.assert_close(training.best.gain, training.measured_gain.entries)
    assert training.best.step == 50, "the last model is kept"


@pytest.mark.parametrize(("goal", "stop"), [("min-recall", 1), ("max mean(f1)", 3)])
def test_a_solved_run_resumes_to_the_bit(goal, stop):
    settings = replace(SOLVE, training=replace(SOLVE.training, steps=40))
    whole = trainer("csst-balanced", goal, settings)
    expected = lines(whole.run())
    first = trainer("csst-balanced", goal, settings)
    second = trainer("csst-balanced", goal, settings)
    records = []
    for record in first.run():
        records.append(record)
        if len(records) == stop + 1:
            break
    first.train_step()  # between two updates
    second.load_state_dict(first.state_dict())
    assert lines([*records, *second.run()]) == expected
    assert torch.equal(whole.multipliers.gain.matrix, second.multipliers.gain.matrix)
    assert torch.equal(whole.measured_gain.matrix, second.measured_gain.matrix)


def test_folds_solve_once_and_follow_the_same_gain():
    def model():
        torch.manual_seed(0)
        return mlp((6,), 3, hidden=8, depth=1)

    X, y = blobs(150)
    X = X + 2 * np.random.default_rng(3).normal(size=X.shape).astype(np.float32)
    task = make_task("blobs", (X[:90], y[:90]), X[90:], (X[:3], y[:3]))
    settings = Settings(
        training=Training(steps=60, ema=0.8, lr=0.1), dual=Dual(10, update="solve"), selection=Selection("last")
    )
    run = CrossFit(task, model, "max min(recall)", "csst", settings, seed=0, folds=3)
    moved = False
    for record in run.run():
        moved = moved or record.multipliers != [1 / 3] * 3
        for made in run.trainers:
            assert made.multipliers.value.tolist() == pytest.approx(record.multipliers)
    assert moved


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_objective_and_update_trains_a_few_steps(name):
    """One method with every objective under every update; the others with one objective per update."""
    follows = METHODS[name].gain_follows == "objective"
    pairs = list(itertools.product(UPDATES, SENTENCES if follows else SENTENCES[:1]))
    if follows and name != "csst-fixmatch":
        first = list(METHODS).index(name)
        pairs = [(update, SENTENCES[(first + n) % len(SENTENCES)]) for n, update in enumerate(UPDATES)]
    task = DIGITS.load(0)
    for update, sentence in pairs:
        settings = Settings(training=Training(3, 16, 32, lr=0.05), dual=Dual(2, update=update, warmup=0))
        training = Trainer(task, mlp(task.input_shape, task.classes, 16, 1), sentence, name, settings)
        records = list(training.run())
        assert [record.step for record in records] == [0, 2, 3]
        assert all(np.isfinite(record.value) for record in records)
        assert torch.isfinite(training.multipliers.gain.matrix).all()


def test_multipliers_hold_still_if_no_label_can_be_left_out():
    """Two labels may be in one fold; without it there would be none."""
    probs = np.array([[0.9, 0.1], [0.2, 0.8]])
    evidence = HeldOutScores.from_probs(probs, np.array([0, 1]))
    assert len(set(deal_judges(evidence.labels))) == 1
    assert find_reason_to_hold(evidence) == "there are too few judged labels to leave any out"
    more_evidence = HeldOutScores.from_probs(np.repeat(probs, 4, 0), np.repeat([0, 1], 4))
    assert find_reason_to_hold(more_evidence) == ""

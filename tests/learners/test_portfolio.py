"""Several learners as one: who scores whom, what is taken out, calibrated, averaged and left out."""

from __future__ import annotations

import numpy as np
import pytest

from csst.estimation.calibration import Calibration, fit_calibration
from csst.estimation.held_out_scores import MOST_UNLABELED
from csst.learners.forest import Forest
from csst.learners.linear import Linear
from csst.learners.portfolio import SPREAD_ROWS, LabeledRows, _Scored, drop_worse, fit_portfolio
from tests.helpers.toys import probs, sample
from tests.learners.samples import Spy, gaussians, member_of, numbered, portfolio_of, soften, table_of

#: classes of 31 numbered rows; the last class has a single label
LABELS = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 3], [16, 10, 4, 1]))
ALONE = int(np.flatnonzero(LABELS == 3)[0])
#: scores of 1,000 numbered rows
NOISE = np.random.default_rng(0).normal(size=(1000, 4))


def noisy(strength, seed=0):
    """Answers that lean to the truth, different for every row and every fit."""

    def answer(model, ids):
        rng = np.random.default_rng([seed, model.number])
        noise = rng.normal(size=(1000, 4))[ids % 1000]
        return noise + strength * np.eye(4)[LABELS[ids % len(LABELS)]]

    return answer


def answers(spy, ids):
    """Out-of-fold scores as the spy's fits gave them, one fit per row, without the prior of what that fit learned."""
    out = np.zeros((len(ids), 4))
    for position, row in enumerate(ids):
        (model,) = spy.scored_by([row])[:1]
        out[position] = soften(model.answer(np.array([row])))[0] - np.log(fractions(model.labels))
    return out


def fractions(labels):
    return np.array([sum(label == k for label in labels) / len(labels) for k in range(max(labels) + 1)])


def spread_of(model, ids):
    """How far a model's answers are from the means of their row and of their class, by plain loops."""
    logs = soften(model.answer(np.asarray(ids)))
    rows = [[value - sum(row) / len(row) for value in row] for row in logs.tolist()]
    means = [sum(row[k] for row in rows) / len(rows) for k in range(len(rows[0]))]
    squares = [(value - mean) ** 2 for row in rows for value, mean in zip(row, means, strict=True)]
    return (sum(squares) / len(squares)) ** 0.5


def growth_of(spy, ids):
    """By how much the answers of the last model are farther apart than those of the models of folds."""
    return spread_of(spy.fits[-1], ids) / np.mean([spread_of(model, ids) for model in spy.fits[:-1]])


def balanced_loss(scores, labels):
    """The mean over classes of the mean log-loss of calibrated scores, by plain loops."""
    calibration = fit_calibration(scores, labels)
    logs = soften(calibration.temperature * scores + calibration.bias)
    per_class = [[-logs[i, k] for i in range(len(labels)) if labels[i] == k] for k in range(scores.shape[1])]
    return float(np.mean([np.mean(losses) for losses in per_class]))


def weigh_by_evidence(calibrated, labels):
    """exp(-t/2) of each member's calibrated scores, t the standard errors by which its loss is above the lowest."""
    n, classes = len(labels), max(labels) + 1
    losses = []
    for scores in calibrated:
        logs = soften(scores)
        sizes = [n / (classes * sum(label == k for label in labels)) for k in range(classes)]
        losses.append([-logs[i, label] * sizes[label] for i, label in enumerate(labels)])
    best = min(losses, key=np.mean)
    weights = []
    for own in losses:
        apart = [a - b for a, b in zip(own, best, strict=True)]
        lag = sum(apart) / n
        error = (sum((a - lag) ** 2 for a in apart) / (n - 1)) ** 0.5 / n**0.5
        weights.append(np.exp(-lag / error / 2) if lag > 0 else 1.0)
    return [weight / sum(weights) for weight in weights]


def test_labeled_rows_are_scored_by_models_that_did_not_learn_from_them():
    spy, n = Spy(noisy(1.0)), len(LABELS)
    fit_portfolio([[spy]], LabeledRows(numbered(n), LABELS), numbered(9, start=500))
    *crossed, last = spy.fits
    assert len(crossed) == 5
    unlabeled = list(range(500, 509))
    assert all(model.asked[1:] == [unlabeled] for model in crossed), "how far apart their scores are"
    assert sorted(row for model in crossed for row in model.asked[0]) == list(range(n)), "every labeled row once"
    for model in crossed:
        held = set(model.asked[0])
        assert held & set(model.learned.tolist()) <= {ALONE}
        assert held | set(model.learned.tolist()) == set(range(n)), "a row was neither learned from nor scored"
        assert ALONE in model.learned, "the only label of a class is always learned from"
        assert set(model.labels.tolist()) == {0, 1, 2, 3}
        assert (model.labels == LABELS[model.learned]).all()
        assert len(held) <= 10, "the folds are uneven"
    assert last.learned.tolist() == list(range(n)), "the model that is used has learned from all labels"
    assert last.asked == [unlabeled, unlabeled], "unlabeled rows are scored by the model that is used"


def test_evidence_holds_what_the_models_that_had_not_seen_a_row_said():
    spy, n = Spy(noisy(1.0)), len(LABELS)
    portfolio, evidence = fit_portfolio([[spy]], LabeledRows(numbered(n), LABELS), numbered(9, start=500))
    prior = fractions(LABELS)
    scores = answers(spy, range(n))
    calibration = fit_calibration(scores, LABELS)
    (member,) = portfolio.members
    assert member.model is spy.fits[-1]
    temperature = calibration.temperature / growth_of(spy, range(500, 509))
    assert member.temperature == pytest.approx(temperature, abs=1e-9)
    np.testing.assert_allclose(member.bias, calibration.bias, atol=1e-9)
    assert member.loss == pytest.approx(balanced_loss(scores, LABELS), abs=1e-9)
    wanted = soften(calibration.temperature * scores + calibration.bias)
    np.testing.assert_allclose(soften(evidence.scores), wanted, atol=1e-8)
    assert (evidence.labels == LABELS).all()
    np.testing.assert_allclose(evidence.train_prior, prior, atol=1e-12)
    np.testing.assert_allclose(evidence.labeled_prior, prior, atol=1e-12)
    new = soften(spy.fits[-1].answer(np.arange(500, 509))) - np.log(prior)
    wanted = soften(temperature * new + calibration.bias)
    np.testing.assert_allclose(soften(evidence.unlabeled_scores), wanted, atol=1e-8)


def test_a_model_of_all_labels_is_no_surer_than_those_of_folds():
    """Answers that grow with the labels learned from: the portfolio brings them to the scale that was calibrated."""

    def answer(model, ids):
        strength = 2.0 if len(model.learned) == len(LABELS) else 1.0
        return strength * NOISE[ids] + np.log(fractions(model.labels))

    n = len(LABELS)
    spy = Spy(answer)
    portfolio, evidence = fit_portfolio([[spy]], LabeledRows(numbered(n), LABELS), numbered(400, start=500))
    scores = NOISE[500:900]  # as a model of a fold would have them
    calibration = fit_calibration(answers(spy, range(n)), LABELS)
    assert portfolio.members[0].temperature == pytest.approx(calibration.temperature / 2, rel=0.01)
    expected = soften(calibration.apply(scores))
    np.testing.assert_allclose(soften(evidence.unlabeled_scores), expected, atol=0.02)
    assert np.abs(soften(calibration.apply(2 * scores)) - expected).max() > 0.5, "the growth must matter for this test"


@pytest.mark.parametrize("judge", ["no unlabeled rows", "validation", "constant scores"])
def test_scores_keep_their_scale_where_nothing_else_can_be_known(judge):
    n = len(LABELS)
    spy = Spy((lambda model, ids: np.zeros((len(ids), 4))) if judge == "constant scores" else noisy(1.0))
    validation = LabeledRows(numbered(n), LABELS) if judge == "validation" else None
    unlabeled = numbered(0 if judge == "no unlabeled rows" else 9, start=500)
    portfolio, _ = fit_portfolio([[spy]], LabeledRows(numbered(n), LABELS), unlabeled, validation)
    scores = answers(spy, range(n))
    if judge == "validation":
        scores = soften(spy.fits[0].answer(np.arange(n))) - np.log(fractions(LABELS))
    assert portfolio.members[0].temperature == pytest.approx(fit_calibration(scores, LABELS).temperature)


def test_the_class_prior_is_taken_out():
    """Exact posteriors under the labels' balance: what is left is the posterior under a uniform one, hardly changed."""
    x, y = sample(1500)
    prior = np.bincount(y) / len(y)
    spy = Spy(lambda model, ids: np.log(probs(x[ids], prior)))
    portfolio, evidence = fit_portfolio([[spy]], LabeledRows(numbered(1500), y), numbered(0))
    (member,) = portfolio.members
    assert member.bias.abs().max() < 0.25, "the bias has to make up for the prior"
    assert 0.85 < member.temperature < 1.15
    uniform = probs(x, np.ones(3) / 3)
    np.testing.assert_allclose(np.exp(soften(evidence.scores)), uniform, atol=0.1)
    scores = portfolio.log_probs(numbered(1500)) - np.log(prior)
    np.testing.assert_allclose(np.exp(soften(scores)), uniform, atol=0.1)
    np.testing.assert_allclose(portfolio.probs(numbered(1500)), probs(x, prior), atol=0.1)
    assert np.abs(probs(x, prior) - uniform).max() > 0.25


def test_members_are_calibrated_and_averaged_by_what_the_labels_say_of_them():
    spies, n = [Spy(noisy(1.2, seed), f"spy {seed}") for seed in (1, 2, 3)], len(LABELS)
    portfolio, evidence = fit_portfolio(
        [[spy] for spy in spies], LabeledRows(numbered(n), LABELS), numbered(9, start=500)
    )
    assert [one.name for one in portfolio.members] == ["spy 1", "spy 2", "spy 3"]
    assert portfolio.left_out == {}
    prior, wanted, more = fractions(LABELS), np.zeros((n, 4)), np.zeros((9, 4))
    calibrated = [fit_calibration(scores, LABELS).apply(scores) for scores in (answers(spy, range(n)) for spy in spies)]
    weights = weigh_by_evidence(calibrated, LABELS)
    assert [one.weight for one in portfolio.members] == pytest.approx(weights)
    assert max(weights) > 1.2 * min(weights)
    for spy, weight in zip(spies, weights, strict=True):
        scores = answers(spy, range(n))
        calibration = fit_calibration(scores, LABELS)
        new = soften(spy.fits[-1].answer(np.arange(500, 509))) - np.log(prior)
        growth = growth_of(spy, range(500, 509))
        for k in range(4):
            for i in range(n):
                wanted[i, k] += (calibration.temperature * scores[i, k] + calibration.bias[k]) * weight
            for i in range(9):
                more[i, k] += (calibration.temperature / growth * new[i, k] + calibration.bias[k]) * weight
    np.testing.assert_allclose(soften(evidence.scores), soften(wanted), atol=1e-8)
    np.testing.assert_allclose(soften(evidence.unlabeled_scores), soften(more), atol=1e-8)
    logs = portfolio.log_probs(numbered(9, start=500))
    np.testing.assert_allclose(logs, soften(more + np.log(fractions(LABELS))), atol=1e-8)
    found = portfolio.probs(numbered(9, start=500))
    np.testing.assert_allclose(found, np.exp(soften(more + np.log(prior))), atol=1e-8)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-12)


def scored(name, losses):
    return _Scored(Spy(None, name), np.zeros((len(losses), 2)), Calibration.identity(2), np.asarray(losses))


def test_a_member_worse_by_less_than_three_standard_errors_is_kept():
    rng = np.random.default_rng(0)
    best, noise = rng.random(100), rng.normal(size=100)
    noise = (noise - noise.mean()) / noise.std(ddof=1)  # its mean has a standard error of 0.1
    near, far = scored("near", best + 0.29 + noise), scored("far", best + 0.31 + noise)
    kept, left_out = drop_worse([far, scored("best", best), near])
    assert [one.learner.name for one in kept] == ["best", "near"]
    assert [one.learner.name for one in left_out] == ["far"]
    twin, certain = scored("twin", best), scored("certain", best + 1e-3)
    kept, left_out = drop_worse([scored("best", best), twin, certain])
    assert [one.learner.name for one in kept] == ["best", "twin"]
    assert [one.learner.name for one in left_out] == ["certain"], "worse on every row by the same is clearly worse"
    kept, left_out = drop_worse([scored("a", [1.0]), scored("b", [9.0])])
    assert (len(kept), left_out) == (2, []), "one row proves nothing"


def test_a_member_that_is_clearly_worse_is_left_out_and_named():
    good, bad, n = Spy(noisy(4.0), "good"), Spy(noisy(0.0), "bad"), len(LABELS)
    portfolio, evidence = fit_portfolio([[bad], [good]], LabeledRows(numbered(n), LABELS), numbered(9, start=500))
    assert [one.name for one in portfolio.members] == ["good"]
    assert list(portfolio.left_out) == ["bad"]
    alone, same = fit_portfolio([[Spy(noisy(4.0), "good")]], LabeledRows(numbered(n), LABELS), numbered(9, start=500))
    np.testing.assert_array_equal(evidence.scores, same.scores)
    np.testing.assert_array_equal(evidence.unlabeled_scores, same.unlabeled_scores)
    assert alone.left_out == {}


def look(labels, looks):
    """Answers by class: one of the rows of scores that the class has, drawn once."""
    rng = np.random.default_rng(0)
    scores = np.array([looks[label][rng.integers(len(looks[label]))] for label in labels], dtype=float)
    return lambda model, ids: scores[ids]


def test_variants_are_judged_by_the_balanced_loss():
    labels = np.repeat([0, 1, 2], [450, 450, 100])
    one, two, either, rare = [3, 0, 0], [0, 3, 0], [3, 3, 0], [0, 0, 3]
    heads = Spy(look(labels, {0: [one], 1: [two], 2: [one, two]}), "tells the heads apart")
    tail = Spy(look(labels, {0: [either], 1: [either], 2: [rare]}), "tells the tail apart")
    prior = fractions(labels)
    scores = {spy.name: soften(spy.answer(None, np.arange(1000))) - np.log(prior) for spy in (heads, tail)}
    balanced = {name: balanced_loss(z, labels) for name, z in scores.items()}
    assert balanced["tells the tail apart"] < balanced["tells the heads apart"] - 0.1
    plain = {}
    for name, z in scores.items():
        found = fit_calibration(z, labels)
        plain[name] = -soften(found.apply(z))[np.arange(1000), labels].mean()
    assert plain["tells the heads apart"] < plain["tells the tail apart"] - 0.1, "the two losses must disagree here"
    for variants in ([heads, tail], [tail, heads]):
        portfolio, _ = fit_portfolio([variants], LabeledRows(numbered(1000), labels), numbered(0))
        assert [one.name for one in portfolio.members] == ["tells the tail apart"]
        assert portfolio.left_out == {}, "a variant that was not chosen is no member that was left out"
        assert portfolio.members[0].loss == pytest.approx(balanced["tells the tail apart"], abs=1e-9)
        assert portfolio.members[0].weight == 1


def test_variants_that_are_about_as_good_share_the_weight_of_their_member():
    named = ((1, "two"), (2, "two"), (3, "alone"))
    spies, n = [Spy(noisy(6.0, seed), name) for seed, name in named], len(LABELS)
    bad = Spy(noisy(-3.0, 4), "two")  # leans away from the truth
    members = [[spies[0], bad, spies[1]], [spies[2]]]
    portfolio, evidence = fit_portfolio(members, LabeledRows(numbered(n), LABELS), numbered(9, start=500))
    scores_of_all = [answers(spy, range(n)) for spy in spies]
    first, second, alone = (fit_calibration(scores, LABELS).apply(scores) for scores in scores_of_all)
    of_two, of_alone = weigh_by_evidence([(first + second) / 2, alone], LABELS)
    weights = [of_two / 2, of_two / 2, of_alone]
    assert [one.name for one in portfolio.members] == ["two", "two", "alone"]
    assert [one.weight for one in portfolio.members] == pytest.approx(weights)
    assert portfolio.names == ("two", "alone")
    assert portfolio.left_out == {}
    wanted = np.zeros((n, 4))
    for scores, weight in zip(scores_of_all, weights, strict=True):
        calibration = fit_calibration(scores, LABELS)
        for i in range(n):
            for k in range(4):
                wanted[i, k] += weight * (calibration.temperature * scores[i, k] + calibration.bias[k])
    np.testing.assert_allclose(soften(evidence.scores), soften(wanted), atol=1e-8)


def test_rows_are_scored_in_pieces(monkeypatch):
    spy = Spy(noisy(1.0))
    portfolio, _ = fit_portfolio([[spy]], LabeledRows(numbered(len(LABELS)), LABELS), numbered(0))
    whole = portfolio.log_probs(numbered(10))
    monkeypatch.setattr("csst.learners.protocol.CHUNK", 4)
    np.testing.assert_array_equal(portfolio.log_probs(numbered(10)), whole)
    assert [len(asked) for asked in spy.fits[-1].asked] == [10, 4, 4, 2]


def test_threads_give_the_same_portfolio():
    X, y = gaussians(80)
    new, _ = gaussians(40, seed=1)
    members = [[Linear(table_of(X)), Linear(table_of(X), 1.0)], [Forest(trees=5)]]
    one, two = (fit_portfolio(members, LabeledRows(X, y), new, n_jobs=n)[0] for n in (1, 2))
    np.testing.assert_array_equal(one.log_probs(new), two.log_probs(new))


def test_variants_are_chosen_out_of_fold():
    """One that remembers what it has learned is perfect in sample, and says nothing out of it."""

    def remember(model, ids):
        return 9.0 * np.eye(4)[LABELS[ids]] * np.isin(ids, model.learned)[:, None]

    memory, honest = Spy(remember, "memory"), Spy(noisy(8.0), "honest")
    portfolio, _ = fit_portfolio([[memory, honest]], LabeledRows(numbered(len(LABELS)), LABELS), numbered(0))
    assert [one.name for one in portfolio.members] == ["honest"]


def test_a_validation_set_takes_the_place_of_folds():
    n, held = len(LABELS), np.array([0, 1, 2, 3, 0, 1, 2, 3, 0])
    two, spy = Spy(noisy(2.0, 1), "two"), Spy(noisy(2.0), "one")
    portfolio, evidence = fit_portfolio(
        [[spy], [two]],
        LabeledRows(numbered(n), LABELS),
        numbered(5, start=900),
        LabeledRows(numbered(9, start=500), held),
    )
    for one in (spy, two):
        assert len(one.fits) == 2
        assert all(model.learned.tolist() == list(range(n)) for model in one.fits)
        assert [model.asked for model in one.fits] == [[list(range(500, 509))], [list(range(900, 905))]]
    assert (evidence.labels == held).all()
    prior, wanted = fractions(LABELS), np.zeros((9, 4))  # of the labels that are learned from
    np.testing.assert_allclose(evidence.train_prior, prior, atol=1e-12)
    scores_of_both = [soften(one.fits[0].answer(np.arange(500, 509))) - np.log(prior) for one in (spy, two)]
    calibrated = [fit_calibration(scores, held).apply(scores) for scores in scores_of_both]
    weights = weigh_by_evidence(calibrated, held)
    assert [member.weight for member in portfolio.members] == pytest.approx(weights)
    for member, scores, own, weight in zip(portfolio.members, scores_of_both, calibrated, weights, strict=True):
        wanted += weight * own
        assert member.loss == pytest.approx(balanced_loss(scores, held), abs=1e-9)
    np.testing.assert_allclose(soften(evidence.scores), soften(wanted), atol=1e-8)


def test_not_all_of_many_unlabeled_rows_enter_the_evidence():
    many, n = MOST_UNLABELED + 700, len(LABELS)
    unlabeled, chosen = numbered(many, start=1000), []
    for seed in (0, 0, 1):
        spy = Spy(lambda model, ids: np.stack([ids % 7, ids % 5, ids % 3, ids % 2], 1) / 7.0)
        portfolio, evidence = fit_portfolio([[spy]], LabeledRows(numbered(n), LABELS), unlabeled, seed=seed)
        spread, asked = spy.fits[-1].asked
        assert set(spread) <= set(asked)
        assert len(spread) == SPREAD_ROWS
        assert max(spread) > 1000 + MOST_UNLABELED / 2
        assert len(asked) == len(set(asked)) == len(evidence.unlabeled_scores) == MOST_UNLABELED
        assert set(asked) <= set(range(1000, 1000 + many))
        assert max(asked) > 1000 + MOST_UNLABELED, "the first rows are no random choice"
        logs = portfolio.log_probs(np.array(asked, dtype=float)[:20, None])
        wanted = logs - np.log(fractions(LABELS))
        np.testing.assert_allclose(soften(evidence.unlabeled_scores[:20]), soften(wanted), atol=1e-8)
        chosen.append(asked)
    assert chosen[0] == chosen[1] != chosen[2]
    few = Spy(noisy(1.0))
    _, evidence = fit_portfolio([[few]], LabeledRows(numbered(n), LABELS), numbered(0))
    assert evidence.unlabeled_scores.shape == (0, 4)
    assert few.fits[-1].asked == []


def test_the_same_seed_gives_the_same_portfolio():
    X, y = gaussians(80)
    new, _ = gaussians(40, seed=1)
    found = []
    for seed in (3, 3, 4):
        members = [[Linear(table_of(X))], [Forest(trees=5)]]
        portfolio, evidence = fit_portfolio(members, LabeledRows(X, y), new, seed=seed)
        found.append((evidence.scores, evidence.unlabeled_scores, portfolio.log_probs(new)))
    assert all((one == two).all() for one, two in zip(found[0], found[1], strict=True))
    assert all((one != two).any() for one, two in zip(found[0], found[2], strict=True))
    spy = Spy(noisy(1.0))
    fit_portfolio([[spy]], LabeledRows(numbered(len(LABELS)), LABELS), numbered(0), seed=11)
    assert {model.seed for model in spy.fits} == {11}


def test_scores_of_a_portfolio_by_plain_loops():
    models = [Spy(noisy(1.0, seed)).fit(numbered(3), LABELS[:3]) for seed in (0, 1)]
    calibrations = [Calibration(2.0, np.array([0.1, -0.1, 0.3, -0.3])), Calibration(0.5, np.array([0.0, 1, -1, 0]))]
    members = [
        member_of(model, "m", calibration.temperature, calibration.bias, weight)
        for model, calibration, weight in zip(models, calibrations, (0.7, 0.3), strict=True)
    ]
    prior = np.array([0.4, 0.3, 0.2, 0.1])
    found = portfolio_of(*members, prior=prior).log_probs(numbered(6))
    for i in range(6):
        logs = [soften(model.answer(np.arange(6)))[i] for model in models]
        scores = []
        for k in range(4):
            one = 2.0 * (logs[0][k] - np.log(prior[k])) + calibrations[0].bias[k]
            two = 0.5 * (logs[1][k] - np.log(prior[k])) + calibrations[1].bias[k]
            scores.append(0.7 * one + 0.3 * two + np.log(prior[k]))
        np.testing.assert_allclose(found[i], soften([scores])[0], atol=1e-12)

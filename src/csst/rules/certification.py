"""A fitted model judged on fresh labels: its bounds are certified, refuted, or undecided so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from csst.data.row_hashes import count_seen
from csst.errors import InputError
from csst.estimation.held_out_scores import check_labels
from csst.maths.language import Sentence
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.rules.betting import Bets, Decision, Verdict, choose_share, decide, place_bets
from csst.rules.claims import Claim, read_claims
from csst.rules.fresh_labels import state_prior

#: where neither the sentence nor the argument says one
CONFIDENCE = 0.95
#: unlabeled rows in the batch of each label
BATCH = 20


@dataclass(frozen=True)
class Certification:
    """What fresh labels say about the bounds of a sentence.

    Args:
        verdict: certified, refuted or undecided.
        sentence: the verdict in words.
        confidence: confidence of the verdict.
        labels: after how many labels it was reached, or how many there are.
        more: about how many more would decide, if things are as they look; None once decided or if nothing bears on it.
        wealth: the largest wealth of who bets on each bound; a bound is proved at 1 / (1 - confidence).
    """

    verdict: Verdict
    sentence: str
    confidence: float
    labels: int
    more: int | None
    wealth: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Expectation:
    """What the model expects of rows, to take noise out of their labels; see `Bets.adjust`.

    Args:
        posterior: class probabilities of the labeled rows, (n, K).
        unlabeled_posterior: class probabilities of unlabeled rows of that population, unused by the fit, (m, K).
        unlabeled_predictions: predictions of the rule for these rows, (m,).
        judged_posterior: class probabilities of rows that are not bet on, such as the labels of the fit, (N, K).
        judged_labels: their classes, (N,).
        judged_predictions: predictions of the rule for these rows, (N,).
    """

    posterior: np.ndarray
    unlabeled_posterior: np.ndarray
    unlabeled_predictions: np.ndarray
    judged_posterior: np.ndarray
    judged_labels: np.ndarray
    judged_predictions: np.ndarray


def read_certified(
    objective: Objective | str,
    confidence: float | None,
    model_objective: Objective,
    class_names: Sequence[str],
    row_groups: Sequence[str] = (),
) -> Sentence:
    """Return the sentence that is to be certified, bound to the classes.

    Args:
        objective: a sentence, or only its bounds.
        confidence: None for what the sentence says, or else 0.95.
        model_objective: objective of the model, which knows groups of classes.
        class_names: K names.
        row_groups: names of the groups of rows, for a sentence about groups.

    Returns:
        The sentence with a confidence.
    """
    sentence = read_objective(complete_sentence(objective), confidence=confidence)
    if isinstance(sentence, Sentence):
        groups = dict(model_objective.binding.groups) if isinstance(model_objective, Sentence) else None
        sentence = sentence.bind(len(class_names), class_names, groups)
        if sentence.column is not None:
            if not row_groups:
                raise InputError(f"'{sentence}' needs the {sentence.column} of every row: pass group=...")
            sentence = sentence.bind_row_groups(row_groups)
        read_claims(sentence)  # a sentence without bounds is refused before a default confidence is
        return sentence if sentence.confidence is not None else replace(sentence, confidence=CONFIDENCE)
    raise InputError(f"only the bounds of a sentence can be certified; found {type(sentence).__name__}")


def complete_sentence(objective: Objective | str) -> Objective | str:
    """Return a sentence with the bounds if only bounds are given."""
    if not isinstance(objective, str) or objective.strip().startswith("max"):
        return objective
    return f"max accuracy s.t. {objective}" if any(sign in objective for sign in "<>≤≥") else objective


def name_row_groups(stored: dict[str, Any] | None, groups: Any) -> tuple[str, ...]:
    """Return the names of the groups of the fit or, if it had none, of the groups that occur; () for None.

    Args:
        stored: what the fit says about its groups, `FittedModel.groups`.
        groups: the group of every row, (N,); None without groups.

    Returns:
        The names, in order.
    """
    if groups is None:
        return ()
    if stored is not None:
        return tuple(stored["names"])
    return tuple(sorted({str(value) for value in np.asarray(groups, dtype=object).tolist()}))


def refuse_seen(hashes: np.ndarray, *seen: np.ndarray | None) -> None:
    """Refuse rows that the model was fitted on or that were chosen by it.

    Args:
        hashes: hashes of the rows that shall certify, (n,).
        *seen: hashes of rows of the fit, (N,), and of rows that were suggested.
    """
    reasons = ("were part of the fit, or equal one of its rows", "were chosen by suggest")
    for rows, what in zip(seen, reasons, strict=False):
        number = 0 if rows is None else count_seen(hashes, rows)
        if number:
            raise InputError(
                f"only fresh rows can certify: {number} of these {len(hashes)} rows {what}; pass rows drawn at random "
                "from where the model is used"
            )


def certify_labels(
    objective: Objective,
    labels: np.ndarray,
    predictions: np.ndarray,
    deployment_prior: Any,
    class_names: Sequence[str],
    expectation: Expectation | None = None,
    groups: np.ndarray | None = None,
) -> Certification:
    """Return whether labels in order of arrival prove or disprove the bounds of a sentence.

    Args:
        objective: bound to the classes, with a confidence.
        labels: class indices, (n,).
        predictions: class indices that the deployed rule gives, (n,).
        deployment_prior: see `csst.rules.fresh_labels.state_prior`.
        class_names: K names.
        expectation: what the model expects; None uses labels alone.
        groups: groups of the rows as numbers, (n,), for a sentence about groups; bounds of groups use labels alone.

    Returns:
        The verdict at the first label that allowed it.
    """
    assert objective.confidence is not None
    classes = len(class_names)
    truth = check_labels(labels, len(predictions), classes)
    bounds = read_claims(objective)
    prior = state_prior(deployment_prior, bounds, classes)
    bets = []
    for bound in bounds:
        rows = np.arange(len(truth)) if bound.group is None else np.flatnonzero(groups == bound.group)
        bet = place_bets(bound, truth[rows], predictions[rows], prior, classes)
        # Labels are counted over all groups.
        bet = replace(bet, ends=rows[bet.ends - 1] + 1)
        if expectation is not None and prior is None and bound.group is None:
            bet = adjust_bets(bet, predictions, expectation)
        bets.append(bet)
    delta = 1 - objective.confidence
    decision = decide(bets, delta, len(truth))
    sentence = describe(decision, bounds, bets, objective.confidence, class_names)
    return Certification(
        decision.verdict, sentence, objective.confidence, decision.labels, decision.more, decision.wealth
    )


def adjust_bets(bets: Bets, predictions: np.ndarray, expectation: Expectation) -> Bets:
    """Return bets on rows without what the model expects of them; bets within classes stay as they are.

    Args:
        bets: on a bound.
        predictions: the rule's, (n,).
        expectation: what the model expects.

    Returns:
        The bets.
    """
    if not bets.bound.reads_balance:
        return bets
    payoff = bets.bound.payoff(expectation.posterior.shape[1])

    def expect(posterior: np.ndarray, decisions: np.ndarray) -> np.ndarray:
        return (posterior * payoff[:, decisions].T).sum(1)

    judged_expectations = expect(expectation.judged_posterior, expectation.judged_predictions)
    gains = payoff[expectation.judged_labels, expectation.judged_predictions]
    share = choose_share(gains, judged_expectations, bets.largest_loss, bets.largest_gain)
    number = min(len(bets.gains), len(expectation.unlabeled_posterior) // BATCH)
    if share == 0 or number == 0:
        return bets
    row_expectations = expect(expectation.posterior, predictions)
    pool = expect(expectation.unlabeled_posterior, expectation.unlabeled_predictions)
    means = row_expectations.copy()  # a row without a batch keeps its gain
    means[:number] = pool[: number * BATCH].reshape(number, BATCH).mean(1)
    return bets.adjust(row_expectations, means, share)


def describe(
    decision: Decision, bounds: Sequence[Claim], bets: Sequence[Bets], confidence: float, class_names: Sequence[str]
) -> str:
    """Return the decision in a sentence."""
    names = ", ".join(bound.text for bound in bounds)
    after = f"with confidence {confidence:g} after {decision.labels:,} label{'s' if decision.labels != 1 else ''}"
    if decision.verdict == "certified":
        return f"certified {after}: {names}"
    if decision.verdict == "refuted":
        return f"refuted {after}: {decision.bound} does not hold"
    place = next(k for k, bound in enumerate(bounds) if bound.text == decision.bound)
    bound = bounds[place]
    if decision.more is None:
        return f"undecided {after}: no label bears on {bound.text} yet"
    gains = bets[place].informative
    what = "labels of each class" if bets[place].is_within else describe_rows(bound, class_names)
    return (
        f"undecided {after}: about {decision.more:,} more {what} would decide {bound.text}, if they go on as the "
        f"{len(gains):,} so far"
    )


def describe_rows(bound: Claim, class_names: Sequence[str]) -> str:
    """Return the rows that bear on a bound, as a phrase."""
    if len(bound.classes) != 1 or bound.metric in ("coverage", "accuracy"):
        return "labels"
    name = repr(class_names[bound.classes[0]])
    if bound.metric == "recall":
        return f"labels of {name}"
    return f"labels of rows predicted as {name}" + ("" if bound.metric == "precision" else " or of that class")

"""A rule whose bounds are promised: the deal, the path, the certificate, its price, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import csst
from csst.errors import InputError
from csst.estimation.folds import deal_certification
from csst.estimation.held_out_scores import HeldOutScores
from csst.rules import DecisionRule, fit_rule, trace_frontier
from csst.rules.candidates import fit_pooled, sharpness
from csst.rules.claims import certificate_from_dict, read_claims
from csst.rules.fit import bind, fit_evidence
from csst.rules.fresh_labels import FreshLabels
from csst.rules.path import PathRule, make_path
from csst.rules.promise import Proof, choose_start, drop_hopeless, promise
from csst.rules.soft_objective import SoftObjective

CENTERS = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
PRIOR = np.array([0.5, 0.3, 0.2])


def draw(rng: np.random.Generator, size: int, prior: np.ndarray = PRIOR) -> tuple[np.ndarray, np.ndarray]:
    """Exact posteriors and classes of three Gaussians."""
    labels = rng.choice(3, size=size, p=prior)
    rows = CENTERS[labels] + rng.normal(size=(size, 2))
    logits = -0.5 * ((rows[:, None] - CENTERS) ** 2).sum(-1) + np.log(prior)
    probs = np.exp(logits - logits.max(1, keepdims=True))
    return probs / probs.sum(1, keepdims=True), labels


def promised(text: str, size: int = 300, seed: int = 0, **options):
    rng = np.random.default_rng(seed)
    probs, labels = draw(rng, size)
    return fit_rule(probs, labels, text, draw(rng, 1000)[0], train_prior=PRIOR, seed=seed, **options)


# --- the deal -----------------------------------------------------------------------------------------------------


def test_within_classes_every_class_keeps_a_label_to_learn_from() -> None:
    labels = np.array([0] * 10 + [1] * 4 + [2])
    certifying = deal_certification(labels, 0.5, 0, is_random=False)
    assert np.bincount(labels[certifying], minlength=3).tolist() == [5, 2, 0]
    assert not np.array_equal(certifying, deal_certification(labels, 0.5, 1, is_random=False))


def test_a_random_deal_looks_at_no_class_after_every_class_was_seen() -> None:
    rng = np.random.default_rng(0)
    # Of many deals, the share of class 2 among labels that certify is that of the class: first ones are not held back.
    shares = []
    for seed in range(2000):
        labels = rng.choice(3, size=30, p=[0.6, 0.3, 0.1])
        if len(np.unique(labels)) < 3:
            continue
        certifying = deal_certification(labels, 0.5, seed, is_random=True)
        rest = np.setdiff1d(np.arange(30), certifying)
        assert len(np.unique(labels[rest])) == 3
        shares.append(((labels[certifying] == 2).sum(), len(certifying)))
    hits, total = np.sum(shares, axis=0)
    # A little below .1 conditionally on three classes being among thirty labels is not: the rest is a fresh sample.
    assert hits / total == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.2])
def test_a_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(InputError, match="must lie between 0 and 1"):
        deal_certification(np.array([0, 0, 1, 1]), share, 0, is_random=False)


# --- the path -----------------------------------------------------------------------------------------------------


def evidence_of(size: int = 200) -> HeldOutScores:
    rng = np.random.default_rng(3)
    probs, labels = draw(rng, size)
    return HeldOutScores.from_probs(probs, labels, draw(rng, 1000)[0], train_prior=PRIOR)


def test_the_path_goes_from_cautious_to_bold_and_each_rule_is_worth_more() -> None:
    evidence = evidence_of()
    objective = bind("max recall[1] s.t. recall[0] >= 0.85", evidence)
    path = make_path(evidence, objective, PRIOR)
    assert 2 <= len(path) <= 20
    cautions = [rule.caution for rule in path]
    values = [rule.value for rule in path]
    assert cautions == sorted(cautions, reverse=True)
    assert values == sorted(values)
    slack = [float(objective.slack(rule.estimate.confusion)[0]) for rule in path]
    assert slack[0] > slack[-1] + 0.01


def test_a_tightened_rule_keeps_its_distance() -> None:
    evidence = evidence_of()
    objective = bind("max recall[1] s.t. recall[0] >= 0.85", evidence)
    goal = SoftObjective(objective, PRIOR, sharpness(evidence))
    plain, tight = (fit_pooled(goal, evidence, margins=np.array([margin])) for margin in (0.0, 0.08))
    rows = evidence.labels == 0
    recalls = [(rule.decide(evidence.scores[rows]) == 0).mean() for rule in (plain, tight)]
    assert recalls[1] > recalls[0] + 0.02


def test_rules_that_cannot_pass_even_without_a_mistake_are_left_out() -> None:
    evidence = evidence_of()
    objective = bind("max recall[1] s.t. recall[0] >= 0.85", evidence)
    path = make_path(evidence, objective, PRIOR)
    proof = Proof(None, FreshLabels(PRIOR, PRIOR), read_claims(objective), None)
    # .85^14 = .103 is more than .1, and .85^15 is less.
    assert drop_hopeless(path, proof, np.array([14, 50, 50]), 0.1) == []
    assert drop_hopeless(path, proof, np.array([15, 50, 50]), 0.1) == path


# --- the certificate ----------------------------------------------------------------------------------------------


def test_a_certificate_says_what_is_asked_expected_and_promised() -> None:
    fitted = promised("max mean(recall) s.t. recall >= 0.7 with confidence 0.9")
    certificate = fitted.certificate
    assert certificate is not None
    assert certificate.is_certified
    assert 1 <= certificate.passed <= certificate.rules <= 20
    assert sum(certificate.labels) == pytest.approx(150, abs=2)
    assert [result.asked for result in certificate.bounds] == [0.7] * 3
    assert all(result.p_value <= 0.1 for result in certificate.bounds)
    assert "certified with confidence 0.9: recall[0] >= 0.7" in certificate.sentence
    assert all("promised 0.700" in line for line in certificate.lines()[1:])
    # What is expected is judged by the fresh labels, and truly met.
    assert fitted.estimate.n.tolist() == list(certificate.labels)
    probs, labels = draw(np.random.default_rng(9), 50_000)
    recall = fitted.rule.confusion(probs, labels).recall
    assert float(recall.min()) >= 0.7
    expected = [result.expected for result in certificate.bounds]
    assert expected == pytest.approx(recall.tolist(), abs=0.1)


def test_a_certificate_is_stored_and_read_again() -> None:
    certificate = promised(
        "max mean(recall) s.t. precision[1] >= 0.6", deployment_prior=PRIOR, confidence=0.9
    ).certificate
    assert certificate is not None
    assert certificate_from_dict(json.loads(json.dumps(certificate.as_dict()))) == certificate
    assert certificate.bounds[0].balance is not None


@pytest.mark.parametrize("bound", ["recall >= 0.7", "precision[2] >= 0.75"])
def test_the_path_is_fixed_before_the_labels_that_certify_are_seen(bound: str) -> None:
    """Within classes, how many labels of each there are is known before; of a random sample not even that."""
    evidence = evidence_of()
    objective = csst.objective(f"max mean(recall) s.t. {bound} with confidence 0.9").bind(3)
    fitted = fit_evidence(evidence, objective, PRIOR)
    probs, labels = draw(np.random.default_rng(7), 150)
    spoiled = np.random.default_rng(0).permutation(labels) if "recall" in bound else np.ones(150, dtype=int)
    good, bad = (promise(fitted, FreshLabels(probs, y), None, "abc") for y in (labels, spoiled))
    assert good.certificate is not None
    assert bad.certificate is not None
    assert (good.certificate.is_certified, bad.certificate.is_certified) == (True, False)
    assert good.certificate.rules == bad.certificate.rules > 1
    assert bad.rule is fitted.rule


def test_rules_of_the_path_undo_the_gain_where_the_fit_has_chosen_the_argmax() -> None:
    """The argmax undoes nothing; the other rules are about the probabilities behind the softmax."""
    gain = csst.Gain([1.0, 2.0, 8.0])
    probs, labels = draw(np.random.default_rng(3), 300)
    softmax = probs * gain.diagonal.numpy()
    softmax /= softmax.sum(1, keepdims=True)
    evidence = HeldOutScores.from_probs(softmax, labels, gain=gain, train_prior=PRIOR)
    objective = csst.objective("max mean(recall) s.t. recall >= 0.7 with confidence 0.9").bind(3)
    fitted = replace(fit_evidence(evidence, objective, PRIOR), rule=DecisionRule.identity(3), chosen="argmax")
    proof = Proof(fitted, FreshLabels(softmax, labels), read_claims(objective), None)
    place = proof.make_rules()[-1]
    decisions = proof.make_trial(place).predict(softmax)
    assert decisions.tolist() == place.candidate.decide(np.log(probs) - np.log(PRIOR)).tolist()
    frontier = trace_frontier(fitted.evidence, PRIOR, steps=2)
    assert all(point.rule.undo is not None for point in frontier.trades["lowest recall"])
    assert (
        frontier.unadjusted.estimate.counts.tolist()
        == csst.Confusion.from_predictions(labels, softmax.argmax(1), 3).matrix.mul(len(labels)).round().tolist()
    )


def test_few_labels_have_a_price() -> None:
    fitted = promised("max mean(recall) s.t. recall[2] >= 0.8 with confidence 0.95", size=60)
    certificate = fitted.certificate
    assert certificate is not None
    assert not certificate.is_certified
    labels = certificate.labels[2]
    assert f"{labels} labels of '2' cannot promise recall[2] >= 0.8; about" in certificate.price
    assert "more would, if its recall is" in certificate.price
    assert certificate.price in fitted.notes
    assert "promised no" in certificate.lines()[1]
    hopeless = promised("max mean(recall) s.t. recall >= 0.995 with confidence 0.9")
    assert hopeless.certificate is not None
    assert "and more would not" in hopeless.certificate.price


def test_a_coverage_is_proved_by_unlabeled_rows_kept_apart() -> None:
    text = "max mean(recall) s.t. coverage[2] <= 0.35 with confidence 0.9"
    certificate = promised(text, deployment_prior="unlabeled").certificate
    assert certificate is not None
    assert certificate.is_certified
    assert "and 200 unlabeled rows that nothing was fitted to" in certificate.basis


@pytest.mark.slow
def test_false_certificates_of_the_whole_procedure_are_rare() -> None:
    # Scores sharpened threefold and biased, and a bound that the rules of the path just miss or just meet.
    def distort(probs: np.ndarray) -> np.ndarray:
        logits = 3 * np.log(np.maximum(probs, 1e-300)) + np.array([0.0, 1.0, -1.0])
        sharp = np.exp(logits - logits.max(1, keepdims=True))
        return sharp / sharp.sum(1, keepdims=True)

    rng = np.random.default_rng(4)
    probs, truth = draw(rng, 50_000)
    false = 0
    certified = 0
    for seed in range(25):
        few, labels = draw(rng, 120)
        fitted = fit_rule(
            distort(few),
            labels,
            "max recall[1] s.t. recall[0] >= 0.9 with confidence 0.7",
            seed=seed,
            train_prior=PRIOR,
        )
        assert fitted.certificate is not None
        certified += fitted.certificate.is_certified
        is_true = float(fitted.rule.confusion(distort(probs), truth).recall[0]) >= 0.9
        false += fitted.certificate.is_certified and not is_true
    assert certified >= 5
    assert false <= 0.3 * 25 + 2 * (25 * 0.3 * 0.7) ** 0.5


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        (
            "max accuracy s.t. precision[0] >= 0.5 with confidence 0.9",
            {"deployment_prior": "unlabeled"},
            "only estimated from unlabeled rows: give deployment_prior as numbers",
        ),
        ("max accuracy s.t. gmean(recall) >= 0.5 with confidence 0.9", {}, "cannot be certified: a confidence is for"),
        ("max accuracy s.t. recall >= 0.5 with confidence 0.9", {"confidence": 0.8}, "state one of them"),
        ("max accuracy s.t. recall >= 0.5", {"confidence": 1.0}, "lies between 0 and 1"),
        ("max accuracy", {"confidence": 0.9}, "is for bounds, and 'max accuracy' has none"),
        (csst.objective("max accuracy"), {"confidence": 0.9}, "has none"),
    ],
)
def test_bad_input_is_one_sentence(text, options, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        promised(text, size=60, **options)


def test_a_bound_on_a_class_with_one_label_is_refused() -> None:
    probs, labels = draw(np.random.default_rng(0), 60)
    rows = np.concatenate([np.flatnonzero(labels != 2), np.flatnonzero(labels == 2)[:1]])
    with pytest.raises(InputError, match=r"recall\['z'\] >= 0.5 cannot be certified: 'z' has 1 label, and at least 2"):
        fit_rule(
            probs[rows],
            labels[rows],
            "max accuracy s.t. recall['z'] >= 0.5 with confidence 0.9",
            class_names=["x", "y", "z"],
            train_prior=PRIOR,
        )


def test_an_objective_that_is_no_sentence_has_no_confidence() -> None:
    class Recall(csst.Objective):
        def utility(self, c: csst.Confusion) -> torch.Tensor:
            return c.recall.mean()

    with pytest.raises(InputError, match="a confidence is for the bounds of a sentence; found the objective Recall"):
        promised(Recall(), size=60, confidence=0.9)


def test_the_path_starts_where_it_is_most_likely_to_pass() -> None:
    # A precision by a random sample: few predictions of a cautious rule prove less than many of a bolder one.
    prior = torch.from_numpy(PRIOR)

    def rule(recall: float, alarms: float) -> PathRule:
        rates = np.array([[1 - alarms, 0, alarms], [0, 1, 0], [1 - recall, 0, recall]])
        confusion = csst.Confusion(torch.from_numpy(rates), prior)
        return PathRule(None, SimpleNamespace(confusion=confusion), 0.0, recall)

    path = [rule(0.2, 0.0), rule(0.6, 0.01), rule(0.9, 0.08)]
    bounds = read_claims(csst.objective("max recall[2] s.t. precision[2] >= 0.8").bind(3))
    proof = Proof(None, FreshLabels(PRIOR, PRIOR), bounds, None)
    assert choose_start(path, proof, np.array([100, 60, 40])) == path[1:]
    assert choose_start([], proof, np.array([100, 60, 40])) == []


def test_labels_out_of_fold_certify_nothing() -> None:
    with pytest.raises(InputError, match="are those of other models"):
        promised("max recall[2] s.t. precision[2] >= 0.8 with confidence 0.9", is_cross_fitted=True)

"""Every method of the paper as a row: the objective of its gain, its labeler and its selector.

A method of your own is one more `Method`, in Python or as `--method package.module:name`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from csst.errors import InputError, nearest
from csst.maths.objectives import Objective
from csst.plugins import load
from csst.selftraining.balance import UnlabeledBalance
from csst.selftraining.crest import Alignment, GenerationSchedule
from csst.selftraining.darp import DARPRefiner
from csst.selftraining.flexmatch import Curriculum
from csst.selftraining.hold_back import HoldBack
from csst.selftraining.labelers import Hard, Labeler, Sharpened
from csst.selftraining.selectors import Confidence, Either, KLThreshold, Selector, Threshold
from csst.selftraining.stateful import Setup, StatefulPart
from csst.selftraining.step import Refiner, SelfTraining
from csst.settings import SelfTrainingSettings


@dataclass(frozen=True)
class Method:
    """A row of the table.

    Args:
        name: name of the method.
        gain_follows: "objective" (the run's), or the fixed objective whose gain is used: "accuracy" for G = I.
        label: makes the labeler from the settings; None learns from labeled examples only.
        select: makes the selector from the settings; None learns from labeled examples only.
        refine: makes the part that changes probabilities before they are labeled and selected; None changes nothing.
        generations: makes the schedule of a method that trains in generations; `csst.runs.execute` runs them, a
            `Trainer` alone trains one.
        estimates_balance: whether unlabeled_prior is always "estimated".
    """

    name: str
    gain_follows: str
    label: Callable[[SelfTrainingSettings], Labeler] | None = None
    select: Callable[[SelfTrainingSettings], Selector] | None = None
    refine: Callable[[SelfTrainingSettings], Refiner] | None = None
    generations: Callable[[SelfTrainingSettings], GenerationSchedule] | None = None
    estimates_balance: bool = False

    def objective(self, run_objective: Objective) -> Objective | str:
        """Return the objective that the gain follows.

        Args:
            run_objective: objective of the run.

        Returns:
            The run's objective, or the sentence that the method prescribes.
        """
        return run_objective if self.gain_follows == "objective" else self.gain_follows

    def selftraining(self, settings: SelfTrainingSettings, setup: Setup) -> SelfTraining | None:
        """Make the consistency loss of the method.

        Args:
            settings: settings of self-training.
            setup: facts about the data.

        Returns:
            The loss, bound to the data; None for a method that learns from labeled examples only.
        """
        if self.label is None or self.select is None:
            return None
        if self.estimates_balance:
            settings = replace(settings, unlabeled_prior="estimated")
        label = self.label(settings)
        select = self.select(settings)
        refine = self.refine(settings) if self.refine is not None else None
        is_estimated = settings.unlabeled_prior == "estimated"
        balance = UnlabeledBalance(setup.prior, is_estimated) if _undoes_gain(settings) else None
        # A part with a memory of single unlabeled examples cannot label the validation rows that measure accuracy.
        remembers_examples = any(isinstance(part, StatefulPart) for part in (label, select))
        hold_back = None
        if settings.hold_back == "auto" and is_estimated and not remembers_examples:
            hold_back = HoldBack(setup.classes)
        return SelfTraining(label, select, refine, balance, hold_back).bind(replace(setup, balance=balance))

    def generation_schedule(self, settings: SelfTrainingSettings) -> GenerationSchedule:
        """Return the schedule of generations; most methods have one generation.

        Args:
            settings: settings of self-training.

        Returns:
            The schedule.
        """
        return self.generations(settings) if self.generations is not None else GenerationSchedule(generations=1)


def _hard(_: SelfTrainingSettings) -> Labeler:
    return Hard()


def _sharpened(settings: SelfTrainingSettings) -> Labeler:
    return Sharpened(settings.temperature)


def _undoes_gain(settings: SelfTrainingSettings) -> bool:
    """Return whether pseudo-labels come from the class probabilities behind the softmax."""
    return settings.teacher == "untilted" or settings.unlabeled_prior == "estimated"


def _confidence(settings: SelfTrainingSettings) -> Threshold:
    return Confidence(settings.confidence, undoes_gain=_undoes_gain(settings))


def _kl(settings: SelfTrainingSettings) -> Selector:
    return KLThreshold(settings.tau)


def _kl_or_certain(settings: SelfTrainingSettings) -> Selector:
    """Trust what is within tau of the label, as the softmax or as the class probabilities behind it."""
    return Either(KLThreshold(settings.tau), Confidence(math.exp(-settings.tau), undoes_gain=True))


def _confidence_curriculum(settings: SelfTrainingSettings) -> Selector:
    return Curriculum(_confidence(settings))


def _kl_curriculum(settings: SelfTrainingSettings) -> Selector:
    return Curriculum(KLThreshold(settings.tau))


def _darp_refiner(settings: SelfTrainingSettings) -> Refiner:
    return DARPRefiner(settings.darp_warmup, settings.darp_every, settings.darp_delta)


def _alignment(settings: SelfTrainingSettings) -> Refiner:
    return Alignment(settings.crest_temperature)


def _generation_schedule(settings: SelfTrainingSettings) -> GenerationSchedule:
    return GenerationSchedule(settings.crest_generations, settings.crest_alpha)


METHODS = {
    row.name: row
    for row in (
        Method("erm", "accuracy"),
        Method("la", "mean-recall"),
        Method("csl", "objective"),
        Method("fixmatch", "accuracy", _hard, _confidence),
        Method("uda", "accuracy", _sharpened, _confidence),
        Method("flexmatch", "accuracy", _hard, _confidence_curriculum),
        Method("darp", "accuracy", _hard, _confidence, _darp_refiner),
        Method("crest", "accuracy", _hard, _confidence, generations=_generation_schedule),
        Method("crest+", "accuracy", _hard, _confidence, _alignment, _generation_schedule),
        Method("csst-fixmatch", "objective", _hard, _kl),
        Method("csst-uda", "objective", _sharpened, _kl),
        Method("csst-no-kl", "objective", _hard, _confidence),
        Method("csst-flexmatch", "objective", _hard, _kl_curriculum),
        Method("csst-darp", "objective", _hard, _kl, _darp_refiner),
        Method("csst-balanced", "objective", _hard, _kl_or_certain, estimates_balance=True),
    )
}


def method(name: str | Method, kind: Literal["array", "image", "text"] = "array") -> Method:
    """Return a method by name; "csst" is csst-uda for text and csst-fixmatch for everything else."""
    if isinstance(name, Method):
        return name
    if name == "csst":
        name = "csst-uda" if kind == "text" else "csst-fixmatch"
    if ":" in name:
        plugin = load(name, "a method")
        if not isinstance(plugin, Method):
            raise InputError(f"{name} must be a csst.selftraining.Method; found {type(plugin).__name__}")
        return plugin
    if name not in METHODS:
        words = ["csst", *METHODS]
        raise InputError(f"unknown method {name!r}{nearest(name, words) or '; methods: ' + ', '.join(words)}")
    return METHODS[name]

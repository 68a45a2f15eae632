"""A certificate: what was asked of a rule, what is expected of it, what is promised, or what a promise would take."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from csst.maths.confusion import Confusion
from csst.rules.claims import Claim


@dataclass(frozen=True)
class BoundResult:
    """One bound of a certificate.

    Args:
        bound: as it is written.
        asked: the number that was asked for.
        expected: the estimate for the deployed rule.
        p_value: p-value of the deployed rule on the fresh labels.
        balance: the lowest and highest fraction of the class for which it would hold under these labels, the other
            classes in proportion; None where it does not depend on it or labels are a random sample.
    """

    bound: str
    asked: float
    expected: float
    p_value: float
    balance: tuple[float, float] | None = None


@dataclass(frozen=True)
class Certificate:
    """Whether the bounds of a sentence are promised.

    Args:
        confidence: confidence that was asked for.
        is_certified: whether all bounds hold, with that confidence.
        bounds: one result for every bound.
        labels: fresh labels of every class, (K,).
        rules: how many rules were on the path, from cautious to bold.
        passed: how many of them passed; the last is used.
        basis: what the promise rests on, in words.
        price: the labels that a certificate would take, in words; "" if it is certified.
    """

    confidence: float
    is_certified: bool
    bounds: tuple[BoundResult, ...]
    labels: tuple[int, ...]
    rules: int
    passed: int
    basis: str
    price: str = ""

    @property
    def sentence(self) -> str:
        """The certificate in one sentence."""
        if self.is_certified:
            names = ", ".join(result.bound for result in self.bounds)
            return f"certified with confidence {self.confidence:g}: {names}; {self.basis}"
        return f"not certified with confidence {self.confidence:g}: {self.price}"

    def lines(self) -> list[str]:
        """Return asked, expected and promised of every bound, as lines of text.

        Returns:
            The sentence, then a line for every bound.
        """
        lines = [self.sentence]
        width = max(len(result.bound) for result in self.bounds)
        for result in self.bounds:
            promise = f"{result.asked:.3f}" if self.is_certified else "no"
            numbers = f"asked {result.asked:.3f}  expected {result.expected:.3f}  promised {promise}"
            lines.append(f"  {result.bound:<{width}}  {numbers}")
            if result.balance is not None and self.is_certified:
                low, high = result.balance
                lines.append(f"  {'':<{width}}  holds where the class is {low:.3f} to {high:.3f} of all rows")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, which `certificate_from_dict` reads."""
        return {**asdict(self), "sentence": self.sentence}


def certificate_from_dict(stored: dict[str, Any]) -> Certificate:
    """Return the certificate that `as_dict` has written."""
    values = {name: value for name, value in stored.items() if name != "sentence"}
    results = []
    for result in values.pop("bounds"):
        balance = result["balance"]
        results.append(BoundResult(**{**result, "balance": None if balance is None else tuple(balance)}))
    labels = tuple(values.pop("labels"))
    return Certificate(**values, bounds=tuple(results), labels=labels)


def measure_bound(bound: Claim, confusion: Confusion) -> float:
    """Return the metric that a bound is about, of a confusion."""
    if bound.metric == "accuracy":
        return float(confusion.accuracy)
    return float(getattr(confusion, bound.metric)[list(bound.classes)].mean())

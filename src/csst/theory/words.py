"""A diagnosis in plain words."""

from __future__ import annotations

import math

from csst.theory.bounds import Assumptions
from csst.theory.diagnosis import Diagnosis

WIDTH = 36


def write_sentences(diagnosis: Diagnosis) -> list[str]:
    """Lines to print: the numbers, what the theorem would promise, whether its assumptions look plausible."""
    return [
        *list_numbers(diagnosis),
        "",
        *describe_promise(diagnosis),
        *(f"Not computed: {what}." for what in diagnosis.skipped),
    ]


def list_numbers(diagnosis: Diagnosis) -> list[str]:
    """One line for each number; the errors also as a fraction of |w|_1."""
    rows = [
        ("err_w of the pseudo-labeler", diagnosis.err_pl, "the model on weak views"),
        ("err_w of the classifier", diagnosis.err, "the model on the examples as they are"),
        ("L_w(F, F_pl)", diagnosis.disagreement, "where the two disagree"),
    ]
    if diagnosis.consistency is not None:
        steady = diagnosis.consistency
        what = f"not constant over {steady.draws} strong views, so a lower bound"
        rows.append(("R_B,w of the classifier", (steady.value, steady.standard_error), what))
    lines = [
        f"  {name:<{WIDTH}} {value:.3f} ± {spread:.3f}, {value / diagnosis.total:4.0%} of |w|_1   {what}"
        for name, (value, spread), what in rows
    ]
    lines.append(f"  {'|w|_1':<{WIDTH}} {diagnosis.total:.3f}   the largest possible err_w")
    if diagnosis.floor > 1e-9:
        lines.append(f"  {'smallest possible err_w':<{WIDTH}} {diagnosis.floor:.3f}   whatever the classifier")
    for at, (name, value) in enumerate(diagnosis.gammas.items()):
        lines.append(f"  {'gamma, by ' + name:<{WIDTH}} {format_gamma(value)}   at most: worse sets may exist")
        if at == 0 and diagnosis.random_gamma is not None:
            random = format_gamma(diagnosis.random_gamma)
            lines.append(f"  {'  random sets would say':<{WIDTH}} {random}   but the worst sets count")
        clash = f"{diagnosis.conflicts[name]:.3f}   at least, with these neighbors"
        lines.append(f"  {'  err_w + R_B,w of any classifier':<{WIDTH}} {clash}")
    if diagnosis.margins:
        m = diagnosis.margins
        views = f", over views {m['view_median']:.4f} ({m['view_zero']:.0%} are 0)" if "view_median" in m else ""
        lines.append(
            f"  {'all-layer margin, median':<{WIDTH}} {m['median']:.4f} ({m['zero']:.0%} are 0){views}; upper bounds"
        )
    return lines


def describe_promise(diagnosis: Diagnosis) -> list[str]:
    """What Theorem 1 says about these numbers; usually nothing, and then that is said."""
    best, seen = diagnosis.best_case, diagnosis.as_measured
    if diagnosis.err_pl[0] == 0:
        return ["The pseudo-labeler makes no mistake on these examples, so there is nothing for a theorem to improve."]
    if not best.hold:
        return [
            "The theorem promises nothing here, even with the best classifier imaginable as its F*:",
            *(f"  - {reason}" for reason in best.against),
            "This does not mean that self-training fails: the theorem is a sufficient condition, and a strict one.",
        ]
    lines = [
        f"With the best classifier imaginable as its F*, the theorem would promise err_w <= {best.promise:.3f}, "
        f"against {diagnosis.err_pl[0]:.3f} of the pseudo-labeler (gamma = {format_gamma(best.gamma)}).",
        "That gamma is an upper bound from a sample, so take this as 'not excluded', not as a guarantee.",
    ]
    return lines + (_describe_measured(diagnosis, seen) if seen is not None else [])


def _describe_measured(diagnosis: Diagnosis, seen: Assumptions) -> list[str]:
    if seen.hold:
        return [
            f"With the trained classifier in the place of the ideal one it promises err_w <= {seen.promise:.3f} "
            f"(gamma = {format_gamma(seen.gamma)}): the assumptions look plausible."
        ]
    lines = ["With the trained classifier in the place of the ideal one it promises no improvement:"]
    lines += [f"  - {reason}" for reason in seen.against]
    if diagnosis.bound is not None and diagnosis.bound >= diagnosis.total:
        lines.append(f"  - its bound for this very classifier is {diagnosis.bound:.2f}, above |w|_1: it says nothing")
    elif diagnosis.bound is not None:
        lines.append(
            f"  - its bound for this very classifier is {diagnosis.bound:.2f}; measured is {diagnosis.err[0]:.3f}"
        )
    return lines


def format_gamma(value: float) -> str:
    return "infinite" if value == math.inf else f"{value:.2f}"

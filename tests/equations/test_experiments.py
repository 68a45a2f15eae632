"""The rows of the paper's tables and figures, as `csst compare` chooses them."""

from argparse import Namespace

import pytest

from csst.cli.compare import chosen_rows
from csst.recipes import recipe

LONG_TAIL = "cifar10-lt", "cifar100-lt", "imagenet100-lt"
WORST = {"cifar10-lt": "min-recall", "cifar100-lt": "min-ht-recall", "imagenet100-lt": "min-ht-recall"}
COVERAGE = {name: goal.replace("min-recall", "mean-recall-coverage") for name, goal in WORST.items()}
COVERAGE = {name: goal.replace("min-ht-recall", "mean-recall-ht-coverage") for name, goal in COVERAGE.items()}
TEXTS = dict.fromkeys(("imdb-lt-10", "imdb-lt-100", "dbpedia14-lt"), "min-recall")
VISION = ["erm", "la", "csl", "fixmatch", "csst-fixmatch"]


def rows_of(name, preset):
    return chosen_rows(recipe(name), Namespace(preset=preset, methods="", objectives=""))


@pytest.mark.parametrize(
    ("preset", "methods", "objectives"),
    [
        ("table-min-recall", VISION, WORST),
        ("table-coverage", [*VISION[:-1], "csst-no-kl", VISION[-1]], COVERAGE),
        ("table-nlp", ["erm", "uda", "csst-uda"], TEXTS),
        ("seeds", VISION[2:], {"cifar10-lt": "min-recall"}),
    ],
)
def test_rows_of_the_tables(preset, methods, objectives):
    """Paper, tab:min-recall, tab:coverage, tab:nlp_results and tab:statistical-analysis: methods and objectives.

    tab:add_expts_min_rec and tab:add_expts_min_cov are methods of the table, so a list of their names is enough.
    """
    for name, objective in objectives.items():
        rows = rows_of(name, preset)
        assert [row.method for row in rows if row.method in methods] == methods
        assert {row.objective for row in rows} == {objective}
    others = "crest,darp,flexmatch,fixmatch,csst-fixmatch"
    for goal in ("min-recall", "mean-recall-coverage"):
        rows = chosen_rows(recipe("cifar10-lt"), Namespace(preset="", methods=others, objectives=goal))
        assert [(row.method, row.objective) for row in rows] == [(method, goal) for method in others.split(",")]


def test_rows_of_the_figures():
    """Paper, fig:overview, fig:mask_rate, fig:data-abl and fig:thresh-abl: what is drawn against what."""
    assert {row.method for row in rows_of("cifar10-lt", "table-min-recall")} >= {"csl", "fixmatch", "csst-fixmatch"}
    used = rows_of("cifar100-lt", "mask-rate")
    assert {row.method for row in used if row.objective == "mean-recall-ht-coverage"} >= {"fixmatch", "csst-fixmatch"}
    thresholds = {row.changes["selftraining"]["tau"] for row in rows_of("cifar10-lt", "ablation-tau")}
    assert {0.05, 0.3} <= thresholds
    labels = [row.changes["data"] for row in rows_of("cifar10-lt", "ablation-labeled")]
    assert len({str(data) for data in labels}) >= 3

"""The rows of the paper's tables and figures, as `csst compare --preset` has them."""

import pytest

from csst.comparison.presets import read_preset
from csst.recipes import recipe

LONG_TAIL = "cifar10-lt", "cifar100-lt", "imagenet100-lt"
WORST = {"cifar10-lt": "min-recall", "cifar100-lt": "min-ht-recall", "imagenet100-lt": "min-ht-recall"}
COVERAGE = {name: goal.replace("min-recall", "mean-recall-coverage") for name, goal in WORST.items()}
COVERAGE = {name: goal.replace("min-ht-recall", "mean-recall-ht-coverage") for name, goal in COVERAGE.items()}
TEXTS = dict.fromkeys(("imdb-lt-10", "imdb-lt-100", "dbpedia14-lt"), "min-recall")
OTHERS = ["crest", "darp", "flexmatch", "fixmatch", "csst-fixmatch"]
VISION = ["erm", "la", "csl", "fixmatch", "csst-fixmatch"]


@pytest.mark.parametrize(
    ("preset", "methods", "objectives"),
    [
        ("table-min-recall", VISION, WORST),
        ("table-coverage", [*VISION[:-1], "csst-no-kl", VISION[-1]], COVERAGE),
        ("table-nlp", ["erm", "uda", "csst-uda"], TEXTS),
        ("seeds", VISION, {"cifar10-lt": "min-recall"}),
        ("table-ssl-min-recall", OTHERS, {name: WORST[name] for name in LONG_TAIL[:2]}),
        ("table-ssl-coverage", OTHERS, {name: COVERAGE[name] for name in LONG_TAIL[:2]}),
    ],
)
def test_rows_of_the_tables(preset, methods, objectives):
    """Paper, tab:min-recall, tab:coverage, tab:nlp_results, tab:statistical-analysis: methods and objectives.

    And tab:add_expts_min_rec and tab:add_expts_min_cov, against other methods for long tails.
    """
    for name, objective in objectives.items():
        rows = read_preset(preset, recipe(name))
        assert [row.method for row in rows] == methods
        assert {row.objective for row in rows} == {objective}


def test_rows_of_the_figures():
    """Paper, fig:overview, fig:mask_rate, fig:data-abl and fig:thresh-abl: what is drawn against what."""
    assert {row.method for row in read_preset("table-min-recall", recipe("cifar10-lt"))} >= {
        "csl",
        "fixmatch",
        "csst-fixmatch",
    }
    used = read_preset("mask-rate", recipe("cifar100-lt"))
    assert {row.method for row in used if row.objective == "mean-recall-ht-coverage"} >= {"fixmatch", "csst-fixmatch"}
    thresholds = {row.changes["selftraining"]["tau"] for row in read_preset("ablation-tau", recipe("cifar10-lt"))}
    assert {0.05, 0.3} <= thresholds
    labels = [row.changes["data"] for row in read_preset("ablation-labeled", recipe("cifar10-lt"))]
    assert len({str(data) for data in labels}) >= 3

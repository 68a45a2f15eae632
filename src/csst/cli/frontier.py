"""csst frontier RUN: what the run's model could trade off by its decision rule alone, without training again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from rich.table import Table

from csst.cli.report import write_page
from csst.cli.tables import show
from csst.errors import InputError
from csst.maths.language import objective as read_objective
from csst.report.frontier import frontier_page
from csst.rules import trace_frontier
from csst.rules.fit import read_deployment_prior
from csst.runs.folder import Run
from csst.runs.results import read_outputs

COLUMNS = ("mean recall", "min recall", "min coverage", "accuracy")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        "csst frontier",
        description="Show what decision rules attain from one training, estimated from validation and unlabeled "
        "examples: mean recall against min recall and min coverage, and whether an objective's constraints can be met.",
    )
    parser.add_argument("run", help="the run's folder")
    parser.add_argument("--objective", default="", help="whose constraints are checked; default the run's")
    parser.add_argument("--points", type=int, default=12, help="rows of the table")
    given = parser.parse_args(words)
    if given.points < 2:
        raise InputError(f"--points must be at least 2; found {given.points}")
    run = Run.open(given.run)
    metrics = run.metrics()
    outputs = read_outputs(given.run)
    prior = torch.tensor(metrics["labeled_counts"]).double()
    prior, names = prior / prior.sum(), tuple(metrics["class_names"])
    goal = read_objective(given.objective or run.recipe()["objective"]).bind(len(names), names).bind_prior(prior)
    evidence = outputs.evidence(prior, names)
    deployment = read_deployment_prior(run.recipe()["deployment_prior"], evidence)
    found = trace_frontier(evidence, deployment, goal, outputs.gain.softmax_inverse)
    table = Table("rule", *COLUMNS, title=f"attainable, {found.unadjusted.estimate.basis}")
    rows = [("as trained", found.unadjusted), *((f"best for '{goal}'", p) for p in [found.best] if p is not None)]
    each = max(1, -(-len(found.points) // given.points))
    for name, point in [*rows, *(("", point) for point in found.points[::each])]:
        table.add_row(name, *(f"{value:.3f}" for value in point.as_dict().values()))
    show(table)
    print(found.sentence)
    page = run.path("frontier.html")
    points = [point.as_dict() for point in found.points]
    write_page(frontier_page(given.run, points, found.sentence), page)
    print(f"figure: {page}")
    return 0

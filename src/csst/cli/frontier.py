"""csst frontier RUN: show what other decision rules attain with the run's model, without training again."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from csst.cli.examples import make_parser
from csst.cli.terminal import make_table, show
from csst.errors import InputError
from csst.fitting.fitted_model import FittedModel
from csst.fitting.metrics import KeptEvidence, bind_sentence, describe_trades
from csst.report.page import frontier_page
from csst.report.render import write_page
from csst.rules import trace_frontier
from csst.rules.trades import Review
from csst.runs.folder import Run

COLUMNS = ("mean recall", "min recall", "min coverage", "accuracy")


def main(argv: Sequence[str]) -> int:
    description = (
        "Show what decision rules attain from one training, estimated from validation and unlabeled examples: mean "
        "recall against min recall and min coverage, and whether an objective's constraints can be met."
    )
    parser = make_parser("frontier", description)
    parser.add_argument("--objective", default="", help="whose constraints are checked; default the run's")
    parser.add_argument("--points", type=int, default=12, help="rows of the table")
    args = parser.parse_args(argv)
    if args.points < 2:
        raise InputError(f"--points must be at least 2; found {args.points}")
    model = FittedModel.load(Run.open(args.run).folder)
    scores = KeptEvidence.read(args.run)
    objective = model.objective
    if args.objective:
        objective = bind_sentence(args.run, args.objective, model.metrics)
    frontier = trace_frontier(scores.evidence, scores.prior, objective)
    named_points = [("as trained", frontier.unadjusted)]
    if frontier.best is not None:
        named_points.append((f"best for '{objective}'", frontier.best))
    stride = max(1, -(-len(frontier.points) // args.points))
    named_points += [("", point) for point in frontier.points[::stride]]
    rows = [[name, *(f"{value:.3f}" for value in point.as_dict().values())] for name, point in named_points]
    basis = f"{frontier.unadjusted.estimate.basis} that the rules were fitted on, and so higher than in the report"
    show(make_table([["rule", *COLUMNS], *rows], f"attainable, {basis}"))
    print(frontier.sentence)
    if frontier.reviews:
        show(tabulate_reviews(frontier.reviews))
    page = Run(args.run).path("frontier.html")
    points = [point.as_dict() for point in frontier.points]
    write_page(frontier_page(args.run, points, frontier.sentence, describe_trades(frontier)), page)
    print(f"figure, and the points to move along: {page}")
    return 0


def tabulate_reviews(reviews: Sequence[Review]) -> Table:
    """Return what a human's answers buy as a table."""
    rows = [["left to a human", "value", "min recall", "bounds"]]
    for review in reviews:
        bounds = "missed: " + ", ".join(review.misses) if review.misses else "met"
        rows.append([f"{review.share:.0%}", f"{review.value:.3f}", f"{review.min_recall:.3f}", bounds])
    return make_table(rows, "what reviews buy, on what is answered")

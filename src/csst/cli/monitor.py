"""csst monitor RUN new.csv [--adapt FOLDER]: say what new rows without labels mean for a run, and adapt its rule."""

from __future__ import annotations

import json
from collections.abc import Sequence

from csst.cli.examples import ExampleReader, make_parser
from csst.errors import InputError
from csst.fitting.fitted_model import FittedModel
from csst.fitting.monitoring import adapt, monitor, read_run, write_adapted
from csst.report.run_view import WATCHED
from csst.runs.folder import Run


def main(argv: Sequence[str]) -> int:
    description = (
        "Say what new examples without labels mean for a finished run: their class balance, what to expect of the "
        "objective there, and whether the labeled classes explain them."
    )
    parser = make_parser("monitor", description, "column")
    parser.add_argument("input", nargs="+", help="new examples without labels, as for csst predict")
    parser.add_argument(
        "--adapt", metavar="FOLDER", default="", help="write a run with the rule solved again for the new balance"
    )
    parser.add_argument("--json", metavar="FILE", default="", help="also write all numbers to this file")
    args = parser.parse_args(argv)
    model = FittedModel.load(args.run)
    deployed = read_run(args.run, model)
    inputs = ExampleReader.open(args.run, model, text_column=args.column).read_all(args.input).inputs
    if args.adapt:
        adapted = adapt(model, deployed, inputs)
        result = adapted.monitoring
        write_adapted(args.run, args.adapt, model, adapted)
        print(result)
        print(f"adapted: {adapted.fitted.sentence}\nthe run with the new rule is in {args.adapt}")
    else:
        result = monitor(model, deployed, inputs)
        print(result)
        keep(args.run, args.input, result.sentences)
        print(f"kept in the run: csst report {args.run} has it on its page")
    if args.json:
        try:
            with open(args.json, "w", encoding="utf-8") as file:
                json.dump(result.as_dict(), file, indent=2)
        except OSError as error:
            raise InputError(f"{args.json} cannot be written: {error}") from None
    return 0


def keep(folder: str, names: Sequence[str], sentences: Sequence[str]) -> None:
    """Add what new rows say to the run, whose page shows it."""
    line = json.dumps({"input": list(names), "sentences": list(sentences)})
    path = Run(folder).path(WATCHED)
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from None

"""csst export RUN --to onnx -o FILE: a finished run's model for use elsewhere, with its decision rule and a card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from csst.cli.examples import make_parser
from csst.errors import InputError
from csst.fitting.export import FORMATS
from csst.fitting.fitted_model import FittedModel


def main(argv: Sequence[str]) -> int:
    parser = make_parser("export", "Write a finished run's model, with its decision rule, and a model card beside it.")
    parser.add_argument("--to", default="onnx", help=f"one of {', '.join(FORMATS)}; default onnx")
    parser.add_argument("-o", "--output", required=True, help=f"the file to write: {', '.join(FORMATS.values())}")
    args = parser.parse_args(argv)
    if Path(args.run).is_file():
        raise InputError(
            f"{args.run} is a file and not a run's folder; a pickled estimator is not read here, because unpickling "
            "runs code from the file: load it in Python and call its export(path, to=...)"
        )
    for path in FittedModel.load(args.run).export(args.output, args.to):
        print(path)
    return 0

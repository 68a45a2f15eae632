"""csst certify RUN labeled.csv "precision['fraud'] >= 0.9": check whether fresh labels prove a sentence's bounds."""

from __future__ import annotations

from collections.abc import Sequence

from csst.cli.examples import ExampleReader, make_parser
from csst.data.tabular.labeled_tables import index_labels
from csst.fitting.fitted_model import FittedModel
from csst.maths.language import objective as read_objective
from csst.rules.certification import complete_sentence


def main(argv: Sequence[str]) -> int:
    description = "Say whether fresh labels prove the bounds of a sentence for a finished run's model."
    parser = make_parser("certify", description, "column", "label")
    parser.add_argument(
        "labeled",
        help="fresh rows with labels in the order of their arrival: an .npz file with x and y, or a table with the "
        "columns of the training data (.csv, .tsv, .jsonl, .parquet)",
    )
    parser.add_argument("sentence", nargs="?", default="", help="a sentence or only its bounds; default the run's own")
    parser.add_argument(
        "--confidence", type=float, help="confidence of the proof; default as the sentence says, or 0.95"
    )
    args = parser.parse_args(argv)
    model = FittedModel.load(args.run)
    objective = args.sentence or model.stated
    column = read_objective(complete_sentence(objective)).column
    group = ("" if model.rule is None else model.rule.column) or column or ""
    reader = ExampleReader.open(args.run, model, text_column=args.column, label=args.label, group=group)
    batch = reader.read_all([args.labeled])
    labels = index_labels(batch.labels, model.class_names, args.labeled, "certifies")
    result = model.certify(objective, batch.inputs, labels, args.confidence, batch.groups)
    print(result.sentence)
    return 0

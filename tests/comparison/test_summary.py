"""Tables of a comparison: means over seeds, groups, rules, hardware, and the sentence about the winner."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import csst.cli.compare as command
from csst.comparison.compare import compare
from csst.comparison.rows import Row, make_rows
from csst.comparison.summary import Outcome, read_hardware, sort_rows, tabulate
from csst.errors import InputError
from csst.fitting.metrics import read_outputs
from csst.report.comparison_tables import as_csv, as_json, cells, markdown
from csst.rules import rule_from_dict
from csst.runs.folder import environment
from tests.helpers.comparisons import make_line
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN


def outcome(
    label: str, objective: str, tests: list[dict], finished: list[dict] | None = None, folder: Path = Path("x")
) -> Outcome:
    metrics = []
    for at, test in enumerate(tests):
        line = {"test": test, "objective": objective, "seconds": 10.0 + at, "labeled_counts": [8] * 9 + [2]}
        line["class_names"] = [f"c{k}" for k in range(10)]
        line["seed"] = 3 + at
        metrics.append({**line, **({"adjusted": {"test": finished[at]}} if finished else {})})
    return Outcome(Row(label, label, objective), metrics, [folder] * len(tests))


def numbers(mean: float, low: float, coverage: float, slack: list[float] | None = None) -> dict:
    values = {"mean_recall": mean, "min_recall": low, "min_coverage": coverage, "constraint_slack": slack or []}
    return {**values, "objective_value": low, "recall": [low, mean]}


def test_the_table_says_mean_std_and_n():
    made = outcome(
        "csst", "max min(recall)", [numbers(0.5, 0.2, 0.1), numbers(0.7, 0.4, 0.3)], [numbers(0.6, 0.5, 0.2)] * 2
    )
    table = tabulate([made])
    assert [line.rule for line in table] == ["", "rule"]
    shown = cells(table)
    assert shown[0] == ["method", "objective value", "mean recall", "min recall", "min coverage", "seconds"]
    assert shown[1] == ["csst", "0.300 ± 0.141", "0.600 ± 0.141", "0.300 ± 0.141", "0.200 ± 0.141", "10.5"]
    assert shown[2][:3] == ["csst + rule", "0.500 ± 0.000", "0.600 ± 0.000"]
    other = outcome("erm", "max mean(recall)", [numbers(0.1, 0.2, 0.3, [0.1, -0.1])] * 2)
    two = cells(tabulate([made, other]))
    assert two[0][1] == "objective"
    column = two[0].index("constraints")
    assert [row[column] for row in two[1:]] == ["–", "–", "missed"]
    kept = cells([make_line("a", [0.1, 0.1], [[0.0], [-0.1]])])
    assert kept[1][kept[0].index("constraints")] == "met 1 of 2"
    assert "| csst + rule |" in markdown(table)
    assert "Mean ± std over 2 seeds." in markdown(table)
    assert "## max mean(recall)" in markdown(tabulate([made, other]))


def test_seeds_and_hardware_are_columns_where_they_differ_and_in_the_caption_where_not():
    alike = [make_line("a", [0.1, 0.2]), make_line("b", [0.1, 0.3])]
    assert not {"n", "hardware"} & set(cells(alike)[0])
    assert "Mean ± std over 2 seeds. Hardware: a machine, 1 thread." in markdown(alike)
    apart = [make_line("a", [0.1]), make_line("b", [0.1, 0.3], hardware="1 × a GPU")]
    shown = cells(apart)
    assert [row[-2:] for row in shown] == [["n", "hardware"], ["1", "a machine, 1 thread"], ["2", "1 × a GPU"]]
    assert "Mean ± std over 1 to 2 seeds." in markdown(apart)
    assert "Hardware:" not in markdown(apart)


def test_hardware_is_what_the_run_used(tmp_path):
    (tmp_path / "recipe.yaml").write_text("hardware: {accelerator: auto}")
    known = {"processor": "a CPU", "gpu": "A5000", "processes": 4, "threads": 2}
    (tmp_path / "environment.json").write_text(json.dumps(known))
    assert read_hardware(tmp_path) == "4 × A5000"
    assert read_hardware(tmp_path, uses_gpu=False) == "a CPU, 8 threads"
    (tmp_path / "recipe.yaml").write_text("hardware: {accelerator: cpu}")
    assert read_hardware(tmp_path) == "a CPU, 8 threads"
    assert read_hardware(tmp_path / "nothing") == ""
    assert environment()["processor"]


def test_head_and_tail_columns_are_computed_from_the_confusion(tmp_path):
    (tmp_path / "recipe.yaml").write_text("name: digits")
    sentence = "max min(recall[head], recall[tail])"
    confusion = torch.eye(10) * 10
    confusion[9] = 0
    confusion[9, 0] = 10  # the tail class is never right
    test = {**numbers(0.9, 0.0, 0.0), "confusion": confusion.tolist()}
    table = tabulate([outcome("csst", sentence, [test], folder=tmp_path)])
    assert table[0].is_grouped
    assert table[0].values("min_recall") == [0.0]
    assert table[0].values("min_coverage") == [0.0]
    assert cells(table)[0][3] == "min head–tail recall"
    confusion[9, 9], confusion[9, 0], confusion[0, 0], confusion[0, 1] = 10, 0, 0, 10
    better = {**numbers(0.9, 0.0, 0.0), "confusion": confusion.tolist()}
    line = tabulate([outcome("csst", sentence, [better], folder=tmp_path)])[0]
    assert line.values("min_recall") == pytest.approx([8 / 9])  # one of nine head classes is always missed
    assert line.values("min_coverage") == pytest.approx([0.1])  # the nine head classes share the other nine tenths
    (tmp_path / "recipe.yaml").write_text("name: digits\ngroups: {tail: 'c0,1'}")
    line = tabulate([outcome("csst", sentence, [better], folder=tmp_path)])[0]
    assert line.values("min_recall") == pytest.approx([0.5]), "the recipe names the tail: c0 and c1"


def test_groups_and_classes_in_one_table_are_told_apart():
    line, grouped = make_line("a", [0.2]), make_line("a", [0.2], is_grouped=True)
    assert cells([line])[0][3] == "min recall"
    assert cells([grouped])[0][3] == "min head–tail recall"
    assert cells([line, grouped])[0][3] == "min (head–tail where asked) recall"


def test_of_many_classes_the_five_lowest_recalls_are_shown():
    few = make_line("few", [0.2, 0.4])
    assert "5 lowest recalls" not in cells([few])[0]
    recalls = [[0.1 * c for c in range(11)], [0.0] * 11]
    results = [replace(result, recall=recall) for result, recall in zip(few.results, recalls, strict=True)]
    many = replace(few, results=results)
    head, row = cells([many])
    # The mean of 0 to .4 is .2 with one seed and 0 with the other.
    assert row[head.index("5 lowest recalls")].startswith("0.100 ± 0.141")
    stored = json.loads(as_json([many], {}))["rows"][0]["five_lowest_recalls"]
    assert stored["values"] == pytest.approx([0.2, 0.0])


def test_csv_has_a_line_per_seed_and_no_formula():
    made = outcome("=cmd()", "max min(recall)", [numbers(0.5, 0.2, 0.1), numbers(0.7, 0.4, 0.3)])
    read = list(csv.reader(as_csv(tabulate([made])).splitlines()))
    assert len(read) == 3
    assert read[1][0] == "'=cmd()"
    columns = {name: [row[at] for row in read[1:]] for at, name in enumerate(read[0])}
    assert [float(value) for value in columns["min_recall"]] == [0.2, 0.4]
    assert [float(value) for value in columns["objective_value"]] == [0.2, 0.4]
    assert columns["seed"] == ["3", "4"]
    assert columns["measured_on"] == ["test", "test"]


def test_the_sentence_ranks_by_the_objective_and_its_constraints():
    free = [make_line("a", [0.2]), make_line("b", [0.7], rule="rule"), make_line("c", [0.3])]
    assert [line.name for line in sort_rows(free)] == ["b + rule", "c", "a"]
    sentence = command.describe_winner(free)
    assert sentence.startswith("For 'goal', b + rule has the highest value (0.700; next c, 0.300).")
    assert "Measured on the test set." in sentence
    level = command.describe_winner([make_line("a", [0]), make_line("b", [0])])
    assert level.startswith("For 'goal', a and b are level (0.000).")
    bound = [make_line("a", [0.9, 0.9], [[-0.1], [0.0]]), make_line("b", [0.4, 0.4], [[0.0], [0.1]])]
    assert [line.name for line in sort_rows(bound)] == ["b", "a"]
    assert "b meets the constraints and has the highest value (0.400; next a, 0.900, missing them by 0.050)" in (
        command.describe_winner(bound)
    )
    assert "a misses the constraints least, by 0.050 on average (0.900)" in command.describe_winner(bound[:1])


def test_of_a_sentence_that_minimizes_the_lowest_value_is_best():
    costs = [make_line("a", [0.2], objective="min cost"), make_line("b", [0.7], objective="min cost")]
    assert [line.name for line in sort_rows(costs[::-1])] == ["a", "b"]
    assert command.describe_winner(costs).startswith("For 'min cost', a has the lowest value (0.200; next b, 0.700).")


def test_the_table_says_how_much_was_used(short, tmp_path):
    table = tabulate(compare(short, make_rows(["erm", "csst"], ["min-recall"]), [0], tmp_path, 1, "none"))
    last = json.loads((tmp_path / "csst-min-recall-0" / "journal.jsonl").read_text().splitlines()[-1])
    assert [line.used for line in table] == [None, last["used"]]
    shown = cells(table)
    column = shown[0].index("used")
    assert [row[column] for row in shown[1:]] == ["–", f"{last['used']:.0%}"]
    assert f",{last['used']:.6f}," in as_csv(table)


def test_a_comparison_shows_the_rules_that_a_run_chose_among(short, tmp_path):
    outcomes = compare(short, [Row("erm", "erm", "min-recall")], [0, 1], tmp_path, 1)
    table = tabulate(outcomes, ["fit", "argmax", "closed-form", "calibrated", "pooled"])
    assert [line.name for line in table] == [
        "erm",
        "erm + rule",
        "erm + argmax",
        "erm + closed form",
        "erm + calibrated",
        "erm + pooled",
    ]
    for n, metrics in enumerate(outcomes[0].metrics):
        fitted = next(line for line in table if line.rule == "rule")
        chosen = next(line for line in table if line.rule == metrics["adjusted"]["chosen"])
        assert chosen.results[n].values == fitted.results[n].values  # refitted from what the run kept
        scores, labels = read_outputs(outcomes[0].folders[n]).parts["test"]
        rule = rule_from_dict(metrics["adjusted"]["rule"])
        counts = rule.counts(torch.softmax(scores.double(), 1), labels)
        assert chosen.results[n].recall == pytest.approx((counts.diag() / counts.sum(1)).tolist())
    assert len({line.mean("mean_recall") for line in table[2:]}) > 1  # the candidates differ
    with pytest.raises(InputError, match="rules of a comparison are fit, argmax, closed-form"):
        tabulate(outcomes, ["closed form"])

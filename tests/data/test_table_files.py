"""Table files as people have them: delimiters, decimal commas, gzip, gaps, dates, Parquet."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from csst.data.tabular import files
from csst.data.tabular.column_kinds import learn_columns
from csst.data.tabular.column_words import tabulate_columns
from csst.data.tabular.columns import Columns
from csst.data.tabular.files import find_delimiter, read_arrays, read_chunks
from csst.data.tabular.labeled_tables import index_words, read_labeled_table
from csst.errors import InputError


def write(path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def read(path) -> tuple[Columns, np.ndarray]:
    """What the columns of a file hold, and its rows."""
    table = read_arrays(path)
    columns = learn_columns(table)
    return columns, columns.encode(table)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("a,b,c\n1,2,3\n", ","),
        ("a;b;c\n1,5;2,5;x\n", ";"),
        ("price, net;n;kind\n1,5;1;x\n2,5;2;y\n", ";"),
        ("a\tb\n1\t2\n", "\t"),
        ("a|b\n1|2\n", "|"),
        ('a,b\n"x;y;z",1\n', ","),
        ("text\nhello there\n", ","),
        ("a,b\n1,2\n3,4,5\n", ","),
        ("a;b", ";"),
        ("", ","),
    ],
)
def test_the_delimiter_is_the_one_that_splits_every_line_alike(head, expected):
    assert find_delimiter(head, ".csv") == expected
    assert find_delimiter(head, ".tsv") == "\t"


MESSY = """id;price;paid;kind;day;flag;empty;always
1;1,5;?;red;2024-02-01;true;;x
2;2,5;7;;2024-02-29;false;;x
3;;8;blue;;true;;x
4;1.000,5;9;red;2023-12-31;;;x
"""


def test_a_messy_table(tmp_path):
    columns, rows = read(write(tmp_path / "a.csv", MESSY))
    by_name = dict(zip(columns.names, rows.T.tolist(), strict=True))
    assert by_name["price"] == [1.5, 2.5, 2.5, 1000.5], "the median of 1.5, 2.5 and 1000.5 fills the gap"
    assert by_name["price is missing"] == [0, 0, 1, 0]
    assert by_name["paid"] == [8, 7, 8, 9]
    assert by_name["kind"] == [2, 0, 1, 2], "a missing category comes first"
    assert by_name["day"][1] == 19782
    assert by_name["month of day"] == [1, 1, -1, 11]
    assert by_name["weekday of day"] == [3, 3, -1, 6]
    assert by_name["flag"] == [2, 1, 2, 0]
    assert by_name["empty"] == [0] * 4
    notes = {row[0]: row[3] for row in tabulate_columns(columns)}
    assert notes["price"] == "decimal commas"
    assert notes["paid"] == "'?' read as missing"
    assert notes["empty"] == "empty"
    assert notes["always"] == "the same in every row"


def test_columns_survive_their_file(tmp_path):
    columns, rows = read(write(tmp_path / "a.csv", MESSY))
    again = Columns.from_dict(columns.as_dict())
    assert again.sizes == columns.sizes
    other = write(
        tmp_path / "b.csv", "kind,always,flag,empty,day,paid,price,id,more\nviolet,x,true,Y,2024-02-01,7,?,9,1\n"
    )
    table = read_arrays(other, again.text_names)
    encoded = dict(zip(again.names, again.encode(table)[0].tolist(), strict=True))
    assert encoded["kind"] == -1, "a category that training did not have"
    assert (encoded["empty"], encoded["empty is missing"]) == (0, 1), "nothing was learned from an empty column"
    assert encoded["price"] == 2.5
    assert encoded["paid"] == 7
    with pytest.raises(InputError, match=r"b\.csv has no column 'price' and 1 more columns of the training data"):
        again.encode({name: values for name, values in table.items() if name not in ("paid", "price")}, "b.csv")
    assert np.array_equal(again.encode(read_arrays(tmp_path / "a.csv", again.text_names)), rows)


@pytest.mark.parametrize(
    ("cells", "kind", "note"),
    [
        (["1", "2", "x7"], "category", "mixes numbers with words such as 'x7'"),
        (["1_0", "2_0", "3_0"], "category", ""),
        (["03/04/2024", "05/06/2024"], "date", "read as month/day/year; day/month/year is possible, too"),
        (["13/04/2024", "05/06/2024"], "date", ""),
        (["31.12.2024 10:00", "01.01.2025 11:30:15"], "date", ""),
        (["2024-02-30", "2024-02-28"], "category", ""),
        ([f"{n}" for n in range(1, 101)], "number", "a different whole number in nearly every row: an ID?"),
        ([f"{n / 7}" for n in range(100)], "number", ""),
        ([f"n{n}" for n in range(100)], "category", "100 categories in 100 rows: an ID or a name?"),
        ([f"n{n}" for n in range(1100)], "left out", "1100 different texts, more than 1000"),
    ],
)
def test_what_a_column_is_taken_for(tmp_path, cells, kind, note):
    column = learn_columns(
        read_arrays(write(tmp_path / "a.csv", "\n".join(["a,b", *(f'"{cell}",1' for cell in cells)])))
    )
    assert column.parts[0].kind == kind
    assert "; ".join(column.parts[0].notes) == note


def test_a_column_that_ceases_to_hold_numbers_is_read_again_as_texts(tmp_path, monkeypatch):
    monkeypatch.setattr(files.read_chunks, "__defaults__", (2,))
    path = write(tmp_path / "a.csv", "a,b\n01,1\n2,2\n3,3\nx,4\n")
    table = read_arrays(path)
    assert table["a"].tolist() == ["01", "2", "3", "x"]
    assert table["b"].tolist() == [1, 2, 3, 4]


def test_gzip_tsv_and_json_lines_read_alike(tmp_path):
    expected = [[1.5, 0], [2.0, 1]]
    with gzip.open(tmp_path / "a.csv.gz", "wt", encoding="utf-8") as file:
        file.write("a,kind\n1.5,u\n2,v\n")
    (tmp_path / "a.tsv").write_text("a\tkind\n1.5\tu\n2\tv\n")
    (tmp_path / "a.jsonl").write_text('{"a": 1.5, "kind": "u"}\n{"a": 2, "kind": "v"}\n')
    for name in ("a.csv.gz", "a.tsv", "a.jsonl"):
        assert read(tmp_path / name)[1].tolist() == expected, name
    (tmp_path / "b.csv.gz").write_bytes((tmp_path / "a.csv.gz").read_bytes()[:-9])
    with pytest.raises(InputError, match=r"b\.csv\.gz cannot be read"):
        read_arrays(tmp_path / "b.csv.gz")


def test_parquet_of_numbers_texts_dates_and_truth_values(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="the extra hf is not installed")
    from datetime import date

    import pyarrow.parquet

    content = {"a": [1.5, None], "n": [1, 2], "kind": ["u", None], "day": [date(2024, 2, 1)] * 2, "flag": [True, False]}
    pyarrow.parquet.write_table(arrow.table(content), tmp_path / "a.parquet")
    columns, rows = read(tmp_path / "a.parquet")
    assert [column.kind for column in columns.parts] == ["number", "number", "category", "date", "category"]
    assert rows[0].tolist() == [1.5, 1, 1, 19754, 1, 0, 1, 3]


def test_without_pyarrow_a_sentence_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"needs the package pyarrow .*pip install csst-learn\[hf\]"):
        read_arrays(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"holds no rows"),
        ("a,label\n", r"holds no rows"),
        ("a b label\n1 2 x\n", r"has one column only, 'a b label': columns are separated by commas, semicolons"),
        ("a,b\n1,2\n", r"has no column 'label'; its columns: a, b; name the column of the labels with --data\.label"),
        ("a,lable\n1,2\n", r"no column 'label'; did you mean 'lable'\?; name the column"),
        (
            "label,b\nx,1,2\n",
            r"line 2 of .* has 3 fields, but the first line names 2 columns: a text with",
        ),
        ("a,a,label\n1,2,x\n", r"two columns named 'a'"),
        ("a,label\ninf,x\n1,y\n", r"contains NaN or infinity in 1 rows, the first in row 0, column a"),
    ],
)
def test_bad_tables_get_a_sentence(tmp_path, text, sentence):
    with pytest.raises(InputError, match=sentence):
        read_labeled_table(write(tmp_path / "a.csv", text), "label")


def test_a_column_that_knows_the_label_is_noted(tmp_path):
    random = np.random.default_rng(0)
    rows = [
        f"{x:.3f},{'paid' if label == 'good' else 'owes'},{label}"
        for x, label in zip(random.normal(size=60), ["good", "bad"] * 30, strict=True)
    ]
    _, columns = read_labeled_table(write(tmp_path / "a.csv", "\n".join(["x,status,label", *rows])), "label")
    assert columns.parts[0].notes == ()
    assert columns.parts[1].notes == ("alone predicts the label (balanced accuracy 1.00): known only afterwards?",)


def test_ten_thousand_columns(tmp_path):
    names = ",".join(f"c{n}" for n in range(10_000))
    cells = ",".join(["1.5"] * 10_000)
    path = write(tmp_path / "a.csv", f"{names},label\n{cells},x\n{cells},y\n")
    arrays, columns = read_labeled_table(path, "label")
    assert arrays["x"].shape == (2, 10_000)
    assert columns.width == 10_000


def test_chunks_are_small(tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n" + "1,2\n" * 10)
    assert [len(chunk["a"]) for chunk in read_chunks(path, rows=4)] == [4, 4, 2]
    assert len(list(read_chunks(path))) == 1
    wide = write(
        tmp_path / "wide.csv", "\n".join([",".join(f"c{n}" for n in range(60_000)), *[",".join(["1"] * 60_000)] * 7])
    )
    assert [len(chunk["c9"]) for chunk in read_chunks(wide)] == [3, 3, 1], "a chunk has no more than 200,000 cells"


@pytest.mark.parametrize(
    "change",
    [
        lambda values: None,
        lambda values: [],
        lambda values: ["x", *values[1:]],
        lambda values: [*values, values[0]],
        *[
            lambda values, entry=entry: [{**values[0], **entry}, *values[1:]]
            for entry in (
                {"name": 5},
                {"kind": "other"},
                {"median": "1"},
                {"median": float("nan")},
                {"median": 10**400},
                {"offset": "1"},
                {"offset": float("nan")},
                {"offset": -(10**400)},
                {"has_gaps": 2},
                {"categories": 3},
                {"categories": ["a", "a"]},
                {"categories": [["a"]]},
                {"notes": [1]},
            )
        ],
        lambda values: [{name: value for name, value in values[0].items() if name != "gaps"}, *values[1:]],
    ],
)
def test_a_file_that_describes_no_columns_is_refused(tmp_path, change):
    columns, _ = read(write(tmp_path / "a.csv", MESSY))
    with pytest.raises(ValueError):
        Columns.from_dict(change(columns.as_dict()))


def test_whole_numbers_are_one_class_with_a_point_and_without():
    """pandas writes 5.0 where other rows have no label, and 5 where all have one."""
    assert index_words(["5", "6.0", None], ["5.0", "6.0"], "test.csv").tolist() == [0, 1, -1]
    assert index_words(["-5.0", "6"], ["-5", "6"], "test.csv").tolist() == [0, 1]
    assert index_words(["1", "1.0"], ["1", "1.0"], "test.csv").tolist() == [0, 1]
    with pytest.raises(InputError, match=r"test\.csv: \['7\.5', 'a\.0'\]"):
        index_words(["a.0", "7.5"], ["a", "7"], "test.csv")

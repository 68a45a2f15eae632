"""Tables of texts from files and folders, as people really have them."""

from __future__ import annotations

import csv
import json
import sys
import time

import pytest

from csst.data.tabular.labeled_tables import index_words
from csst.data.text.files import find_column, read_label_words, read_table, read_texts, sort_class_names
from csst.errors import InputError

TEXTS = ["plain", 'say "hi", he said', "two\nlines", "", "  spaces  ", "naïve 東京 🙂", "x" * 200_000]
LABELS = ["a", "b", "", "-1", "a", "b", "a"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CSST_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def arrow():
    return pytest.importorskip("pyarrow.parquet", reason="the extra hf is not installed")


@pytest.fixture
def datasets():
    found = pytest.importorskip("datasets", reason="the extra hf is not installed")
    found.disable_progress_bars()
    return found


def written(path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def table_of(path, ending: str, arrow) -> str:
    """The same texts and labels in any of the formats, written without the code under test."""
    file = path / f"table{ending}"
    if ending == ".parquet":
        import pyarrow

        arrow.write_table(pyarrow.table({"text": TEXTS, "label": LABELS}), file)
        return str(file)
    if ending == ".jsonl":
        lines = [json.dumps({"text": text, "label": label}) for text, label in zip(TEXTS, LABELS, strict=True)]
    else:
        mark = "\t" if ending == ".tsv" else ","
        rows = [("text", "label"), *zip(TEXTS, LABELS, strict=True)]
        lines = [mark.join('"' + value.replace('"', '""') + '"' for value in row) for row in rows]
    return written(file, "\n".join(lines) + "\n")


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_format_gives_the_same_columns(tmp_path, arrow, ending):
    assert read_table(table_of(tmp_path, ending, arrow)) == {"text": TEXTS, "label": LABELS}


@pytest.mark.parametrize("ending", [".CSV", ".Jsonl"])
def test_the_ending_is_read_in_either_case(tmp_path, ending):
    content = "text,label\na,1\n" if ending == ".CSV" else '{"text": "a", "label": "1"}\n'
    assert read_table(written(tmp_path / f"t{ending}", content)) == {"text": ["a"], "label": ["1"]}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bom.csv", b"\xef\xbb\xbftext,label\na,1\n"),
        ("bom.jsonl", b'\xef\xbb\xbf{"text": "a", "label": "1"}\n'),
        ("crlf.csv", b"text,label\r\na,1\r\n"),
        ("blank lines.csv", b"text,label\n\na,1\n\n"),
        ("blank lines.jsonl", b'\n{"text": "a", "label": "1"}\n\n'),
        ("no last newline.csv", b"text,label\na,1"),
    ],
)
def test_byte_order_marks_blank_lines_and_line_ends(tmp_path, name, content):
    assert read_table(written(tmp_path / name, content)) == {"text": ["a"], "label": ["1"]}


def test_json_lines_with_missing_keys_and_line_separators_inside_texts(tmp_path):
    path = written(
        tmp_path / "t.jsonl", '{"text": "a\u2028b"}\n{"label": 3, "text": "c"}\n{"text": "d", "more": [1]}\n'
    )
    assert read_table(path) == {"text": ["a\u2028b", "c", "d"], "label": [None, 3, None], "more": [None, None, [1]]}


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("t.csv", "text,label\na,1\nb,c,2\n", r"line 3 of .*t\.csv has 3 fields, but the first line names 2 columns"),
        ("t.csv", "text,label\na\n", r"line 2 of .* has 1 fields"),
        ("t.csv", "text,label,text\na,1,b\n", "two columns named 'text'"),
        ("t.csv", 'text,label\nfine,1\n"he said "hi"",2\n', r"line 3 of .*t\.csv is not CSV"),
        ("t.csv", 'text,label\n"never closed,1\n', r"line 2 of .*t\.csv is not CSV"),
        ("t.csv", b"text,label\ncaf\xe9,1\n", r"t\.csv is not UTF-8 text .*: save it as UTF-8"),
        ("t.csv", "text,label\na,1\n".encode("utf-16"), "is not UTF-8 text"),
        ("t.jsonl", b'{"text": "caf\xe9"}\n', "is not UTF-8 text"),
        ("t.csv", "", "holds no rows"),
        ("t.csv", "text,label\n", "holds no rows"),
        ("t.jsonl", "\n\n", "holds no rows"),
        ("t.jsonl", '{"text": "a"}\n{"text": \n', r"line 2 of .*t\.jsonl is not JSON"),
        ("t.jsonl", '{"text": "a"}\n["b", 1]\n', r"line 2 of .* must be an object; found list"),
        ("t.jsonl", '[{"text": "a"}]', r"line 1 of .* must be an object; found list"),
        ("t.parquet", b"no parquet at all", r"t\.parquet cannot be read"),
        ("t.txt", "hello", r"a \.csv, \.tsv, \.jsonl, \.parquet file; found the ending '\.txt'"),
        ("t", "hello", "found the ending ''"),
    ],
)
def test_broken_files_are_told_in_one_sentence(tmp_path, arrow, name, content, sentence):
    path = written(tmp_path / name, content)
    with pytest.raises(InputError, match=sentence) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)
    # As for images: the files of a data set, as the hub has them.
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "train.csv").write_text("text,label\na,x\nb,y\n")
    (tmp_path / "files" / "test.csv").write_text("text,label\nc,y\n")
    assert read_table(f"hf:{tmp_path}/files") == {"text": ["a", "b"], "label": ["x", "y"]}
    assert read_table(f"hf:{tmp_path}/files", "test") == {"text": ["c"], "label": ["y"]}


@pytest.mark.parametrize(("delimiter", "name"), [(",", "commas"), (";", "semicolons"), ("\t", "tabs")])
def test_the_delimiter_of_a_csv_is_that_of_its_first_line(tmp_path, delimiter, name):
    rows = [["text", "label"], ["well, good; \tfine", "x"], ["bad", ""]]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    assert read_table(str(tmp_path / "a.csv")) == {"text": [rows[1][0], "bad"], "label": ["x", ""]}
    (tmp_path / "a.csv").write_text(f"text{delimiter}label\na{delimiter}b{delimiter}c\n")
    with pytest.raises(InputError, match=f"has 3 fields, but the first line names 2 columns: a text with {name} needs"):
        read_table(str(tmp_path / "a.csv"))


def test_a_single_column_has_no_delimiter(tmp_path):
    (tmp_path / "a.csv").write_text("text\na; b\n")
    assert read_table(str(tmp_path / "a.csv")) == {"text": ["a; b"]}


def test_two_parquet_columns_of_one_name_are_refused(tmp_path, arrow):
    import pyarrow

    twice = pyarrow.table([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["text", "text"])
    arrow.write_table(twice, tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"cannot be read: .*text"):
        read_table(str(tmp_path / "t.parquet"))


def test_a_missing_file_and_a_missing_column(tmp_path):
    with pytest.raises(InputError, match=r"there is no file 'nowhere\.csv'"):
        read_table("nowhere.csv")
    table = read_table(written(tmp_path / "t.csv", "texts,score\na,1\n"))
    with pytest.raises(InputError, match=r"t\.csv has no column 'text'; did you mean 'texts'\?"):
        find_column(table, "text", "t.csv")
    with pytest.raises(InputError, match="no column 'label'; its columns: texts, score"):
        find_column(table, "label", "t.csv")


@pytest.mark.parametrize(("wrong", "kind"), [(3, "int"), (None, "NoneType"), (float("nan"), "float"), (["a"], "list")])
def test_values_that_are_no_texts_are_refused_with_their_row(wrong, kind):
    with pytest.raises(
        InputError, match=rf"'text' of f\.jsonl must hold texts; 2 rows .* first of them row 1 \({kind}\)"
    ):
        read_texts({"text": ["fine", wrong, wrong]}, "text", "f.jsonl")
    assert read_texts({"text": ["fine", ""]}, "text", "f.jsonl") == ["fine", ""]


def test_half_a_character_is_no_text(tmp_path):
    """JSON can spell half of an emoji; no tokenizer can read it."""
    path = written(tmp_path / "t.jsonl", '{"text": "fine"}\n{"text": "half \\ud83d"}\n{"text": "\\ud83d\\ude42"}\n')
    with pytest.raises(InputError, match=r"row 1 .*t\.jsonl.* half of a character"):
        read_texts(read_table(path), "text", path)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        *((blank, None) for blank in ("", "  ", None, -1, -1.0, "-1", "-1.0", float("nan"), "NaN", "nan", "null")),
        *(("none", "none"), ("None", "None"), ("0", "0"), (0, "0"), (2.0, "2"), (2.5, "2.5"), (" a b ", "a b")),
        *((-2, "-2"), (True, "True"), ("-10", "-10"), ("1.0", "1.0")),
    ],
)
def test_labels_as_words(value, word):
    """`none` is a class of many data sets, so that it is not taken for a missing label."""
    assert read_label_words([value]) == [word]


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, b"a"])
def test_a_label_is_a_word_or_a_number(value):
    with pytest.raises(InputError, match=f"a label must be a word or a number; row 1 has a {type(value).__name__}"):
        read_label_words(["a", value])


def test_a_number_with_and_without_a_point_is_one_class():
    """Files with gaps, in which a data frame writes 1.0, and without are often joined."""
    words = ["2.0", "1", "1.0", None, "2.0", "10"]
    names = sort_class_names(words)
    assert names == ("1", "2.0", "10")
    assert index_words(words, names, "labels").tolist() == [1, 0, 0, -1, 1, 2]
    assert sort_class_names(["v1", "v1.0"]) == ("v1", "v1.0")


def test_classes_are_in_the_order_of_numbers_or_of_letters():
    assert sort_class_names(["10", "9", None, "2", "9"]) == ("2", "9", "10")
    assert sort_class_names(["1.5", "-3", "1"]) == ("-3", "1", "1.5")
    assert sort_class_names(["10", "9", "b", None]) == ("10", "9", "b")
    assert sort_class_names(["pos", "neg", "Neutral"]) == ("Neutral", "neg", "pos")
    assert sort_class_names([None]) == ()


def test_integers_with_blanks_are_floats_in_parquet_and_classes_all_the_same(tmp_path, arrow):
    import pyarrow

    labels = {"floats": pyarrow.array([1.0, float("nan"), 0.0, 10.0]), "nulls": pyarrow.array([1, None, 0, 10])}
    for name, values in labels.items():
        arrow.write_table(pyarrow.table({"text": ["a", "b", "c", "d"], "label": values}), tmp_path / f"{name}.parquet")
        words = read_label_words(find_column(read_table(str(tmp_path / f"{name}.parquet")), "label", name))
        assert words == ["1", None, "0", "10"]
        assert sort_class_names(words) == ("0", "1", "10")


def test_a_folder_of_datasets(tmp_path, datasets):
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    one = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, -1]}, features=features)
    two = datasets.Dataset.from_dict({"text": ["d"], "label": [0]}, features=features)
    one.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": one, "test": two}).save_to_disk(tmp_path / "both")
    expected = {"text": ["a", "b", "c"], "label": ["pos", "neg", None]}
    for path in (f"hf:{tmp_path}/one", f"{tmp_path}/one", f"hf:{tmp_path}/both"):
        assert read_table(path) == expected
    assert read_table(f"hf:{tmp_path}/both", "test") == {"text": ["d"], "label": ["neg"]}
    with pytest.raises(InputError, match="has no split 'validation'; it has train, test"):
        read_table(f"hf:{tmp_path}/both", "validation")
    one.select([]).save_to_disk(tmp_path / "empty")
    with pytest.raises(InputError, match="empty is not a folder of rows that"):
        read_table(f"hf:{tmp_path}/empty")
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="other is not a folder of rows that datasets' save_to_disk wrote") as caught:
        read_table(str(tmp_path / "other"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["hf:some-owner/some-texts", "hf:imdb"])
def test_a_hub_name_without_a_network_is_one_quick_sentence(datasets, monkeypatch, spec):
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    before, start = datasets.config.HF_HUB_OFFLINE, time.monotonic()
    with pytest.raises(InputError, match="not in the local cache, and the Hugging Face hub is out of reach") as caught:
        read_table(spec)
    assert time.monotonic() - start < 8
    assert "\n" not in str(caught.value)
    assert f"{spec} is not a folder" in str(caught.value)
    assert "hf:FOLDER" in str(caught.value)
    assert before == datasets.config.HF_HUB_OFFLINE


def test_offline_mode_asks_nobody(datasets, monkeypatch):
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("urllib.request.urlopen", lambda *a, **k: pytest.fail("asked the network"))
    with pytest.raises(InputError, match="HF_HUB_OFFLINE is set"):
        read_table("hf:some-owner/some-texts")


def test_what_was_downloaded_before_is_used_without_a_network(datasets, monkeypatch):
    import huggingface_hub.constants as constants

    stored = datasets.Dataset.from_dict({"text": ["a"], "label": ["x"]})
    asked = []

    def load_dataset(name, split):
        asked.append((name, split, datasets.config.HF_HUB_OFFLINE))
        return stored

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert read_table("hf:owner/texts", "test") == {"text": ["a"], "label": ["x"]}
    assert asked == [("owner/texts", "test", True)]


@pytest.mark.parametrize("spec", ["hf:./no/such/folder", "hf:/no/such/folder", "hf:~/nothing-here", "hf:a/b/c"])
def test_a_folder_that_is_not_there(datasets, spec):
    with pytest.raises(InputError, match="there is no such folder"):
        read_table(spec)


@pytest.mark.parametrize(
    ("package", "path"), [("pyarrow.parquet", "t.parquet"), ("datasets", "hf:owner/texts"), ("datasets", "folder")]
)
def test_missing_packages_name_the_extra(tmp_path, monkeypatch, package, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.parquet").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        InputError, match=rf"needs the package {package.split('.')[0]} .*: pip install csst-learn\[hf\]"
    ):
        read_table(path)

"""`with confidence 0.95`: read, kept, printed, and refused where it means nothing."""

from __future__ import annotations

import pytest

import csst
from csst.cli import main
from csst.errors import InputError

SENTENCE = "max recall['fraud'] s.t. precision['fraud'] >= 0.9"


def test_a_confidence_is_read_printed_and_read_again() -> None:
    read = csst.objective(f"{SENTENCE} with confidence .95")
    assert read.confidence == 0.95
    assert str(read) == f"{SENTENCE} with confidence 0.95"
    assert csst.objective(str(read)) == read
    assert csst.objective(f"{SENTENCE} with confidence 95%") == read
    assert read != csst.objective(SENTENCE)
    assert read.bind(2, ["ok", "fraud"]).confidence == 0.95


def test_a_confidence_as_an_argument_is_the_same() -> None:
    read = csst.objective(f"{SENTENCE} with confidence 0.95")
    assert csst.objective(SENTENCE, confidence=0.95) == read
    assert csst.objective(read, confidence=0.95) == read
    assert csst.objective(SENTENCE).confidence is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("max min(recall) with confidence 0.9", "a confidence is for bounds, and there is none"),
        (f"{SENTENCE} with confidence 1", "lies between 0 and 1, such as 0.95; found 1"),
        (f"{SENTENCE} with confidence 0", "lies between 0 and 1"),
        (f"{SENTENCE} with confidence -0.5", "a number between 0 and 1"),
        (f"{SENTENCE} with confidence", "a number between 0 and 1"),
        (f"{SENTENCE} with 0.95", "'with' is followed by a confidence"),
        (f"{SENTENCE} with confidence 0.9, recall >= 0.1", "ends the sentence"),
    ],
)
def test_a_sentence_with_a_confidence_that_means_nothing(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        csst.objective(text)


@pytest.mark.parametrize(
    ("text", "confidence", "sentence"),
    [
        (f"{SENTENCE} with confidence 0.9", 0.95, "the sentence says confidence 0.9 and the argument 0.95"),
        (SENTENCE, 1.5, "lies between 0 and 1, such as 0.95; found 1.5"),
        (SENTENCE, "high", "a number between 0 and 1, such as 0.95; found 'high'"),
        ("max min(recall)", 0.9, "is for bounds, and 'max min\\(recall\\)' has none"),
    ],
)
def test_an_argument_that_means_nothing(text: str, confidence: float, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        csst.objective(text, confidence=confidence)


def test_csst_objective_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["objective", SENTENCE, "--confidence", "0.9"]) == 0
    printed = capsys.readouterr().out
    assert f"{SENTENCE} with confidence 0.9" in printed
    assert "all bounds with confidence 0.9" in printed
    assert main(["objective", f"{SENTENCE} with confidence 0.9", "--confidence", "0.8"]) == 2
    assert "state one of them" in capsys.readouterr().err

"""Views of texts against plain loops and against what their definitions promise."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import get_args

import numpy as np
import pytest
import torch

from csst.data.text.translations import TranslationWriter
from csst.data.text.views import Strong, TextViews, TfIdf, TokenDropout, Translated
from csst.errors import InputError

CORPUS = [
    "the film was good and the actors were good",
    "The film was bad, very bad!",
    "a story of the sea and the wind",
    "the the the music was loud",
    "добрый вечер the",
]
ODD = [
    "",
    "   \n",
    "one",
    "😀",
    "👩‍👩‍👧 🎵",
    "très bien, merci!",
    "你好世界",
    "हिन्दी में लिखा",
    "a b",
    "tab\tand\nline",
    "...",
]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def views():
    return {
        "tfidf": TfIdf.fit([*CORPUS, *ODD], 0.5),
        "dropout": TokenDropout(0.5),
        "all": TokenDropout(1.0),
    }


@pytest.mark.parametrize("name", list(views()))
def test_every_view_takes_any_text(name):
    view = views()[name]
    batch = [*ODD, *CORPUS]
    before = list(batch)
    out = view(batch, generator())
    assert batch == before
    assert len(out) == len(batch)
    assert all(isinstance(text, str) for text in out)
    assert out[:2] == batch[:2]  # nothing to change
    assert out[2:4] == ["one", "😀"]  # the only word stays
    assert all(text.split() for text in out[2:])
    assert view(batch, generator()) == out
    assert name == "all" or any(view(batch, generator(seed)) != out for seed in (1, 2))
    assert view([], generator()) == []


@pytest.mark.parametrize("name", list(views()))
def test_very_long_texts_take_linear_time(name):
    words = [f"w{i % 1000}" for i in range(100_000)]
    start = time.perf_counter()
    out = views()[name](["short text", " ".join(words), "x"], generator())[1]
    assert time.perf_counter() - start < 3
    assert name == "all" or len(out.split()) > 40_000


def reference_counts(corpus):
    documents = [[word.lower().strip(".,!?") for word in text.split()] for text in corpus]
    words = {word for document in documents for word in document}
    idf = {word: math.log(len(documents) / sum(word in document for document in documents)) for word in words}
    frequency = Counter(word for document in documents for word in document)
    return idf, frequency


def test_words_that_say_little_are_replaced_more_often():
    """UDA: p_i = min(p (C - tfidf_i) / Z, 1), C = max tfidf, Z = mean (C - tfidf), tf = count / length."""
    view = TfIdf.fit(CORPUS, 0.4)
    idf, _ = reference_counts(CORPUS)
    texts = [*CORPUS, "the unheard film film", "same same", "", "THE the."]
    for text, found in zip(texts, view.probabilities(texts), strict=True):
        words = [word.lower().strip(".,!?") for word in text.split()]
        tfidf = [words.count(word) / len(words) * idf.get(word, math.log(len(CORPUS))) for word in words]
        below = [max(tfidf) - value for value in tfidf]
        mean = sum(below) / len(below) if below else 0
        assert found.tolist() == pytest.approx([min(0.4 * b / mean, 1) if mean else 0 for b in below])
    assert TfIdf.fit(CORPUS, 0.1).probabilities(CORPUS[:1])[0].mean() == pytest.approx(0.1)  # none is capped


def test_replacements_are_drawn_from_words_that_say_little():
    """UDA: proportional to max_v S(v) - S(w), S(w) = frequency(w) idf(w)."""
    view = TfIdf.fit(CORPUS)
    idf, frequency = reference_counts(CORPUS)
    score = {word: frequency[word] * idf[word] for word in idf}
    weight = {word: max(score.values()) - score[word] for word in score}
    found = dict(zip(view.words.tolist(), np.diff(view.cumulative, prepend=0).tolist(), strict=True))
    assert set(found) == set(weight)
    for word in weight:
        assert found[word] == pytest.approx(weight[word] / sum(weight.values()))


def test_words_are_replaced_at_those_rates():
    view = TfIdf.fit([*CORPUS, "unique"], 0.5)
    text = "the film was good and the sea was very loud"
    expected = view.probabilities([text])[0]
    words, draws = text.split(), 4000
    out = [row.split() for row in view([text] * draws, generator())]
    drawn = Counter(row[i] for row in out for i in range(len(words)))
    changed = np.array([[a != b for a, b in zip(row, words, strict=True)] for row in out]).mean(0)
    itself = dict(zip(view.words.tolist(), np.diff(view.cumulative, prepend=0), strict=True))
    rate = np.array([p * (1 - itself[word]) for p, word in zip(expected, words, strict=True)])
    assert np.abs(changed - rate).max() < 5 * 0.5 / math.sqrt(draws)
    total = draws * expected.sum()
    for word in ("unique", "wind", "story"):
        assert drawn[word] == pytest.approx(total * itself[word], abs=5 * math.sqrt(total * itself[word]))


def test_punctuation_and_the_words_that_say_most_stay():
    view = TfIdf.fit([*CORPUS, "zebra"], 0.9)
    out = [text.split() for text in view(["(the) «film», ... zebra zebra zebra!"] * 300, generator())]
    assert all(row[0][0] == "(" and row[0][-1] == ")" for row in out)
    assert all(row[1][0] == "«" and row[1][-2:] == "»," for row in out)
    assert all(row[3:] == ["zebra", "zebra", "zebra!"] for row in out)
    assert len({row[0] for row in out}) > 5


def test_a_corpus_without_words_is_refused():
    with pytest.raises(InputError, match="needs a corpus with words"):
        TfIdf.fit(["", " "])
    assert TfIdf.fit(["", "same same"])(["same same"], generator()) == ["same same"]


def test_counts_do_not_depend_on_how_texts_are_grouped(monkeypatch):
    whole = TfIdf.fit(CORPUS)
    monkeypatch.setattr("csst.data.text.views._CHUNK", 2)
    parts = TfIdf.fit(iter(CORPUS))
    assert parts.words.tolist() == whole.words.tolist()
    assert np.array_equal(parts.idf, whole.idf)
    assert np.array_equal(parts.cumulative, whole.cumulative)


def subsequence(part: list[str], whole: list[str]) -> bool:
    rest = iter(whole)
    return all(word in rest for word in part)


def test_dropout_drops_a_fraction_of_the_words():
    words = [f"w{i}" for i in range(50)]
    out = [text.split() for text in TokenDropout(0.3)([" ".join(words)] * 400, generator())]
    assert all(subsequence(row, words) for row in out)
    kept = np.array([[word in row for word in words] for row in out])
    assert kept.mean() == pytest.approx(0.7, abs=5 * math.sqrt(0.21 / 20_000))
    assert np.abs(kept.mean(0) - 0.7).max() < 5 * math.sqrt(0.21 / 400)
    assert TokenDropout(0.0)(["a  b"], generator()) == ["a b"]


CACHE = {"a b": ["x", "y", "z"], "c": ["C"]}


class Stored(dict):
    def __missing__(self, text):
        return []


def test_translations_are_drawn_evenly():
    out = Translated(Stored(CACHE))(["a b", "c", "", " "] * 3000, generator())
    counts = Counter(out[::4])
    assert set(counts) == {"x", "y", "z"}
    assert all(abs(count - 1000) < 5 * math.sqrt(667) for count in counts.values())
    assert set(out[1::4]) == {"C"}
    assert out[2:4] == ["", " "]


def test_texts_without_a_translation():
    batch = ["a b", "d e", "", "f", "d e"]
    assert Translated(Stored(CACHE))(batch, generator())[1:] == batch[1:]

    def shout(texts, generator):
        return [text.upper() for text in texts]

    out = Translated(Stored(CACHE), shout)(batch, generator())
    assert out[0] in "xyz"
    assert out[1:] == ["D E", "", "F", "D E"]
    assert batch[1] == "d e"


@pytest.mark.parametrize("strong", [name for name in get_args(Strong) if name != "backtranslation"])
def test_settings_build_their_view(strong):
    view = TextViews(strong, strength=0.5).build(CORPUS)
    out = view(CORPUS, generator())
    assert (out == CORPUS) == (strong == "none")


def test_settings_for_back_translation(tmp_path):
    path = tmp_path / "cache.sqlite"
    with TranslationWriter(path, {"via": "hf:a,hf:b"}) as cache:
        cache.add([(CORPUS[0], 0, "one"), (CORPUS[0], 1, "two")])
        cache.save()
    settings = TextViews("backtranslation", cache=str(path))
    out = settings.build([CORPUS[0], "", CORPUS[0]])([CORPUS[0]] * 50, generator())
    assert set(out) == {"one", "two"}
    with pytest.raises(InputError, match=r"cache\.sqlite: 4 of 5 texts have no back-translation"):
        settings.build(CORPUS)
    partly = TextViews("backtranslation", cache=str(path), missing="none").build(CORPUS)
    assert partly(CORPUS, generator())[1:] == CORPUS[1:]
    with pytest.raises(InputError, match=r"needs a cache: --data\.views\.cache"):
        TextViews("backtranslation").build(CORPUS)
    with pytest.raises(InputError, match="there is no file of back-translations 'nowhere'"):
        TextViews("backtranslation", cache="nowhere").build(CORPUS)


def test_settings_come_from_the_command_line():
    from jsonargparse import ArgumentParser

    parser = ArgumentParser()
    parser.add_class_arguments(TextViews, "views")
    found = parser.parse_args(["--views.strong", "dropout", "--views.strength=0.2", "--views.missing", "none"])
    assert TextViews(**found.views.as_dict()) == TextViews("dropout", 0.2, missing="none")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: TextViews("tfdif"), "views.strong must be one of .* did you mean 'tfidf'"),
        (lambda: TextViews("eda"), "must be one of tfidf, dropout, backtranslation, none; found 'eda'$"),
        (lambda: TextViews(missing="span"), "must be one of error, tfidf, dropout, none; found 'span'$"),
        (lambda: TextViews(missing="backtranslation"), "views.missing must be one of"),
        (lambda: TextViews(strength=1.5), "views.strength must be a fraction"),
        (lambda: TextViews("dropout", strength=math.nan), "views.strength must be a fraction"),
    ],
)
def test_bad_settings(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()

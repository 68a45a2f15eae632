"""Back-translation by tiny models built on the spot; nothing here needs a network."""

from __future__ import annotations

import json
import math
import time
from types import SimpleNamespace

import pytest
import torch

from csst.errors import InputError
from csst.models.huggingface.translation import (
    RoundTrip,
    Sampling,
    Translator,
    load_translator,
    parse_via,
    split_sentences,
)
from tests.models.tiny_translators import SIZE, TEXTS, byte_tokenizer, save_model, save_sentencepiece_model


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="transformers is not installed (pip install csst-learn[hf])")


@pytest.fixture(scope="module")
def pair(transformers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("marian")
    return save_model(transformers, folder / "there", seed=1), save_model(transformers, folder / "back", seed=2)


def trip(specs, batch: int = 16, max_characters: int = 3000, **sampling) -> RoundTrip:
    there, back = (load_translator(spec) for spec in specs)
    return RoundTrip(there, back, Sampling(**sampling), batch, max_characters)


class Echo:
    """A model that says what it hears, and remembers how much it heard at a time."""

    def __init__(self, positions: int) -> None:
        self.config = SimpleNamespace(max_position_embeddings=positions, model_type="marian")
        self.generation_config = SimpleNamespace(eos_token_id=0)
        self.shapes: list[tuple[int, int]] = []

    def to(self, device):
        return self

    def eval(self):
        return self

    def generate(self, input_ids, attention_mask, **options):
        self.shapes.append(tuple(input_ids.shape))
        assert torch.equal(attention_mask, (input_ids != 2).long())
        return input_ids


def echo_trip(transformers, positions: int = 32, batch: int = 4, max_characters: int = 0):
    models = Echo(positions), Echo(positions)
    there, back = (Translator("hf:echo", model, byte_tokenizer(transformers, positions)) for model in models)
    return RoundTrip(there, back, Sampling(), batch, max_characters), models


def test_the_pieces_of_texts_come_back_in_their_order(transformers):
    """Cut, sorted by length, padded, moved twice and put together: an echo must give the texts back."""
    texts = [*TEXTS, "", "one", "😀😀 !!", "a.<br /><br />b c.\n\n- d\te? 'f.' g", "x" * 500, "word " * 300 + "end"]
    echo, models = echo_trip(transformers)
    assert echo.translate(texts, [0] * len(texts))[:9] == texts[:9]
    # a piece that is too long was cut at white space, or anywhere if there is none; nothing is lost
    longest = echo.translate(texts[-2:], [0, 0])
    assert longest[0].replace(" ", "") == texts[-2]
    assert longest[1] == texts[-1]
    shapes = models[0].shapes
    assert max(width for _, width in shapes) <= 32
    assert max(rows for rows, _ in shapes) == 4


def test_batches_are_of_like_length(transformers):
    echo, models = echo_trip(transformers, batch=2)
    echo.translate(["good. " + "the film was good " * 4 + ". I. " + "very much liked it " * 4 + "."], [0])
    widths = [width for _, width in models[0].shapes]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 2 * widths[-1]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        (" \n ", []),
        ("no end", [("no end", "")]),
        (
            "One. Two!  Three? Four… Five",
            [("One.", " "), ("Two!", "  "), ("Three?", " "), ("Four…", " "), ("Five", "")],
        ),
        ('He said "no." Then 3.5 e.g.', [('He said "no."', " "), ("Then 3.5 e.g.", "")]),
        ("a\nb<br /><BR>c", [("a", "\n"), ("b", "<br /><BR>"), ("c", "")]),
        ("a.\n<br> b", [("a.", "\n<br> "), ("b", "")]),
        ("a  <br />b \n c", [("a", "  <br />"), ("b", " \n "), ("c", "")]),
        ("你好。今天！好", [("你好。", ""), ("今天！", ""), ("好", "")]),
    ],
)
def test_texts_are_cut_after_sentences(text, pieces):
    assert split_sentences(text) == pieces
    assert "".join(piece + between for piece, between in pieces) == text.strip()


def test_long_texts_lose_their_end():
    text = "One two. Three four. Five six."
    assert split_sentences(text, 30) == split_sentences(text)
    assert split_sentences(text, 29) == [("One two.", " "), ("Three four.", " ")]
    assert split_sentences(text, 20) == [("One two.", " "), ("Three four.", " ")]
    assert split_sentences(text, 19) == [("One two.", " ")]
    assert split_sentences(text, 6) == [("One", "")]
    assert split_sentences("x" * 50, 6) == [("xxxxxx", "")]


@pytest.mark.parametrize(
    "text", ["word " * 100_000, " " * 100_000 + "x", "<br" * 100_000, "a. " * 100_000, "\n" * 10**5]
)
def test_very_long_texts_are_cut_in_linear_time(text):
    start = time.perf_counter()
    split_sentences(text, 3000)
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    "kinds", ["marian", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("bart", "t5", "sentencepiece"))]
)
def test_round_trip(transformers, tmp_path, kinds):
    if kinds == "sentencepiece":
        specs = [save_sentencepiece_model(transformers, tmp_path / str(seed), seed) for seed in (1, 2)]
    else:
        specs = [save_model(transformers, tmp_path / str(seed), kinds, seed) for seed in (1, 2)]
    both = trip(specs)
    texts = [*TEXTS, "", " ", "😀", "x"]
    copies = [both.translate(texts, [copy] * len(texts)) for copy in (0, 1, 0)]
    assert copies[0] == copies[2]
    for i in range(len(TEXTS)):
        assert copies[0][i] not in ("", texts[i])
        assert copies[1][i] != copies[0][i]
    assert copies[0][len(TEXTS) : len(TEXTS) + 3] == ["", "", "😀"]
    other = trip(specs, seed=1)
    assert other.translate(TEXTS, [0] * 5) != copies[0][:5]


@pytest.mark.slow
def test_a_translation_depends_on_its_seed_and_group_only(pair):
    """Not on what was translated before, nor on torch's global generator, which stays as it is."""
    both, copies = trip(pair, batch=3), [0, 1, 0, 1, 0]
    torch.manual_seed(1)
    first = both.translate(TEXTS, copies)
    state = torch.get_rng_state()
    both.translate(TEXTS[:2], [5, 6])
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert both.translate(TEXTS, copies) == first
    assert trip(pair, batch=3).translate(TEXTS, copies) == first
    assert trip(pair, batch=3, seed=1).translate(TEXTS, copies) != first
    assert both.translate(TEXTS, [0] * 5) != first


def test_the_likeliest_words_at_temperature_0(transformers, pair):
    """Greedy search of the library, text by text, is the reference."""
    folder = pair[0].removeprefix("hf:")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    texts, expected = ["The film was good.", "bad", "Do not watch it"], []
    for text in texts:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        limit = min(2 * ids.shape[1] + 16, 31)
        row = model.generate(input_ids=ids, num_beams=1, do_sample=False, max_new_tokens=limit)[0]
        expected.append(tokenizer.decode(row, skip_special_tokens=True).strip())
    translator = load_translator(pair[0])
    assert translator.translate(texts, Sampling(temperature=0), 1) == expected
    assert translator.translate(texts, Sampling(temperature=0), 3) == expected
    # where sampling leaves one word to choose, it is the likeliest
    assert translator.translate(texts, Sampling(temperature=1e-6), 1) == expected
    assert translator.translate(texts, Sampling(1.0, top_k=1), 1) == expected
    assert translator.translate(texts, Sampling(1.0, top_p=1e-6), 1) == expected


def test_words_are_drawn_among_all_by_default(transformers, pair, monkeypatch):
    """The library's own defaults, the models' beam search among them, do not apply."""
    translator, seen = load_translator(pair[0]), []
    real = translator.model._get_logits_processor

    def note(generation_config, **options):
        seen.append(generation_config)
        return real(generation_config=generation_config, **options)

    monkeypatch.setattr(translator.model, "_get_logits_processor", note)
    translator.translate(["The film was good."], Sampling(0.7), 4)
    config = seen[0]
    assert (config.do_sample, config.num_beams, config.temperature) == (True, 1, 0.7)
    assert (config.top_k, config.top_p) == (0, 1.0)


def test_each_translation_ends_at_its_own_limit(transformers):
    """At most twice as many tokens as the source and 16, the first and the last of them special."""

    class Endless(Echo):
        def generate(self, input_ids, attention_mask, max_new_tokens, **options):
            return torch.full((len(input_ids), 1 + max_new_tokens), 70)

    tokenizer = byte_tokenizer(transformers, 400)
    translator = Translator("hf:endless", Endless(400), tokenizer)
    texts = ["The film was good and I liked it very much", "x"]
    lengths = [len(tokenizer(text)["input_ids"]) for text in texts]
    assert [len(new) for new in translator.translate(texts, Sampling(), 2)] == [2 * n + 16 for n in lengths]


@pytest.mark.parametrize("name", ["some-owner/opus-en-fr", "opus-en-fr"])
def test_a_name_without_a_network_is_one_quick_sentence(transformers, monkeypatch, name):
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    start = time.monotonic()
    with pytest.raises(InputError, match="not in the local cache, and the Hugging Face hub is out of reach") as caught:
        load_translator(f"hf:{name}")
    assert time.monotonic() - start < 8
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("via", ["", "hf:a", "hf:a,b", "a,hf:b", "hf:a,hf:", "hf:a,hf:b,hf:c"])
def test_bad_pairs(via):
    with pytest.raises(InputError, match=r"two models, hf:THERE,hf:BACK .*; found"):
        parse_via(via)


def test_a_pair():
    assert parse_via("hf:a/b, hf:/c d/e") == ("hf:a/b", "hf:/c d/e")


def test_folders_that_are_no_translators(transformers, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"has no config\.json"):
        load_translator(f"hf:{tmp_path / 'empty'}")
    with pytest.raises(InputError, match="there is no such folder"):
        load_translator("hf:./no/such")
    spec = save_model(transformers, tmp_path / "cut")
    config = json.loads((tmp_path / "cut/config.json").read_text())
    (tmp_path / "cut/config.json").write_text(json.dumps({**config, "encoder_layers": 2}))
    with pytest.raises(InputError, match=r"do not fit its config\.json: \d+ tensors"):
        load_translator(spec)
    (tmp_path / "cut/model.safetensors").unlink()
    with pytest.raises(InputError, match="cannot be loaded as a translation model"):
        load_translator(spec)
    bert = transformers.DistilBertConfig(vocab_size=50, dim=8, hidden_dim=8, n_layers=1, n_heads=1)
    transformers.DistilBertModel(bert).save_pretrained(tmp_path / "bert")
    byte_tokenizer(transformers).save_pretrained(tmp_path / "bert")
    with pytest.raises(InputError, match="cannot be loaded as a translation model"):
        load_translator(f"hf:{tmp_path / 'bert'}")


def test_a_tokenizer_without_its_package_names_the_extra(transformers, pair, monkeypatch):
    def absent(*args, **options):
        raise ImportError(
            "\nMarianTokenizer requires the SentencePiece library but it was not found. Check out the\n..."
        )

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", absent)
    with pytest.raises(InputError, match=r"\(MarianTokenizer requires .* found\): pip install csst-learn\[hf\]$"):
        load_translator(pair[0])


def test_models_of_many_languages_are_refused(transformers, tmp_path):
    tokenizer = byte_tokenizer(transformers)
    tokenizer.save_pretrained(tmp_path)
    config = transformers.MBartConfig(**SIZE, vocab_size=len(tokenizer), pad_token_id=2, eos_token_id=0)
    transformers.MBartForConditionalGeneration(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="must be told which language to translate into"):
        load_translator(f"hf:{tmp_path}")


@pytest.mark.parametrize(
    "bad", [{"temperature": -1}, {"temperature": math.inf}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.5}, {"seed": -1}]
)
def test_bad_sampling(bad):
    with pytest.raises(InputError, match="found"):
        Sampling(**bad)

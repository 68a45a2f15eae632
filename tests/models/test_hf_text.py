"""Hugging Face text classifiers from folders with tiny networks and tokenizers; nothing here needs a network."""

from __future__ import annotations

import copy
import json
import shutil
import sys
import time

import pytest
import torch
from torch.nn import functional as F

from csst.errors import InputError
from csst.models import Model, build
from csst.models.huggingface.text import HuggingFaceTexts, Tokens, build_text_classifier, prepare_inputs
from csst.training.evaluation import compute_logits as logits_of
from tests.helpers.tiny_models import KINDS, reviews, save_text_model, tokenizer

pytest.importorskip("transformers", reason="transformers is not installed (pip install csst-learn[hf])")

SHORT = "a lovely film"
ODD = ["", "   ", "🙂", "東京はとても静かでした", "مرحبا", "x" * 5000, "the dull dog " * 500, "\n", SHORT, SHORT]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CSST_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One folder with weights for each kind of network."""
    base = tmp_path_factory.mktemp("models")
    return {kind: save_text_model(base / kind, kind) for kind in KINDS}


def seeded(spec: str, classes: int = 2, max_length: int = 32, seed: int = 0) -> HuggingFaceTexts:
    torch.manual_seed(seed)
    return build_text_classifier(spec, classes, max_length)


def saved(folders, kind: str):
    import transformers

    return transformers.AutoModelForSequenceClassification.from_pretrained(folders[kind].removeprefix("hf:")).eval()


# ── Tokens ──


def test_tokens_are_padded_to_the_longest_of_their_batch_and_no_further():
    words = tokenizer("bert")
    tokens = Tokens(words, 32)
    texts = [SHORT, "", "the story of two people and their dog", SHORT]
    found, expected = tokens(texts), [words(text)["input_ids"] for text in texts]
    assert found.dtype == torch.int64
    assert found.shape == (4, max(map(len, expected)))
    for row, ids in zip(found.tolist(), expected, strict=True):
        assert row == ids + [-1] * (found.shape[1] - len(ids))
    assert tokens([""]).tolist() == [words("")["input_ids"]]


def test_long_texts_are_cut_between_their_special_tokens():
    words = tokenizer("bert")
    found = Tokens(words, 8)(["the dog " * 1000, SHORT])
    start, end = words.cls_token_id, words.sep_token_id
    the, dog = words("the dog")["input_ids"][1:3]
    assert found[0].tolist() == [start, the, dog, the, dog, the, dog, end]
    assert found.shape == (2, 8)


def test_texts_met_before_are_remembered_up_to_a_number():
    words, asked = tokenizer("bert"), []

    def counting(texts, **options):
        asked.append(list(texts))
        return words(texts, **options)

    tokens = Tokens(counting, 32, remember=3)
    first = tokens(["a", "b", "a"])
    assert torch.equal(tokens(["b", "a"]), first[[1, 0]])
    assert asked == [["a", "b"]]
    tokens(["a", "c"])
    assert asked[1:] == [["c"]]
    assert torch.equal(tokens(["c", "d", "a", "b"]), Tokens(words, 32)(["c", "d", "a", "b"]))  # forgets, but not these
    assert asked[2:] == [["d"]]
    tokens(["e", "b"])
    assert len(tokens._memory) <= 3
    assert copy.deepcopy(tokens) is tokens


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_batch_of_empty_texts_has_something_to_read(kind):
    found = Tokens(tokenizer(kind), 32)(["", ""])
    assert found.shape[0] == 2
    assert found.shape[1] >= 1
    assert prepare_inputs(found, 0)["attention_mask"].sum(1).min() >= 1


def test_padding_is_not_attended_and_has_the_networks_own_number():
    ids = torch.tensor([[5, 6, 7], [8, -1, -1], [-1, -1, -1]])
    found = prepare_inputs(ids, 9)
    assert found["input_ids"].tolist() == [[5, 6, 7], [8, 9, 9], [9, 9, 9]]
    assert found["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0], [1, 0, 0]]


# ── Networks ──


@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_neighbors_change_no_logits(folders, kind):
    model = seeded(folders[kind]).eval()
    texts = [SHORT, "", "the story of two people and their dog was dull", "🙂", "the dog " * 100, "warm"]
    with torch.no_grad():
        together = model(model.encode(texts))
        alone = torch.cat([model(model.encode([text])) for text in texts])
        wide = F.pad(model.encode(texts[:4]), (0, 7), value=-1)
        torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)
        torch.testing.assert_close(model(wide), alone[:4], rtol=0, atol=1e-5)
        torch.testing.assert_close(model(model.encode(texts[::-1])), together.flip(0), rtol=0, atol=1e-5)
    assert alone.unique(dim=0).shape[0] == len(texts)  # the network does look at them


@pytest.mark.parametrize("kind", KINDS)
def test_odd_texts_have_finite_logits(folders, kind):
    model = seeded(folders[kind]).eval()
    with torch.no_grad():
        found = model(model.encode(ODD))
        assert found.shape == (len(ODD), 2)
        assert found.isfinite().all()
        torch.testing.assert_close(found[-1], found[-2])
        assert model(model.encode(["", ""])).isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_logits_are_those_of_the_library(folders, kind):
    """Of a network with three classes, whose head is kept, on one text at a time."""
    model, network = seeded(folders[kind], classes=3).eval(), saved(folders, kind)
    for text in (SHORT, "the story was dull", "warm"):
        ids = torch.tensor([model.encode.tokenizer(text)["input_ids"]])
        with torch.no_grad():
            torch.testing.assert_close(model(model.encode([text])), network(input_ids=ids).logits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 14])
def test_the_body_is_loaded_and_a_head_that_does_not_fit_is_new(folders, kind, classes):
    model, other = seeded(folders[kind], classes), seeded(folders[kind], classes, seed=1)
    assert model.training
    expected, found = saved(folders, kind).base_model.state_dict(), model.network.base_model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    x = model.encode(["a film"])
    assert model(x).shape == (1, classes)
    assert torch.equal(seeded(folders[kind], classes).eval()(x), model.eval()(x))  # by seed
    assert not torch.equal(other.eval()(x), model(x))


@pytest.mark.parametrize("kind", KINDS)
def test_random_weights_come_from_the_seed(tmp_path, kind):
    spec = save_text_model(tmp_path, kind, weights=False)
    one, again, other = (build(Model(spec, max_length=32), (), 2, seed) for seed in (3, 3, 4))
    x = one.encode([SHORT])
    assert torch.equal(one.eval()(x), again.eval()(x))
    assert not torch.equal(one(x), other.eval()(x))


def test_learns_copies_and_restores(folders):
    model = seeded(folders["distilbert"])
    texts, labels = reviews(8, 8)
    y, x = torch.tensor([int(label == "good") for label in labels]), model.encode(texts)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(25):
        losses.append(F.cross_entropy(model(x), y))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]
    expected = model.eval()(x)
    other = seeded(folders["distilbert"], seed=5).eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), expected)
    copied = copy.deepcopy(model)
    assert torch.equal(copied(x), expected)
    assert copied.encode is model.encode  # what was tokenized is shared


def test_length_buckets_give_logits_in_the_order_of_the_texts(folders):
    from csst.data.text.texts import Texts

    model, seen = seeded(folders["bert"]).eval(), []
    model.register_forward_pre_hook(lambda module, args: seen.append(tuple(args[0].shape)))
    texts = Texts(["the dog " * (1 + 7 * at % 12) for at in range(20)])
    found = logits_of(model, texts, batch=4)
    buckets = list(seen)
    with torch.no_grad():
        alone = torch.cat([model(model.encode([text])) for text in texts.texts])
        torch.testing.assert_close(found, alone, rtol=0, atol=1e-5)
        index = torch.tensor([17, 2, 9, 2])
        torch.testing.assert_close(logits_of(model, texts, 3, index=index), alone[index], rtol=0, atol=1e-5)
    assert [rows for rows, _ in buckets] == [4] * 5
    widths = [width for _, width in buckets]
    assert widths == sorted(widths)  # short texts are not padded to long ones
    assert widths[0] < widths[-1] / 2


def test_half_precision_checkpoints_become_single(tmp_path):
    spec = save_text_model(tmp_path, "bert")
    network = saved({"bert": spec}, "bert").to(torch.bfloat16)
    network.save_pretrained(tmp_path)
    assert {p.dtype for p in seeded(spec).parameters()} == {torch.float32}


# ── Mistakes ──


@pytest.mark.parametrize(
    ("kind", "room", "settings"),
    [("bert", 64, {}), ("gpt2", 64, {}), ("roberta", 64, {}), ("roberta", 62, {"pad_token_id": 3})],
)
def test_more_tokens_than_the_network_has_positions_for(tmp_path, kind, room, settings):
    spec = save_text_model(tmp_path, kind, **settings)
    with pytest.raises(InputError, match=f"reads at most {room} tokens of a text; max_length asks for {room + 1}"):
        build_text_classifier(spec, 2, room + 1)
    model = seeded(spec, max_length=room).eval()
    assert model(model.encode(["the dog " * 200])).isfinite().all()
    with pytest.raises(InputError, match="max_length must be at least 2 tokens; found 1"):
        build_text_classifier(spec, 2, 1)


def test_a_folder_without_tokenizer_or_config(tmp_path):
    save_text_model(tmp_path / "whole", "bert")
    spec = f"hf:{tmp_path / 'part'}"
    for missing, sentence in (("tokenizer", "tokenizer"), ("config.json", r"has no config\.json")):
        shutil.copytree(tmp_path / "whole", tmp_path / "part")
        for path in (tmp_path / "part").glob(f"{missing}*"):
            path.unlink()
        with pytest.raises(InputError, match=sentence) as caught:
            build_text_classifier(spec, 2, 32)
        assert "\n" not in str(caught.value)
        shutil.rmtree(tmp_path / "part")


def test_a_tokenizer_with_more_words_than_the_network(tmp_path):
    spec = save_text_model(tmp_path, "bert", vocab_size=60)
    with pytest.raises(InputError, match=r"tokenizer of .* has \d+ tokens, but the network knows 60"):
        build_text_classifier(spec, 2, 32)


def test_weights_of_another_network_are_refused(tmp_path):
    spec = save_text_model(tmp_path, "bert")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(InputError, match=r"do not fit its config.json: \d+ tensors of the network's body"):
        build_text_classifier(spec, 2, 32)
    (tmp_path / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
    with pytest.raises(InputError, match=r"do not fit its config.json: \d+ tensors of the network's body"):
        build_text_classifier(spec, 2, 32)
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(InputError, match="cannot be loaded as a text classifier"):
        build_text_classifier(spec, 2, 32)


def test_code_in_a_folder_is_never_run(tmp_path):
    spec = save_text_model(tmp_path, "bert", weights=False)
    config = json.loads((tmp_path / "config.json").read_text())
    code = {"AutoConfig": "evil.Config", "AutoModelForSequenceClassification": "evil.Model"}
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "unheard-of", "auto_map": code}))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: ...\nclass Model: ...\n")
    with pytest.raises(InputError, match="cannot be loaded as a text classifier"):
        build_text_classifier(spec, 2, 32)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("spec", ["hf:some-owner/some-network", "hf:some-network"])
def test_a_name_without_a_network_is_one_quick_sentence(monkeypatch, spec):
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    start = time.monotonic()
    with pytest.raises(InputError, match="not in the local cache, and the Hugging Face hub is out of reach") as caught:
        build_text_classifier(spec, 2, 32)
    assert time.monotonic() - start < 8
    assert "\n" not in str(caught.value)


def test_without_transformers_the_sentence_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"needs the package transformers .*: pip install csst-learn\[hf\]"):
        build_text_classifier("hf:some-network", 2, 32)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("hf:", "hf:FOLDER or hf:OWNER/NAME; found 'hf:'"),
        ("hf-config:bert", "has no tokenizer, which texts need"),
        ("hf:./no/such/folder", "there is no such folder"),
        ("mlp", r"mlp takes numbers, and this task's examples are texts: .*--encoder words --frozen"),
        ("linear", "linear takes numbers"),
        ("wrn-28-2", "takes images"),
        ("tests.models.test_hf_text:numbers", "must have an `encode`"),
    ],
)
def test_models_that_do_not_take_texts(spec, sentence):
    with pytest.raises(InputError, match=sentence):
        build(Model(spec), (), 2, 0)


def numbers(shape, classes):
    return torch.nn.Linear(3, classes)

"""Frozen encoders of texts and images: words, tiny Hugging Face networks, and functions of the user's own."""

from __future__ import annotations

import json
import shutil
import sys
import time

import numpy as np
import pytest
import torch

from csst.data.embeddings import Embedder
from csst.data.text.texts import Texts
from csst.errors import InputError
from csst.models.encoders import WORDS_WIDTH, encoder
from csst.settings import Embedding
from tests.helpers.tiny_models import KINDS, reviews, save_image_model, save_text_model

TEXTS = ["a lovely film", "", "the story of two people and their dog was dull", "🙂", "the dog " * 100, "a lovely film"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CSST_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="transformers is not installed (pip install csst-learn[hf])")


# ── words ──


def test_words_are_unit_vectors_of_hashed_words_and_pairs():
    words = encoder("words", "text")
    found = words(["lovely film", "Lovely, film!", "film lovely", "dull story", "", "🙂", "lovely lovely lovely film"])
    assert found.shape == (7, WORDS_WIDTH)
    assert found.dtype == np.float32
    norms = np.linalg.norm(found, axis=1)
    np.testing.assert_allclose(norms[[0, 1, 2, 3, 6]], 1, rtol=1e-5)
    assert norms[4] == norms[5] == 0  # nothing to count
    assert np.array_equal(found[0], found[1])  # case and punctuation do not count
    assert found[0] @ found[2] == pytest.approx(2 / 3, abs=1e-5)  # two words in common, the pair not
    assert abs(found[0] @ found[3]) < 1e-5
    assert (np.abs(found[0]) > 0).sum() == 3
    # lovely three times, film once, "lovely lovely" twice, "lovely film" once
    damped = np.log1p([3, 1, 2, 1])
    expected = np.sort(damped / np.linalg.norm(damped))
    np.testing.assert_allclose(np.sort(np.abs(found[6]))[-4:], expected, rtol=1e-5)


def test_words_do_not_depend_on_the_batch_and_are_the_same_tomorrow():
    words = encoder("words", "text")
    assert np.array_equal(words(TEXTS)[2], words([TEXTS[2]])[0])
    assert words.fingerprint == encoder("words", "text", 7).fingerprint == "words-2048-1"
    # the hash is no secret of this process: these places and signs are part of the fingerprint's promise
    found = words(["film"])[0]
    assert (int(np.abs(found).argmax()), float(found[np.abs(found).argmax()])) == (681, -1.0)


# ── Hugging Face, texts ──


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_the_mean_of_its_tokens(transformers, tmp_path, kind):
    """Against a loop over texts and tokens, without any padding."""
    spec = save_text_model(tmp_path, kind)
    made = encoder(spec, "text", 32)
    found = made(TEXTS)
    assert found.shape == (len(TEXTS), 16)
    assert found.dtype == torch.float32
    network = transformers.AutoModel.from_pretrained(tmp_path).eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text, row in zip(TEXTS, found, strict=True):
        ids = words(text, truncation=True, max_length=32)["input_ids"] or [0]  # an empty text of gpt2: its padding
        with torch.no_grad():
            hidden = network(input_ids=torch.tensor([ids])).last_hidden_state[0]
        total = torch.zeros(16)
        for token in hidden:
            total += token
        torch.testing.assert_close(row, total / len(ids), rtol=0, atol=1e-5)
    torch.testing.assert_close(made([TEXTS[2]])[0], found[2], rtol=0, atol=1e-5)


def test_the_fingerprint_follows_weights_length_and_vocabulary(transformers, tmp_path):
    spec = save_text_model(tmp_path / "a", "bert", seed=1)
    one = encoder(spec, "text", 32).fingerprint
    shutil.copytree(tmp_path / "a", tmp_path / "moved")
    assert encoder(f"hf:{tmp_path / 'moved'}", "text", 32).fingerprint == one
    assert encoder(save_text_model(tmp_path / "b", "bert", seed=2), "text", 32).fingerprint != one
    assert encoder(spec, "text", 31).fingerprint != one
    tokenizer = json.loads((tmp_path / "moved" / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    words["film"], words["dog"] = words["dog"], words["film"]
    (tmp_path / "moved" / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert encoder(f"hf:{tmp_path / 'moved'}", "text", 32).fingerprint != one


def test_the_fingerprint_follows_the_configuration(transformers, tmp_path):
    spec = save_text_model(tmp_path / "a", "bert", seed=1)
    one = encoder(spec, "text", 32).fingerprint
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    (tmp_path / "a" / "config.json").write_text(json.dumps({**config, "hidden_act": "relu"}))
    assert encoder(spec, "text", 32).fingerprint != one
    (tmp_path / "a" / "config.json").write_text(json.dumps({**config, "transformers_version": "5.0.0"}))
    assert encoder(spec, "text", 32).fingerprint == one


def test_a_checkpoint_without_its_pooling_layer_is_the_same_encoder_every_time(transformers, tmp_path):
    """As of a masked language model: the library would make up a pooling layer, another one at every load."""
    save_text_model(tmp_path, "bert")
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
    one, two = (encoder(f"hf:{tmp_path}", "text", 32) for _ in range(2))
    assert one.fingerprint == two.fingerprint
    assert torch.equal(one(TEXTS), two(TEXTS))


def test_embeddings_of_a_network_are_found_again(transformers, tmp_path):
    spec = save_text_model(tmp_path, "distilbert")
    first = Embedder(encoder(spec, "text", 32), Embedding(batch=2))(Texts(TEXTS), "texts")
    made = encoder(spec, "text", 32)
    again = Embedder(made, Embedding(batch=2))
    made.network = None  # it cannot be asked any more
    assert torch.equal(again(Texts(TEXTS), "texts"), first)
    torch.testing.assert_close(first, encoder(spec, "text", 32)(TEXTS), rtol=0, atol=1e-5)


def test_the_encoder_is_in_evaluation_mode_and_learns_nothing(transformers, tmp_path):
    made = encoder(save_text_model(tmp_path, "distilbert"), "text", 32)
    assert torch.equal(made(TEXTS), made(TEXTS))  # no dropout
    assert not made(TEXTS).requires_grad


@pytest.mark.parametrize("kind", ["bert", "vit"])
def test_weights_that_do_not_fit_are_refused(transformers, tmp_path, kind):
    spec = save_text_model(tmp_path, kind) if kind == "bert" else save_image_model(tmp_path, kind)
    what = "text" if kind == "bert" else "image"
    config = json.loads((tmp_path / "config.json").read_text())
    for change in ({"num_hidden_layers": 3}, {"intermediate_size": 48}):
        (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(InputError, match=r"do not fit its config.json: \d+ tensors"):
            encoder(spec, what, 32)


def test_encoders_that_cannot_be_loaded(transformers, tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"has no weights, such as model\.safetensors; a frozen encoder needs"):
        encoder(save_text_model(tmp_path / "a", "bert", weights=False), "text", 32)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"has no config\.json"):
        encoder(f"hf:{tmp_path / 'empty'}", "text", 32)
    spec = save_text_model(tmp_path / "b", "bert")
    with pytest.raises(InputError, match="reads at most 64 tokens of a text; max_length asks for 65"):
        encoder(spec, "text", 65)
    for path in (tmp_path / "b").glob("tokenizer*"):
        path.unlink()
    with pytest.raises(InputError, match="has no tokenizer"):
        encoder(spec, "text", 32)
    with pytest.raises(InputError, match="cannot embed"):
        encoder(spec, "image")
    with pytest.raises(InputError, match="there is no such folder"):
        encoder("hf:./nowhere", "text")
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    start = time.monotonic()
    for kind in ("text", "image"):
        with pytest.raises(InputError, match="the Hugging Face hub is out of reach") as caught:
            encoder("hf:some-owner/some-network", kind)
        assert "\n" not in str(caught.value)
    assert time.monotonic() - start < 8
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"needs the package transformers .*: pip install csst-learn\[hf\]"):
        encoder("hf:some-network", "text")


# ── Hugging Face, images ──


def images(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", ["resnet", "vit"])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 40, 24)])
def test_an_image_has_its_pooled_features(transformers, tmp_path, kind, shape):
    made, x = encoder(save_image_model(tmp_path, kind), "image"), images(3, *shape)
    found = made(x)
    assert found.shape == (3, 16)
    assert not found.requires_grad
    torch.testing.assert_close(made(x[1:2]), found[1:2], rtol=0, atol=1e-5)
    if shape == (3, 32, 32):
        network = transformers.AutoModel.from_pretrained(tmp_path).eval()
        mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
        for image, row in zip(x, found, strict=True):
            with torch.no_grad():
                pooled = network(pixel_values=((image / 255 - mean) / std)[None]).pooler_output.flatten()
            torch.testing.assert_close(row, pooled, rtol=0, atol=1e-5)
    if shape[0] == 1:
        torch.testing.assert_close(made(x.expand(-1, 3, -1, -1)), found)


def test_a_classifiers_body_without_a_pooling_layer_is_the_same_encoder_every_time(transformers, tmp_path):
    save_image_model(tmp_path, "vit", head=True)
    one, two = (encoder(f"hf:{tmp_path}", "image") for _ in range(2))
    x = images(2, 3, 32, 32)
    assert one.fingerprint == two.fingerprint
    assert torch.equal(one(x), two(x))


def test_image_fingerprints_follow_the_weights(transformers, tmp_path):
    made = [encoder(save_image_model(tmp_path / str(seed), "resnet", seed=seed), "image") for seed in (1, 2)]
    assert made[0].fingerprint != made[1].fingerprint
    assert made[0].fingerprint == encoder(f"hf:{tmp_path / '1'}", "image").fingerprint


# ── Functions of one's own, and mistakes ──

MINE = """
import numpy as np

SIZE = 2

def mine(texts):
    return np.array([[len(text), text.count("a")] for text in texts])

class Callable:
    def __call__(self, texts):
        return mine(texts)

instance = Callable()
number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes and imports a module of encoders anew."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(code: str) -> str:
        (tmp_path / "my_encoders_for_csst.py").write_text(code)
        sys.modules.pop("my_encoders_for_csst", None)
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        return "my_encoders_for_csst:"

    yield write
    sys.modules.pop("my_encoders_for_csst", None)


def test_a_function_of_ones_own(module):
    name = module(MINE)
    made = encoder(name + "mine", "text")
    assert made(["abc", "banana"]).tolist() == [[3, 1], [6, 3]]
    again = encoder(name + "mine", "image")
    assert made.fingerprint == again.fingerprint
    changed = encoder(module(MINE.replace("SIZE = 2", "SIZE = 4")) + "mine", "text")
    assert changed.fingerprint != made.fingerprint  # another constant in its module may matter
    vectors = Embedder(made, Embedding())(Texts(["abc", "banana", "abc"]), "texts")
    assert vectors.tolist() == [[3, 1], [6, 3], [3, 1]]


def test_an_object_without_source_code_is_not_kept_on_disk(module):
    """Nothing says whether it is still the same tomorrow."""
    made = encoder(module(MINE) + "instance", "text")
    assert made.fingerprint == ""
    assert Embedder(made, Embedding())(Texts(["abc"]), "texts").tolist() == [[3, 1]]


@pytest.mark.parametrize(
    ("spec", "kind", "sentence"),
    [
        ("words", "image", "takes texts; for images name one as hf:FOLDER"),
        ("words", "array", "feature vectors already"),
        ("hf:x", "array", "feature vectors already"),
        ("wordz", "text", "unknown encoder 'wordz': words, hf:NAME_OR_FOLDER, or"),
        ("hf:", "text", "hf:FOLDER or hf:OWNER/NAME; found 'hf:'"),
        ("nowhere_at_all:f", "text", "cannot be imported"),
        ("json:dumpz", "text", "did you mean 'dump"),
        ("math:pi", "text", "must be a function of a batch; found float"),
    ],
)
def test_encoders_that_do_not_exist(spec, kind, sentence):
    with pytest.raises(InputError, match=sentence):
        encoder(spec, kind)


def test_the_two_classes_of_reviews_are_told_apart_by_words():
    texts, labels = reviews(30, 30)
    found, good = encoder("words", "text")(texts), np.array(labels) == "good"
    centers = [found[mask][:20].mean(0) for mask in (good, ~good)]
    right = [(x @ centers[0] > x @ centers[1]) == is_good for x, is_good in zip(found, good, strict=True)]
    assert np.mean(right) > 0.95

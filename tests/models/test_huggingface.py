"""Hugging Face image classifiers from folders and configurations; nothing here needs a network."""

from __future__ import annotations

import copy
import json
import sys
import time

import pytest
import torch
from torch.nn import functional as F

from csst.errors import InputError
from csst.models.huggingface.images import IMAGENET_MEAN, IMAGENET_STD, HuggingFaceImages, build_huggingface

RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
VIT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
TINY = {"resnet": RESNET, "vit": {**VIT, "image_size": 32, "patch_size": 8}}
TINY["deit"] = TINY["vit"]  # a type with two kinds of head


@pytest.fixture
def transformers():
    return pytest.importorskip("transformers", reason="transformers is not installed (pip install csst-learn[hf])")


@pytest.fixture
def folder(transformers, tmp_path):
    def save(kind: str, weights: bool, labels: int = 7) -> str:
        torch.manual_seed(1)
        config = transformers.AutoConfig.for_model(kind, num_labels=labels, **TINY[kind])
        (transformers.AutoModelForImageClassification.from_config(config) if weights else config).save_pretrained(
            tmp_path
        )
        assert (tmp_path / "model.safetensors").exists() == weights
        return str(tmp_path)

    return save


def images(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def seeded(spec: str, shape: tuple[int, ...], classes: int, seed: int = 0) -> HuggingFaceImages:
    torch.manual_seed(seed)
    return build_huggingface(spec, shape, classes)


@pytest.mark.parametrize("kind", ["resnet", "vit", "deit"])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 40, 24)])
def test_random_weights_for_the_tasks_images(folder, kind, shape):
    spec = f"hf:{folder(kind, weights=False)}"
    model, again, other = (seeded(spec, shape, 5, seed) for seed in (0, 0, 1))
    assert model.training
    assert model.pixels.mean.shape[1] == shape[0]
    x = images(2, *shape)
    assert torch.equal(again.eval()(x), model.eval()(x))
    assert not torch.equal(other.eval()(x), model(x))
    assert model.train()(x).shape == (2, 5)


@pytest.mark.parametrize("kind", ["resnet", "vit"])
@pytest.mark.parametrize("classes", [3, 7, 20])
def test_weights_are_loaded_and_the_head_fits_the_classes(transformers, folder, kind, classes):
    path = folder(kind, weights=True)
    saved = transformers.AutoModelForImageClassification.from_pretrained(path).eval()
    model = seeded(f"hf:{path}", (3, 32, 32), classes)
    assert model.training
    body, found = saved.base_model.state_dict(), model.network.base_model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in body.items())
    x = images(2, 3, 32, 32)
    logits = model.eval()(x)
    assert logits.shape == (2, classes)
    if classes == 7:  # a head of the right size is kept
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
        torch.testing.assert_close(logits, saved((x / 255 - mean) / std).logits)
    else:
        assert torch.equal(seeded(f"hf:{path}", (3, 32, 32), classes).eval()(x), logits)


@pytest.mark.parametrize("kind", ["resnet", "vit"])
@pytest.mark.parametrize("shape", [(1, 32, 32), (3, 48, 48), (1, 28, 28), (3, 40, 24)])
def test_pretrained_networks_take_other_sizes_and_gray_images(folder, kind, shape):
    model = seeded(f"hf:{folder(kind, weights=True)}", shape, 4)
    x = images(2, *shape)
    assert model(x).shape == (2, 4)
    if shape[0] == 1:
        torch.testing.assert_close(model.eval()(x), model(x.expand(-1, 3, -1, -1)))


def test_float_images_and_channels_last_agree_with_uint8(folder):
    model, x = seeded(f"hf:{folder('resnet', weights=True)}", (3, 32, 32), 4).eval(), images(3, 3, 32, 32)
    expected = model(x)
    torch.testing.assert_close(model(x.float() / 255), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.to(memory_format=torch.channels_last)(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_learns_copies_and_restores(folder, kind):
    spec = f"hf:{folder(kind, weights=True)}"
    model, x, y = seeded(spec, (3, 32, 32), 4), images(8, 3, 32, 32), torch.arange(8) % 4
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        losses.append(F.cross_entropy(model(x), y))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]
    expected = model.eval()(x)
    other = seeded(spec, (3, 32, 32), 4, seed=5).eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), expected)
    assert torch.equal(copy.deepcopy(model)(x), expected)


def test_resnet_50_from_its_configuration(transformers):
    with torch.device("meta"):  # without numbers in it
        model = build_huggingface("hf-config:resnet", (3, 64, 64), 100)
    # ResNet-50's body has 23,508,032 parameters, its head 2048 * 100 + 100
    assert sum(p.numel() for p in model.parameters()) == 23_508_032 + 204_900


@pytest.mark.slow  # small: networks of a few layers, above
def test_resnet_50_learns(transformers):
    model = seeded("hf-config:resnet", (3, 64, 64), 100)
    F.cross_entropy(model(images(2, 3, 64, 64)), torch.tensor([0, 99])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_half_precision_checkpoints_become_single(transformers, tmp_path):
    config = transformers.AutoConfig.for_model("resnet", num_labels=3, **RESNET)
    transformers.AutoModelForImageClassification.from_config(config).to(torch.bfloat16).save_pretrained(tmp_path)
    model = seeded(f"hf:{tmp_path}", (3, 32, 32), 3)
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_weights_of_another_network_are_refused(folder, tmp_path):
    path = folder("resnet", weights=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_sizes": [8, 24]}))
    with pytest.raises(InputError, match=r"do not fit its config.json: \d+ tensors of the network's body"):
        build_huggingface(f"hf:{path}", (3, 32, 32), 3)


def test_a_damaged_file_is_told_in_a_sentence(folder, tmp_path):
    path = folder("resnet", weights=True)
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(InputError, match="cannot be loaded as an image classifier"):
        build_huggingface(f"hf:{path}", (3, 32, 32), 3)


@pytest.mark.parametrize("kind", ["unheard-of", "resnet"])
def test_code_in_a_folder_is_never_run(folder, tmp_path, kind):
    path = folder("resnet", weights=False)
    config = json.loads((tmp_path / "config.json").read_text())
    code = {"AutoConfig": "evil.Config", "AutoModelForImageClassification": "evil.Model"}
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": kind, "auto_map": code}))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: ...\nclass Model: ...\n")
    if kind == "resnet":
        assert build_huggingface(f"hf:{path}", (3, 32, 32), 3)(images(2, 3, 32, 32)).shape == (2, 3)
    else:
        with pytest.raises(InputError, match="cannot be loaded as an image classifier"):
            build_huggingface(f"hf:{path}", (3, 32, 32), 3)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("spec", ["hf:some-owner/some-network", "hf:some-network"])
def test_a_name_without_a_network_is_one_quick_sentence(transformers, monkeypatch, tmp_path, spec):
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    start = time.monotonic()
    with pytest.raises(InputError, match="not in the local cache, and the Hugging Face hub is out of reach") as caught:
        build_huggingface(spec, (3, 32, 32), 3)
    assert time.monotonic() - start < 8
    assert "\n" not in str(caught.value)
    assert "hf:FOLDER" in str(caught.value)


def test_offline_mode_asks_nobody(transformers, monkeypatch):
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("urllib.request.urlopen", lambda *a, **k: pytest.fail("asked the network"))
    with pytest.raises(InputError, match="HF_HUB_OFFLINE is set"):
        build_huggingface("hf:some-owner/some-network", (3, 32, 32), 3)


def test_without_transformers_the_sentence_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"needs the package transformers .*: pip install csst-learn\[hf\]"):
        build_huggingface("hf-config:resnet", (3, 32, 32), 3)


@pytest.mark.parametrize(
    ("spec", "shape", "sentence"),
    [
        ("hf:", (3, 32, 32), "hf:FOLDER, hf:OWNER/NAME or hf-config:TYPE; found 'hf:'"),
        ("resnet", (3, 32, 32), "found 'resnet'"),
        ("hf-config:resnet", (10,), r"takes images .* inputs are \(10,\)"),
        ("hf-config:restnet", (3, 32, 32), "no image classifier of that type; did you mean 'resnet'"),
        ("hf-config:gpt2", (3, 32, 32), "no image classifier of that type"),
        ("hf:./no/such/folder", (3, 32, 32), "there is no such folder"),
    ],
)
def test_bad_specs(transformers, spec, shape, sentence):
    with pytest.raises(InputError, match=sentence):
        build_huggingface(spec, shape, 3)


def test_bad_folders_and_images(transformers, folder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"has no config\.json"):
        build_huggingface(f"hf:{tmp_path / 'empty'}", (3, 32, 32), 3)
    path = folder("vit", weights=True)
    with pytest.raises(InputError, match=r"does not take images of 3x4x4 .*: resize the images to 32x32"):
        build_huggingface(f"hf:{path}", (3, 4, 4), 3)
    with pytest.raises(InputError, match="does not take images of 4x32x32"):
        build_huggingface(f"hf:{path}", (4, 32, 32), 3)

"""Image views: every operation is Pillow's to the last bit, on real photographs and digits; every draw is per image."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from csst.data.images.operations import GEOMETRY
from csst.data.images.views import GRAY, OPERATIONS, Strong, Weak
from csst.errors import InputError

Image = pytest.importorskip("PIL.Image")
ImageEnhance = pytest.importorskip("PIL.ImageEnhance")
ImageOps = pytest.importorskip("PIL.ImageOps")
datasets = pytest.importorskip("sklearn.datasets")


def affine(image, *coefficients):
    return image.transform(image.size, Image.Transform.AFFINE, coefficients)


PILLOW: dict[str, Callable] = {
    "autocontrast": lambda image, m: ImageOps.autocontrast(image),
    "brightness": lambda image, m: ImageEnhance.Brightness(image).enhance(m),
    "color": lambda image, m: ImageEnhance.Color(image).enhance(m),
    "contrast": lambda image, m: ImageEnhance.Contrast(image).enhance(m),
    "equalize": lambda image, m: ImageOps.equalize(image),
    "identity": lambda image, m: image,
    "posterize": lambda image, m: ImageOps.posterize(image, int(m)),
    "rotate": lambda image, m: image.rotate(m),
    "sharpness": lambda image, m: ImageEnhance.Sharpness(image).enhance(m),
    "shear_x": lambda image, m: affine(image, 1, m, 0, 0, 1, 0),
    "shear_y": lambda image, m: affine(image, 1, 0, 0, m, 1, 0),
    "solarize": lambda image, m: ImageOps.solarize(image, m * 256),
    "translate_x": lambda image, m: affine(image, 1, 0, m * image.size[0], 0, 1, 0),
    "translate_y": lambda image, m: affine(image, 1, 0, 0, 0, 1, m * image.size[1]),
}
TABLE = {  # FixMatch, Table 12
    "autocontrast": None,
    "brightness": (0.05, 0.95),
    "color": (0.05, 0.95),
    "contrast": (0.05, 0.95),
    "equalize": None,
    "identity": None,
    "posterize": (4, 8),
    "rotate": (-30, 30),
    "sharpness": (0.05, 0.95),
    "shear_x": (-0.3, 0.3),
    "shear_y": (-0.3, 0.3),
    "solarize": (0, 1),
    "translate_x": (-0.3, 0.3),
    "translate_y": (-0.3, 0.3),
}


@functools.cache
def photos() -> list[np.ndarray]:
    return datasets.load_sample_images().images


@functools.cache
def crops(count: int, height: int, width: int, channels: int = 3) -> Tensor:
    """Pieces of two photographs, (count, channels, height, width)."""
    rng = np.random.default_rng(height * width + channels)
    pieces = []
    for i in range(count):
        photo = photos()[i % 2]
        y, x = rng.integers(photo.shape[0] - height), rng.integers(photo.shape[1] - width)
        pieces.append(photo[y : y + height, x : x + width, :channels])
    return torch.from_numpy(np.stack(pieces)).permute(0, 3, 1, 2).contiguous()


@functools.cache
def digits(count: int) -> Tensor:
    """Scans of 8x8 with 17 levels, (count, 1, 8, 8)."""
    return torch.from_numpy((datasets.load_digits().images[:count] * 15.9375).astype(np.uint8))[:, None]


def degenerate() -> Tensor:
    """Images that give an empty range, a zero step or a single bin."""
    images = crops(10, 32, 32).clone()
    images[0], images[1], images[2] = 0, 255, 100
    images[3] = torch.where(images[3] > 128, 255, 0)  # two values
    images[4] = torch.where(images[4] > 128, 101, 100)
    images[5], images[5, :, 0, 0] = 7, 8  # one pixel off
    images[6, 1] = 50  # one flat channel of three
    images[7, :, 1:] = 255  # nearly all at the top: the last bin is left out of equalize's step
    images[8, :, 1:] = 0
    images[9] = torch.arange(1024).view(32, 32) // 4  # every value equally often
    return images


def magnitudes(name: str, count: int) -> Tensor:
    """Both ends, the middle, and random ones between, in float32."""
    _, low, high = OPERATIONS[name]
    rng = np.random.default_rng(len(name))
    ends = [low, high, (low + high) / 2]
    return torch.tensor([*ends, *rng.uniform(low, high, max(0, count - 3))][:count], dtype=torch.float32)


def by_pillow(name: str, images: Tensor, magnitude: Tensor) -> Tensor:
    results = []
    for image, m in zip(images.permute(0, 2, 3, 1).numpy(), magnitude.tolist(), strict=True):
        before = Image.fromarray(image if image.shape[2] == 3 else image[:, :, 0])
        results.append(np.array(PILLOW[name](before, m)).reshape(image.shape))
    return torch.from_numpy(np.stack(results)).permute(0, 3, 1, 2)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


SOURCES = {
    "32x32": lambda: crops(150, 32, 32),
    "47x31": lambda: crops(60, 47, 31),
    "20x45 gray": lambda: crops(60, 20, 45, 1),
    "96x96": lambda: crops(8, 96, 96),
    "digits": lambda: digits(100),
    "degenerate": degenerate,
    "tiny": lambda: crops(20, 3, 3),
    "two rows": lambda: crops(20, 2, 7),
    "one pixel": lambda: crops(5, 1, 1),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", PILLOW)
def test_operation_is_pillows_to_the_last_bit(name: str, source: str) -> None:
    images = SOURCES[source]()
    before = images.clone()
    for order in (slice(None), torch.arange(len(images)).flip(0)):  # each end of the range meets two images
        magnitude = magnitudes(name, len(images))[order]
        result = OPERATIONS[name][0](images, magnitude)
        assert result.dtype == torch.uint8
        assert result.shape == images.shape
        wrong = (result != by_pillow(name, images, magnitude)).flatten(1).any(1).nonzero().flatten().tolist()
        assert not wrong, f"{name} differs from Pillow for images {wrong}, magnitudes {magnitude[wrong].tolist()}"
    assert torch.equal(images, before)


@pytest.mark.parametrize("name", ["brightness", "color", "contrast", "sharpness"])
def test_blend_beyond_its_range_clips_as_pillow(name: str) -> None:
    images, magnitude = crops(40, 32, 32), torch.linspace(-0.5, 3.0, 40)
    assert torch.equal(OPERATIONS[name][0](images, magnitude), by_pillow(name, images, magnitude))


def test_gray_of_many_colors() -> None:
    """At magnitude 0 the color operation is the luma itself, and the smallest change of its weights shows."""
    images = torch.randint(256, (4, 3, 128, 128), generator=generator(), dtype=torch.uint8)
    assert torch.equal(OPERATIONS["color"][0](images, torch.zeros(4)), by_pillow("color", images, torch.zeros(4)))


def test_every_bit_count_and_threshold() -> None:
    images = crops(257, 8, 8)
    bits = torch.arange(257) % 8 + 1.0
    assert torch.equal(OPERATIONS["posterize"][0](images, bits), by_pillow("posterize", images, bits))
    threshold = torch.arange(257) / 256
    assert torch.equal(OPERATIONS["solarize"][0](images, threshold), by_pillow("solarize", images, threshold))


@pytest.mark.parametrize("name", ["translate_x", "translate_y"])
def test_translation_by_half_pixels(name: str) -> None:
    """Magnitudes next to a half pixel on either side, where float32 arithmetic would round the wrong way."""
    for images in (crops(63, 32, 32), crops(63, 47, 31)):
        length = images.shape[3 if name == "translate_x" else 2]
        half = torch.linspace(-10.5, 10.5, 63) / length
        for magnitude in (half, half.nextafter(torch.tensor(1.0)), half.nextafter(torch.tensor(-1.0))):
            assert torch.equal(OPERATIONS[name][0](images, magnitude), by_pillow(name, images, magnitude))


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_accepts_other_layouts_and_no_images(name: str) -> None:
    images = crops(12, 20, 24)
    magnitude = magnitudes(name, 12)
    expected = OPERATIONS[name][0](images, magnitude)
    strided = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert torch.equal(OPERATIONS[name][0](strided, magnitude), expected)
    assert torch.equal(OPERATIONS[name][0](images[::2], magnitude[::2]), expected[::2])
    assert OPERATIONS[name][0](images[:0], magnitude[:0]).shape == (0, 3, 20, 24)


def test_operations_are_the_papers() -> None:
    assert set(OPERATIONS) == set(TABLE) == set(PILLOW)
    for name, bounds in TABLE.items():
        assert bounds is None or OPERATIONS[name][1:] == bounds
    assert list(OPERATIONS)[-len(GEOMETRY) :] == list(GEOMETRY)  # the strong view relies on it


# ── The weak view ──


def crop(image: Tensor, padding: int, y: int, x: int, flip: bool) -> Tensor:
    """Pad by reflection, cut at (y, x), flip: written with NumPy, for one image."""
    padded = np.pad(image.numpy(), ((0, 0), (padding, padding), (padding, padding)), mode="reflect")
    cut = padded[:, y : y + image.shape[1], x : x + image.shape[2]]
    return torch.from_numpy((cut[:, :, ::-1] if flip else cut).copy())


@pytest.mark.parametrize(("height", "width", "padding"), [(32, 32, 4), (17, 9, 3), (12, 10, 4), (8, 8, 0)])
def test_weak_view_is_a_crop_and_a_flip(height: int, width: int, padding: int) -> None:
    # Noise, so that every view is found at exactly one place.
    noise = torch.randint(256, (1, 1, height, width), generator=generator(), dtype=torch.uint8)
    images = noise.repeat(300, 1, 1, 1)
    views = Weak(padding)(images, generator(1))
    places = [(y, x, flip) for y in range(2 * padding + 1) for x in range(2 * padding + 1) for flip in (False, True)]
    candidates = torch.stack([crop(images[0], padding, *place) for place in places])
    hits = (views[:, None] == candidates[None]).flatten(2).all(2)
    assert (hits.sum(1) == 1).all()
    found = [places[i] for i in hits.int().argmax(1).tolist()]
    assert {y for y, _, _ in found} == {x for _, x, _ in found} == set(range(2 * padding + 1))
    assert 110 < sum(flip for _, _, flip in found) < 190  # 150 with standard deviation 8.7
    if padding:
        assert len(set(found)) > 60


def test_weak_view_moves_channels_together() -> None:
    images = crops(20, 32, 32)
    views = Weak()(images, generator())
    for image, view in zip(images, views, strict=True):
        assert any(
            torch.equal(crop(image, 4, y, x, flip), view) for y in range(9) for x in range(9) for flip in (False, True)
        )


def test_weak_view_of_the_widest_padding() -> None:
    images = crops(20, 6, 6)
    for image, view in zip(images, Weak(padding=5)(images, generator()), strict=True):
        places = [(y, x, flip) for y in range(11) for x in range(11) for flip in (False, True)]
        assert any(torch.equal(crop(image, 5, *place), view) for place in places)


def test_weak_view_without_padding_and_flip_is_the_image() -> None:
    images = crops(20, 32, 32)
    assert torch.equal(Weak(padding=0, flip=False)(images, generator()), images)
    flipped = Weak(padding=0)(images, generator())
    same, mirrored = (flipped == images).flatten(1).all(1), (flipped == images.flip(3)).flatten(1).all(1)
    assert (same | mirrored).all()
    assert same.any()
    assert mirrored.any()


# ── The strong view ──


def spies(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Tensor]]:
    """The magnitudes each operation is given, from now on."""
    seen: dict[str, list[Tensor]] = {name: [] for name in OPERATIONS}
    for name, (function, low, high) in list(OPERATIONS.items()):

        def spy(images: Tensor, magnitude: Tensor, name: str = name, function: Callable = function) -> Tensor:
            seen[name].append(magnitude)
            return function(images, magnitude)

        monkeypatch.setitem(OPERATIONS, name, (spy, low, high))
    for name, coefficients in list(GEOMETRY.items()):

        def record(m: Tensor, height: int, width: int, name: str = name, function: Callable = coefficients) -> Tensor:
            seen[name].append(m)
            return function(m, height, width)

        monkeypatch.setitem(GEOMETRY, name, record)
    return seen


def test_operations_and_magnitudes_are_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spies(monkeypatch)
    images = crops(150, 8, 8).repeat(20, 1, 1, 1)
    Strong(padding=2)(images, generator())
    total = 2 * len(images)
    assert sum(len(torch.cat(values)) for values in seen.values()) == total
    for name, (_, low, high) in OPERATIONS.items():
        values = torch.cat(seen[name])
        assert abs(len(values) - total / 14) < 5 * (total / 14) ** 0.5, name
        parts = (values - low) / (high - low)
        assert 0 <= parts.min() < 0.03, name
        assert 0.97 < parts.max() <= 1, name
        assert abs(parts.mean() - 0.5) < 0.08, name  # standard deviation 0.014
        assert abs(parts.std() - 12**-0.5) < 0.04, name


def test_each_image_gets_one_operation_of_its_own() -> None:
    """One round on equal images: every view is one operation's, at its place, and all operations occur."""
    images = crops(1, 32, 32).repeat(600, 1, 1, 1)
    views = Strong(operations=1, cutout=0.0, padding=0, flip=False)(images, generator(3))
    same = (views == images).flatten(1).all(1)
    assert 20 < same.sum() < 90  # identity: 600 / 14 = 43
    assert len(views.flatten(1).unique(dim=0)) > 350
    equalized = OPERATIONS["equalize"][0](images[:1], torch.zeros(1))
    assert 20 < (views == equalized).flatten(1).all(1).sum() < 70


def test_strong_view_is_its_operations_in_turn() -> None:
    """Two rounds replayed image by image with Pillow, from the draws of the same generator."""
    images = crops(150, 32, 32)
    draws = generator(5)
    expected = Weak()(images, draws)
    names = list(OPERATIONS)
    for _ in range(2):
        choice = torch.randint(14, (150,), generator=draws)
        level = torch.rand(150, generator=draws)
        for i in range(150):
            _, low, high = OPERATIONS[names[choice[i]]]
            magnitude = low + (high - low) * level[i : i + 1]
            expected[i : i + 1] = by_pillow(names[choice[i]], expected[i : i + 1], magnitude)
    assert torch.equal(Strong(cutout=0.0)(images, generator(5)), expected)


@pytest.mark.parametrize(
    ("height", "width", "fraction", "side"), [(32, 32, 0.5, 16), (20, 45, 0.25, 5), (9, 9, 1.0, 9)]
)
def test_cutout_is_a_gray_square(height: int, width: int, fraction: float, side: int) -> None:
    images = torch.full((3000, 3, height, width), 200, dtype=torch.uint8)
    views = Strong(operations=0, cutout=fraction, padding=0)(images, generator())
    assert GRAY == 127
    cut = views == 127
    assert (cut | (views == 200)).all()
    assert (cut == cut[:, :1]).all()
    rows, columns = cut[:, 0].any(2), cut[:, 0].any(1)
    assert torch.equal(cut[:, 0], rows[:, :, None] & columns[:, None, :])
    for hit, length in ((rows, height), (columns, width)):
        place = torch.arange(length)
        first = torch.where(hit, place, length).amin(1)
        last = torch.where(hit, place, -1).amax(1)
        assert torch.equal(last - first + 1, hit.sum(1))  # no gaps
        inner = (first > 0) & (last < length - 1)
        assert (hit.sum(1)[inner] == side).all()
        assert hit.sum(1).max() == side
        centers = (first + side // 2)[first > 0]  # uniform over the places
        assert set(centers.tolist()) == set(range(side // 2 + 1, length))
    visible = [
        np.mean([min(n, c - side // 2 + side) - max(0, c - side // 2) for c in range(n)]) for n in (height, width)
    ]
    areas = cut[:, 0].flatten(1).sum(1).float()
    assert abs(areas.mean() - visible[0] * visible[1]) < 5 * areas.std() / 3000**0.5  # 14 x 14 for CIFAR


def test_no_cutout_leaves_the_weak_view() -> None:
    images = crops(20, 32, 32)
    assert torch.equal(Strong(operations=0, cutout=0.0)(images, generator(2)), Weak()(images, generator(2)))


# ── Both ──


@pytest.mark.parametrize("view", [Weak(), Strong()])
@pytest.mark.parametrize("source", ["32x32", "47x31", "20x45 gray", "digits"])
def test_views_repeat_with_the_generator_and_leave_the_input_alone(view: Weak | Strong, source: str) -> None:
    images = SOURCES[source]()
    before = images.clone()
    state = torch.get_rng_state()
    first = view(images, generator(7))
    assert torch.equal(first, view(images, generator(7)))
    assert not torch.equal(first, view(images, generator(8)))
    draws = generator(7)
    assert torch.equal(first, view(images, draws))
    assert not torch.equal(first, view(images, draws))  # the generator moves on
    assert torch.equal(images, before)
    assert torch.equal(state, torch.get_rng_state())  # the global stream is not touched
    assert first.dtype == torch.uint8
    assert first.shape == images.shape
    assert first.is_contiguous()


@pytest.mark.parametrize("view", [Weak(), Strong()])
def test_views_of_any_layout_and_size_of_batch(view: Weak | Strong) -> None:
    images = crops(12, 20, 24)
    strided = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert torch.equal(view(strided, generator()), view(images, generator()))
    assert view(images[:0], generator()).shape == (0, 3, 20, 24)
    assert view(images[:1], generator()).shape == (1, 3, 20, 24)


@pytest.mark.parametrize("view", [Weak(), Strong()])
@pytest.mark.parametrize(
    "images",
    [
        torch.zeros(2, 3, 32, 32),
        torch.zeros(3, 32, 32, dtype=torch.uint8),
        torch.zeros(2, 4, 32, 32, dtype=torch.uint8),
        torch.zeros(2, 32, 32, 3, dtype=torch.uint8),
        torch.zeros(2, 3, 0, 32, dtype=torch.uint8),
    ],
    ids=["float", "one image", "four channels", "channels last", "no pixels"],
)
def test_views_refuse_other_tensors(view: Weak | Strong, images: Tensor) -> None:
    with pytest.raises(InputError, match=r"need torch\.uint8 of shape .* found"):
        view(images, generator())
    for function, low, _ in OPERATIONS.values():
        with pytest.raises(InputError, match=r"need torch\.uint8 of shape .* found"):
            function(images, torch.full((len(images),), low))


def test_operations_refuse_other_magnitudes() -> None:
    images = crops(3, 8, 8)
    for name in set(OPERATIONS) - {"autocontrast", "equalize", "identity"}:
        for magnitude in (torch.tensor(0.5), torch.full((2,), 0.5), torch.ones(3, dtype=torch.int64)):
            with pytest.raises(InputError, match="one floating-point magnitude per image"):
                OPERATIONS[name][0](images, magnitude)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weak(padding=-1), "at least 0 pixels; found -1"),
        (lambda: Strong(padding=-1), "at least 0 pixels; found -1"),
        (lambda: Strong(operations=-1), "at least 0; found -1"),
        (lambda: Strong(cutout=1.5), "between 0 and 1; found 1.5"),
        (lambda: Weak(padding=8)(crops(3, 8, 8), generator()), "padding 8 for images of 8x8: lower the padding"),
    ],
)
def test_settings_are_checked(make: Callable, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_views_are_frozen_values() -> None:
    assert Weak() == Weak(padding=4, flip=True)
    assert Strong() == Strong(operations=2, cutout=0.5, padding=4, flip=True)
    with pytest.raises(AttributeError):
        Weak().padding = 3  # type: ignore[misc]

"""Images from disk: real JPEG and PNG files of every kind, damaged ones, hostile ones, and threads that read ahead."""

from __future__ import annotations

import functools
import json
import os
import pickle
import sys
import warnings

import numpy as np
import pytest
import torch

from csst.data.images.files import ImageFiles, ImageFolder, from_table
from csst.data.images.reading import AHEAD, Readers, decode
from csst.errors import InputError

Image = pytest.importorskip("PIL.Image")
ImageDraw = pytest.importorskip("PIL.ImageDraw")
datasets = pytest.importorskip("sklearn.datasets")


@functools.cache
def photographs():
    return [Image.fromarray(image) for image in datasets.load_sample_images().images]


def photograph(seed, width=60, height=40):
    """A piece of a real photograph."""
    rng = np.random.default_rng(seed)
    whole = photographs()[seed % 2]
    left, top = int(rng.integers(whole.width - width)), int(rng.integers(whole.height - height))
    return whole.crop((left, top, left + width, top + height))


def shape(seed, side=48):
    """A drawn disk or square."""
    image = Image.new("RGB", (side, side), (20, 40, 60))
    draw = ImageDraw.Draw(image)
    (draw.ellipse if seed % 2 else draw.rectangle)((8, 8, 30 + seed % 9, 38), fill=(250, 20 * (seed % 12), 90))
    return image


def class_folders(root, classes=("ant", "bee", "cat"), each=10, suffix=".jpg", start=0):
    for c, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            seed = start + 1000 * c + i
            (photograph if i % 2 else shape)(seed).save(root / name / f"{i:03d}{suffix}")
    return str(root)


FLAT = {"size": 16}


# ── One image ──


def square(image, size):
    """The definition: the shorter side resized to `size`, then the center crop."""
    scale = size / min(image.size)
    small = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
    left, top = (small.width - size) // 2, (small.height - size) // 2
    return np.asarray(small.crop((left, top, left + size, top + size)))


def test_a_table_may_have_semicolons_or_be_json_lines(tmp_path):
    class_folders(tmp_path / "photos")
    rows = [
        f"photos/{file.parent.name}/{file.name};{file.parent.name}" for file in (tmp_path / "photos").rglob("*.jpg")
    ]
    (tmp_path / "list.csv").write_text("\n".join(["path;label", *rows]))
    assert from_table(str(tmp_path / "list.csv"))[1] == ("ant", "bee", "cat")
    lines = [json.dumps(dict(zip(("path", "label"), row.split(";"), strict=True))) for row in rows]
    (tmp_path / "list.jsonl").write_text("\n".join(lines))
    assert from_table(str(tmp_path / "list.jsonl")) == from_table(str(tmp_path / "list.csv"))


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".webp", ".jpg", ".gif"])
@pytest.mark.parametrize("wide", [True, False])
def test_the_center_square_is_read(tmp_path, suffix, wide):
    image = photograph(0, 60, 40) if wide else photograph(1, 40, 72)
    path = tmp_path / f"a{suffix}"
    image.save(path, **{".webp": {"lossless": True}, ".jpg": {"quality": 95}}.get(suffix, {}))
    got = decode(str(path), 20).transpose(1, 2, 0).astype(int)
    tolerance = {".jpg": 24, ".gif": 60}.get(
        suffix, 1
    )  # 1: Pillow resizes rows or columns first, whichever is less work
    difference = np.abs(got - square(image, 20))
    assert difference.max() <= tolerance
    assert difference.mean() <= tolerance / 4
    assert np.abs(got - square(photograph(7), 20)).mean() > 20


def test_a_large_jpeg_is_read_small(tmp_path):
    whole = photographs()[0]
    whole.save(tmp_path / "a.jpg", quality=95)
    got = decode(str(tmp_path / "a.jpg"), 32).transpose(1, 2, 0).astype(int)
    assert np.abs(got - square(whole, 32)).mean() < 4


def saved(tmp_path, image, name="a.png", **options):
    image.save(tmp_path / name, **options)
    return decode(str(tmp_path / name), 8)


def test_every_mode_becomes_rgb(tmp_path):
    color = Image.new("RGB", (12, 9), (200, 100, 50))
    for mode, tolerance in (("P", 0), ("RGB", 0)):
        got = saved(tmp_path, color.convert(mode) if mode != "P" else color.quantize(4))
        assert np.abs(got[:, 4, 4].astype(int) - [200, 100, 50]).max() <= tolerance, mode
    assert saved(tmp_path, Image.new("L", (12, 9), 77))[:, 0, 0].tolist() == [77] * 3
    assert saved(tmp_path, Image.new("1", (12, 9), 1))[:, 0, 0].tolist() == [255] * 3
    got = saved(tmp_path, color.convert("CMYK"), "a.jpg", quality=100)
    assert np.abs(got[:, 4, 4].astype(int) - [200, 100, 50]).max() <= 6


def test_sixteen_bits_become_eight(tmp_path):
    values = np.full((9, 12), 128 * 257, dtype=np.uint16)
    values[:, :6] = 65535
    got = saved(tmp_path, Image.fromarray(values))
    assert got[0, 4].tolist()[0] == 255
    assert got[:, 4, 7].tolist() == [128] * 3


def test_transparent_pixels_become_white(tmp_path):
    assert saved(tmp_path, Image.new("RGBA", (9, 9), (0, 0, 0, 0)))[:, 4, 4].tolist() == [255] * 3
    assert saved(tmp_path, Image.new("RGBA", (9, 9), (10, 20, 30, 255)))[:, 4, 4].tolist() == [10, 20, 30]
    assert saved(tmp_path, Image.new("LA", (9, 9), (0, 0)))[:, 4, 4].tolist() == [255] * 3
    palette = Image.new("P", (9, 9), 1)
    palette.putpalette([0, 0, 0, 9, 8, 7])
    assert saved(tmp_path, palette)[:, 4, 4].tolist() == [9, 8, 7]
    assert saved(tmp_path, palette, transparency=1)[:, 4, 4].tolist() == [255] * 3


def test_exif_turns_the_image(tmp_path):
    image = Image.new("RGB", (20, 20), "black")
    image.paste("white", (0, 0, 20, 10))  # white above black
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: what was above is at the right
    got = saved(tmp_path, image, "a.jpg", exif=exif, quality=100)
    assert got[0, :, 6].min() > 240
    assert got[0, :, 1].max() < 15
    plain = saved(tmp_path, image, "b.jpg", quality=100)
    assert plain[0, 1].min() > 240


def test_a_broken_exif_block_does_not_lose_the_image(tmp_path):
    shape(1).save(tmp_path / "a.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\xff\xff")
    assert Readers().read([str(tmp_path / "a.jpg")], 8)[1] == {}


# ── A folder ──


def test_class_folders(tmp_path):
    root = class_folders(tmp_path / "set", each=10)
    (tmp_path / "set" / "ant" / "deeper").mkdir()
    Image.new("L", (33, 21), 5).save(tmp_path / "set" / "ant" / "deeper" / "x.PNG")
    (tmp_path / "set" / "ant" / "notes.txt").write_text("not an image")
    (tmp_path / "set" / "ant" / ".hidden.jpg").write_text("not an image")
    (tmp_path / "set" / ".cache").mkdir()
    task = ImageFolder(root, held_out=0.4, **FLAT).load(0)
    assert (task.name, task.kind, task.class_names) == ("set", "image", ("ant", "bee", "cat"))
    assert task.input_shape == (3, 16, 16)
    assert task.labeled.inputs.dtype == torch.uint8
    assert task.train_counts.tolist() == [7, 6, 6]
    assert torch.bincount(task.validation.labels).tolist() == torch.bincount(task.test.labels).tolist() == [2, 2, 2]
    assert len(task.unlabeled) == 0
    assert task.unlabeled_truth is None
    again, other = ImageFolder(root, held_out=0.4, **FLAT).load(0), ImageFolder(root, held_out=0.4, **FLAT).load(1)
    assert again.split_hash == task.split_hash != other.split_hash
    assert torch.equal(again.test.inputs, task.test.inputs)
    strong = task.strong(task.labeled.inputs[torch.arange(5)], torch.Generator().manual_seed(0))
    assert strong.shape == (5, 3, 16, 16)


def colored(root, per_class, red=0):
    """Class c's i-th image is of the one color (red + i, c, 0): it can be recognized anywhere."""
    for c, (name, count) in enumerate(per_class.items()):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            Image.new("RGB", (10 + i % 3, 12), (red + i, c, 0)).save(root / name / f"{i}.png")
    return str(root)


def colors(images):
    return [tuple(row) for row in images[torch.arange(len(images))][:, :2, 0, 0].tolist()]


@pytest.mark.parametrize("memory", [512, 0])
def test_images_keep_their_labels_and_have_one_role(tmp_path, memory):
    root = colored(tmp_path / "set", {"a": 40, "b": 30, "c": 20})
    free = colored(tmp_path / "free", {"x": 5, "y": 6}, red=100)
    task = ImageFolder(root, unlabeled_path=free, in_memory_megabytes=memory, **FLAT).load(0)
    assert isinstance(task.unlabeled, torch.Tensor if memory else ImageFiles)
    parts = (task.labeled, task.validation, task.test)
    assert [len(part) for part in parts] == [72, 9, 9]
    seen = [color for part in parts for color in colors(part.inputs)]
    assert sorted(seen) == sorted({(i, c) for c, n in enumerate((40, 30, 20)) for i in range(n)})
    for part in parts:
        assert [color[1] for color in colors(part.inputs)] == part.labels.tolist()
    assert len(colors(task.unlabeled)) == 11
    assert min(colors(task.unlabeled))[0] >= 100


def test_learners_that_judge_out_of_fold_get_every_label(tmp_path):
    root = colored(tmp_path / "set", {"a": 4, "b": 2, "c": 1})  # too few for a split in three
    free, held = colored(tmp_path / "free", {"x": 5}, red=100), colored(tmp_path / "held", dict.fromkeys("abc", 3), 200)
    rows = ImageFolder(root, unlabeled_path=free, **FLAT).load(0, holds_out=False)
    assert colors(rows.labeled.inputs) == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (0, 2)]
    assert (rows.labeled.labels.tolist(), rows.kind) == ([0, 0, 0, 0, 1, 1, 2], "image")
    assert (rows.validation, rows.test, len(rows.unlabeled)) == (None, None, 5)
    tested = ImageFolder(root, unlabeled_path=free, test_path=held, **FLAT).load(0, holds_out=False)
    assert tested.validation is None
    assert sorted(colors(tested.test.inputs)) == sorted((200 + i, c) for c in range(3) for i in range(3))
    assert tested.split_hash != rows.split_hash


def test_a_class_without_a_readable_held_out_image_is_named(tmp_path):
    root = colored(tmp_path / "set", dict.fromkeys("abc", 4))
    for broken in "bc":
        held = colored(tmp_path / broken, dict.fromkeys("abc", 3), 200)
        for file in (tmp_path / broken / broken).iterdir():
            file.write_bytes(b"")
        folder = ImageFolder(root, test_path=held, skip_bad=True, **FLAT)
        for holds_out in (True, False):
            with pytest.warns(UserWarning, match="cannot be read"), pytest.raises(InputError, match=f"'{broken}'"):
                folder.load(0, holds_out=holds_out)


@pytest.mark.parametrize("memory", [512, 0])
def test_a_skipped_image_does_not_shift_the_others(tmp_path, memory):
    root = colored(tmp_path / "set", {"a": 10, "b": 10})
    (tmp_path / "set" / "a" / "1.png").write_bytes(b"")
    task = ImageFolder(root, skip_bad=True, in_memory_megabytes=memory, **FLAT).load(0)
    seen = []
    for part in (task.labeled, task.validation, task.test):
        assert [color[1] for color in colors(part.inputs)] == part.labels.tolist()
        seen += colors(part.inputs)
    assert sorted(seen) == sorted({(i, c) for c in range(2) for i in range(10)} - {(1, 0)})


@pytest.mark.parametrize("megabytes", [512, 0], ids=["in memory", "as files"])
def test_an_image_replaced_under_its_name_is_another_split(tmp_path, megabytes):
    root = class_folders(tmp_path)
    source = ImageFolder(root, size=8, in_memory_megabytes=megabytes)
    before = source.load(0).split_hash
    photograph(77).save(tmp_path / "ant" / "003.jpg")
    assert source.load(0).split_hash != before


def test_memory_and_files_give_the_same_task(tmp_path):
    root = class_folders(tmp_path / "set")
    memory = ImageFolder(root, **FLAT).load(4)
    files = ImageFolder(root, in_memory_megabytes=0, **FLAT).load(4)
    assert files.split_hash == memory.split_hash
    for a, b in ((memory.labeled, files.labeled), (memory.test, files.test)):
        index = torch.tensor([2, 0, 2])
        assert torch.equal(a.inputs[index], b.inputs[index])
        assert torch.equal(a.labels, b.labels)
    assert files.input_shape == (3, 16, 16)
    assert len(files.labeled.inputs[torch.zeros(0, dtype=torch.int64)]) == 0


def test_long_tail_from_folders_and_a_test_folder(tmp_path):
    root = colored(tmp_path / "train", {"a": 30, "b": 30, "c": 30})
    held = colored(tmp_path / "val", {"a": 4, "b": 4, "c": 5}, red=200)
    task = ImageFolder(root, test_path=held, labeled=8, unlabeled=16, imbalance=4, **FLAT).load(0)
    assert task.train_counts.tolist() == [8, 4, 2]
    assert torch.bincount(task.unlabeled_truth).tolist() == [16, 8, 4]
    assert [color[1] for color in colors(task.unlabeled)] == task.unlabeled_truth.tolist()
    assert torch.bincount(task.validation.labels).tolist() == [2, 2, 2]
    assert torch.bincount(task.test.labels).tolist() == [2, 2, 3]
    assert min(colors(task.test.inputs))[0] >= 200
    assert not set(colors(task.labeled.inputs)) & set(colors(task.unlabeled))
    sizes = {"labeled": 8, "unlabeled": 16, "imbalance": 4}
    fewer = ImageFolder(root, test_path=held, **sizes, labeled_fraction=0.5, **FLAT).load(0)
    assert torch.equal(fewer.unlabeled_truth, task.unlabeled_truth)
    assert len(fewer.labeled) < len(task.labeled)
    other = ImageFolder(root, test_path=held, labeled=8, unlabeled=16, imbalance=4, **FLAT).load(1)
    assert colors(other.labeled.inputs) != colors(task.labeled.inputs)
    free = colored(tmp_path / "free", {"x": 5}, red=100)
    task = ImageFolder(root, unlabeled_path=free, labeled=8, unlabeled=8, imbalance=4, **FLAT).load(0)
    assert len(task.unlabeled) == 14 + 5
    assert task.unlabeled_truth is None


def test_an_unlabeled_folder_beside_the_classes(tmp_path):
    root = class_folders(tmp_path / "set", each=5)
    class_folders(tmp_path / "set" / "unlabeled", each=2, start=500)
    task = ImageFolder(root, unlabeled_path=str(tmp_path / "set" / "unlabeled"), **FLAT).load(0)
    assert task.class_names == ("ant", "bee", "cat")
    assert len(task.unlabeled) == 6
    with pytest.raises(InputError, match="listed twice; an image has one place"):
        ImageFolder(root, unlabeled_path=root, **FLAT).load(0)
    with pytest.raises(InputError, match="listed twice"):
        ImageFolder(root, test_path=root, **FLAT).load(0)


def test_a_table(tmp_path):
    colored(tmp_path / "pics", {"a": 12, "b": 12})
    rows = ["path,label,note"]
    rows += [
        f"pics/{name}/{i}.png,{'' if i % 4 == 0 else kind},x"
        for name, kind in (("a", "dog"), ("b", " cat "))
        for i in range(12)
    ]
    (tmp_path / "t.csv").write_text("\ufeff" + "\r\n".join(rows) + "\r\n", encoding="utf-8")
    task = ImageFolder(table=str(tmp_path / "t.csv"), **FLAT).load(0)
    assert (task.name, task.class_names) == ("t", ("cat", "dog"))
    assert len(task.unlabeled) == 6
    assert {color[0] % 4 for color in colors(task.unlabeled)} == {0}
    assert [1 - color[1] for color in colors(task.labeled.inputs)] == task.labeled.labels.tolist()
    assert len(task.labeled) == 18 - 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no rows"),
        ("file,label\nx,y\n", "has no column 'path'"),
        ("path,label\n../out.png,a\n", "outside"),
        ("path,label\n/etc/passwd,a\n", "outside"),
        ("path,label\nlink.png,a\n", "outside"),
        ("path,label\na.png,a\n,b\n", "row 1 of .* names no file"),
        ("path,label\na.png,a\nno.png,b\n", r"1 files of .* do not exist, the first \['no.png'\]"),
        ("path,label\na.png,a\na.png,b\n", "listed twice"),
        ("path,label\na.png,cat\nb.png,Cat\n", "'Cat' and 'cat' of .* differ only by case"),
        ("path,label\na.png,\nb.png,\n", "at least 2 classes are needed"),
        ("path,label\na.png,a\nb.png,b\n", "class 'a' has 1 labeled images, and training, validation and test"),
        ('path,label\n"a.png,a\n', "is not CSV"),
        (b"path,label\n\xff\xfe.png,a\n", "is not UTF-8 text"),
    ],
)
def test_wrong_tables(tmp_path, text, message):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.png", "b.png", "../out.png"):
        shape(1).save(folder / name)
    (folder / "link.png").symlink_to(tmp_path / "out.png")
    (folder / "t.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message):
        ImageFolder(table=str(folder / "t.csv"), **FLAT).load(0)


def test_links_out_of_the_folder_are_refused(tmp_path):
    root = class_folders(tmp_path / "set", each=4)
    shape(3).save(tmp_path / "secret.png")
    (tmp_path / "set" / "ant" / "x.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(InputError, match=r"x\.png leads to .*secret\.png, outside"):
        ImageFolder(root, **FLAT).load(0)
    (tmp_path / "set" / "ant" / "x.png").unlink()
    (tmp_path / "set" / "ant" / "more").symlink_to(tmp_path)
    with pytest.raises(InputError, match="is a link to"):
        ImageFolder(root, **FLAT).load(0)
    (tmp_path / "set" / "ant" / "more").unlink()
    class_folders(tmp_path / "elsewhere")
    (tmp_path / "set" / "dog").symlink_to(tmp_path / "elsewhere" / "bee")
    with pytest.raises(InputError, match="is a link to"):
        ImageFolder(root, **FLAT).load(0)
    (tmp_path / "set" / "dog").unlink()
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "x.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(InputError, match="outside"):
        ImageFolder(root, unlabeled_path=str(tmp_path / "flat"), **FLAT).load(0)
    (tmp_path / "way").symlink_to(tmp_path / "set")  # the folder itself may be a link: the user named it
    assert ImageFolder(str(tmp_path / "way"), **FLAT).load(0).classes == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": ""}, "either path .* or table"),
        ({"table": "x.csv"}, "either path .* or table"),
        ({"path": "nowhere"}, "there is no folder 'nowhere'"),
        ({"path": "", "table": "nowhere.csv"}, "there is no file"),
        ({"unlabeled_path": "nowhere"}, "there is no folder"),
        ({"held_out": 0.0}, "held_out is a fraction between 0 and 1"),
        ({"held_out": 1.0}, "held_out is a fraction between 0 and 1"),
        ({"size": 0}, "at least 1 pixel"),
        ({"workers": -1}, "workers must be at least 0"),
        ({"labeled": -1}, "must be at least 0"),
        ({"unlabeled": 5}, "which needs labeled too"),
        ({"imbalance": 10.0}, "which needs labeled too"),
        ({"labeled": 50}, "the split needs 50 examples of class 0"),
        ({"labeled": 2, "imbalance": 0.0}, "imbalance >= 1"),
    ],
)
def test_wrong_options(tmp_path, options, message):
    root = class_folders(tmp_path / "set", each=4)
    with pytest.raises(InputError, match=message):
        ImageFolder(**{"path": root, **FLAT, **options}).load(0)


def test_wrong_folders(tmp_path):
    root = class_folders(tmp_path / "set", each=4)
    held = class_folders(tmp_path / "val", classes=("ant", "bee", "dog"), each=2, start=70)
    with pytest.raises(InputError, match=r"same classes as the training images; \['cat', 'dog'\] differ"):
        ImageFolder(root, test_path=held, **FLAT).load(0)
    (tmp_path / "free").mkdir()
    with pytest.raises(InputError, match="holds no image"):
        ImageFolder(root, unlabeled_path=str(tmp_path / "free"), **FLAT).load(0)
    (tmp_path / "set" / "empty").mkdir()
    (tmp_path / "set" / "empty" / "readme.txt").write_text("nothing")
    with pytest.raises(InputError, match=r"every class folder needs images; \['empty'\]"):
        ImageFolder(root, **FLAT).load(0)
    (tmp_path / "set" / "empty").rename(tmp_path / "set" / "ANT")
    with pytest.raises(InputError, match=r"'ANT' and 'ant' of .* differ only by case"):
        ImageFolder(root, **FLAT).load(0)
    shape(1).save(tmp_path / "set" / "loose.png")
    with pytest.raises(InputError, match=r"1 images, such as 'loose\.png', lie in .* and so in no class"):
        ImageFolder(root, **FLAT).load(0)
    with pytest.raises(InputError, match="at least 2 classes are needed"):
        ImageFolder(str(tmp_path / "free"), **FLAT).load(0)
    with pytest.raises(InputError, match="class 'ant' has 2 labeled images"):
        ImageFolder(class_folders(tmp_path / "few", each=2), **FLAT).load(0)


# ── Bad images ──


def spoil(folder):
    """Eight files that look like images and are not, and two honest ones with the wrong suffix."""
    whole = {}
    for suffix, options in ((".jpg", {}), (".png", {}), (".gif", {}), (".bmp", {}), (".webp", {"lossless": True})):
        photograph(5).save(folder / f"good{suffix}", **options)
        whole[suffix] = (folder / f"good{suffix}").read_bytes()
        (folder / f"cut{suffix}").write_bytes(whole[suffix][: len(whole[suffix]) * 2 // 3])
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.jpg").write_text("this is no image\n")
    flipped = bytearray(whole[".png"])
    flipped[len(flipped) // 2] ^= 0xFF
    (folder / "flipped.png").write_bytes(flipped)
    (folder / "lying.jpg").write_bytes(whole[".png"])
    (folder / "lying.png").write_bytes(whole[".jpg"])
    return 8


@pytest.mark.parametrize("memory", [512, 0])
@pytest.mark.parametrize("workers", [0, 2])
def test_bad_images_are_listed_or_skipped(tmp_path, memory, workers):
    root = class_folders(tmp_path / "set", each=6)
    bad = spoil(tmp_path / "set" / "bee")
    options = {"in_memory_megabytes": memory, "workers": workers, **FLAT}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError) as caught:
            ImageFolder(root, **options).load(0)
    message = str(caught.value)
    assert message.startswith(f"{bad} of 33 images cannot be read: ")
    for name in (
        "cut.jpg",
        "cut.png",
        "cut.gif",
        "cut.bmp",
        "cut.webp",
        "empty.png (the file is empty)",
        "flipped.png",
    ):
        assert name in message
    assert "text.jpg (not a PNG, JPEG, WebP, BMP or GIF image)" in message
    assert "good" not in message
    assert "lying" not in message
    assert "\n" not in message
    assert "leave them out with --data.skip_bad true (in Python skip_bad=True)" in message
    with pytest.warns(UserWarning, match=rf"{bad} of \d+ images cannot be read and were left out, such as .* \(.+\)"):
        task = ImageFolder(root, skip_bad=True, **options).load(0)
    assert task.facts["bad images skipped"] == bad
    counts = sum(torch.bincount(part.labels, minlength=3) for part in (task.labeled, task.validation, task.test))
    assert counts.tolist() == [6, 6 + 7, 6]
    assert len(task.labeled.inputs[torch.arange(len(task.labeled))]) == len(task.labeled)


def test_only_the_first_bad_images_are_named(tmp_path):
    root = class_folders(tmp_path / "set", each=4)
    for i in range(25):
        (tmp_path / "set" / "cat" / f"bad{i:02d}.jpg").write_bytes(b"x")
    with pytest.raises(InputError, match=r"^25 of 37 .*bad19\.jpg \(.*\) and 5 more: repair") as caught:
        ImageFolder(root, **FLAT).load(0)
    assert "bad20" not in str(caught.value)
    for path in (tmp_path / "set" / "cat").glob("0*.jpg"):
        path.unlink()
    with pytest.raises(InputError, match=r"classes \['cat'\] have none in the images that can be read"):
        ImageFolder(root, skip_bad=True, **FLAT).load(0)


@pytest.mark.parametrize("memory", [512, 0])
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("times", [1.5, 3])
def test_decompression_bombs_are_refused(tmp_path, monkeypatch, memory, workers, times):
    root = class_folders(tmp_path / "set", each=4)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)
    Image.new("RGB", (int(10_000 * times), 1)).save(tmp_path / "set" / "ant" / "bomb.png")
    options = {"in_memory_megabytes": memory, "workers": workers, **FLAT}
    with pytest.raises(InputError, match=r"1 of 13 images cannot be read: .*bomb\.png \(.*exceeds limit of \d+ pixels"):
        ImageFolder(root, **options).load(0)
    assert Image.MAX_IMAGE_PIXELS == 10_000


def test_postscript_is_never_run(tmp_path):
    root = class_folders(tmp_path / "set", each=4)
    (tmp_path / "set" / "ant" / "x.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n"
    )
    with pytest.raises(InputError, match=r"x\.png \(not a PNG"):
        ImageFolder(root, **FLAT).load(0)


# ── Workers ──


def test_a_hundred_classes_through_workers(tmp_path):
    names = [f"n{c:08d}" for c in range(100)]
    root = class_folders(tmp_path / "train", names, each=3)
    free = tmp_path / "free"
    free.mkdir()
    for i in range(40):
        photograph(9000 + i, 50 + i, 90 - i).save(free / f"{i}.jpg")
    options = {"unlabeled_path": str(free), "size": 32, "in_memory_megabytes": 0}
    task = ImageFolder(root, workers=2, **options).load(0)
    assert task.classes == 100
    assert task.train_counts.tolist() == [1] * 100
    assert isinstance(task.labeled.inputs, ImageFiles)
    assert isinstance(task.unlabeled, ImageFiles)
    assert task.labeled.inputs.readers is task.unlabeled.readers  # two workers, not two for every part
    plain = ImageFolder(root, **options).load(0)
    assert plain.split_hash == task.split_hash
    index = torch.randperm(40, generator=torch.Generator().manual_seed(0))[:25]
    assert torch.equal(task.unlabeled[index], plain.unlabeled[index])
    task.unlabeled.prefetch(index)
    task.labeled.inputs.prefetch(torch.arange(64))
    assert torch.equal(task.unlabeled[index], plain.unlabeled[index])
    assert torch.equal(task.labeled.inputs[torch.arange(64)], plain.labeled.inputs[torch.arange(64)])
    everything = torch.arange(100)
    assert torch.equal(task.validation.inputs[everything], plain.validation.inputs[everything])


def files(tmp_path, workers, count=12):
    tmp_path.mkdir(exist_ok=True)
    paths = [str(tmp_path / f"{i}.png") for i in range(count)]
    for i, path in enumerate(paths):
        photograph(i).save(path)
    return ImageFiles(paths, 16, Readers(workers))


def test_prefetch_reads_ahead(tmp_path):
    plain, ahead = files(tmp_path, 0), files(tmp_path, 1)
    expected = plain[torch.arange(12)]
    plain.prefetch(torch.arange(3))  # without workers: nothing
    index = torch.tensor([7, 1, 7])
    ahead.prefetch(index)
    ahead.prefetch(index)
    for job in ahead._ahead[index.numpy().tobytes()][1]:
        job.result()
    for path in ahead.paths:
        os.unlink(path)
    assert torch.equal(ahead[index], expected[index])  # from memory: the files are gone
    with pytest.raises(InputError, match=r"7\.png cannot be read \(.*No such file.*\): restore it"):
        ahead[index]


def test_reading_ahead_is_bounded(tmp_path):
    ahead = files(tmp_path, 1)
    for i in range(AHEAD + 5):
        ahead.prefetch(torch.tensor([i]))
    assert len(ahead._ahead) == AHEAD
    assert torch.equal(ahead[torch.tensor([0])], files(tmp_path, 0)[torch.tensor([0])])


def test_files_can_be_pickled(tmp_path):
    examples = files(tmp_path, 1)
    expected = examples[torch.arange(3)]
    copy = pickle.loads(pickle.dumps(examples))
    assert copy.readers.workers == 1
    assert torch.equal(copy[torch.arange(3)], expected)


def test_pillow_is_named_where_it_is_missing(tmp_path, monkeypatch):
    root = class_folders(tmp_path / "set", each=4)
    monkeypatch.setitem(sys.modules, "PIL", None)
    for workers in (0, 1):
        with pytest.raises(InputError, match="reading image files needs Pillow: pip install pillow"):
            ImageFolder(root, workers=workers, **FLAT).load(0)

"""Frozen embeddings: the file they are kept in, who is embedded when, and tasks of vectors."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from csst.data.content_store import ContentStore
from csst.data.embeddings import Embedder, embed_task, hash_contents, locate_cache
from csst.data.prepared_views import Prepared
from csst.data.task import Labeled, Task, identity_view, make_task
from csst.data.text.texts import Texts, add_views
from csst.data.text.views import TextViews
from csst.errors import InputError
from csst.settings import Embedding
from tests.helpers.tiny_models import reviews


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CSST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "embeddings"


class Counting:
    """An encoder that remembers what it was asked; a text's vector is its length and first characters."""

    def __init__(self, fingerprint: str = "counting", width: int = 3) -> None:
        self.fingerprint, self.width, self.asked, self.batches = fingerprint, width, [], []

    def __call__(self, texts):
        self.asked += texts
        self.batches.append(len(texts))
        return torch.tensor([[len(t), ord((t + "\0")[0]), ord((t + "\0\0")[1])][: self.width] for t in texts])


def vector(text: str) -> list[float]:
    return [len(text), ord((text + "\0")[0]), ord((text + "\0\0")[1])]


def stored(cache: Path, name: str = "counting") -> dict[bytes, bytes]:
    return dict(ContentStore(cache / f"{name}.sqlite", "embeddings").entries())


# ── The cache ──


def _embed(folder: str, texts: list[str], answers) -> None:
    encoder = Counting()
    vectors = Embedder(encoder, Embedding(cache=folder, batch=4))(Texts(texts), "texts")
    answers.put((encoder.asked, vectors.tolist()))


def test_two_processes_share_one_file_and_the_work(tmp_path):
    context = multiprocessing.get_context("fork")
    answers, texts = context.Queue(), [f"{at} text" for at in range(200)]
    both = [context.Process(target=_embed, args=(str(tmp_path), part, answers)) for part in (texts, texts[::-1])]
    for process in both:
        process.start()
    found = [answers.get(timeout=60) for _ in both]
    for process in both:
        process.join(60)
        assert process.exitcode == 0
    assert sorted(found[0][0] + found[1][0]) == sorted(texts)  # no text was embedded twice
    expected = [vector(text) for text in texts]
    assert sorted(map(tuple, found[0][1])) == sorted(map(tuple, expected))
    assert found[0][1] == expected or found[0][1] == expected[::-1]
    values = stored(tmp_path / "embeddings")
    assert [np.frombuffer(values[key], "<f4").tolist() for key in hash_contents(texts)] == expected


@pytest.mark.parametrize("fingerprint", ["counting", ""])
def test_vectors_of_another_width_are_refused(fingerprint):
    encoder = Counting(fingerprint)
    embedder = Embedder(encoder, Embedding())
    embedder(Texts(["a"]), "texts")
    encoder.width = 2
    with pytest.raises(InputError, match="an encoder must give vectors of one width; found 3 and then 2"):
        embedder(Texts(["b"]), "texts")
    assert embedder(Texts(["a"]), "texts").tolist() == [vector("a")]


def test_damage_is_an_error_and_not_trained_on(cache):
    Embedder(Counting(), Embedding())(Texts(["a", "b"]), "texts")
    path = cache / "counting.sqlite"
    row = np.array(vector("b"), dtype="<f4").tobytes()
    assert path.read_bytes().count(row) == 1
    path.write_bytes(path.read_bytes().replace(row, row[:-1] + b"\x40"))
    assert Embedder(Counting(), Embedding())(Texts(["a"]), "texts").tolist() == [vector("a")]
    with pytest.raises(
        InputError, match=r"cannot be read as a file of embeddings: .*; delete it, and they are computed"
    ):
        Embedder(Counting(), Embedding())(Texts(["a", "b"]), "texts")
    path.write_bytes(b"something else entirely")
    with pytest.raises(InputError, match=r"counting\.sqlite cannot be read as a file of embeddings: .*; delete it"):
        Embedder(Counting(), Embedding())


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written \(.*\): name another folder with --embedding\.cache"):
        Embedder(Counting(), Embedding(cache=str(tmp_path / "file")))


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("CSST_CACHE", "/one")
    assert str(locate_cache()) == "/one/embeddings"
    assert str(locate_cache("/two")) == "/two/embeddings"
    monkeypatch.delenv("CSST_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/three")
    assert str(locate_cache()) == "/three/csst/embeddings"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/four")
    assert str(locate_cache()) == "/four/.cache/csst/embeddings"


# ── The embedder ──


def test_each_content_is_embedded_once_and_in_its_place(cache):
    texts = ["bb", "", "a much longer text", "bb", "ccc", "", "🙂"]
    encoder = Counting()
    vectors = Embedder(encoder, Embedding(batch=2))(Texts(texts), "texts")
    assert vectors.dtype == torch.float32
    assert vectors.tolist() == [vector(text) for text in texts]
    assert sorted(encoder.asked) == sorted(set(texts))
    assert encoder.asked == sorted(encoder.asked, key=len)  # similar lengths share a batch
    assert encoder.batches == [2, 2, 1]
    assert [path.name for path in cache.glob("*.sqlite")] == ["counting.sqlite"]
    again = Counting()
    mixed = Embedder(again, Embedding())(Texts(["new", *texts[::-1]]), "texts")
    assert again.asked == ["new"]
    assert mixed.tolist() == [vector(text) for text in ["new", *texts[::-1]]]
    other = Counting("other")
    Embedder(other, Embedding())(Texts(texts[:1]), "texts")
    assert other.asked == ["bb"]


def test_the_progress_bar_ends_full(monkeypatch):
    advanced = []
    monkeypatch.setattr("csst.data.embeddings.Progress.advance", lambda bar, task, by: advanced.append(by))
    for texts in (["a", "b", "a"], ["a", "c"], ["b"]):  # new and twice, partly known, known
        del advanced[:]
        Embedder(Counting(), Embedding())(Texts(texts), "texts")
        assert sum(advanced) == len(texts)


def test_more_than_a_chunk(monkeypatch):
    monkeypatch.setattr("csst.data.embeddings.CHUNK", 5)
    texts = [f"{at % 7} {at % 3}" for at in range(23)]
    encoder = Counting()
    assert Embedder(encoder, Embedding())(Texts(texts), "texts").tolist() == [vector(text) for text in texts]
    assert len(encoder.asked) == len(set(texts))


def test_an_interrupted_embedding_keeps_its_finished_batches():
    class Failing(Counting):
        def __call__(self, texts):
            if len(self.asked) >= 4:
                raise KeyboardInterrupt
            return super().__call__(texts)

    texts = Texts([str(at) * 3 for at in range(8)])
    with pytest.raises(KeyboardInterrupt):
        Embedder(Failing(), Embedding(batch=2))(texts, "texts")
    rest = Counting()
    Embedder(rest, Embedding(batch=2))(texts, "texts")
    assert len(rest.asked) == 4


def test_an_encoder_without_a_fingerprint_is_kept_in_memory(cache):
    encoder = Counting("")
    embedder = Embedder(encoder, Embedding())
    for _ in range(2):
        assert embedder(Texts(["a", "b", "a"]), "texts").tolist() == [vector("a"), vector("b"), vector("a")]
    assert encoder.asked == ["a", "b"]
    assert not cache.exists()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda n: torch.zeros(n + 1, 3), r"one row for each of 2 examples; found \(3, 3\)"),
        (lambda n: torch.zeros(n), r"one row for each of 2 examples; found \(2,\)"),
        (lambda n: torch.zeros(n, 3, 3), "one row for each of 2 examples"),
        (lambda n: torch.zeros(n, 0), r"one row for each of 2 examples; found \(2, 0\)"),
        (lambda n: [[0.0]] * n + [[1.0, 2.0]], "must give rows of numbers"),
        (lambda n: None, "must give rows of numbers|one row for each"),
        (lambda n: torch.full((n, 3), float("nan")), "not finite: NaN or infinity"),
        (lambda n: np.full((n, 3), np.inf), "not finite"),
    ],
)
def test_encoders_that_give_something_else(cache, answer, sentence):
    def encoder(texts):
        return answer(len(texts))

    encoder.fingerprint = "odd"
    with pytest.raises(InputError, match=sentence):
        Embedder(encoder, Embedding())(Texts(["a", "b"]), "texts")
    assert not stored(cache, "odd")  # nothing wrong is kept


def test_keys_are_hashes_of_the_content():
    assert len({*hash_contents(["a", "b", "", "A", "🙂"])}) == 5
    assert hash_contents(["a", "a"])[0] == hash_contents(["b", "a"])[1]
    images = torch.arange(24, dtype=torch.uint8).view(2, 3, 2, 2)
    one, two = hash_contents(images)
    assert one != two
    assert hash_contents(images[:1])[0] == one
    assert hash_contents(images[:1].float())[0] != one
    assert hash_contents(images[:1].reshape(1, 3, 4, 1))[0] != one


@pytest.mark.parametrize("wrong", [{"max_length": 0}, {"batch": 0}, {"draws": -1}, {"noise": -0.1}])
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(InputError, match=rf"embedding\.{next(iter(wrong))}"):
        Embedding(**wrong)


# ── The strong view ──


def test_a_prepared_view_draws_among_the_vectors_of_its_example():
    vectors = torch.arange(24.0).view(3, 4, 2)  # draws, examples, width
    view = Prepared(vectors, torch.ones(2))
    index = torch.tensor([2, 0, 2, 3] * 50)
    found = view.of_index(index, torch.Generator().manual_seed(0))
    assert torch.equal(found, view.of_index(index, torch.Generator().manual_seed(0)))
    seen = {i: set() for i in range(4)}
    for i, row in zip(index.tolist(), found, strict=True):
        draws = [d for d in range(3) if torch.equal(row, vectors[d, i])]
        assert len(draws) == 1
        seen[i].add(draws[0])
    assert seen == {0: {0, 1, 2}, 1: set(), 2: {0, 1, 2}, 3: {0, 1, 2}}


def test_noise_is_in_standard_deviations_of_each_feature():
    view = Prepared(torch.zeros(1, 1, 2), torch.tensor([1.0, 100.0]), noise=0.5)
    for found in (
        view.of_index(torch.zeros(4000, dtype=torch.long), torch.Generator().manual_seed(0)),
        view(torch.zeros(4000, 2), torch.Generator().manual_seed(0)),
    ):
        assert found.std(0).tolist() == pytest.approx([0.5, 50], rel=0.05)
    assert torch.equal(
        Prepared(torch.zeros(1, 1, 2), torch.ones(2))(torch.ones(3, 2), torch.Generator()), torch.ones(3, 2)
    )


# ── Tasks ──


def text_task(unlabeled: list[str] | None = None, strong: str = "dropout") -> Task:
    texts, labels = reviews(12, 12)
    y = torch.tensor([int(label == "good") for label in labels])
    parts = [Labeled(Texts(texts[at::3]), y[at::3]) for at in range(3)]
    unlabeled = reviews(6, 6, seed=1)[0] if unlabeled is None else unlabeled
    task = Task("t", ("bad", "good"), parts[0], Texts(unlabeled), parts[1], parts[2], kind="text")
    return add_views(task, TextViews(strong, 0.5))


class Bag(Counting):
    """Every word counts, so that a strong view differs from its text."""

    def __call__(self, texts):
        self.asked += texts
        return np.array([[len(t), sum(map(ord, t)), len(t.split())] for t in texts], dtype=np.float64)


def test_a_task_of_texts_becomes_one_of_vectors():
    task, encoder = text_task(), Bag("bag")
    made = embed_task(task, Embedder(encoder, Embedding(draws=3)))
    assert (made.kind, made.split_hash, made.input_shape) == ("text", task.split_hash, (3,))
    assert made.facts == {**task.facts, "encoder": "bag", "embedding_width": 3}
    for before, after in ((task.labeled, made.labeled), (task.validation, made.validation), (task.test, made.test)):
        assert torch.equal(after.inputs, torch.tensor(Bag()(before.inputs.texts), dtype=torch.float32))
        assert torch.equal(after.labels, before.labels)
    assert torch.equal(made.unlabeled, torch.tensor(Bag()(task.unlabeled.texts), dtype=torch.float32))
    x = torch.randn(2, 3)
    assert torch.equal(made.weak(x, torch.Generator()), x)
    assert made.strong.vectors.shape == (3, 12, 3)
    assert not torch.equal(made.strong.vectors[0], made.strong.vectors[1])
    assert not torch.equal(made.strong.vectors[0], made.unlabeled)


def test_strong_views_are_a_function_of_content_and_draw():
    texts = reviews(6, 6, seed=1)[0]
    first = embed_task(text_task(texts), Embedder(Bag("bag"), Embedding(draws=2)))
    again = Bag("bag")
    order = [5, 2, 2, 11, 0]
    second = embed_task(text_task([texts[at] for at in order]), Embedder(again, Embedding(draws=2)))
    assert again.asked == []  # neither the texts nor their views are embedded again
    assert torch.equal(second.strong.vectors, first.strong.vectors[:, order])
    memory = embed_task(text_task(texts), Embedder(Bag(""), Embedding(draws=2)))
    assert torch.equal(memory.strong.vectors, first.strong.vectors)


def test_without_draws_the_strong_view_is_noise_alone():
    made = embed_task(text_task(), Embedder(Bag(), Embedding(draws=0, noise=0.1)))
    assert torch.equal(made.strong.vectors, made.unlabeled[None])
    strong = made.strong.of_index(torch.arange(12), torch.Generator().manual_seed(0))
    spread = ((strong - made.unlabeled).abs() / made.unlabeled.std(0))[:, :2]  # all have the same number of words
    assert 0 < spread.max() < 0.5


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.filterwarnings("error")
def test_no_or_one_unlabeled_text(count):
    made = embed_task(text_task(reviews(6, 6)[0][:count]), Embedder(Bag(), Embedding(noise=0.1)))
    assert made.unlabeled.shape == (count, 3)
    if count:
        index = torch.zeros(2, dtype=torch.long)
        assert made.strong.of_index(index, torch.Generator()).isfinite().all()


def test_a_task_of_images_is_embedded_too():
    x = torch.randint(0, 256, (30, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    y, asked = torch.arange(10) % 2, []

    def strong(images, generator):
        return images.roll(int(torch.randint(1, 4, (), generator=generator)), 3)

    def encoder(images):
        asked.append(len(images))
        return images.float().mean((1, 2))

    encoder.fingerprint = "columns"
    task = make_task(
        "i", (x[:10], y), x[10:18], (x[18:24], y[:6]), (x[24:], y[:6]), views=(identity_view, strong), kind="image"
    )
    made = embed_task(task, Embedder(encoder, Embedding(draws=2, batch=4)))
    assert made.kind == "image"
    assert torch.equal(made.labeled.inputs, x[:10].float().mean((1, 2)))
    assert torch.equal(made.unlabeled, x[10:18].float().mean((1, 2)))
    for view in made.strong.vectors:  # the same columns, rolled
        assert torch.equal(view.sort(1).values, made.unlabeled.sort(1).values)
        assert not torch.equal(view, made.unlabeled)
    assert max(asked) <= 4
    del asked[:]
    assert torch.equal(embed_task(task, Embedder(encoder, Embedding(draws=2))).strong.vectors, made.strong.vectors)
    assert not asked
    assert embed_task(replace(task, test=None), Embedder(encoder, Embedding())).test is None

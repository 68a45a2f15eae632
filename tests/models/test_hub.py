"""What is asked of the Hugging Face hub, in which order, and how a failure reads; no network is needed."""

from __future__ import annotations

import pytest

from csst import plugins
from csst.errors import InputError


def make_loader(*answers):
    """A loader that gives or raises the answers one after the other, and the list of how it was asked."""
    asked, left = [], list(answers)

    def load(is_local: bool):
        asked.append(is_local)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return load, asked


def test_the_cache_is_enough_and_the_hub_is_not_asked(monkeypatch):
    monkeypatch.setattr(plugins, "find_obstacle", lambda: pytest.fail("asked the hub"))
    load, asked = make_loader("cached")
    assert plugins.load_from_hub("owner/name", load, "a thing") == "cached"
    assert asked == [True]


def test_what_is_not_in_the_cache_comes_from_the_hub(monkeypatch):
    monkeypatch.setattr(plugins, "find_obstacle", lambda: "")
    load, asked = make_loader(OSError("not cached"), "downloaded")
    assert plugins.load_from_hub("owner/name", load, "a thing") == "downloaded"
    assert asked == [True, False]


@pytest.mark.parametrize(
    ("answers", "obstacle", "sentence"),
    [
        (
            [OSError("x"), OSError("404\nmore")],
            "",
            r"neither a folder nor a thing that the Hugging Face hub gives: 404$",
        ),
        ([ValueError("bad split")], "", r"neither a folder nor a thing that the Hugging Face hub gives: bad split$"),
        ([OSError("x"), KeyError()], "", "hub gives: KeyError$"),
        ([OSError("x")], "no cable", r"hub is out of reach \(no cable\): download it elsewhere and use hf:FOLDER$"),
        ([InputError("as it is")], "", "^as it is$"),
        ([OSError("x"), InputError("as it is")], "", "^as it is$"),
    ],
)
def test_every_failure_is_one_sentence(monkeypatch, answers, obstacle, sentence):
    monkeypatch.setattr(plugins, "find_obstacle", lambda: obstacle)
    load, asked = make_loader(*answers)
    with pytest.raises(InputError, match=sentence):
        plugins.load_from_hub("owner/name", load, "a thing")
    assert len(asked) == len(answers)

"""Every folder that `csst compare` leaves can be used by every verb, or is refused in one sentence."""

from __future__ import annotations

import numpy as np
import pytest

from csst.cli import main
from csst.comparison.rows import BASELINES

#: rows that leave an ordinary run: two networks, one of them trained in generations, and a learner
STORED = ("csst", "crest", "linear")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """A comparison of rows that are stored, and of rows of which only numbers are."""
    folder = tmp_path_factory.mktemp("comparison")
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [60, 40, 20])
    x = (rng.standard_normal((120, 4)) + 2 * np.eye(4)[y]).astype("float32")
    known = {"x": x, "y": np.where(np.arange(120) % 2, y, -1), "x_test": x, "y_test": y}
    np.savez(folder / "mine.npz", class_names=["cat", "dog", "cow"], **known)
    np.save(folder / "new.npy", x[:5])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("csst.cli.compare.outcomes_page", lambda *about: "")  # at which these tests do not look
        patch.setitem(BASELINES, "weighted-forest", BASELINES["logistic-regression"])  # which is quicker
        words = ["--methods", ",".join([*STORED, *BASELINES]), "--seeds", "1", "--jobs", "1"]
        steps = ["--training.steps", "9", "--training.labeled_batch", "16", "--training.unlabeled_batch", "16"]
        data = ["--data.path", str(folder / "mine.npz"), "--out", str(folder / "out")]
        assert main(["compare", "array", *words, *steps, *data]) == 0
    return folder


def run_verb(verb, run, folder, capsys):
    """The exit code of a verb on a run of the comparison, and what it says on stderr."""
    more = {
        "predict": [str(folder / "new.npy"), "-o", str(folder / "out.csv")],
        "export": ["-o", str(folder / "model.safetensors"), "--to", "safetensors"],
        "report": ["-o", str(folder / "page.html")],
        "theory": ["--examples", "30", "--draws", "2"],
    }
    capsys.readouterr()
    code = main([verb, str(run), *more.get(verb, [])])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("verb", ["predict", "evaluate", "export", "report", "frontier"])
@pytest.mark.parametrize("method", STORED)
def test_every_verb_takes_a_stored_row_of_a_comparison(verb, method, comparison, capsys):
    assert run_verb(verb, comparison / "out" / f"{method}-min-recall-0", comparison, capsys)[0] == 0


@pytest.mark.parametrize("verb", ["predict", "evaluate", "export", "report", "frontier", "theory"])
@pytest.mark.parametrize("method", BASELINES)
def test_a_row_that_keeps_numbers_only_is_shown_or_refused_in_a_sentence(verb, method, comparison, capsys):
    code, sentence = run_verb(verb, comparison / "out" / f"{method}-min-recall-0", comparison, capsys)
    if verb == "report":
        assert code == 0
        return
    assert code == 2
    assert sentence.count("\n") == 1
    assert f"has the numbers of {method} in a comparison and no model" in sentence


@pytest.mark.parametrize("verb", ["predict", "evaluate", "export", "report", "frontier", "theory"])
def test_the_comparison_itself_is_refused_with_the_name_of_a_run(verb, comparison, capsys):
    code, sentence = run_verb(verb, comparison / "out", comparison, capsys)
    assert code == 2
    assert "is not a run but holds some: name " in sentence

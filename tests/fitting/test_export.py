"""Exported models give what the classifier gives, with the decision rule inside and a card beside."""

from __future__ import annotations

import importlib
import json
import pickle
import warnings

import numpy as np
import pytest
import torch
from safetensors import safe_open

from csst import CSSTClassifier
from csst.cli import main
from csst.errors import InputError
from csst.fitting.export import Decision, Exportable, export, model_card
from csst.fitting.fitted_model import FittedModel
from csst.learners.forest import Forest
from csst.learners.linear import Linear
from csst.recipes import recipe, with_overrides
from csst.rules.rule import DecisionRule, GroupedRule
from csst.runs.execute import execute
from csst.runs.folder import Run
from tests.helpers.estimators import blobs, hidden, quick
from tests.helpers.exports import onnx, run_onnx
from tests.helpers.short_runs import SHORT_RUN
from tests.helpers.tiny_models import reviews, save_text_model
from tests.learners.samples import bent, member_of, portfolio_of, table_of

pytestmark = SHORT_RUN


def fitted(rule="fit"):
    """A classifier whose decision rule is not the plain argmax."""
    X, y = blobs(240)
    X = X + np.random.default_rng(1).normal(size=X.shape).astype(np.float32) * 2
    return quick("max mean(recall) s.t. coverage[0] >= 0.6", "csl", rule=rule).fit(X, hidden(y)), X


def read_metadata(path):
    """Return what an ONNX file says about itself, by key."""
    import onnx as package

    return {entry.key: entry.value for entry in package.load(str(path)).metadata_props}


@onnx
def test_an_estimator_with_its_decision_rule(tmp_path):
    made, X = fitted()
    assert (made.predict(X) != made.predict_proba(X).argmax(1)).any(), "the rule must matter for this test"
    files = made.export(tmp_path / "model.onnx")
    assert [file.name for file in files] == ["model.onnx", "model.card.md"]
    for rows in (X, X[:1], X[:7]):
        out = run_onnx(files[0], rows)
        np.testing.assert_allclose(out["probabilities"], made.predict_proba(rows), atol=1e-5)
        assert (made.classes_[out["label"]] == made.predict(rows)).all()
    metadata = read_metadata(files[0])
    assert json.loads(metadata["class_names"]) == ["0", "1", "2"]
    assert "coverage[0] >= 0.6" in metadata["objective"]


@onnx
def test_a_forest(tmp_path):
    X, y = bent(150)  # few of them are learned from: every level of a tree is a part of the graph
    members = [
        member_of(learner.fit(X[:9], y[:9]), learner.name, 1.3, (0.2, -0.2, 0.0), weight)
        for learner, weight in ((Linear(table_of(X)), 0.4), (Forest(trees=2), 0.6))
    ]
    portfolio = portfolio_of(*members)
    what = Exportable(portfolio, torch.from_numpy(X[:3]), ("a", "b", "c"))
    path, _ = export(what, tmp_path / "model.onnx", "onnx")
    for rows in (X[60:], X[60:61]):
        out = run_onnx(path, rows)
        np.testing.assert_allclose(out["probabilities"], portfolio.probs(rows), atol=1e-5)
        assert (out["label"] == portfolio.probs(rows).argmax(1)).all()


@pytest.mark.slow  # small: a linear model with a forest, above
@onnx
def test_the_default_with_all_its_members(tmp_path):
    X, y = bent(400)
    labels = np.where(np.arange(200) < 90, y[:200], -1)
    made = CSSTClassifier().fit(X[:200], labels)
    assert made.fit_.model.names == ("linear", "forest", "kernel", "propagation")
    path, _ = made.export(tmp_path / "model.onnx")
    for rows in (X[200:], X[200:201]):
        out = run_onnx(path, rows)
        np.testing.assert_allclose(out["probabilities"], made.predict_proba(rows), atol=1e-4)
        assert (made.classes_[out["label"]] == made.predict(rows)).all()


@onnx
def test_a_table_with_categories(tmp_path):
    pd = pytest.importorskip("pandas")
    rng, y = np.random.default_rng(0), np.arange(120) % 3
    frame = pd.DataFrame({"size": rng.normal(size=120), "color": np.array(["red", "green", "blue"])[y]})
    made = quick().fit(frame, hidden(y))
    path, card = made.export(tmp_path / "table.onnx")
    assert json.loads(read_metadata(path)["columns"]) == ["size", "color"]
    # The card says how the table becomes numbers: do just that, by hand.
    text = card.read_text(encoding="utf-8")
    assert 'columns in this order: ["size", "color"]' in text
    assert 'column 1 holds the place, from 0, in ["blue", "green", "red"], and -1 for anything else' in text
    codes = [["blue", "green", "red"].index(color) for color in frame["color"]]
    rows = np.stack([frame["size"], codes], 1).astype(np.float32)
    np.testing.assert_allclose(run_onnx(path, rows)["probabilities"], made.predict_proba(frame), atol=1e-5)
    strange = run_onnx(path, np.array([[0.5, -1]], dtype=np.float32))["probabilities"]
    other = pd.DataFrame({"size": [0.5], "color": ["violet"]})
    np.testing.assert_allclose(strange, made.predict_proba(other), atol=1e-5)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A quick finished run, with a decision rule fitted after training."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    data = {"validation": 20, "test": 30, "labeled": 40}
    values = {"training": {"steps": 20}, "model": {"name": "mlp"}, "method": "csl", "rule": "fit", "data": data}
    quickly = with_overrides(recipe("digits"), values)
    execute(quickly, folder)
    return folder


def classifier_of(folder):
    return FittedModel.load(folder)


@onnx
def test_a_finished_run_by_the_command_line(digits, tmp_path, capsys):
    assert main(["export", str(digits), "--to", "onnx", "-o", str(tmp_path / "deep/digits.onnx")]) == 0
    assert "digits.onnx" in capsys.readouterr().out
    made = classifier_of(digits)
    x = recipe("digits").data.load(0).test.inputs[:11]
    probs = torch.softmax(made.logits(x).double(), 1)
    out = run_onnx(tmp_path / "deep/digits.onnx", x.numpy())
    np.testing.assert_allclose(out["probabilities"], made.rule.posterior(probs), atol=1e-4)
    assert out["label"].tolist() == made.rule.predict(probs).tolist()


@onnx
def test_the_columns_of_a_table_are_named(tmp_path, capsys, monkeypatch):
    """In the card and in the file of a run (above: of an estimator); and nothing of torch's own is shown."""
    pd = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    rng, y = np.random.default_rng(0), np.arange(120) % 2
    frame = pd.DataFrame({"größe": rng.normal(size=120) + 3 * y, "weight": rng.normal(size=120)})
    frame.assign(label=y).to_csv("table.csv", index=False)
    assert main(["train", "array", "--data.path", "table.csv", "--learner", "linear", "--out", "run"]) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        assert main(["export", "run", "-o", "run.onnx"]) == 0
        assert main(["export", "run", "--to", "safetensors", "-o", "run.safetensors"]) == 0
    assert 'columns in this order: ["größe", "weight"]' in (tmp_path / "run.card.md").read_text("utf-8")
    assert json.loads(read_metadata("run.onnx")["columns"]) == ["größe", "weight"]
    with safe_open("run.safetensors", "pt") as file:
        assert json.loads(file.metadata()["columns"]) == ["größe", "weight"]


def test_torch_export_and_safetensors_of_a_run(digits, tmp_path):
    from safetensors import safe_open
    from safetensors.torch import load_file

    made = classifier_of(digits)
    x = recipe("digits").data.load(0).test.inputs[:5]
    probs = torch.softmax(made.logits(x).double(), 1)
    what = made.as_exportable()
    path, _ = export(what, tmp_path / "digits.pt2", "torch-export")
    out, label = torch.export.load(path).module()(x)
    np.testing.assert_allclose(out.detach(), made.rule.posterior(probs), atol=1e-4)
    assert label.tolist() == made.rule.predict(probs).tolist()
    path, _ = export(what, tmp_path / "digits.safetensors", "safetensors")
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.zero_()
        again = Decision(made.model, made.rule, 10)
        again.load_state_dict(load_file(path))
        out, label = again(x)
    np.testing.assert_allclose(out, made.rule.posterior(probs), atol=1e-4)
    assert label.tolist() == made.rule.predict(probs).tolist()
    with safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["class_names"]) == list(made.class_names)


def test_the_card_of_a_run(digits):
    metrics, made = Run.open(digits).metrics(), classifier_of(digits)
    said = model_card(made.as_exportable(), "digits.onnx", "onnx")
    assert metrics["split_hash"] in said
    assert metrics["objective"] in said
    assert "argmax_j m_j softmax(T log p + d)_j + c_j" in said
    test = metrics["adjusted"]["test"]
    least = test["intervals"]["min_recall"]
    row = f"| min recall | {least['estimate']:.3f} | {least['low']:.3f}–{least['high']:.3f} | {least['n']} |"
    assert row in said.split("## Measured on test")[1], "the numbers are those of the rule that is in the graph"
    assert '"0", "1", "2"' in said
    assert "images uint8, channels first; scaling is part of the graph" in said


def test_the_card_says_how_surely_constraints_are_met(tmp_path):
    goal = "max mean(recall) s.t. coverage >= 0.05"
    data = {"validation": 20, "test": 30, "labeled": 40}
    values = {"training": {"steps": 20}, "model": {"name": "mlp"}, "method": "csl", "objective": goal, "data": data}
    made = with_overrides(recipe("digits"), values)
    found = execute(made, tmp_path / "r")["test"]["intervals"]["constraints"][0]
    said = model_card(classifier_of(tmp_path / "r").as_exportable(), "r.onnx", "onnx")
    row = f"| {found['slack']:.3f} | about {found['low']:.3f} to {found['high']:.3f} | |"
    assert any(found["constraint"] in line and row in line for line in said.splitlines())


def test_the_whole_card_of_a_rule_for_each_group():
    rule = GroupedRule("region", ("north", "süd"), (DecisionRule.identity(2), DecisionRule.identity(2)))
    interval = {"estimate": 0.5, "low": 0.25, "high": 0.75, "n": 8}
    bound = {"constraint": "recall['a'] >= 0.4", "slack": 0.1, "low": -0.15, "high": 0.35}
    measured = {"min_recall": interval, "recall": [interval, interval], "constraints": [bound], "basis": "estimated"}
    card = {"objective": "max min(recall by region)", "columns": ["size"], "measured": {"test": measured}}
    model = Exportable(
        torch.nn.Linear(2, 2), torch.zeros(3, 2), ("a", "<b>"), rule, {**card, "notes": ["one & two", "three"]}
    )
    assert model_card(model, "m.onnx", "onnx").splitlines() == [
        "# m.onnx",
        "",
        "- format: onnx; inputs `x` torch.float32 (N, 2); outputs `probabilities` (N, 2) and `label` (N,)",
        '- classes, in order: "a", "<b>"',
        '- input `group` int64 (N,): the index of region in ["north", "süd"]',
        '- columns in this order: ["size"]',
        "- objective: max min(recall by region); decision rule: argmax_j m_j softmax(T log p + d)_j + c_j, "
        "fitted after training",
        "- preprocessing: none: standardization is part of the graph",
        "- method: unknown; data hash: unknown",
        "",
        "## Measured on test",
        "",
        "| | estimate | 95 % interval | n |",
        "|---|---|---|---|",
        "| min recall | 0.500 | 0.250–0.750 | 8 |",
        '| recall of "a" | 0.500 | 0.250–0.750 | 8 |',
        '| recall of "<b>" | 0.500 | 0.250–0.750 | 8 |',
        "| slack of \"recall['a'] >= 0.4\" | 0.100 | about -0.150 to 0.350 | |",
        "",
        "The intervals of the classes are simultaneous at 95 %, estimated.",
        "",
        "- one & two",
        "- three",
    ]


@pytest.mark.slow  # small: digits, above
@onnx
def test_images_by_a_wide_residual_network(tmp_path):
    rng, y = np.random.default_rng(0), np.arange(60) % 2
    x = rng.integers(0, 120, (60, 16, 16, 3)).astype(np.uint8)
    x[y == 1] += 100
    np.savez(tmp_path / "images.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    source = {"path": str(tmp_path / "images.npz"), "classes": 2, "labeled": 8, "unlabeled": 10, "imbalance": 2}
    values = {
        "training": {"steps": 2, "labeled_batch": 4, "unlabeled_batch": 4},
        "model": {"name": "wrn-10-1"},
        "data": {**source, "validation": 5},
    }
    execute(with_overrides(recipe("cifar10-lt-small"), values), tmp_path / "run")
    x = x.transpose(0, 3, 1, 2).copy()
    made = classifier_of(tmp_path / "run")
    path, card = export(made.as_exportable(), tmp_path / "images.onnx", "onnx")
    probs = torch.softmax(made.logits(torch.from_numpy(x)).double(), 1)
    np.testing.assert_allclose(run_onnx(path, x)["probabilities"], probs, atol=1e-5)
    np.testing.assert_allclose(run_onnx(path, x[:1])["probabilities"], probs[:1], atol=1e-5)
    assert "images uint8, channels first" in card.read_text(encoding="utf-8")


@pytest.mark.slow  # small: a head on an encoder, below
@onnx
@pytest.mark.filterwarnings("ignore")
def test_texts_by_a_tiny_transformer(tmp_path):
    pytest.importorskip("transformers")
    texts, labels = reviews(20, 20)
    lines = [f"{text},{label if at % 2 else ''}" for at, (text, label) in enumerate(zip(texts, labels, strict=True))]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    values = {
        "encoder": save_text_model(tmp_path / "model"),
        "frozen": False,
        "model": {"max_length": 32},
        "data": {"path": str(tmp_path / "texts.csv")},
        "training": {"steps": 2, "labeled_batch": 4, "unlabeled_batch": 4, "warmup": 0},
    }
    execute(with_overrides(recipe("text"), values), tmp_path / "run")
    made = classifier_of(tmp_path / "run")
    path, card = export(made.as_exportable(), tmp_path / "texts.onnx", "onnx")
    assert "padded with -1" in card.read_text(encoding="utf-8")
    for some in (texts, texts[:1], ["", "lovely", "the film was dull and the story of a dog was awful"]):
        tokens = made.model.encode(some)
        with torch.no_grad():
            probs = torch.softmax(made.model.eval()(tokens).double(), 1)
        np.testing.assert_allclose(run_onnx(path, tokens.numpy())["probabilities"], probs, atol=1e-5)


@onnx
def test_a_head_on_an_encoder_takes_vectors(tmp_path):
    texts, labels = reviews(30, 30)
    known = [label if at % 2 else None for at, label in enumerate(labels)]
    made = quick(encoder="words", cache=str(tmp_path)).fit(texts, known)
    path, card = made.export(tmp_path / "head.onnx")
    assert "embedded by 'words' first; the graph takes the vectors" in card.read_text(encoding="utf-8")
    from csst.models.encoders import Words

    out = run_onnx(path, Words()(texts))
    np.testing.assert_allclose(out["probabilities"], made.predict_proba(texts), atol=1e-5)


def test_what_cannot_be_exported_gets_a_sentence(tmp_path, capsys):
    made, _ = fitted(rule="none")
    with pytest.raises(InputError, match="exported to onnx, torch-export, safetensors; found 'gif'"):
        made.export(tmp_path / "a.gif", to="gif")
    with pytest.raises(InputError, match=r"a file for onnx ends in \.onnx; found 'a\.bin'"):
        made.export(tmp_path / "a.bin")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        made.export(tmp_path / "file" / "a.safetensors", to="safetensors")
    pickled = tmp_path / "clf.pkl"
    pickled.write_bytes(pickle.dumps(made))
    assert main(["export", str(pickled), "-o", str(tmp_path / "a.onnx")]) == 2
    assert "a pickled estimator is not read here, because unpickling runs code" in capsys.readouterr().err
    assert main(["export", str(tmp_path), "-o", str(tmp_path / "a.onnx")]) == 2
    assert "is not a run" in capsys.readouterr().err
    with pytest.raises(ValueError, match="not fitted"):
        quick().export(tmp_path / "a.onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_names_the_extra(package, tmp_path, monkeypatch):
    real = importlib.import_module

    def missing(name, *more):
        if name == package:
            raise ImportError(f"No module named {name!r}")
        return real(name, *more)

    monkeypatch.setattr("csst.fitting.export.importlib.import_module", missing)
    what = Exportable(torch.nn.Linear(2, 2), torch.zeros(3, 2), ("a", "b"))
    with pytest.raises(InputError, match=rf"ONNX needs the package {package} .*csst-learn\[export\]"):
        export(what, tmp_path / "a.onnx", "onnx")


@onnx
def test_a_model_that_differs_is_not_kept(tmp_path):
    class Moody(torch.nn.Module):
        """Another function when it is traced than when it is called."""

        def forward(self, x):
            return x * (3.0 if torch.compiler.is_exporting() else 1.0)

    what = Exportable(Moody(), torch.tensor([[0.0, 1.0], [2.0, 0.0]]), ("a", "b"))
    with pytest.raises(InputError, match="the probabilities of the ONNX file differ from the model's"):
        export(what, tmp_path / "a.onnx", "onnx")
    assert not (tmp_path / "a.onnx").exists()


def test_a_branch_on_values_cannot_be_exported(tmp_path):
    class Branching(torch.nn.Module):
        def forward(self, x):
            return x if bool(x.sum() > 0) else -x

    what = Exportable(Branching(), torch.ones(3, 2), ("a", "b"))
    with pytest.raises(InputError, match=r"cannot be written by torch\.export"):
        export(what, tmp_path / "a.pt2", "torch-export")


def test_an_exporter_that_fails_without_a_word_is_named_by_its_error(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise NotImplementedError

    monkeypatch.setattr(torch.export, "export", fail)
    what = Exportable(torch.nn.Linear(2, 2), torch.zeros(3, 2), ("a", "b"))
    with pytest.raises(InputError, match=r"cannot be written by torch\.export: NotImplementedError"):
        export(what, tmp_path / "a.pt2", "torch-export")

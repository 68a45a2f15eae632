"""Export a trained classifier as ONNX, torch.export or safetensors, with its decision rule and a model card.

The graph takes the inputs of the model (see the card) and returns `probabilities` (N, K), calibrated if there is a
decision rule, and `label` (N,), the class chosen by the rule, else the most probable class.
"""

from __future__ import annotations

import importlib
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from csst.errors import InputError
from csst.learners.protocol import FittedLearner
from csst.models.huggingface.text import HuggingFaceTexts
from csst.models.stored import refuse_foreign
from csst.models.wide_resnet import Pixels
from csst.plugins import first_line
from csst.rules.rule import DecisionRule, GroupedRule, Rule, rule_probs, rule_scores

FORMATS = {"onnx": ".onnx", "torch-export": ".pt2", "safetensors": ".safetensors"}
#: largest difference of a probability between an ONNX file and the model
TOLERANCE = 1e-5
Format = Literal["onnx", "torch-export", "safetensors"]


class Decision(nn.Module):
    """A model with its decision rule: inputs → probabilities and labels.

    With one rule for each group, the indices of the groups are a second input, (N,).
    """

    scale: Tensor
    offset: Tensor
    temperature: Tensor
    shift: Tensor
    undo: Tensor | None

    def __init__(self, model: nn.Module, rule: Rule | None, classes: int) -> None:
        super().__init__()
        self.model = model
        rule = rule or DecisionRule.identity(classes)
        for name, values in list_numbers(rule).items():
            self.register_buffer(name, values.float())
        self.register_buffer("undo", None if rule.undo is None else rule.undo.float())

    def forward(self, x: Tensor, group: Tensor | None = None) -> tuple[Tensor, Tensor]:
        probs = torch.softmax(self.model(x), 1).float()  # learners compute in double precision
        if group is None:
            posterior = rule_probs(probs, self.temperature, self.shift, self.undo)
            return posterior, rule_scores(posterior, self.scale, self.offset).argmax(1)
        posterior = rule_probs(probs, self.temperature[group], self.shift[group], self.undo)
        return posterior, (posterior * self.scale[group] + self.offset[group]).argmax(1)


def list_numbers(rule: Rule) -> dict[str, Tensor]:
    """Return the numbers of a rule by name; of one rule for each group, a row for each."""
    names = ("scale", "offset", "shift", "temperature")
    if isinstance(rule, GroupedRule):
        numbers = {name: torch.stack([torch.as_tensor(getattr(part, name)) for part in rule.rules]) for name in names}
        return {**numbers, "temperature": numbers["temperature"][:, None]}
    return {name: torch.as_tensor(getattr(rule, name)) for name in names}


@dataclass(frozen=True)
class Exportable:
    """A model with all that its export needs.

    Args:
        model: module from inputs to scores.
        example: inputs of the right shape and type.
        class_names: K names.
        rule: the decision rule; None for the most probable class.
        card: entries of the model card.
    """

    model: nn.Module
    example: Tensor
    class_names: tuple[str, ...]
    rule: Rule | None = None
    card: dict[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> dict[str, Tensor]:
        """Inputs of the graph by name: examples and, if each group has a rule of its own, the indices of groups."""
        if not isinstance(self.rule, GroupedRule):
            return {"x": self.example}
        return {"x": self.example, "group": torch.arange(len(self.example)) % len(self.rule.names)}


class TextGraph(nn.Module):
    """A classifier of token ids (B, L) without a branch on their values, which a graph cannot represent."""

    def __init__(self, model: HuggingFaceTexts) -> None:
        super().__init__()
        self.network = model.network
        self.padding = model.padding

    def forward(self, ids: Tensor) -> Tensor:
        mask = ids >= 0
        is_start = torch.arange(ids.shape[1], device=ids.device) == 0
        mask = mask | (is_start & ~mask.any(1, keepdim=True))  # a text without a token attends to one padding token
        words = torch.where(ids < 0, torch.full_like(ids, self.padding), ids)
        return self.network(input_ids=words, attention_mask=mask.long()).logits


def make_graph(model: nn.Module) -> nn.Module:
    """Return the model as a module that can be exported; raise an error for learners of other packages."""
    refuse_foreign(model)
    return TextGraph(model) if isinstance(model, HuggingFaceTexts) else model


def describe_inputs(model: nn.Module, kind: str, shape: tuple[int, ...], is_embedded: bool) -> tuple[Tensor, str]:
    """Return example inputs of a model, and how raw examples become such inputs, as a phrase."""
    generator = torch.Generator().manual_seed(0)
    preprocessing = "none: standardization is part of the graph"
    if isinstance(model, FittedLearner):
        return torch.rand(3, *shape, generator=generator).flatten(1), preprocessing
    if is_embedded:
        return torch.randn(
            3, *shape, generator=generator
        ), "each example is embedded first; the graph takes the vectors"
    if kind == "text":
        if not isinstance(model, HuggingFaceTexts):
            raise InputError("only Hugging Face classifiers of texts, and heads on frozen encoders, can be exported")
        cut = f"at most {model.encode.max_length} with the special ones, padded with -1 to the longest of the batch"
        return model.encode(["some words", "a longer text of more words", ""]), f"texts are cut into tokens, {cut}"
    if kind == "image":
        example = torch.randint(256, (3, *shape), dtype=torch.uint8, generator=generator)
        return example, "images uint8, channels first; scaling is part of the graph"
    if any(isinstance(part, Pixels) for part in model.modules()):
        preprocessing = "images float32, channels first; those that were uint8 in training are divided by 255"
    return torch.rand(3, *shape, generator=generator), preprocessing


def describe_card(metrics: dict[str, Any], has_rule: bool) -> dict[str, Any]:
    """Return the entries about a run for the card of its model."""
    if not metrics:
        return {}
    numbers = metrics["adjusted"] if has_rule else metrics
    intervals = {}
    for part in ("validation", "test"):
        if part in numbers:
            intervals[part] = dict(numbers[part]["intervals"])
            if "estimate" in numbers[part]:
                intervals[part]["basis"] = numbers[part]["estimate"]["basis"]
    return {
        "method": f"{metrics['method']}{' + rule' if has_rule else ''}, recipe {metrics.get('recipe', 'none')}",
        "data_hash": metrics.get("split_hash", "unknown"),
        "columns": metrics.get("facts", {}).get("columns"),
        "measured": intervals,
        "notes": metrics.get("warnings", []),
    }


def export(what: Exportable, path: str | Path, to: Format) -> list[Path]:
    """Write the model and its card, and return the paths; an ONNX file is compared with the model if it can be run."""
    if to not in FORMATS:
        raise InputError(f"a model can be exported to {', '.join(FORMATS)}; found {to!r}")
    path = Path(path)
    if path.suffix != FORMATS[to]:
        raise InputError(f"a file for {to} ends in {FORMATS[to]}; found {path.name!r}")
    decision = Decision(what.model.cpu().eval(), what.rule, len(what.class_names)).eval()
    card = path.with_suffix(".card.md")
    card_text = model_card(what, path.name, to)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writers = {"onnx": _write_onnx, "torch-export": _write_torch_export, "safetensors": _write_safetensors}
        writers[to](decision, what, path)
        card.write_text(card_text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from None
    return [path, card]


def _list_sizes(inputs: dict[str, Tensor]) -> tuple[dict[int, Any], ...]:
    """Return the dimensions of each input that may vary: the batch and, for token ids, the length."""
    batch = torch.export.Dim("batch")
    length = torch.export.Dim("length")
    return tuple(
        {0: batch, 1: length} if values.dtype == torch.int64 and values.ndim > 1 else {0: batch}
        for values in inputs.values()
    )


@contextmanager
def _silence_torch() -> Iterator[None]:
    """Silence torch's warnings about changes to its own code, on which a user cannot act."""
    with warnings.catch_warnings():
        for category in (FutureWarning, DeprecationWarning):
            warnings.simplefilter("ignore", category)
        yield


def _write_onnx(decision: nn.Module, what: Exportable, path: Path) -> None:
    for package in ("onnx", "onnxscript"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise InputError(f"ONNX needs the package {package} ({error}): pip install csst-learn[export]") from None
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = registration.level
    registration.setLevel(logging.ERROR)  # it warns that torchvision, which nothing here uses, is not installed
    try:
        with _silence_torch():
            program = torch.onnx.export(
                decision,
                tuple(what.inputs.values()),
                input_names=list(what.inputs),
                output_names=["probabilities", "label"],
                dynamic_shapes=_list_sizes(what.inputs),
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # the exporter raises errors of many kinds
        raise InputError(f"this model cannot be written as ONNX: {first_line(error)}") from error
    finally:
        registration.setLevel(level)
    assert program is not None
    onnx_model = program.model_proto
    for key, value in describe_properties(what).items():
        entry = onnx_model.metadata_props.add()
        entry.key = key
        entry.value = value
    path.write_bytes(onnx_model.SerializeToString())
    _compare_onnx(decision, what, path)


def describe_properties(what: Exportable) -> dict[str, str]:
    """Return the metadata inside the file: classes, objective, and the names of columns if there are any."""
    properties = {"class_names": json.dumps(list(what.class_names)), "objective": str(what.card.get("objective", ""))}
    if what.card.get("columns"):
        properties["columns"] = json.dumps(list(what.card["columns"]))
    if isinstance(what.rule, GroupedRule):
        properties |= {"group": what.rule.column, "groups": json.dumps(list(what.rule.names))}
    return properties


def _compare_onnx(decision: nn.Module, what: Exportable, path: Path) -> None:
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        return  # the file is kept, unchecked
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    probs = torch.from_numpy(
        session.run(["probabilities"], {name: values.numpy() for name, values in what.inputs.items()})[0]
    )
    with torch.no_grad():
        difference = float((probs - decision(*what.inputs.values())[0]).abs().max())
    if not difference < TOLERANCE:
        path.unlink()
        raise InputError(
            f"the probabilities of the ONNX file differ from the model's by {difference:.2g}: it was not kept"
        )


def _write_torch_export(decision: nn.Module, what: Exportable, path: Path) -> None:
    try:
        with _silence_torch():
            program = torch.export.export(
                decision, tuple(what.inputs.values()), dynamic_shapes=_list_sizes(what.inputs)
            )
    except Exception as error:
        raise InputError(f"this model cannot be written by torch.export: {first_line(error)}") from error
    with _silence_torch():
        torch.export.save(program, path)


def _write_safetensors(decision: nn.Module, what: Exportable, path: Path) -> None:
    from safetensors.torch import save_file

    tensors = {name: value.contiguous().clone() for name, value in decision.state_dict().items()}
    save_file(tensors, path, metadata=describe_properties(what))


def model_card(model: Exportable, file: str, to: str) -> str:
    """Return the model card: inputs and outputs, objective, and measured numbers with their intervals."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(loader=PackageLoader("csst.fitting"), trim_blocks=True, lstrip_blocks=True)
    environment.filters["quote"] = quote
    card = environment.get_template("card.md").render(model=model, card=model.card, file=file, to=to)
    return card.rstrip() + "\n"


def quote(value: Any) -> str:
    """Return a name or a list of names as JSON, without escaping letters."""
    return json.dumps(value, ensure_ascii=False)

"""Records in an event file for TensorBoard. Any other logger is a function passed as `on_record`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from csst.errors import InputError
from csst.training.records import Record

#: tags of the entries of a record that are single numbers
SCALARS = {
    "labeled_loss": "loss/labeled",
    "unlabeled_loss": "loss/unlabeled",
    "used": "unlabeled/used",
    "pseudo_accuracy": "unlabeled/pseudo_accuracy",
    "value": "objective/value",
    "lr": "schedule/lr",
    "step_size": "schedule/step_size",
    "examples_per_second": "speed/examples_per_second",
}


class TensorBoard:
    """Writes every record of a training: losses, multipliers, the recall and coverage of each class, the used fraction.

    with TensorBoard("runs/mine/tensorboard") as log:
        csst.execute(csst.recipe("toy"), "runs/mine", on_record=log)

    Args:
        folder: folder of the event files.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.writer: Any = None

    def __enter__(self) -> TensorBoard:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise InputError(
                f"logging for TensorBoard needs the package tensorboard ({error}): pip install csst-learn[tracking]"
            ) from None
        self.make = SummaryWriter
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self.writer is not None:
            self.writer.close()

    def __call__(self, trainer: Any, record: Record) -> None:
        """Write one record; events that an interrupted training wrote from this step on are dropped."""
        if self.writer is None:
            self.writer = self.make(str(self.folder), purge_step=record.step)
        names = trainer.task.class_names
        labels = trainer.multipliers.labels
        values = {tag: getattr(record, name) for name, tag in SCALARS.items()}
        values["recall/lowest"] = min(record.recall)
        values["coverage/lowest"] = min(record.coverage)
        values |= {f"recall/{name}": value for name, value in zip(names, record.recall, strict=True)}
        values |= {f"coverage/{name}": value for name, value in zip(names, record.coverage, strict=True)}
        values |= {f"multipliers/{label}": value for label, value in zip(labels, record.multipliers, strict=True)}
        for tag, value in values.items():
            if value is not None:
                self.writer.add_scalar(tag, value, record.step)
        self.writer.flush()

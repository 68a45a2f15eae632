"""What every way to train a network offers: one trainer, generations of trainers, or trainers of several folds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor, nn

from csst.training.records import Record


class TrainingRun(Protocol):
    """A training that can be run, saved, resumed, and asked for its models.

    Where the model is sharded over processes, all of them must call `state_dict` and `last_weights` together.
    """

    def run(self) -> Iterator[Record]:
        """Train to the end, yielding a record at every multiplier update; resumes where a loaded state left off."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The whole training, for a checkpoint."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: the whole training.
        """
        ...

    def best_model(self) -> nn.Module:
        """A new model with the selected weights, in evaluation mode; changing it changes nothing in the training."""
        ...

    def selected_weights(self) -> dict[str, Tensor]:
        """A copy of the weights of the averaged model that was selected, on the CPU."""
        ...

    def last_weights(self) -> dict[str, Tensor]:
        """A copy of the weights of the averaged model as it is now, on the CPU."""
        ...


if TYPE_CHECKING:
    from csst.training.crossfit import CrossFit
    from csst.training.generations import Generations
    from csst.training.trainer import Trainer

    #: a type checker compares each of them with the protocol here
    IMPLEMENTATIONS: tuple[type[TrainingRun], ...] = (Trainer, Generations, CrossFit)

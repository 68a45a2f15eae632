"""The rows that a run keeps, so that new rows can be compared with them: reference.npz."""

from __future__ import annotations

import io

import numpy as np

from csst.data.tabular.arrays import read_npz
from csst.estimation.reference import Reference
from csst.estimation.row_features import Projection
from csst.fitting.folder import Folder

#: the file in a run's folder
REFERENCE = "reference.npz"
#: arrays of reference.npz
ARRAYS = ("labeled", "labels", "unlabeled", "unlabeled_prior", "width", "mean", "deviation", "sizes")


def pack_reference(reference: Reference) -> bytes:
    """Return a reference as an .npz file."""
    file = io.BytesIO()
    projection = reference.projection
    np.savez_compressed(
        file,
        labeled=reference.labeled,
        labels=reference.labels,
        unlabeled=reference.unlabeled,
        unlabeled_prior=reference.unlabeled_prior,
        width=np.array(projection.width),
        mean=projection.mean,
        deviation=projection.deviation,
        sizes=np.array(reference.sizes),
    )
    return file.getvalue()


def read_reference(run: Folder) -> Reference | None:
    """Read what `pack_reference` wrote into a run, with names of the columns; None where there is no such file."""
    path = run.path(REFERENCE)
    if not path.is_file():
        return None
    arrays = read_npz(str(path), ARRAYS, needed=ARRAYS)
    reference = Reference(
        arrays["labeled"],
        arrays["labels"],
        arrays["unlabeled"],
        arrays["unlabeled_prior"],
        Projection(int(arrays["width"]), arrays["mean"], arrays["deviation"]),
        tuple(arrays["sizes"].tolist()),
    )
    columns = run.columns()
    return reference.with_names(None if columns is None else columns.names)

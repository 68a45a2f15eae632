"""Write predictions chunk by chunk: to the terminal, a CSV file or a Parquet file."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from csst.errors import InputError
from csst.plugins import import_extra

#: cells by column name, the same number in each
Cells = dict[str, Any]


class CsvWriter:
    """Writes rows as CSV; probabilities have six decimals.

    Args:
        file: an open text file.
    """

    def __init__(self, file: Any) -> None:
        self.file = file
        self.table = csv.writer(file, lineterminator="\n")
        self.has_head = False

    def write(self, cells: Cells) -> None:
        """Write rows, after a head before the first."""
        if not self.has_head:
            self.table.writerow(cells)
            self.has_head = True
        columns = [_format_column(values) for values in cells.values()]
        self.table.writerows(zip(*columns, strict=True))


def _format_column(values: Any) -> list[Any]:
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return ["" if value != value else f"{value:.6f}" for value in values.tolist()]
    return ["" if value is None else value for value in values]


class ParquetWriter:
    """Writes rows as Parquet; the first chunk tells the types of the columns.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.arrow = import_extra("pyarrow", str(path))
        self.parquet = import_extra("pyarrow.parquet", str(path))
        self.path = path
        self.file: Any = None

    def write(self, cells: Cells) -> None:
        """Write rows as one group."""
        if self.file is None:
            table = self.arrow.table({name: self._convert(values) for name, values in cells.items()})
            self.file = self.parquet.ParquetWriter(self.path, table.schema)
        else:
            table = self.arrow.table({name: list(values) for name, values in cells.items()}, schema=self.file.schema)
        self.file.write_table(table)

    def _convert(self, values: Any) -> Any:
        array = self.arrow.array(values)
        # A column that begins with gaps only may hold anything later, and texts hold everything.
        return array.cast(self.arrow.string()) if self.arrow.types.is_null(array.type) else array

    def close(self) -> None:
        """Write the end of the file."""
        if self.file is not None:
            self.file.close()


@contextmanager
def open_writer(output: str) -> Iterator[CsvWriter | ParquetWriter]:
    """Open a writer for a .csv or .parquet file, or the terminal for ""; the file appears only when it is complete."""
    if not output:
        yield CsvWriter(sys.stdout)
        return
    path = Path(output)
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"predictions are written as .csv or .parquet; found {output}")
    draft = path.with_name(path.name + ".partial")
    try:
        if path.suffix.lower() == ".parquet":
            writer = ParquetWriter(draft)
            yield writer
            writer.close()
        else:
            with draft.open("w", newline="", encoding="utf-8") as file:
                yield CsvWriter(file)
        os.replace(draft, path)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error}") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)

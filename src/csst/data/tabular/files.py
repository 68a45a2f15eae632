"""Read table files in chunks of rows: CSV, TSV and JSON Lines, also gzipped, and Parquet."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from csst.data.tabular.tables import find_repeated
from csst.errors import InputError
from csst.plugins import first_line, import_extra

#: known delimiters, the most common first, and their names
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
#: records by which a delimiter is judged
RECORDS = 20
#: rows that are read at a time, at most, and their cells: the cells of a chunk stay in the processor's cache
CHUNK_ROWS = 4_000
CHUNK_CELLS = 200_000
#: characters at the beginning of a file by which its delimiter is found
HEAD = 65_536
#: cells that mean a missing value, as in pandas.read_csv
GAPS = frozenset(
    [
        *("", "NA", "N/A", "n/a", "<NA>", "#NA", "#N/A", "#N/A N/A", "NULL", "null", "None"),
        *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    ]
)
#: the name of a column without one, as in pandas.read_csv
UNNAMED = "Unnamed: {}"

#: values by column name: a list of cells, or an array of numbers
Chunk = dict[str, Any]


def find_delimiter(head: str, ending: str) -> str:
    """Return the character between the fields of a file.

    A .tsv file has tabs. Other files have the delimiter that splits their first records into the same number of
    fields, two or more; where several do, the one with the most fields. If none does, the first line decides.

    Args:
        head: the first line or the first lines.
        ending: ending of the file's name.

    Returns:
        One character.
    """
    if ending.lower() == ".tsv":
        return "\t"
    lines = head.splitlines(keepends=True)
    if len(lines) > 1 and not head.endswith("\n"):
        lines = lines[:-1]  # the last line may be cut
    counts = {delimiter: _count_fields(lines, delimiter) for delimiter in DELIMITERS}
    regular = [delimiter for delimiter, fields in counts.items() if len(set(fields)) == 1 and fields[0] > 1]
    if regular:
        return max(regular, key=lambda delimiter: counts[delimiter][0])  # the first among equals
    for delimiter, fields in counts.items():
        if fields and fields[0] > 1:
            return delimiter
    return ","


def _count_fields(lines: list[str], delimiter: str) -> list[int]:
    """Return the number of fields of each of the first records; only those before a damaged one."""
    counts: list[int] = []
    try:
        for row in islice(filter(None, csv.reader(lines, delimiter=delimiter)), RECORDS):
            counts.append(len(row))
    except csv.Error:
        pass
    return counts


def find_ending(path: str | Path) -> str:
    """Return the ending of a file's name without .gz, in small letters: ".csv" for "mine.CSV.gz"."""
    name = Path(path)
    return Path(name.stem).suffix.lower() if name.suffix.lower() == ".gz" else name.suffix.lower()


def is_table(path: str | Path) -> bool:
    """Return whether a path belongs to a file with named columns, by its ending."""
    return find_ending(path) in READERS


def read_chunks(path: str | Path, rows: int | None = None) -> Iterator[Chunk]:
    """Read a table file chunk by chunk, in bounded memory.

    Args:
        path: a .csv, .tsv, .jsonl or .parquet file; the first three may be gzipped.
        rows: the number of rows in a chunk; None for a small chunk.

    Yields:
        Cells by column name. Every chunk of a .jsonl file has only the names that occur in it.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise InputError(f"there is no file {str(path)!r}")
    ending = find_ending(file)
    if ending not in READERS:
        raise InputError(f"{path}: a table is a {', '.join(READERS)} file; found the ending {ending!r}")
    try:
        yield from READERS[ending](file, rows)
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    except (OSError, ValueError, RuntimeError, EOFError) as error:
        raise InputError(f"{path} cannot be read: {first_line(error)}") from None


def choose_size(rows: int | None, columns: int) -> int:
    """Return the number of rows in a chunk: as asked, or few if there are many columns."""
    return rows or max(1, min(CHUNK_ROWS, CHUNK_CELLS // max(1, columns)))


def _open_text(path: Path) -> TextIO:
    open_file: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    file: TextIO = open_file(path, "rt", newline="", encoding="utf-8-sig")
    return file


def _read_csv(path: Path, rows: int | None) -> Iterator[Chunk]:
    csv.field_size_limit(2**31 - 1)
    with _open_text(path) as file:
        delimiter = find_delimiter(file.read(HEAD), find_ending(path))
        file.seek(0)
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            head = [name or UNNAMED.format(n) for n, name in enumerate(next(reader, []))]
            duplicates = find_repeated(head)
            if duplicates:
                raise InputError(f"{path} has two columns named {duplicates[0]!r}")
            size = choose_size(rows, len(head))
            while True:
                records = list(islice(filter(None, reader), size))
                if set(map(len, records)) - {len(head)}:
                    _refuse_ragged(path, delimiter, head)
                if not records:
                    return
                yield dict(zip(head, map(list, zip(*records, strict=True)), strict=True))
        except csv.Error as error:
            raise InputError(
                f"line {reader.line_num} of {path} is not CSV ({error}): a quote inside quotes is written twice"
            ) from None


def _refuse_ragged(path: Path, delimiter: str, head: Sequence[str]) -> None:
    """Raise an error that names the first line with another number of fields than the first line."""
    with _open_text(path) as file:
        reader = csv.reader(file, delimiter=delimiter)
        for row in reader:
            if row and len(row) != len(head):
                raise InputError(
                    f"line {reader.line_num} of {path} has {len(row)} fields, but the first line names {len(head)} "
                    f"columns: a text with {DELIMITERS[delimiter]} needs quotes"
                )


def _read_jsonl(path: Path, rows: int | None) -> Iterator[Chunk]:
    with _open_text(path) as file:
        lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
        while True:
            records = [_read_record(path, *numbered_line) for numbered_line in islice(lines, rows or CHUNK_ROWS)]
            if not records:
                return
            names = dict.fromkeys(name for record in records for name in record)
            yield {name: [record.get(name) for record in records] for name in names}


def _read_record(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InputError(f"line {number} of {path} is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise InputError(f"line {number} of {path} must be an object; found {type(record).__name__}")
    return record


def _read_parquet(path: Path, rows: int | None) -> Iterator[Chunk]:
    file = import_extra("pyarrow.parquet", str(path)).ParquetFile(path)
    names = file.schema_arrow.names
    duplicates = find_repeated(names)
    if duplicates:
        raise InputError(f"{path} cannot be read: two columns are named {duplicates[0]!r}")
    for batch in file.iter_batches(choose_size(rows, len(names))):
        yield {name: _read_arrow(column) for name, column in zip(names, batch.columns, strict=True)}


def _read_arrow(column: Any) -> Any:
    """Return an Arrow column as an array of floats if it holds floats, else as a list of cells."""
    if str(column.type) in ("float", "double", "halffloat"):
        return column.to_numpy(zero_copy_only=False)
    return column.to_pylist()


#: readers by the ending of the file's name
READERS: dict[str, Callable[[Path, int | None], Iterator[Chunk]]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}


def read_arrays(path: str | Path, texts: Collection[str] = (), without: Collection[str] = ()) -> dict[str, np.ndarray]:
    """Read all rows of a table file, one array per column.

    A column is read as numbers until a cell is found that is no number; the file is then read once more.

    Args:
        path: the file.
        texts: columns that are never read as numbers.
        without: columns to leave out.

    Returns:
        Columns of numbers as float64 with NaN for gaps, others as objects with None for gaps.
    """
    text_names = set(texts)
    while True:
        columns = ColumnPieces(text_names)
        for chunk in read_chunks(path):
            columns.add({name: values for name, values in chunk.items() if name not in without})
        if not columns.rows:
            raise InputError(f"{path} holds no rows")
        if not columns.mistaken:
            return columns.join()
        text_names |= columns.mistaken


class ColumnPieces:
    """The columns of a file while its chunks are read.

    Args:
        texts: columns that are not read as numbers; columns whose first chunk has other cells are added.
    """

    def __init__(self, texts: set[str]) -> None:
        self.texts = texts
        #: columns read as numbers in which other cells were found later
        self.mistaken: set[str] = set()
        self.pieces: dict[str, list[np.ndarray]] = {}
        self.rows = 0
        self.pool: dict[Any, Any] = {}

    def add(self, chunk: Chunk) -> None:
        """Add the rows of a chunk."""
        count = len(next(iter(chunk.values()), ()))
        for name in self.pieces.keys() - chunk.keys():  # a .jsonl file need not have every name in every row
            chunk[name] = [None] * count
        for name, values in chunk.items():
            if name not in self.pieces:
                self.pieces[name] = [np.full(self.rows, np.nan)] if self.rows else []
            if name not in self.mistaken:
                self._add_column(name, values)
        self.rows += count

    def _add_column(self, name: str, values: Any) -> None:
        numbers = None if name in self.texts else read_numbers(values)
        if numbers is not None:
            self.pieces[name].append(numbers)
        elif name in self.texts or not self.pieces[name]:
            self.texts.add(name)
            self.pieces[name].append(read_cells(values, self.pool))
        else:
            self.mistaken.add(name)

    def join(self) -> dict[str, np.ndarray]:
        """Return the whole columns."""
        return {name: np.concatenate(pieces) for name, pieces in self.pieces.items()}


def read_numbers(values: Any) -> np.ndarray | None:
    """Return cells as float64 with NaN for gaps; None if some are no numbers.

    Args:
        values: texts, as in a CSV file; or numbers and None; or an array of floats.
    """
    if isinstance(values, np.ndarray):
        return values.astype(np.float64) if values.dtype.kind in "iuf" else None
    types = set(map(type, values))
    if types <= {int, float, type(None)}:
        return np.array([np.nan if value is None else float(value) for value in values])
    if types != {str} or "_" in "".join(values):  # Python reads "1_000" as a number
        return None
    try:  # most gaps are blanks, and few are words
        cells = [value or "nan" for value in values] if "" in values else values
        return np.fromiter(map(float, cells), np.float64, len(values))
    except ValueError:
        pass
    try:
        return np.array([np.nan if value.strip() in GAPS else float(value) for value in values])
    except ValueError:
        return None


def read_cells(values: Any, pool: dict[Any, Any] | None = None) -> np.ndarray:
    """Return cells as an array of objects with None for gaps.

    Args:
        values: cells as they are in the file.
        pool: texts seen before, so that equal texts share their memory.
    """
    texts = {} if pool is None else pool
    cells = np.empty(len(values), dtype=object)
    for row, value in enumerate(values.tolist() if isinstance(values, np.ndarray) else values):
        if isinstance(value, str):
            cells[row] = None if value.strip() in GAPS else texts.setdefault(value, value)
        else:
            cells[row] = value
    return cells

"""The delimiter between the fields of a text file."""

from __future__ import annotations

import csv
from itertools import islice

#: known delimiters, the most common first, and their names
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
#: records by which a delimiter is judged
RECORDS = 20


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

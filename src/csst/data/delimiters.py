"""The delimiter between the fields of a text file."""

from __future__ import annotations

import csv


def find_delimiter(head: str, ending: str) -> str:
    """Return the character between the fields of a file whose first line is `head`.

    A .tsv file has tabs. A .csv file has commas; if its first line has none, it has semicolons (from a spreadsheet with
    decimal commas) or tabs.

    Args:
        head: the first line.
        ending: ending of the file's name.

    Returns:
        One character.
    """
    if ending.lower() == ".tsv":
        return "\t"
    try:
        fields = {delimiter: len(next(csv.reader([head], delimiter=delimiter), [])) for delimiter in ",;\t"}
    except csv.Error:
        return ","
    for delimiter in ",;\t":
        if fields[delimiter] > 1:
            return delimiter
    return ","

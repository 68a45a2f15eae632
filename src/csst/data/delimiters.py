"""What separates the fields of a table in a text file."""

from __future__ import annotations

import csv


def find_delimiter(head: str, ending: str) -> str:
    """Return the character between the fields of a file whose first line is `head`.

    A .tsv file has tabs. A .csv file has commas; where its first line has none, a spreadsheet with decimal commas has
    written semicolons, or tabs.

    Args:
        head: the first line.
        ending: of the file's name.

    Returns:
        One character.
    """
    if ending.lower() == ".tsv":
        return "\t"
    try:
        fields = {delimiter: len(next(csv.reader([head], delimiter=delimiter), [])) for delimiter in ",;\t"}
    except csv.Error:
        return ","
    others = [delimiter for delimiter in ";\t" if fields[delimiter] > 1]
    return others[0] if fields[","] < 2 and others else ","

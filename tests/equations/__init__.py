"""One test per equation of the paper, against `reference.py`."""

"""Runs: a recipe carried out in a folder, resumable; comparisons of several."""

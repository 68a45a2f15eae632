"""Texts: files, the Hugging Face hub, and the views of a text."""

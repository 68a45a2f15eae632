"""From data to a fitted model, and what a fitted model can do."""

"""Many runs side by side: the rows of a comparison, the presets of the paper, and their summary."""

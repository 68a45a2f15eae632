"""The mathematics: confusion, objectives and their language, gain, losses, multipliers. It imports torch and nothing else."""

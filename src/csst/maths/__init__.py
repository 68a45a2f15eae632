"""The mathematics: confusion, objectives and their language, gain, losses, multipliers. Imports torch, nothing else."""

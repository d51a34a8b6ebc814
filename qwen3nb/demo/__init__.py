"""The embedded default: a small training that writes real checkpoints.

What it trains is a toy. It is there so that every step from a training checkpoint to
the book runs on two cores in minutes, with real files and honest numbers.
"""

"""Analyses of trainings: learning curves, seed variance, task interference."""

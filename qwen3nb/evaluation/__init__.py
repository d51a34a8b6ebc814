"""Evaluate models: a model and data in, result records out."""

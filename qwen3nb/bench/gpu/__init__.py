"""Equality and speed on a GPU, of random models with the shapes of real ones."""

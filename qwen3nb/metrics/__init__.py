"""Compute values per query from qrels and runs, and aggregate them. Pure functions."""

"""Pure functions that score queries from qrels and runs, and aggregate the scores."""

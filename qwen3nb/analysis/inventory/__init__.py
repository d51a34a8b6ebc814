"""Scores of all kinds of result files, their anomalies, and logs of trainings."""

from qwen3nb.analysis.inventory.collect import load_all_results as load_all_results

"""Scores of all kinds of result files, their anomalies, and logs of trainings."""

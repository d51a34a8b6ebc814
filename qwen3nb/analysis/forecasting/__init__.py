"""Forecast the mean of a benchmark from a few of its tasks, by the published scores of others."""

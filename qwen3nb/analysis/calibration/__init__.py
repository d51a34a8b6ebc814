"""Calibration of tests and intervals: simulated coverage, power and false positives."""

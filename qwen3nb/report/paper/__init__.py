"""Figures and tables of the results for a paper."""

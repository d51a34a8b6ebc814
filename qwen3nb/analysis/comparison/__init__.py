"""Comparisons of systems: alignment, paired differences, rankings, candidates."""

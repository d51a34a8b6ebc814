"""Systems against systems: alignment, paired differences, rankings, candidates."""

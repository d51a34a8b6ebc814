"""Files: locks, errors that name them, digests that are remembered."""

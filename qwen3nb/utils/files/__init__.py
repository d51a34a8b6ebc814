"""What all files need: locks, errors that name them, digests that are remembered."""

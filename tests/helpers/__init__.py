"""What tests of several rooms share."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent


TEXTS = (
    "Return the largest element of the list.",
    "Sort the rows by date, newest first, and drop duplicates.",
    "The quick brown fox jumps over the lazy dog.",
    "Compute the mean of each column along the given axis.",
)

"""The questions of the book, one module each: what it needs, how it is computed, its views."""

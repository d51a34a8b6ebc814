"""Studies: folders with notebooks, a book, a sweep and example queries."""

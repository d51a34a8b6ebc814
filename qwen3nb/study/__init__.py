"""A study of one's own: a folder with notebooks, a book, a sweep and example queries."""

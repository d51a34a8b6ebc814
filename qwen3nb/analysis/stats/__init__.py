"""Arrays in, tests and intervals out."""

"""PyDocs: API search on the docstrings of the installed libraries, and its MTEB tasks."""

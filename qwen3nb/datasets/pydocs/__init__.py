"""PyDocs: API search on the docstrings of installed libraries, and its MTEB tasks."""

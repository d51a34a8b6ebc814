"""The Jupyter Book: its build, its Sphinx extension, its status page."""

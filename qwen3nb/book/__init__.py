"""The Jupyter Book: build, Sphinx extension, accessibility checks, status page."""

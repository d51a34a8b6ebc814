"""Checks of a model folder before anything is built from it."""

"""On what a model is measured."""

"""Kinds of models: how each is recognised, checked, identified and loaded."""

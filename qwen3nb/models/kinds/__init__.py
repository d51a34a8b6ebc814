"""Kinds of models: what each is recognised by, how it is checked, identified and loaded."""

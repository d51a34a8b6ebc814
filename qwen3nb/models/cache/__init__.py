"""The embedding cache: its files, its limit, and what a person does with it."""

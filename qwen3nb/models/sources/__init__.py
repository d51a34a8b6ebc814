"""A model specification resolved once: its kind, its folder, its identity."""

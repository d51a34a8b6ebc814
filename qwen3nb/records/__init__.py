"""The result record on disk: its schema, its location, its verification."""

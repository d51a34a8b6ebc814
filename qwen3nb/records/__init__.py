"""The result record on disk: its schema, where it lies, how it is checked."""

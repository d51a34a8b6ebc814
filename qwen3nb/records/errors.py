"""The exception of everything that reads or writes records."""


class ResultError(ValueError):
    """A record that cannot be read or is inconsistent; names the file and the cause."""

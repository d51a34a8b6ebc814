"""Score files on disk, with the metadata of their runs."""

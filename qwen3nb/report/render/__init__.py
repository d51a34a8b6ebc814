"""One table, one figure, and every format they are written in."""

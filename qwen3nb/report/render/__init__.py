"""Tables and figures, and the formats they are written in."""

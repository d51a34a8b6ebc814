"""One file per study page."""

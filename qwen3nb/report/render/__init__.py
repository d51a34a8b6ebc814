"""Tables and figures in all formats."""

"""How the work is driven."""

"""How the results are shown."""

"""Utilities without domain knowledge: atomic files, choices, hardware, secrets."""

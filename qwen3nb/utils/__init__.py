"""Ground floor: files written whole, choices, hardware, secrets. Knows nothing of the field."""

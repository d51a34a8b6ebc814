"""Which document to grade next, and when the grades decide between models."""

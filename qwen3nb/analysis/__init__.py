"""What the scores mean."""

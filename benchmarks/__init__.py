"""What developers measure: a script per question (README.md)."""

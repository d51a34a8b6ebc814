"""The model card, from records and what only its authors know."""

"""The model card, from records and facts provided by the authors."""

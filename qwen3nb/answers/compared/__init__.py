"""What the page of a comparison shows first: its sentences, and the scores of the models."""

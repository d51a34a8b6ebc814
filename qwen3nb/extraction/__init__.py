"""How a checkpoint becomes a model."""

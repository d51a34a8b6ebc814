"""Texts to vectors: the encoders, their prompts, the embedding cache."""

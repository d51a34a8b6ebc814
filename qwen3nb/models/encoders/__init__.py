"""Texts to vectors: encoders, their prompts and the embedding cache."""

"""Texts to vectors: encoders and their prompts."""

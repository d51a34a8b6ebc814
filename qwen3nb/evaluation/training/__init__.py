"""Evaluation during training, in the trainers of two libraries."""

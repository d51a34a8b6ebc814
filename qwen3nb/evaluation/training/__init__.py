"""Score a model while it is trained: an evaluator for the trainers of two libraries."""

"""Models to evaluate: encoders, rerankers, search models and baselines."""

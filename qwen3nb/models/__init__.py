"""The models that are evaluated: encoders, rerankers, search models and baselines."""

"""Evaluate retrieval and reranking on test collections."""

"""Search and reranking of a test collection, from first stage to record."""

"""Vectors or texts to ranked documents: exact search, BM25, fusion, FAISS indexes."""

"""Vectors on disk: float32 block files with manifests, for the cache, corpora and `encode`."""

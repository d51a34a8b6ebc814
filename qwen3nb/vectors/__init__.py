"""Vectors on disk: blocks of float32 with manifests, for the cache, corpora and `encode`."""

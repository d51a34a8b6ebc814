"""Intrinsic quality of vectors: similarity, geometry, probes, the sanity check."""

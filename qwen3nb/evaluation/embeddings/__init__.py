"""Evaluate vectors directly: similarity, geometry, probes, the sanity check."""

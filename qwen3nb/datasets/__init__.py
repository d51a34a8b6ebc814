"""Test collections, read from a mirror, a folder or a file. Builds no model."""

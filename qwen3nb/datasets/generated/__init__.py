"""Queries that are generated from documents."""

"""A journal of finished work, and stored digests of files."""

"""Architectures and tensor operations: configuration, pooling, dtypes, tokenizer templates."""

"""Architectures and pure tensor rules: configuration, pooling, dtypes, tokenizer templates."""

"""Your own data: queries in TOML; documents in JSONL, CSV, SQLite or DuckDB."""

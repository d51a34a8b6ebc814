"""Your own queries and documents: TOML queries, JSONL, CSV, SQLite and DuckDB documents."""

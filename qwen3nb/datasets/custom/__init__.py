"""Your own data: queries in TOML; documents in any format of `formats`."""

"""Score files found on disk, with the metadata of the runs behind them."""

"""What it costs, in ratios against the peer in the same run."""

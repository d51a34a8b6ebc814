"""What the leaderboard shows, one subject a module: its lead, scores, ranks, costs and models."""

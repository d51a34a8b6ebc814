"""The leaderboard page: score tables, ranks, findings, limitations."""

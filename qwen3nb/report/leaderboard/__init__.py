"""The leaderboard page: means of benchmarks, tasks, ranks, findings, published scores."""

"""Pages on differences: tables, figures, candidates, the explorer of queries."""

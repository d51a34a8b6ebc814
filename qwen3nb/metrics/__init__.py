"""Pure functions: qrels and a run, or columns, to one value per query and their aggregates."""

"""Tables and figures of comparisons, the report on candidates, and the query explorer."""

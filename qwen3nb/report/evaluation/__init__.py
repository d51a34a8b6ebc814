"""The page of one evaluation: scores against a baseline, one query examined, the conclusion."""

"""Model by MTEB task to record: selection, tiers, plan, evaluation, scores per query."""

"""Evaluate models on MTEB tasks: selection, planning, evaluation, per-query scores."""

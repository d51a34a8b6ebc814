"""Analysis of records: statistics, comparisons, score files, trainings; loads no model."""

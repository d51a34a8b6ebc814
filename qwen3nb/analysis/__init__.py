"""What records mean: statistics, comparisons, score files, trainings; loads no model."""

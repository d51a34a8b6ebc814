"""Pages on trainings: learning curves, configurations, interference."""

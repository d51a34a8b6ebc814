"""Tables and figures of trainings: learning curves, configurations, interference."""

"""Do the tests keep what they promise? Simulated coverage and false positives."""

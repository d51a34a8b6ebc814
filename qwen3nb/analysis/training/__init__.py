"""Seeds, steps and interference: learning curves, matched runs, the TIR."""

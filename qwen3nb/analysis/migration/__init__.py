"""What changes when one model replaces another."""

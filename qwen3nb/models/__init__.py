"""What is measured: encoders, their pooling, and the baselines beside them."""

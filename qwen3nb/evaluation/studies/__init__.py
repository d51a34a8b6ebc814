"""Studies over many runs: ablations, LoRA adapters, published scores."""

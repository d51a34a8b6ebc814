"""Studies over many runs: ablations, prompts, LoRA adapters, published scores."""

"""Many runs, one question: ablations, LoRA runs, published scores, validity of a tier."""

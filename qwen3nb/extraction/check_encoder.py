"""Check that this model still computes the same vectors as when it was exported.

    python check_encoder.py [FOLDER]

Needs only transformers and torch. transformers 5.0 and 5.1 silently run this encoder
causally, and other libraries may ignore other settings. Two checks: a later token must
affect an earlier one, and the pooled vector of a fixed input must match the stored one.
The exit status is 0 if both pass, else 1.
"""

import json
import sys
from pathlib import Path


def main() -> int:
    """Print the result of both checks; return 0 if they pass, else 1."""
    import torch
    import transformers
    from transformers import AutoModel

    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent
    stored = json.loads((folder / "qwen3nb.json").read_text(encoding="utf-8"))["probe"]
    model = AutoModel.from_pretrained(folder, torch_dtype=torch.float32).eval()
    ids = torch.tensor([stored["ids"]])
    other = ids.clone()
    other[0, -1] = stored["other_last"]
    with torch.no_grad():
        states = model(input_ids=ids).last_hidden_state[0]
        moved = (model(input_ids=other).last_hidden_state[0, 0] - states[0]).abs().max().item()
    vector = torch.nn.functional.normalize(states.mean(0), dim=0)
    cosine = float(vector[: len(stored["mean_vector"])] @ torch.tensor(stored["mean_vector"]))
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    print(f"first state moves by {moved:.2e} when the last token changes", end=": ")
    print("bidirectional" if moved > 0 else "CAUSAL, so the vectors are wrong here")
    print(f"cosine with the stored vector {cosine:.6f}", end=": ")
    print("match" if cosine > 0.9999 else "MISMATCH, the vectors differ from those at export")
    return 0 if moved > 0 and cosine > 0.9999 else 1


if __name__ == "__main__":
    sys.exit(main())

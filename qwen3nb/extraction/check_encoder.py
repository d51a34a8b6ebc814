"""Does this directory compute here what it computed when it was written?

    python check_encoder.py [FOLDER]

Needs transformers and torch, nothing else. transformers before 5.2 runs this encoder
causally without a word; other libraries may ignore other settings. Two questions:
does a later token reach an earlier one, and is the pooled vector of a fixed
input the one that was stored. Exit status 0 if both hold, else 1.
"""

import json
import sys
from pathlib import Path


def main() -> int:
    """Answer both questions in words; 0 or 1."""
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
    found = torch.nn.functional.normalize(states.mean(0), dim=0)
    cosine = float(found[: len(stored["mean_vector"])] @ torch.tensor(stored["mean_vector"]))
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    print(f"first state moves by {moved:.2e} when the last token changes", end=": ")
    print("bidirectional" if moved > 0 else "CAUSAL, so its vectors are wrong here")
    print(f"cosine with the stored vector {cosine:.6f}", end=": ")
    print("the same" if cosine > 0.9999 else "ANOTHER vector than when it was written")
    return 0 if moved > 0 and cosine > 0.9999 else 1


if __name__ == "__main__":
    sys.exit(main())

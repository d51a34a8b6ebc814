import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from qwen3nb.checkpoints.model_card import CARD, PENDING


def folder_with(tmp_path, tensors, name="model.safetensors", metadata=None):
    tmp_path.mkdir(parents=True, exist_ok=True)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_encdec"}')
    save_file(tensors, tmp_path / name, metadata=metadata)
    return tmp_path


def save_bin(folder, state, **options):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "qwen3_encdec"}')
    torch.save(state, folder / "pytorch_model.bin", **options)
    return folder


def without_checksums(folder):
    """Let an export or a copy of one be changed on purpose: it says no more how it was written."""
    note = folder / "qwen3nb.json"
    written = json.loads(note.read_text())
    note.write_text(json.dumps({k: v for k, v in written.items() if k != "checksums"}))
    return folder


def fill_card(folder):
    """Write results on the card of an export, which `push` requires; return the folder."""
    card = Path(folder) / CARD
    card.write_text(card.read_text().replace(PENDING, "nDCG@10 0.5"))
    return folder

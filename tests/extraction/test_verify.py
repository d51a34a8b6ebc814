import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from qwen3nb.checkpoints.averaging import average_checkpoints, select_checkpoints
from qwen3nb.checkpoints.names import encoder_name
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.extraction.extract import write_encoder
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel


def overflowing(tensors, monkeypatch):
    """Weights that are finite one by one, and overflow in the last norm."""
    tensors["model.encoder.norm.weight"].fill_(3e38)


def exchanged(tensors, monkeypatch):
    """A mistake in re-keying: the two norms of each layer exchanged."""
    norms = ("input_layernorm", "post_attention_layernorm")
    swap = dict(zip(norms, norms[::-1], strict=True))

    def wrong(name):
        new = encoder_name(name)
        return new and ".".join(swap.get(part, part) for part in new.split("."))

    tensors["model.encoder.layers.0.input_layernorm.weight"] *= 3  # else they are all ones
    monkeypatch.setattr("qwen3nb.checkpoints.names.encoder_name", wrong)


def constant(tensors, monkeypatch):
    """A damaged file: every weight is the same number."""
    for tensor in tensors.values():
        tensor.fill_(0.1)


def zeroed(tensors, monkeypatch):
    """A file that was cut off and filled up: its layers are zero."""
    for name, tensor in tensors.items():
        if ".layers." in name:
            tensor.zero_()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (overflowing, "differs from its source by nan"),
        (exchanged, r"differs from its source by \d"),
        (constant, "does not attend: .* the weights are damaged"),
        (zeroed, "does not attend: .* the weights are damaged"),
    ],
    ids=["nan", "names", "constant", "zeroed"],
)
def test_an_export_that_is_wrong_is_not_kept(checkpoint, tmp_path, monkeypatch, change, message):
    source = shutil.copytree(checkpoint, tmp_path / "checkpoint-1")
    tensors = load_file(source / "model.safetensors")
    change(tensors, monkeypatch)
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=message):
        write_encoder(source, tmp_path / "encoder")
    assert not (tmp_path / "encoder").exists()


def test_a_release_that_runs_it_causally_is_refused(
    checkpoint, encoder_folder, tmp_path, monkeypatch
):
    """What transformers before 5.2 does: it ignores is_causal: false."""
    from transformers import Qwen3Model

    forward = Qwen3Model.forward

    def old(self, *args, **kwargs):
        self.config.is_causal = True
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(Qwen3Model, "forward", old)
    with pytest.raises(ValueError, match="runs the model causally"):
        load_encoder(encoder_folder, cache=False)
    with pytest.raises(CheckpointError, match="runs causally"):
        write_encoder(checkpoint, tmp_path / "encoder")
    assert not (tmp_path / "encoder").exists()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("normalize", "error"), [(True, 1.1e-5), (True, 0.5e-5), (True, float("nan")), (False, 1.0)]
)
def test_what_sentence_transformers_computes_is_compared(
    checkpoint, tmp_path, monkeypatch, normalize, error
):
    """One number of one vector of one text is off."""
    from sentence_transformers import SentenceTransformer

    real = SentenceTransformer.encode

    def off(self, *args, **kwargs):
        vectors = real(self, *args, **kwargs).clone()
        vectors[-1, -1] += error
        return vectors

    monkeypatch.setattr(SentenceTransformer, "encode", off)
    if error < 1e-5:
        check = write_encoder(checkpoint, tmp_path / "out", normalize=normalize).verification
        assert check.sentence_transformers_difference == pytest.approx(error, abs=2e-6)
        return
    with pytest.raises(CheckpointError, match="vectors that sentence-transformers computes"):
        write_encoder(checkpoint, tmp_path / "out", normalize=normalize)
    assert not (tmp_path / "out").exists()


def test_what_was_compared(checkpoint, tmp_path):
    """Texts, random ids, and the last row of the embedding; none longer than the export takes."""
    prompts = {"symmetric": "any text: "}  # which are no difference
    options = {"max_length": 100, "dtype": "bfloat16", "prompts": prompts}
    done = write_encoder(checkpoint, tmp_path / "out", **options)
    stored = load_file(done.folder / "model.safetensors").values()
    assert all(tensor.dtype == torch.bfloat16 for tensor in stored)
    check = done.verification
    assert done.max_difference <= 1e-5  # against the source with its weights rounded likewise
    assert check.rounding > 1e-4
    assert check.sentence_transformers_difference <= 1e-5
    assert len(check.lengths) == 5 + 5 + 1
    assert max(check.lengths[:5]) == 100
    assert set(check.lengths[5:]) == {2, 7, 33, 120, 1}
    assert check.as_dict()["padding"] == ["right", "left"]
    assert check.leak > 1e-4
    probe = json.loads((tmp_path / "out" / "qwen3nb.json").read_text())["probe"]
    assert probe["ids"][-1] != probe["other_last"]
    assert np.linalg.norm(probe["mean_vector"]) == pytest.approx(1, abs=1e-4)


@pytest.mark.integration
@pytest.mark.parametrize("name", ["checkpoint-100", "averaged-best2"])
def test_exports_of_a_real_training(fixtures, tmp_path, name):
    """Stock classes on the export against what that training's own code computed."""
    from safetensors import safe_open
    from sentence_transformers import SentenceTransformer

    source = fixtures / "checkpoints" / name
    if name.startswith("averaged"):
        selection = select_checkpoints(fixtures / "checkpoints", best=2)
        source = average_checkpoints(selection, tmp_path / name)
    file = fixtures / "checkpoints" / "expected" / f"{name}.safetensors"
    with safe_open(file, "pt") as expected:
        for how in POOLINGS:
            done = write_encoder(source, tmp_path / how, pooling=how)
            assert done.max_difference <= 1e-5
            stock = SentenceTransformer(str(done.folder), device="cpu")
            model = AutoModel.from_pretrained(done.folder).eval()
            own = Qwen3EncoderModel.from_pretrained(done.folder).eval()
            right = expected.get_tensor(f"right.pooled.{how}")
            for side in ("right", "left"):
                ids = expected.get_tensor(f"{side}.input_ids").long()
                mask = expected.get_tensor(f"{side}.attention_mask").long()
                with torch.inference_mode():
                    states = model(input_ids=ids, attention_mask=mask).last_hidden_state
                    pooled = own(input_ids=ids, attention_mask=mask).pooler_output
                    batch = {"input_ids": ids, "attention_mask": mask}
                    theirs = stock(dict(batch))["sentence_embedding"]
                close = {"atol": 1e-5, "rtol": 0}
                tokens = expected.get_tensor(f"{side}.tokens_last_hidden_state")
                torch.testing.assert_close(states[mask.bool()], tokens, **close)
                torch.testing.assert_close(pooled, right, **close)
                torch.testing.assert_close(theirs, right, **close)

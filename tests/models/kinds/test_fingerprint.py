"""A model's identity is all that decides its vectors, and nothing else."""

import shutil
from functools import partial
from pathlib import Path

import pytest
from helpers.archetypes import between, sentence, static, words
from helpers.checkpoints import without_checksums

from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import fingerprint
from qwen3nb.models.load import load_encoder


def test_the_identity_changes_with_everything_that_changes_a_vector(
    checkpoint, encoder_folder, tmp_path
):
    def identity(folder=encoder_folder, **options):
        return load_encoder(folder, cache=False, **options).identity

    base = identity()
    assert identity() == base
    others = [
        identity(pooling="last"),
        identity(max_length=16),
        identity(dtype="bfloat16"),
        load_encoder("random", cache=False).identity,
        load_encoder("random", seed=1, cache=False).identity,
        load_encoder("random:64", cache=False).identity,
    ]
    for name, old, new in (
        ("tokenizer.json", '"ignore_merges"', '"ignore_merges" '),
        ("config.json", '"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'),
    ):
        copy = without_checksums(Path(shutil.copytree(encoder_folder, tmp_path / name)))
        text = (copy / name).read_text()
        assert old in text
        (copy / name).write_text(text.replace(old, new))
        others.append(identity(copy))
    weights = without_checksums(Path(shutil.copytree(encoder_folder, tmp_path / "weights")))
    data = bytearray((weights / "model.safetensors").read_bytes())
    data[-3] ^= 1
    (weights / "model.safetensors").write_bytes(data)
    others.append(identity(weights))
    assert len({base, *others}) == len(others) + 1


@pytest.mark.parametrize(
    "write",
    [
        sentence(lambda m: m.Dense(32, 16), lambda m: m.Normalize()),
        between(lambda m: m.CNN(32, 8, [1, 3]), width=16),
        partial(words, middle="WordWeights"),
        partial(words, middle="LSTM", width=16),
        static,
    ],
)
def test_every_file_of_a_folder_is_part_of_its_identity(write, tokenizer_folder, tmp_path):
    folder = write(tmp_path / "model", tokenizer_folder)
    source = find_source(str(folder))
    before = fingerprint(source)
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    assert len(files) >= 4
    for file in files:
        content = file.read_bytes()
        if file.suffix == ".safetensors":
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        else:
            file.write_bytes(content + b"\n")
        assert fingerprint(source) != before, file.name
        file.write_bytes(content)
    assert fingerprint(source) == before


@pytest.mark.parametrize("write", [sentence(lambda m: m.Dense(32, 16)), static])
def test_files_of_other_models_inside_are_no_part_of_it(write, tokenizer_folder, tmp_path):
    folder = write(tmp_path / "model", tokenizer_folder)
    source = find_source(str(folder))
    before = fingerprint(source)
    for name in ("old", "checkpoint-5", "3_Backup", "onnx/deep"):
        inside = folder / name
        shutil.copytree(tokenizer_folder, inside)
        (inside / "config.json").write_text('{"model_type": "qwen3"}')
        weights = next(folder.rglob("*.safetensors"))
        shutil.copyfile(weights, inside / "model.safetensors")
    assert fingerprint(source) == before

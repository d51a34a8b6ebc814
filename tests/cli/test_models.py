"""Extract, average, push and encode from the command line."""

import json

import numpy as np
import pytest

from qwen3nb.vectors import encode_file


@pytest.mark.integration
def test_extract_and_average(cli, checkpoint, tmp_path):
    out = tmp_path / "out"
    given = ("--prefix", "[R]", "--append-eos", "--verbose")
    prompts = ("--prompt", "query=find: ", "--prompt", "STS=as: ")
    # One folder is an option, the other one an argument.
    done = cli("extract", "--checkpoint", checkpoint, out, "--pooling", "last", *given, *prompts)
    assert done.exit_code == 0, done.output
    assert "differs from its source by at most 0.0e+00" in done.output
    assert "causal_leak: " in done.output
    stored = json.loads((out / "qwen3nb.json").read_text())
    assert (stored["prefix"], stored["append_eos"]) == ("[R]", True)
    assert stored["prompts"] == {"query": "find: ", "STS": "as: "}
    card = (out / "README.md").read_text()
    assert "query 'find: '" in card
    for section in ("Training", "Use", "Pooling", "Limitations", "Citation"):
        assert f"# {section}\n" in card
    done = cli("push", out, "lab/model", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "model.safetensors" in done.output
    assert "nothing was uploaded" in done.output
    done = cli("average", checkpoint.parent, tmp_path / "mean", "--last-n", 5)
    assert done.exit_code == 0
    assert "5 checkpoints requested, 1 averaged" in done.output
    none = cli("average", tmp_path / "nope", tmp_path / "mean")
    assert "nope: no such folder" in none.output
    by_name = ("--checkpoint-dir", checkpoint.parent, "--output", tmp_path / "again")
    assert cli("average", *by_name, "--last-n", 1).exit_code == 0
    weights = {(tmp_path / n / "model.safetensors").read_bytes() for n in ("mean", "again")}
    assert len(weights) == 1


@pytest.fixture
def encode(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(encode_file, "AT_ONCE", 2)
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(f'{{"text": "{number}"}}\n' for number in range(7)))
    files = ("--input", source, "--out", tmp_path / "v")
    return lambda *options: cli("encode", "--model", "random:8", *files, *options)


def test_a_folder_of_parts_is_written_resumed_and_verified(encode, cli, tmp_path):
    folder = tmp_path / "v"
    assert f"{folder}: 7 x 8 float32, in 3 parts, of which 0 were" in encode("--shards", 3).output
    (folder / "part-000001.npy").unlink()
    (folder / "manifest.json").unlink()
    again = encode("--shards", 3).output
    assert "in 3 parts, of which 2 were there before" in again
    refused = encode("--shards", 2)
    assert refused.exit_code == 1
    assert "planned in 3 parts; got --shards 2" in refused.output
    assert cli("cache", "verify", folder).output == "7 vectors; 0 problems\n"
    file = folder / "part-000001.npy"
    np.save(file, np.load(file) + 1)
    done = cli("cache", "verify", folder)
    assert (done.exit_code, str(file) in done.output) == (1, True)
    assert "7 vectors; 1 problems" in done.output


def test_threads_are_for_workers(encode):
    assert "--threads is for the workers of --ray" in encode("--threads", 2).output

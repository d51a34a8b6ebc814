"""Commands that write folders and vectors, to be disturbed by `helpers.fault_injection`."""

from __future__ import annotations

import json
import shutil
from functools import partial
from unittest import mock

from helpers import TEXTS
from helpers.fault_injection import Scenario

ROWS = [{"text": f"text {number % 7} of many{' more' * (number % 3)}"} for number in range(12)]


def run(line):
    """Run the command line ``qwen3nb …`` in this process."""
    from click.testing import CliRunner

    from qwen3nb.cli.main import main

    done = CliRunner().invoke(main, line.split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output


def inputs_of(folder):
    """What the commands read, written once for all scenarios of a server.

    ``run/checkpoint-*`` of one layer, the export ``encoder`` of one, and ``texts.jsonl``.
    """
    inputs = folder.parent.parent / "inputs"
    if not inputs.exists():
        for step in (1, 2):
            write_checkpoint(inputs / "run" / f"checkpoint-{step}", seed=step)
        source = inputs / "run" / "checkpoint-2"
        run(f"extract {source} {inputs}/encoder --label old")
        (inputs / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return inputs


def write_checkpoint(folder, *, seed):
    from tokenizers import Tokenizer
    from transformers import set_seed

    from qwen3nb.demo.train_ul2 import Ul2Settings, seq2seq_config
    from qwen3nb.models.modeling.qwen3_seq2seq import Qwen3ForSeq2SeqLM
    from qwen3nb.models.modeling.tiny_tokenizer import write_tokenizer

    folder.mkdir(parents=True)
    write_tokenizer(TEXTS, folder, vocabulary=270)
    set_seed(seed)
    settings = Ul2Settings(hidden=16, layers=1, spread=0.2)
    config = seq2seq_config(Tokenizer.from_file(str(folder / "tokenizer.json")), settings)
    Qwen3ForSeq2SeqLM(config).save_pretrained(folder)


def average(folder, *, last=2):
    run(f"average {inputs_of(folder)}/run {folder}/mean --last {last}")


class _Verified:
    """The result of the comparison of an export with its source, which writes nothing."""

    result = None

    def __call__(self, *values, **options):
        from qwen3nb.extraction.verify import verify_export

        if self.result is None:
            self.result = verify_export(*values, **options)
        return self.result


VERIFIED = _Verified()


def extract(folder):
    source = inputs_of(folder) / "run" / "checkpoint-1"
    with mock.patch("qwen3nb.extraction.extract.verify_export", VERIFIED):
        run(f"extract {source} {folder}/encoder --label new --max-length 64")


def prepare_extract(folder):
    shutil.copytree(inputs_of(folder) / "encoder", folder / "encoder")


def encode(folder):
    inputs = inputs_of(folder)
    run(f"encode --model {inputs}/encoder --input {inputs}/texts.jsonl --out {folder}/v.npy")


def prepare_encode(folder):
    (folder / "v.npy").write_bytes(b"an earlier file")


def shards(folder):
    texts = inputs_of(folder) / "texts.jsonl"
    with mock.patch("qwen3nb.vectors.encode_file.AT_ONCE", 4):
        run(f"encode --model random:8 --shards 3 --out {folder}/v --input {texts}")


def whole_parts(folder):
    """Every part that is there has its size, and a manifest only comes last."""
    from qwen3nb.vectors.block_file import PLAN, damaged_shards, read_shards

    vectors = folder / "v"
    if (vectors / PLAN).is_file():
        plan = read_shards(vectors / PLAN)
        for shard in plan.shards:
            if (vectors / shard.file).exists():
                plan.check(shard, vectors)
    if (vectors / "manifest.json").exists():
        assert damaged_shards(vectors) == []


AVERAGE = Scenario(average, prepare=partial(average, last=1))
EXTRACT = Scenario(extract, prepare=prepare_extract)
ENCODE = Scenario(encode, prepare=prepare_encode)
SHARDS = Scenario(shards, check=whole_parts)

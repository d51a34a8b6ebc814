import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import TEXTS
from transformers import AutoTokenizer

from qwen3nb.datasets.mirror import MirrorError
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.embeddings.sts import STSPairs, evaluate_sts, sts_pairs
from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel


def test_pairs_from_lists_and_files_by_hand(encoder, tmp_path):
    one, other, gold = list(TEXTS), [*TEXTS[1:], TEXTS[0]], [1.0, 4.0, 2.0, 3.0]
    scores = evaluate_sts(encoder, (one, other, gold))
    a, b = encoder.encode(one), encoder.encode(other)
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert scores.pearson.value == pytest.approx(np.corrcoef(cosines, gold)[0, 1])
    ranks = [np.argsort(np.argsort(values)) for values in (cosines, gold)]
    assert scores.spearman.value == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert "spearman" in repr(scores)
    names = ("sentence1", "sentence2", "score")
    rows = list(zip(one, other, gold, strict=True))
    jsonl = tmp_path / "pairs.jsonl"
    jsonl.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows))
    table = tmp_path / "pairs.tsv"
    table.write_text("\n".join("\t".join(map(str, row)) for row in [names, *rows]))
    model = Qwen3EncoderModel.from_pretrained(encoder.source.own_folder)
    pair = (model, AutoTokenizer.from_pretrained(encoder.source.own_folder))
    for other_way in (pair, SimpleNamespace(encode=encoder.encode)):
        again = evaluate_sts(other_way, (one, other, gold))
        assert again.pearson.value == pytest.approx(scores.pearson.value, abs=1e-5)
    for file in (jsonl, table):
        assert evaluate_sts(encoder, str(file)).per_query == scores.per_query


def test_pairs_that_cannot_be_scored(encoder):
    constant = evaluate_sts(encoder, (list(TEXTS), list(TEXTS)[::-1], [2.0] * 4))
    assert constant.spearman.value is None
    assert "undefined (one of the columns is constant)" in repr(constant)
    with pytest.raises(DataError, match="expected as many first sentences"):
        STSPairs("x", ("a",), ("b", "c"), (1.0,))
    with pytest.raises(DataError, match="not a finite number"):
        STSPairs("x", ("a",), ("b",), (math.nan,))
    with pytest.raises(ValueError, match="unknown STS set 'STS-A'; choose one of: STS-B"):
        sts_pairs("STS-A")
    for name in ("STS-B", "stsb", "STSBenchmark"):
        with pytest.raises(MirrorError, match="`qwen3nb fetch --tasks STSBenchmark --mirror DIR`"):
            sts_pairs(name)

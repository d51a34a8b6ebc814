"""A node that has another model under the same path refuses it by name."""

import os
import shutil

import pytest

from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.cluster.runs import expected_models
from qwen3nb.models.kinds.source import EXPECTED
from qwen3nb.models.load import load_model


@pytest.mark.parametrize("spec", ["{}", "bm25+{}"])
def test_a_run_refuses_other_content_than_it_was_started_for(
    home, make_checkpoint, monkeypatch, spec
):
    model, another = (make_checkpoint(home / f"m{seed}", seed=seed) for seed in (1, 2))
    spec = spec.format(model)
    monkeypatch.setenv(EXPECTED, expected_models([spec]))
    load_model(spec, cache=False)
    load_model(str(another), cache=False)  # nothing is expected of it
    shutil.rmtree(model)
    shutil.copytree(another, model)
    with pytest.raises(CheckpointError, match=f"node {os.uname().nodename}: {model}: expected"):
        load_model(spec, cache=False)

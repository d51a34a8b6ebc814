"""Prompts under two sets of names."""

import json

from hypothesis import given
from hypothesis import strategies as st

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.kinds.prompts import exported_prompts, named_prompts, stored_prompts

NAMES = ["query", "document", "passage", "symmetric", "STS", "STS12-query", "STS12-document", "x"]


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["", "a: ", "b: "])))
def test_exported_prompts_come_back(tmp_path_factory, prompts):
    if "document" in prompts:
        prompts.pop("passage", None)
    folder = tmp_path_factory.mktemp("export")
    fields = exported_prompts(prompts)
    (folder / "config_sentence_transformers.json").write_text(json.dumps(fields))
    assert stored_prompts(ModelFolder(folder)) == named_prompts(prompts)


def test_a_folder_without_the_file_has_no_prompts(tmp_path):
    assert stored_prompts(ModelFolder(tmp_path)) == {}

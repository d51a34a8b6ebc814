"""Loading a reranker: its identity, and models that are not rerankers."""

import shutil

import pytest
from helpers.rerankers import write_reranker

from qwen3nb.models.rerankers.load import load_reranker
from qwen3nb.models.types import SpecError


def test_the_identity_changes_with_everything_that_changes_a_score(folder, tmp_path):
    changed = shutil.copytree(folder, tmp_path / "changed")
    data = bytearray((changed / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (changed / "model.safetensors").write_bytes(bytes(data))
    variants = [
        load_reranker(each, device="cpu", **options)
        for each, options in (
            (folder, {}),
            (changed, {}),
            (folder, {"template": "double-newline"}),
            (folder, {"instruction": "Find the answer."}),
            (folder, {"max_length": 500}),
            (folder, {"dtype": "bfloat16"}),
        )
    ]
    assert len({each.identity for each in variants}) == len(variants)
    assert load_reranker(folder, device="cpu", budget=7).identity == variants[0].identity
    metas = {(m.name, m.revision) for m in (each.mteb_model_meta for each in variants)}
    assert len(metas) == len(variants)


def test_a_model_that_is_not_a_reranker_is_refused(encoder_folder, tmp_path):
    with pytest.raises(SpecError, match="'encoder'; a yes/no reranker is a causal"):
        load_reranker(encoder_folder)
    with pytest.raises(ValueError, match="unknown template 'chat'"):
        load_reranker(write_reranker(tmp_path / "m"), template="chat", device="cpu")
    windows = {"use_sliding_window": True, "layer_types": ["sliding_attention"] * 2}
    with pytest.raises(SpecError, match="sliding_attention, expected full attention"):
        load_reranker(write_reranker(tmp_path / "s", sliding_window=8, **windows), device="cpu")


def test_a_qwen_reranker_without_the_marks_of_its_template_is_refused(folder, tmp_path):
    changed = shutil.copytree(folder, tmp_path / "changed")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (changed / name).read_text(encoding="utf-8")
        (changed / name).write_text(text.replace("<|im_end|>", "<|im_off|>"), encoding="utf-8")
    with pytest.raises(SpecError, match=r"no token '<\|im_end\|>', which the prompt"):
        load_reranker(changed, device="cpu")

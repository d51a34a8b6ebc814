"""A yes/no reranker computes what Qwen's own code does, whatever the batch."""

import json
import shutil

import numpy as np
import pytest
from helpers.rerankers import DOCUMENTS, QUERY, reference, rows_of, write_reranker
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from qwen3nb.models.rerankers import RerankError, load_reranker
from qwen3nb.models.types import SpecError


@pytest.mark.parametrize("left", [True, False])
def test_scores_equal_the_reference_whatever_its_padding(reranker, folder, left):
    rows = rows_of(reranker, QUERY, DOCUMENTS)
    p_yes, log_odds = reference(folder, rows, left=left)
    before = reranker.stats.tokens + reranker.stats.shared
    scores = reranker.score(QUERY, DOCUMENTS)
    assert np.ptp(p_yes) > 0.05  # the documents matter
    np.testing.assert_allclose(scores.p_yes, p_yes, atol=1e-5, rtol=0)
    np.testing.assert_allclose(scores.log_odds, log_odds, atol=1e-4, rtol=0)
    assert reranker.stats.tokens + reranker.stats.shared - before == sum(map(len, rows))
    assert reranker.stats.shared > reranker.stats.tokens


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Qwen2", {"tie_word_embeddings": False}),
        ("Llama", {"attention_bias": True}),
        ("Qwen3", {"num_hidden_layers": 1}),
        ("Qwen3", {"num_key_value_heads": 4, "tie_word_embeddings": False}),
    ],
)
def test_other_families_equal_the_reference_too(tmp_path, family, changes):
    folder = write_reranker(tmp_path / "m", family=family, **changes)
    reranker = load_reranker(folder, device="cpu")

    p_yes, _ = reference(folder, rows_of(reranker, QUERY, DOCUMENTS))

    np.testing.assert_allclose(reranker.score(QUERY, DOCUMENTS).p_yes, p_yes, atol=1e-5, rtol=0)
    weights = load_file(folder / "model.safetensors").values()
    assert reranker.parameters == sum(weight.numel() for weight in weights)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    query=TEXT,
    documents=st.lists(TEXT, min_size=1, max_size=6),
    budget=st.integers(1, 400),
    data=st.data(),
)
def test_batch_order_and_neighbours_change_nothing(reranker, query, documents, budget, data):
    order = data.draw(st.permutations(range(len(documents))))
    expected = [reranker.score(query, [document]).log_odds[0] for document in documents]

    reranker._budget.tokens, before = budget, reranker._budget.tokens
    try:
        log_odds = reranker.score(query, [documents[index] for index in order]).log_odds
    finally:
        reranker._budget.tokens = before

    np.testing.assert_allclose(log_odds, [expected[i] for i in order], atol=1e-5, rtol=0)


def test_equal_documents_are_scored_once_and_pairs_keep_their_order(reranker):
    encoded = reranker.stats.encoded
    pairs = [(q, d) for d in DOCUMENTS for q in (QUERY, "another")] * 2
    scores = reranker.score_pairs(pairs)
    assert reranker.stats.encoded - encoded == 2 * len(DOCUMENTS)
    for (query, document), value in zip(pairs, scores.log_odds, strict=True):
        assert value == pytest.approx(reranker.score(query, [document]).log_odds[0], abs=1e-5)
    assert reranker.score("q", []).log_odds.shape == (0,)
    for document, message in (("\ud800", "not valid Unicode"), (None, "NoneType")):
        with pytest.raises(RerankError, match=f"document 1 is {message}"):
            reranker.score("q", ["fine", document])


def test_where_p_yes_saturates_the_log_odds_still_differ(folder, tmp_path):
    loud = shutil.copytree(folder, tmp_path / "loud")
    weights = load_file(loud / "model.safetensors")
    weights["model.norm.weight"] *= 300
    save_file(weights, loud / "model.safetensors", metadata={"format": "pt"})
    scores = load_reranker(loud, device="cpu").score(QUERY, DOCUMENTS)
    assert {0.0, 1.0} & set(scores.p_yes.astype(np.float32))
    assert len(set(scores.log_odds)) == len(DOCUMENTS)


CONFIGURATIONS = ("rank_only_r4", "emb_only_r4", "joint_single_r4")


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_stored_scores_of_real_adapters(adapters, name):
    inputs = json.loads((adapters / "expected" / "inputs.json").read_text())
    expected = load_file(adapters / "expected" / f"{name}-seed_42.safetensors")
    trained = adapters / "outputs" / name / "seed_42" / "checkpoints" / "final"

    reranker = load_reranker(adapters / "base", adapter=trained, device="cpu")

    pairs = [tuple(pair) for pair in inputs["pairs"]]
    p_yes = reranker.score_pairs(pairs).p_yes
    np.testing.assert_allclose(p_yes, expected["rerank.512"].numpy(), atol=1e-6, rtol=0)
    for (query, document), ids in zip(pairs, inputs["rerank_token_ids_512"], strict=True):
        assert rows_of(reranker, query, [document]) == [ids]


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

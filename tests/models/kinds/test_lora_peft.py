"""Adapters of heads, embeddings and parts of them equal PEFT's own, unmerged computation."""

import json
import shutil
import warnings

import numpy as np
import pytest
import torch
from helpers.rerankers import DOCUMENTS, QUERY, rows_of, write_reranker
from safetensors.torch import load_file, save_file

from qwen3nb.models.kinds.resolve import adapter_source, find_source
from qwen3nb.models.load import load_encoder
from qwen3nb.models.rerankers import load_reranker
from qwen3nb.models.types import SpecError

CLOSE = 1e-5  # of the largest value: a merged and an unmerged product differ by rounding alone
TEXTS = ["Sort the rows by date", "no", "The quick brown fox jumps over the lazy dog."]


@pytest.fixture(scope="session")
def bases(tmp_path_factory):
    """Write tiny bases once: (family, tied) to folder."""
    made = {}

    def base(family, tied):
        if (family, tied) not in made:
            folder = tmp_path_factory.mktemp("bases") / f"{family}-{tied}"
            more = {"head_dim": 8} if family == "Gemma" else {}
            # Gemma multiplies its embedding; small weights keep its logits from growing.
            spread = 0.1 if family == "Gemma" else 0.3
            made[family, tied] = write_reranker(
                folder, family=family, spread=spread, tie_word_embeddings=tied, **more
            )
        return made[family, tied]

    return base


def write_adapter(base, target, *, auto="AutoModelForCausalLM", **options):
    """Write an adapter with an effect, as PEFT saves it; return PEFT's own model."""
    import transformers
    from peft import LoraConfig, get_peft_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        model = getattr(transformers, auto).from_pretrained(base, dtype=torch.float32)
        adapted = get_peft_model(model, LoraConfig(**{"r": 4, "lora_alpha": 8, **options}))
        with torch.no_grad():
            for name, weight in adapted.named_parameters():
                if "lora_" in name or "modules_to_save" in name:
                    weight.add_(torch.randn_like(weight) * 0.1)
        adapted.eval().save_pretrained(target)
    file = target / "adapter_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "base_model_name_or_path": str(base)}))
    return adapted


def check_vectors(base, target, states):
    """Compare the encoder's vectors with PEFT's ``states`` of ids, (1, T, H)."""
    encoder = load_encoder(target, base=base, pooling="last", cache=False, show_progress=False)
    vectors = encoder.encode(TEXTS)
    for vector, row in zip(vectors, encoder._tokenise(TEXTS), strict=True):
        with torch.no_grad():
            last = states(torch.tensor([row]))[0, -1].double().numpy()
        expected = last / np.linalg.norm(last)
        np.testing.assert_allclose(vector, expected, rtol=0, atol=CLOSE * abs(expected).max())


def check_log_odds(base, target, adapted):
    """Compare yes/no scores with PEFT's logits."""
    reranker = load_reranker(base, adapter=target, device="cpu", max_length=256)
    got = reranker.score(QUERY, DOCUMENTS).log_odds
    expected, largest = [], 0.0
    for row in rows_of(reranker, QUERY, DOCUMENTS):
        with torch.no_grad():
            logits = adapted(input_ids=torch.tensor([row])).logits[0, -1].double()
        expected.append(float(logits[reranker._pairs.yes] - logits[reranker._pairs.no]))
        largest = max(largest, float(logits.abs().max()))
    np.testing.assert_allclose(got, expected, rtol=0, atol=CLOSE * largest)


def refusal(folder, base):
    with pytest.raises(SpecError) as raised:
        load_encoder(folder, base=base, cache=False, show_progress=False)
    assert "\n" not in str(raised.value)
    return str(raised.value)


ATTENTION = ["q_proj", "v_proj"]
OPTIONS = {
    "head": {"target_modules": [*ATTENTION, "lm_head"]},
    "embedding": {"target_modules": [*ATTENTION, "embed_tokens"]},
    "both": {"target_modules": ["embed_tokens", "lm_head", "down_proj"]},
    "both as one": {"target_modules": ["q_proj", "embed_tokens"], "ensure_weight_tying": True},
    "a pattern as one": {
        "target_modules": r"(.*\.)?(embed_tokens|o_proj)",
        "ensure_weight_tying": True,
    },
    "a pattern that PEFT does not tie": {
        "target_modules": r".*\.(embed_tokens|o_proj)",
        "ensure_weight_tying": True,
    },
    "embedding saved": {"target_modules": ATTENTION, "modules_to_save": ["embed_tokens"]},
    "head saved": {"target_modules": ATTENTION, "modules_to_save": ["lm_head"]},
    "both saved": {"target_modules": ATTENTION, "modules_to_save": ["embed_tokens", "lm_head"]},
    "saved as one": {
        "target_modules": ATTENTION,
        "modules_to_save": ["embed_tokens"],
        "ensure_weight_tying": True,
    },
    "one saved, one adapted": {
        "target_modules": [*ATTENTION, "lm_head"],
        "modules_to_save": ["embed_tokens"],
    },
}


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("case", OPTIONS)
def test_an_adapter_of_head_or_embedding_equals_peft(bases, tmp_path, case, tied):
    base = bases("Qwen3", tied)
    adapted = write_adapter(base, tmp_path / "adapter", task_type="CAUSAL_LM", **OPTIONS[case])
    check_log_odds(base, tmp_path / "adapter", adapted)
    backbone = adapted.base_model.model.model
    check_vectors(base, tmp_path / "adapter", lambda ids: backbone(ids).last_hidden_state)


FAMILIES = [
    (family, case, tied)
    for family in ("Qwen2", "Llama", "Gemma")
    for case, tied in (("head", True), ("embedding", True), ("both", True), ("both", False))
]


@pytest.mark.parametrize(("family", "case", "tied"), FAMILIES)
def test_so_does_one_of_another_family(bases, tmp_path, family, case, tied):
    base = bases(family, tied)
    adapted = write_adapter(base, tmp_path / "adapter", task_type="CAUSAL_LM", **OPTIONS[case])
    if family != "Gemma":  # which no reranker here runs
        check_log_odds(base, tmp_path / "adapter", adapted)
    backbone = adapted.base_model.model.model
    check_vectors(base, tmp_path / "adapter", lambda ids: backbone(ids).last_hidden_state)


PARTS = {
    "some left out": {
        "target_modules": ["q_proj", "v_proj", "down_proj"],
        "exclude_modules": ["down_proj"],
    },
    "a layer left out": {
        "target_modules": ATTENTION,
        "exclude_modules": r".*layers\.0\..*",
    },
    "all but": {"target_modules": "all-linear", "exclude_modules": r".*mlp.*"},
    "one layer": {"target_modules": ATTENTION, "layers_to_transform": [1]},
    "one layer by pattern": {
        "target_modules": ATTENTION,
        "layers_to_transform": 0,
        "layers_pattern": ["layers"],
    },
    "DoRA": {"target_modules": ATTENTION, "use_dora": True},
    "DoRA of the head": {"target_modules": [*ATTENTION, "lm_head"], "use_dora": True},
    "rsLoRA, ranks and alphas": {
        "target_modules": [*ATTENTION, "lm_head"],
        "use_rslora": True,
        "rank_pattern": {"q_proj": 2, "lm_head": 8},
        "alpha_pattern": {r"layers\.1\.self_attn\.v_proj": 3},
    },
}


@pytest.mark.parametrize("case", PARTS)
def test_an_adapter_of_parts_equals_peft(bases, tmp_path, case):
    base = bases("Qwen3", True)
    adapted = write_adapter(base, tmp_path / "adapter", task_type="CAUSAL_LM", **PARTS[case])
    check_log_odds(base, tmp_path / "adapter", adapted)
    backbone = adapted.base_model.model.model
    check_vectors(base, tmp_path / "adapter", lambda ids: backbone(ids).last_hidden_state)


EMBEDDING = {
    "attention": {"target_modules": ATTENTION},
    "embedding": {"target_modules": [*ATTENTION, "embed_tokens"]},
    "a layer left out": PARTS["a layer left out"],
    "one layer": {
        "target_modules": ATTENTION,
        "layers_to_transform": [1],
        "layers_pattern": "layers",
    },
    "saved": {"target_modules": ATTENTION, "modules_to_save": ["norm"]},
}


@pytest.mark.parametrize("family", ["Qwen3", "Llama"])
@pytest.mark.parametrize("case", EMBEDDING)
@pytest.mark.parametrize("task", ["FEATURE_EXTRACTION", None])
def test_an_adapter_of_an_embedding_model_equals_peft(bases, tmp_path, family, case, task):
    base = bases(family, True)
    options = {"auto": "AutoModel", "task_type": task, **EMBEDDING[case]}
    adapted = write_adapter(base, tmp_path / "adapter", **options)
    names = load_file(tmp_path / "adapter/adapter_model.safetensors")
    assert not any(name.startswith("base_model.model.model.") for name in names)

    check_vectors(base, tmp_path / "adapter", lambda ids: adapted(ids).last_hidden_state)

    # Nothing is added to a text, neither a prompt nor a token.
    from transformers import AutoTokenizer

    encoder = load_encoder(tmp_path / "adapter", base=base, cache=False, show_progress=False)
    assert encoder.prompts == {}
    assert encoder._tokenise(TEXTS) == AutoTokenizer.from_pretrained(base)(TEXTS)["input_ids"]


@pytest.mark.parametrize("whole", [True, False], ids=["in the base", "beside the adapter"])
@pytest.mark.parametrize("mode", ["mean", "lasttoken"])
def test_modules_of_sentence_transformers_say_how_an_adapter_pools(bases, tmp_path, mode, whole):
    """Oracle: the same modules in memory, around PEFT's own model."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    base, folder = bases("Qwen3", True), tmp_path / "adapter"
    options = {"auto": "AutoModel", "task_type": "FEATURE_EXTRACTION"}
    adapted = write_adapter(base, folder, target_modules=ATTENTION, **options)
    transformer = Transformer(str(base))
    transformer.max_seq_length = 6
    model = SentenceTransformer(modules=[transformer, Pooling(32, mode), Normalize()], device="cpu")
    prompts = {"query": "Query: ", "document": ""}
    model.prompts = dict(prompts)
    model.save_pretrained(str(tmp_path / "whole"), create_model_card=False)
    if whole:
        base = tmp_path / "whole"
    else:  # as sentence-transformers saves a model with an adapter
        for file in (tmp_path / "whole").rglob("*"):
            target = folder / file.relative_to(tmp_path / "whole")
            if file.name not in ("config.json", "model.safetensors") or "_" in file.parent.name:
                target.mkdir() if file.is_dir() else shutil.copyfile(file, target)
    transformer.model = adapted

    encoder = load_encoder(folder, base=base, cache=False, show_progress=False)

    expected = model.encode(TEXTS)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=0, atol=CLOSE)
    queries = model.encode(TEXTS, prompt_name="query")
    np.testing.assert_allclose(encoder.encode(TEXTS, role="query"), queries, rtol=0, atol=CLOSE)

    model.append(Normalize())
    model.append(Normalize())
    model.save_pretrained(str(tmp_path / "more"), create_model_card=False)
    shutil.copyfile(tmp_path / "more/modules.json", (base if whole else folder) / "modules.json")
    assert "expected Transformer, Pooling and perhaps Normalize" in refusal(folder, base)


def test_an_adapter_of_a_base_without_a_head_equals_peft(bases, tmp_path):
    """The base is saved by AutoModel, as sentence-transformers does."""
    from transformers import AutoModel, AutoTokenizer

    whole, base = bases("Qwen3", True), tmp_path / "base"
    AutoModel.from_pretrained(whole).save_pretrained(base)
    AutoTokenizer.from_pretrained(whole).save_pretrained(base)
    options = {"auto": "AutoModel", "task_type": "FEATURE_EXTRACTION"}
    adapted = write_adapter(base, tmp_path / "adapter", target_modules=ATTENTION, **options)
    check_vectors(base, tmp_path / "adapter", lambda ids: adapted(ids).last_hidden_state)
    with pytest.raises(SpecError, match="'Qwen3Model' is not a causal language model"):
        load_reranker(base, adapter=tmp_path / "adapter", device="cpu")


def test_an_adapter_without_the_head_leaves_the_matrices_tied(bases, tmp_path):
    """A copy of a tied matrix takes memory, and would be counted twice."""
    base = bases("Qwen3", True)
    write_adapter(base, tmp_path / "plain", target_modules=ATTENTION)
    write_adapter(base, tmp_path / "head", target_modules=["lm_head"])
    counts = {
        name: load_reranker(base, adapter=tmp_path / name, device="cpu").parameters
        for name in ("plain", "head")
    }
    matrix = load_file(base / "model.safetensors")["model.embed_tokens.weight"].numel()
    assert counts["head"] == counts["plain"] + matrix


MLX = {
    "configuration": {
        "fine_tune_type": "lora",
        "lora_parameters": {"rank": 8, "scale": 20.0},
        "model": "x",
    },
    "older configuration": {"lora_layers": 16, "lora_parameters": {"rank": 8}},
    "no configuration": None,
}


@pytest.mark.parametrize("case", MLX)
@pytest.mark.parametrize("name", ["adapters.safetensors", "adapters.npz"])
def test_an_adapter_of_mlx_is_named_as_such(bases, tmp_path, case, name):
    folder = tmp_path / "apple"
    folder.mkdir()
    if MLX[case] is not None:
        (folder / "adapter_config.json").write_text(json.dumps(MLX[case]))
    save_file({"model.layers.0.self_attn.q_proj.lora_a": torch.zeros(32, 8)}, folder / name)
    assert "an adapter of MLX" in refusal(folder, bases("Qwen3", True))
    with pytest.raises(SpecError, match="an adapter of MLX"):
        find_source(str(folder))


def test_other_files_of_weights_are_named_with_a_way_out(bases, tmp_path):
    base = bases("Qwen3", True)
    for old, new, words in (
        ("pickled", "adapter_model.bin", "can run code. Load it with PEFT .* save it again"),
        ("sharded", "adapter_model-00001-of-00002.safetensors", "save the adapter again with PEFT"),
    ):
        write_adapter(base, tmp_path / old, target_modules=ATTENTION)
        (tmp_path / old / "adapter_model.safetensors").rename(tmp_path / old / new)
        with pytest.raises(SpecError, match=words):
            adapter_source(tmp_path / old, base=base)


@pytest.mark.parametrize("named", ["first", "absolute"])
def test_an_adapter_on_an_adapter_is_named_as_such(bases, tmp_path, named):
    base = bases("Qwen3", True)
    write_adapter(base, tmp_path / "first", target_modules=ATTENTION)
    write_adapter(base, tmp_path / "second", target_modules=ATTENTION)
    file = tmp_path / "second/adapter_config.json"
    name = named if named == "first" else str(tmp_path / "first")
    config = {**json.loads(file.read_text()), "base_model_name_or_path": name}
    file.write_text(json.dumps(config))
    for given in (None, tmp_path / "first"):
        with pytest.raises(SpecError, match="is an adapter; give a whole model as base"):
            adapter_source(tmp_path / "second", base=given)


def test_a_token_that_an_adapter_adds_is_named_unless_it_pads(bases, tmp_path):
    from tokenizers import AddedToken, Tokenizer

    base = bases("Qwen3", True)
    for number, added in enumerate(("<|PAD_TOKEN|>", "[PAD]", "<|vision_pad|>", "<query>")):
        folder = tmp_path / str(number)
        write_adapter(base, folder, target_modules=ATTENTION)
        tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
        tokenizer.add_special_tokens([AddedToken(added, special=True)])
        tokenizer.save(str(folder / "tokenizer.json"))
        if added == "<query>":
            assert "adds the token '<query>', which its base lacks" in refusal(folder, base)
        else:
            assert load_encoder(folder, base=base, cache=False).source.kind.adapts

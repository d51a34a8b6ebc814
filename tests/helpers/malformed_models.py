"""Tiny models of every kind, and the ways in which their folders are malformed.

A change takes a folder and returns whether it applies to it. A model must refuse what it made,
in one line, or compute what it computed before.
"""

from __future__ import annotations

import json
import shutil
import warnings

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from helpers import TEXTS
from helpers.archetypes import sentence, write_transformer
from helpers.rerankers import DOCUMENTS, QUERY, write_reranker

ROWS = 448
KINDS = ("seq2seq", "encoder", "bert", "mpnet", "xlm-roberta", "qwen3", "llama", "t5", "reranker")


def write_model(kind, folder, tokenizer_folder):
    """Write a tiny model of a kind that needs no training of its own."""
    if kind == "reranker":
        return write_reranker(folder, tie_word_embeddings=False)
    plain = {"llama": ("Llama", "ForCausalLM"), "t5": ("T5", "Model")}
    if kind in plain:
        return write_transformer(folder, tokenizer_folder, *plain[kind])
    family = {"bert": "Bert", "mpnet": "MPNet", "xlm-roberta": "XLMRoberta", "qwen3": "Qwen3"}[kind]
    more = [lambda m: m.Dense(32, 16), lambda m: m.LayerNorm(16)] if kind == "bert" else []
    sentence(*more, lambda m: m.Normalize(), family=family)(folder, tokenizer_folder)
    return folder


def vectors(kind, folder):
    """What the model in ``folder`` computes."""
    from qwen3nb.models.load import load_encoder
    from qwen3nb.models.rerankers.load import load_reranker

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "reranker":
            return load_reranker(folder).score(QUERY, DOCUMENTS).log_odds
        pooling = "mean" if kind in ("llama", "t5") else None
        return load_encoder(folder, pooling=pooling, cache=False).encode(list(TEXTS))


def outcome(kind, folder, expected):
    """``refused``, ``harmless``, or what went wrong."""
    try:
        came = vectors(kind, folder)
    except ValueError as error:
        text = str(error)
        named = str(folder) in text or ".json" in text
        return "refused" if named and len(text) < 1_000 else f"refused without a name: {text}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is wrong
        return f"{type(error).__name__}: {str(error)[:200]}"
    return "harmless" if np.array_equal(came, expected) else "other vectors"


def _weights(folder):
    return folder / "model.safetensors"


def _changed(change):
    """Change the tensors of a folder."""

    def apply(folder):
        tensors = load_file(_weights(folder))
        if change(tensors) is False:
            return False
        tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
        save_file(tensors, _weights(folder), metadata={"format": "pt"})
        return True

    return apply


def _inner(tensors):
    """A matrix of a layer that every kind uses."""
    ends = ("q_proj.weight", "query.weight", "attn.q.weight", "SelfAttention.q.weight")
    return next(
        (n for n in tensors if n.endswith(ends) and "decoder." not in n), next(iter(tensors))
    )


def _norm(tensors):
    return next(
        n for n in tensors if "norm" in n.lower() and n.endswith("weight") and "decoder." not in n
    )


def _embedding(tensors):
    names = ("embed_tokens.weight", "word_embeddings.weight", "shared.weight")
    return next(name for name in tensors if name.endswith(names))


def _put(pick, value):
    return _changed(lambda tensors: tensors.update({pick(tensors): value(tensors[pick(tensors)])}))


def _poke(number):
    return lambda tensor: tensor.flatten().index_fill(0, torch.tensor(3), number).view_as(tensor)


def _drop(pick):
    return _changed(lambda tensors: tensors.pop(pick(tensors)))


def _layer(tensors):
    part = next(p for p in ("layers.1.", "layer.1.", "block.1.") if any(p in n for n in tensors))
    return [name for name in tensors if part in name and "decoder." not in name]


def _prefixed(prefix, *, all_of_them=True):
    def change(tensors):
        for name in list(tensors) if all_of_them else [_inner(tensors)]:
            tensors[f"{prefix}{name}"] = tensors.pop(name)

    return _changed(change)


def _shards(change=lambda *_: None):
    """Store the weights in two shards with an index."""

    def apply(folder):
        tensors = load_file(_weights(folder))
        names = sorted(tensors)
        shards = {
            "a.safetensors": {name: tensors[name] for name in names[::2]},
            "b.safetensors": {name: tensors[name] for name in names[1::2]},
        }
        where = {name: file for file, part in shards.items() for name in part}
        change(where, *shards.values())
        for file, part in shards.items():
            if part:
                save_file(part, folder / file, metadata={"format": "pt"})
        _weights(folder).unlink()
        index = {"metadata": {}, "weight_map": where}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        return True

    return apply


def _beside(name):
    def apply(folder):
        tensors = {key: each + 1 for key, each in load_file(_weights(folder)).items()}
        save_file(tensors, folder / name, metadata={"format": "pt"})
        return True

    return apply


def _as_bin(change):
    def apply(folder):
        tensors = load_file(_weights(folder))
        change(tensors)
        torch.save(tensors, folder / "pytorch_model.bin")
        _weights(folder).unlink()
        return True

    return apply


WEIGHTS = {
    "shape": _put(_inner, lambda tensor: tensor[:-1]),
    "transposed embedding": _put(_embedding, lambda tensor: tensor.T),
    "fewer rows": _put(_embedding, lambda tensor: tensor[:-8]),
    "more dimensions": _put(_norm, lambda tensor: tensor[None]),
    "scalar": _put(_norm, lambda tensor: tensor[0]),
    "empty": _put(_inner, lambda tensor: tensor[:0]),
    "int64": _put(_inner, lambda tensor: (tensor * 100).long()),
    "int8": _put(_norm, lambda tensor: tensor.to(torch.int8)),
    "float64": _put(_inner, lambda tensor: tensor.double()),
    "boolean": _put(_norm, lambda tensor: tensor > 0),
    "float8": _put(_inner, lambda tensor: tensor.to(torch.float8_e4m3fn)),
    "NaN": _put(_inner, _poke(float("nan"))),
    "NaN in an embedding": _put(_embedding, _poke(float("nan"))),
    "infinity": _put(_norm, _poke(float("-inf"))),
    "missing matrix": _drop(_inner),
    "missing norm": _drop(_norm),
    "missing embedding": _drop(_embedding),
    "missing layer": _changed(lambda t: [t.pop(name) for name in _layer(t)]),
    "another layer": _changed(
        lambda t: t.update({n.replace(".1.", ".2.", 1): t[n].clone() for n in _layer(t)})
    ),
    "a stranger": _changed(lambda tensors: tensors.update({"stranger.weight": torch.ones(2)})),
    "a head": _changed(lambda t: t.update({"cls.predictions.bias": torch.ones(ROWS)})),
    "position_ids": _changed(
        lambda t: t.update({"embeddings.position_ids": torch.arange(80)[None]})
    ),
    "no tensors": _changed(lambda tensors: tensors.clear()),
    "module.": _prefixed("module."),
    "_orig_mod.": _prefixed("_orig_mod."),
    "one module.": _prefixed("module.", all_of_them=False),
    "model. once more": _prefixed("model."),
    "in shards": _shards(),
    "a shard of another step": _shards(lambda where, a, b: b.pop(min(b))),
    "a missing shard": _shards(lambda where, a, b: b.clear()),
    "in two shards": _shards(lambda where, a, b: b.update({min(a): a[min(a)] + 1})),
    "in the index only": _shards(lambda where, a, b: where.update(ghost="a.safetensors")),
    "two sources": _beside("model-00001-of-00002.safetensors"),
    "another format beside": _beside("shard-00001-model-00001-of-00001.safetensors"),
    "pickled": _as_bin(lambda tensors: None),
    "pickled and incomplete": _as_bin(lambda tensors: tensors.pop(_inner(tensors))),
    "pickled with NaN": _as_bin(lambda t: t[_inner(t)].view(-1)[3:4].fill_(float("nan"))),
}


def _rewrite(change, file="config.json"):
    """Change the bytes of a file, if there is one and ``change`` returns others."""

    def apply(folder):
        if not (folder / file).is_file():
            return False
        raw = (folder / file).read_bytes()
        changed = change(raw)
        (folder / file).write_bytes(changed)
        return changed != raw

    return apply


def _set(value, *names, file="config.json"):
    """Set the first of the ``names`` that the configuration has."""

    def change(raw):
        fields = json.loads(raw)
        name = next((each for each in names if each in fields), None)
        return raw if name is None else json.dumps({**fields, name: value}).encode()

    return _rewrite(change, file)


def _add(value, name, file="config.json"):
    return _rewrite(lambda raw: json.dumps({**json.loads(raw), name: value}).encode(), file)


def _text(text, file="config.json"):
    return _rewrite(lambda raw: text, file)


def _each(file, **cases):
    """A case per field and value of a configuration."""
    return {f"{name} {value!r}": _add(value, name, file) for name in cases for value in cases[name]}


def _longer(text):
    """Add to a JSON object, in any spelling."""
    return _rewrite(lambda raw: raw.rstrip()[:-1] + b", " + text + b"}")


LAYERS, HEADS = ("num_hidden_layers", "num_layers"), ("num_attention_heads", "num_heads")
EPSILON = ("layer_norm_eps", "rms_norm_eps", "layer_norm_epsilon")
POSITIONS = ("max_position_embeddings", "n_positions")
SETTINGS = (
    *(LAYERS, HEADS, EPSILON, POSITIONS, ("hidden_size", "d_model")),
    *(("intermediate_size", "d_ff"), ("vocab_size",), ("num_key_value_heads",)),
    ("head_dim", "_head_dim", "d_kv"),
)
INFINITE, NAN = float("inf"), float("nan")
GRID = {
    f"{names[0]} {value!r}": _set(value, *names)
    for names in SETTINGS
    for value in (0, -3, 10**12, 997, "32", 2.5, True, [2], {"a": 1}, NAN, INFINITE)
    # An epsilon of True or a larger limit are other settings, not malformed ones.
    if not (value == 997 and names in (POSITIONS, EPSILON))
}
CONFIGURATION = {
    "one layer": _set(1, *LAYERS),
    "three layers": _set(3, *LAYERS),
    "heads that do not divide": _set(5, *HEADS),
    "shared heads that do not divide": _set(3, "num_key_value_heads"),
    "unknown activation": _set("sigmoidal", "hidden_act", "feed_forward_proj"),
    "activation as a number": _set(7, "hidden_act", "feed_forward_proj"),
    **_each(
        "config.json",
        layer_types=(["full_attention"] * 5, "full_attention", ["imaginary"] * 2),
        quantization_config=({"quant_method": "bitsandbytes", "load_in_4bit": True},),
        transformers_weights=("other.safetensors",),
        auto_map=({"AutoModel": "evil.Evil", "AutoConfig": "evil.Config"},),
        _attn_implementation=("someone/kernel",),
        model_type=("imaginary", 7, "gpt2"),
        tie_word_embeddings=("false",),
    ),
    **{f"padding {value!r}": _set(value, "pad_token_id") for value in (10**6, "0")},
    **{
        f"rope {kind} {theta!r}": _set({"rope_type": kind, "rope_theta": theta}, "rope_parameters")
        for kind, theta in (("default", 0), ("default", "1e6"), ("imaginary", 1e4))
    },
    "dropout": _set(-1, "attention_dropout", "attention_probs_dropout_prob", "dropout_rate"),
    **{f"the text {text!r}": _text(text) for text in (b"{}", b"", b"[]", b"null")},
    "cut": _rewrite(lambda raw: raw[: len(raw) // 2]),
    "byte order mark": _rewrite(lambda raw: b"\xef\xbb\xbf" + raw),
    "UTF-16": _rewrite(lambda raw: raw.decode().encode("utf-16")),
    "NUL": _rewrite(lambda raw: raw + b"\0"),
    "twice": _longer(b'"vocab_size": 9, "vocab_size": 448'),
    "1e999": _longer(b'"initializer_range": 1e999'),
    "5,000 digits": _longer(b'"x": ' + b"9" * 5000),
    "deep": _longer(b'"x": ' + b"[" * 200 + b"]" * 200),
    "deeper": _longer(b'"x": ' + b"[" * 100_000 + b"]" * 100_000),
    "generation: cut": _rewrite(lambda raw: raw[:10], "generation_config.json"),
    "generation: a list": _text(b"[]", "generation_config.json"),
}
MODULES = "modules.json"
LENGTHS = "sentence_bert_config.json"
POOLING = "1_Pooling/config.json"
DENSE = "2_Dense/config.json"
NORM = "3_LayerNorm/config.json"
ROOT = "config_sentence_transformers.json"


def _modules(change):
    return _rewrite(lambda raw: json.dumps(change(json.loads(raw))).encode(), MODULES)


def _entry(index, **fields):
    return _modules(lambda m: [*m[:index], {**m[index], **fields}, *m[index + 1 :]])


def _unlink(file):
    def apply(folder):
        if not (folder / file).is_file():
            return False
        (folder / file).unlink()
        return True

    return apply


def _dense(change):
    def apply(folder):
        return _changed(change)(folder / "2_Dense") if (folder / "2_Dense").is_dir() else False

    return apply


SENTENCE_MODULES = {
    "no modules": _modules(lambda modules: []),
    "modules as an object": _modules(lambda modules: {"0": modules[0]}),
    "modules: cut": _rewrite(lambda raw: raw[:20], MODULES),
    "module without a type": _modules(lambda modules: [{"idx": 0, "name": "0", "path": ""}]),
    **{
        f"module {kind}": _entry(1, type=kind)
        for kind in (
            "os.system",
            "sentence_transformers.models.Imaginary",
            "sentence_transformers.util.http_get",
        )
    },
    **{f"path {path!r}": _entry(1, path=path) for path in ("../1_Pooling", "/etc", "7_Nothing", 7)},
    "same name twice": _entry(1, name="0"),
    "transformer twice": _modules(lambda modules: [modules[0], *modules]),
    "only the pooling": _modules(lambda modules: modules[1:]),
    "no pooling": _unlink(POOLING),
    "no dense configuration": _unlink(DENSE),
    "no dense weights": _unlink("2_Dense/model.safetensors"),
    **{f"{file}: cut": _rewrite(lambda raw: raw[:9], file) for file in (POOLING, LENGTHS, ROOT)},
    **{f"{file}: a list": _text(b"[]", file) for file in (POOLING, LENGTHS, ROOT)},
    **_each(
        POOLING,
        embedding_dimension=("32", -32, 64),
        pooling_mode=("median", 7, []),
        include_prompt=("no",),
        strange=(1,),
    ),
    "pooling: text for a flag": _text(
        b'{"embedding_dimension": 32, "pooling_mode_cls_token": "false",'
        b' "pooling_mode_mean_tokens": true}',
        POOLING,
    ),
    "pooling: no flag": _text(
        b'{"embedding_dimension": 32, "pooling_mode_cls_token": false}', POOLING
    ),
    **_each(
        LENGTHS,
        max_seq_length=("32", 0, -1, 1.5, 2_000),
        do_lower_case=("false",),
        model_args=(
            {"subfolder": ".."},
            {"ignore_mismatched_sizes": True},
            {"key_mapping": {"query": "key"}},
            [1],
            {"trust_remote_code": True},
        ),
        tokenizer_name_or_path=("bert-base-uncased",),
        transformer_task=("dreaming",),
        strange=(1,),
    ),
    **_each(
        DENSE,
        in_features=(31, 900_000),
        out_features=(-16, 10**12, "16"),
        bias=("true", False),
        use_residual=(True,),
        activation_function=("evil.Evil", "torch.save"),
    ),
    "dense: missing": _dense(lambda tensors: tensors.pop("linear.bias")),
    "dense: extra": _dense(lambda tensors: tensors.update(extra=torch.ones(2))),
    "dense: shape": _dense(lambda t: t.update({"linear.bias": torch.ones(3)})),
    "dense: type": _dense(lambda t: t.update({"linear.bias": torch.ones(16).long()})),
    "dense: NaN": _dense(lambda t: t["linear.weight"].view(-1)[:1].fill_(float("nan"))),
    "dense: prefix": _dense(lambda t: t.update({"module.linear.bias": t.pop("linear.bias")})),
    **_each(NORM, dimension=(8, "16")),
    **_each(
        ROOT,
        prompts=(["query: "], {"query": 7}),
        default_prompt_name=("nobody",),
        similarity_fn_name=("taste", 7),
        truncate_dim=(-5,),
        requirements=({"imaginary": ">=1"},),
        __version__=("x",),
    ),
}
FAMILIES = {
    "weights": WEIGHTS,
    "settings": GRID,
    "configuration": CONFIGURATION,
    "modules": SENTENCE_MODULES,
}


def outcomes(kind, folder, family, work):
    """The outcome of every change of a family that applies to the model in ``folder``."""
    expected = vectors(kind, folder)
    came = {}
    for name, change in FAMILIES[family].items():
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(folder, work)
        if change(work):
            came[name] = outcome(kind, work, expected)
    return came

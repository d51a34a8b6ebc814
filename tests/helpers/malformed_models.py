"""Tiny models of every kind, and the damages of their folders with what each is refused for.

A model must refuse a damaged folder in one line, or compute what it computed before.
"""

from __future__ import annotations

import json
import re
import warnings

import torch
from safetensors.torch import load_file, save_file

from helpers import TEXTS
from helpers.archetypes import edit, sentence, write_transformer
from helpers.rerankers import DOCUMENTS, QUERY, write_reranker

FAMILY_OF = {"bert": "Bert", "mpnet": "MPNet", "xlm-roberta": "XLMRoberta", "qwen3": "Qwen3"}
PLAIN = {"llama": ("Llama", "ForCausalLM"), "t5": ("T5", "Model")}


def write_model(kind, folder, tokenizer_folder):
    """Write a tiny model of a kind that needs no training of its own."""
    if kind == "reranker":
        return write_reranker(folder, tie_word_embeddings=False)
    if kind in PLAIN:
        return write_transformer(folder, tokenizer_folder, *PLAIN[kind])
    more = [lambda m: m.Dense(32, 16), lambda m: m.LayerNorm(16)] if kind == "bert" else []
    write = sentence(*more, lambda m: m.Normalize(), family=FAMILY_OF[kind])
    return write(folder, tokenizer_folder)


def vectors(kind, folder):
    """What the model in ``folder`` computes."""
    from qwen3nb.models.load import load_encoder
    from qwen3nb.models.rerankers import load_reranker

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "reranker":
            return load_reranker(folder).score(QUERY, DOCUMENTS).log_odds
        pooling = "mean" if kind in PLAIN else None
        return load_encoder(folder, pooling=pooling, cache=False).encode(list(TEXTS))


def tensors(change, file="model.safetensors"):
    """Change the tensors of a folder."""

    def damage(folder):
        held = load_file(folder / file)
        change(held)
        held = {name: tensor.contiguous().clone() for name, tensor in held.items()}
        save_file(held, folder / file, metadata={"format": "pt"})

    return damage


def pick(*parts):
    """Return a function that names a weight of the encoder, and all of its layer's."""

    def names(held):
        known = [n for n in held if "decoder." not in n]
        return [n for n in known if any(re.search(part, n) for part in parts)] or known

    return names


INNER = pick(r"(q_proj|query|attn\.q|SelfAttention\.q)\.weight$")
NORM = pick(r"(?i)norm.*weight$")
EMBEDDING = pick(r"(embed_tokens|word_embeddings|shared)\.weight$")
LAYER = pick(r"(layers?|block)\.1\.")


def put(names, value):
    return tensors(lambda held: held.update({names(held)[0]: value(held[names(held)[0]])}))


def drop(names, count=None):
    return tensors(lambda held: [held.pop(name) for name in names(held)[:count]])


def poke(number):
    return lambda tensor: tensor.flatten().index_fill(0, torch.tensor(3), number).view_as(tensor)


def prefixed(prefix, count=None):
    return tensors(lambda held: [held.update({prefix + n: held.pop(n)}) for n in [*held][:count]])


def shards(change=lambda *_: None):
    """Store the weights in two shards with an index."""

    def damage(folder):
        held = load_file(folder / "model.safetensors")
        names = sorted(held)
        parts = [{name: held[name] for name in names[start::2]} for start in (0, 1)]
        index = {name: "ba"[name in parts[0]] + ".safetensors" for name in names}
        change(index, *parts)
        for file, part in zip("ab", parts, strict=True):
            if part:
                save_file(part, folder / f"{file}.safetensors", metadata={"format": "pt"})
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))

    return damage


def pickled(change=lambda held: None):
    def damage(folder):
        held = load_file(folder / "model.safetensors")
        change(held)
        torch.save(held, folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()

    return damage


def rewrite(change, file="config.json"):
    """Change the bytes of a file."""
    return lambda folder: (folder / file).write_bytes(change((folder / file).read_bytes()))


def text(content, file="config.json"):
    return rewrite(lambda raw: content, file)


def fields(file="config.json", **values):
    return lambda folder: edit(folder, file, **values)


def known(value, *names):
    """Set the first of the ``names`` that the configuration has."""

    def damage(folder):
        held = json.loads((folder / "config.json").read_text())
        name = next((each for each in names if each in held), names[0])
        (folder / "config.json").write_text(json.dumps({**held, name: value}))

    return damage


def entry(index, **values):
    """Change an entry of ``modules.json``."""
    return modules(lambda held: [*held[:index], {**held[index], **values}, *held[index + 1 :]])


def modules(change):
    return rewrite(lambda raw: json.dumps(change(json.loads(raw))).encode(), "modules.json")


SHAPE, MISSING, UNEXPECTED = "shape|size mismatch", "[Mm]issing", "[Uu]nexpected"
FINITE, JSON, BUILT = "NaN or infinity", "invalid JSON", "can be built from it|do not match"
# Of every kind of model; what no vector depends on has no refusal.
WEIGHTS = {
    "matrix": (put(INNER, lambda tensor: tensor[:-1]), SHAPE),
    "embedding": (put(EMBEDDING, lambda tensor: tensor[:-8]), SHAPE),
    "dimensions": (put(NORM, lambda tensor: tensor[None]), SHAPE),
    "whole numbers": (put(NORM, lambda tensor: tensor.to(torch.int8)), "has dtype I8; expected"),
    "NaN": (put(INNER, poke(float("nan"))), FINITE),
    "infinity": (put(NORM, poke(float("-inf"))), FINITE),
    "no matrix": (drop(INNER, 1), MISSING),
    "no norm": (drop(NORM, 1), MISSING),
    "no embedding": (drop(EMBEDDING, 1), MISSING),
    "no layer": (drop(LAYER), MISSING),
    "another layer": (
        tensors(lambda t: t.update({n.replace(".1.", ".2.", 1): t[n] for n in LAYER(t)})),
        UNEXPECTED,
    ),
    "a wrapper": (prefixed("module."), None),
    "part of a wrapper": (prefixed("model.", 1), None),
}
STORED = {
    "positions": (tensors(lambda t: t.update({"embeddings.position_ids": torch.ones(9)})), None),
    "no tensors": (tensors(dict.clear), "contain no tensors"),
    "shards": (shards(), None),
    "a shard of another step": (shards(lambda index, a, b: b.pop(min(b))), "in both this shard"),
    "a missing shard": (shards(lambda index, a, b: b.clear()), "b.safetensors"),
    "in two shards": (shards(lambda index, a, b: b.update({min(a): a[min(a)]})), "is also in"),
    "pickled": (pickled(), None),
    "pickled in part": (pickled(lambda t: t.pop(INNER(t)[0])), MISSING),
}
SIZES = (
    *(("num_hidden_layers", "num_layers"), ("num_attention_heads", "num_heads")),
    *(("hidden_size", "d_model"), ("intermediate_size", "d_ff"), ("num_key_value_heads",)),
    *(("head_dim", "_head_dim", "d_kv"), ("layer_norm_eps", "rms_norm_eps"), ("vocab_size",)),
)
CONFIGURATION = {
    **{
        f"{names[0]} {value!r}": (known(value, *names), None)
        for names in SIZES
        for value in (0, 10**12, "32", float("nan"))
    },
    "fewer layers": (known(1, *SIZES[0]), f"{UNEXPECTED}|{BUILT}"),
    "more layers": (known(3, *SIZES[0]), MISSING),
    "too many layers": (known(1001, *SIZES[0]), "is 1001; it should"),
    "shared heads": (known(3, "num_key_value_heads"), None),
    "activation": (known("gelo", "hidden_act"), f"{BUILT}|gelo"),
    "layer types": (fields(layer_types=["imaginary"] * 2), None),
    "dtype": (fields(dtype=[1]), "dtype is .1.; it should"),
    "flag": (fields(tie_word_embeddings="no"), "tie_word_embeddings is 'no'; it should"),
    "kernel": (fields(_attn_implementation="someone/kernel"), "_attn_implementation is"),
    "code": (fields(auto_map={"AutoModel": "evil.E"}), "never run"),
    "quantised": (fields(quantization_config={"quant_method": "x"}), "weights are quantised"),
    "other weights": (fields(transformers_weights="x.safetensors"), "another name would be read"),
    "rope": (known({"rope_type": "default", "rope_theta": 0}, "rope_parameters"), None),
    "type": (fields(model_type="imaginary"), "model_type is 'imaginary'|expected a model with"),
    "types": (fields(model_type=[["qwen3"]]), "model_type is .*qwen3|expected a model with"),
    "a list": (text(b"[]"), "expected an object"),
    "empty": (text(b"{}"), "model_type is None|model_type"),
    "cut": (rewrite(lambda raw: raw[: len(raw) // 2]), JSON),
}
MODULES, LENGTHS, ROOT = "modules.json", "sentence_bert_config.json", "config_sentence_transformers"
POOLING, DENSE = "1_Pooling/config.json", "2_Dense/config.json"
LAYERED = "2_Dense/model.safetensors"
UNFIT = "sentence-transformers cannot load it|do not fit each other"
SENTENCE = {
    "no modules": (modules(lambda held: []), "expected a list of modules"),
    "no type": (modules(lambda held: [{"name": "0", "path": ""}]), "module's type is None"),
    "foreign module": (entry(1, type="os.system"), "code from elsewhere"),
    "a function": (
        entry(1, type="sentence_transformers.util.http_get"),
        "expected a model with one",
    ),
    "path above": (entry(1, path="../1_Pooling"), "leaves the folder"),
    "path elsewhere": (entry(1, path="/etc"), "leaves the folder"),
    "path to nothing": (entry(1, path="7_Nothing"), UNFIT),
    "same name": (entry(1, name="0"), "two modules are called '0'"),
    "transformer twice": (modules(lambda held: [held[0], *held]), "two modules"),
    "no dense weights": (lambda folder: (folder / LAYERED).unlink(), UNFIT),
    **{f"{f} cut": (rewrite(lambda raw: raw[:9], f), JSON) for f in (POOLING, LENGTHS, MODULES)},
    "width": (fields(POOLING, embedding_dimension=64), None),
    "pooling": (fields(POOLING, pooling_mode="median"), UNFIT),
    "no pooling": (fields(POOLING, pooling_mode=-1), "pooling_mode is -1; it should"),
    "length 0": (fields(LENGTHS, max_seq_length=0), "max_seq_length is 0; it should"),
    "length": (fields(LENGTHS, max_seq_length=2_000), "max_seq_length is 2,000; expected at most"),
    "case": (fields(LENGTHS, do_lower_case="false"), "do_lower_case is 'false'; it should"),
    "subfolder": (fields(LENGTHS, model_args={"subfolder": ".."}), "load other files"),
    "renaming": (fields(LENGTHS, model_args={"key_mapping": {"query": "key"}}), "load other files"),
    "tokenizer": (fields(LENGTHS, tokenizer_name_or_path="bert-base"), "names another folder"),
    "features": (fields(DENSE, in_features=31), UNFIT),
    "activation class": (fields(DENSE, activation_function="torch.save"), "activation_function is"),
    "no bias": (tensors(lambda held: held.pop("linear.bias"), LAYERED), UNFIT),
    "dense NaN": (
        tensors(lambda held: held["linear.weight"].view(-1)[:1].fill_(torch.nan), LAYERED),
        FINITE,
    ),
    "similarity": (fields(f"{ROOT}.json", similarity_fn_name="taste"), "compared by 'taste'"),
    "default": (fields(f"{ROOT}.json", default_prompt_name=["q"]), "which is not a prompt"),
    "truncation": (fields(f"{ROOT}.json", truncate_dim=-5), "truncate_dim is -5"),
}
OF_BERT = {**WEIGHTS, **STORED, **CONFIGURATION, **SENTENCE}
# One kind gets every damage; the others share its rules, but not the names of their weights.
ROWS = [
    *(("bert", name) for name in OF_BERT),
    *((kind, name) for kind in ("seq2seq", "llama") for name in CONFIGURATION),
    *(
        (kind, name)
        for kind in ("encoder", "llama", "mpnet", "reranker", "seq2seq", "t5", "xlm-roberta")
        for name in WEIGHTS
    ),
]

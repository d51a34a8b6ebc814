"""Tiny models of every kind, and the ways in which their folders are malformed.

A change takes a folder and returns whether it applies to it. A model must refuse what it made,
in one line, or compute what it computed before.
"""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from helpers import TEXTS
from helpers.rerankers import DOCUMENTS, QUERY, write_reranker
from helpers.tiny_models import BERT, QWEN

ROWS = 448
KINDS = ("seq2seq", "encoder", "bert", "mpnet", "xlm-roberta", "qwen3", "llama", "t5", "reranker")


def write_model(kind, folder, tokenizer_folder):
    """Write a tiny model of a kind that needs no training of its own."""
    import transformers

    if kind == "reranker":
        return write_reranker(folder, tie_word_embeddings=False)
    torch.manual_seed(0)
    small = {**BERT, "vocab_size": ROWS}
    if kind == "llama":
        config = transformers.LlamaConfig(**small, num_key_value_heads=2)
        model = transformers.LlamaForCausalLM(config)
    elif kind == "t5":
        config = transformers.T5Config(
            vocab_size=ROWS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4
        )
        model = transformers.T5Model(config)
    else:
        return _write_sentence_transformer(kind, small, folder, tokenizer_folder)
    model.save_pretrained(folder)
    _copy(tokenizer_folder, folder)
    return folder


def _write_sentence_transformer(kind, small, folder, tokenizer_folder):
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import (
        Dense,
        LayerNorm,
        Normalize,
        Pooling,
        Transformer,
    )

    family = {"bert": "Bert", "mpnet": "MPNet", "xlm-roberta": "XLMRoberta", "qwen3": "Qwen3"}[kind]
    fields = {**QWEN, "vocab_size": ROWS} if kind == "qwen3" else small
    config = getattr(transformers, f"{family}Config")(**fields)
    inside = folder.with_name(f"{folder.name}-inside")
    getattr(transformers, f"{family}Model")(config).save_pretrained(inside)
    _copy(tokenizer_folder, inside)
    first = Transformer(str(inside))
    first.max_seq_length = 32
    more = [Dense(32, 16), LayerNorm(16)] if kind == "bert" else []
    modules = [first, Pooling(32, "mean"), *more, Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
    shutil.rmtree(inside)
    return folder


def _copy(tokenizer_folder, folder):
    for file in Path(tokenizer_folder).iterdir():
        shutil.copyfile(file, folder / file.name)


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
    def change(tensors):
        name = pick(tensors)
        tensors[name] = value(tensors[name])

    return _changed(change)


def _poke(number):
    def value(tensor):
        tensor = tensor.clone()
        tensor.view(-1)[3] = number
        return tensor

    return value


def _drop(pick):
    return _changed(lambda tensors: tensors.pop(pick(tensors)) is None)


def _layer(tensors):
    part = next(p for p in ("layers.1.", "layer.1.", "block.1.") if any(p in n for n in tensors))
    return [name for name in tensors if part in name and "decoder." not in name]


def _drop_layer(tensors):
    for name in _layer(tensors):
        del tensors[name]


def _another_layer(tensors):
    for name in _layer(tensors):
        tensors[name.replace(".1.", ".2.", 1)] = tensors[name].clone()


def _prefixed(prefix, *, all_of_them=True):
    def change(tensors):
        for name in list(tensors) if all_of_them else [_inner(tensors)]:
            tensors[f"{prefix}{name}"] = tensors.pop(name)

    return _changed(change)


def _in_shards(folder):
    """Store the weights in two shards with an index."""
    tensors = load_file(_weights(folder))
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({n: tensors[n] for n in part}, folder / file, metadata={"format": "pt"})
    where = {name: file for file, part in shards.items() for name in part}
    _weights(folder).unlink()
    return where


def _index(folder, where):
    file = folder / "model.safetensors.index.json"
    file.write_text(json.dumps({"metadata": {}, "weight_map": where}))


def _shards(change):
    def apply(folder):
        where = _in_shards(folder)
        change(folder, where)
        _index(folder, where)
        return True

    return apply


def _other_step(folder, where):
    tensors = load_file(folder / "b.safetensors")
    tensors.pop(sorted(tensors)[0])
    save_file(tensors, folder / "b.safetensors", metadata={"format": "pt"})


def _twice(folder, where):
    tensors = load_file(folder / "b.safetensors")
    other = load_file(folder / "a.safetensors")
    name = sorted(other)[0]
    save_file({**tensors, name: other[name] + 1}, folder / "b.safetensors")


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
    "missing layer": _changed(_drop_layer),
    "another layer": _changed(_another_layer),
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
    "in shards": _shards(lambda folder, where: None),
    "a shard of another step": _shards(_other_step),
    "a missing shard": _shards(lambda folder, where: (folder / "b.safetensors").unlink()),
    "in two shards": _shards(_twice),
    "in the index only": _shards(lambda folder, where: where.update(ghost="a.safetensors")),
    "two sources": _beside("model-00001-of-00002.safetensors"),
    "another format beside": _beside("shard-00001-model-00001-of-00001.safetensors"),
    "pickled": _as_bin(lambda tensors: None),
    "pickled and incomplete": _as_bin(lambda tensors: tensors.pop(_inner(tensors))),
    "pickled with NaN": _as_bin(lambda t: t[_inner(t)].view(-1)[3:4].fill_(float("nan"))),
}


def _set(value, *names, file="config.json"):
    """Set the first of the ``names`` that the configuration has."""

    def apply(folder):
        if not (folder / file).is_file():
            return False
        fields = json.loads((folder / file).read_text())
        name = next((each for each in names if each in fields), None)
        if name is None:
            return False
        fields[name] = value
        (folder / file).write_text(json.dumps(fields))
        return True

    return apply


def _add(value, name, file="config.json"):
    def apply(folder):
        if not (folder / file).is_file():
            return False
        fields = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**fields, name: value}))
        return True

    return apply


def _rewrite(change, file="config.json"):
    def apply(folder):
        if not (folder / file).is_file():
            return False
        raw = (folder / file).read_bytes()
        (folder / file).write_bytes(change(raw))
        return True

    return apply


SETTINGS = {
    "layers": ("num_hidden_layers", "num_layers"),
    "width": ("hidden_size", "d_model"),
    "feed-forward": ("intermediate_size", "d_ff"),
    "heads": ("num_attention_heads", "num_heads"),
    "rows": ("vocab_size",),
    "positions": ("max_position_embeddings", "n_positions"),
    "shared heads": ("num_key_value_heads",),
    "head width": ("head_dim", "_head_dim", "d_kv"),
    "epsilon": ("layer_norm_eps", "rms_norm_eps", "layer_norm_epsilon"),
}
VALUES = {
    "zero": 0,
    "negative": -3,
    "absurd": 10**12,
    "large": 997,
    "a string": "32",
    "a fraction": 2.5,
    "a boolean": True,
    "a list": [2],
    "an object": {"a": 1},
    "NaN": float("nan"),
    "infinite": float("inf"),
}


def _nested(levels):
    return lambda raw: raw.rstrip()[:-1] + b', "x": ' + b"[" * levels + b"]" * levels + b"}"


GRID = {
    f"{setting} {what}": _set(value, *names)
    for setting, names in SETTINGS.items()
    for what, value in VALUES.items()
    # An epsilon of True or a larger limit are other settings, not malformed ones.
    if (setting, what) not in (("positions", "large"), ("epsilon", "large"))
}
CONFIGURATION = {
    "one layer": _set(1, *SETTINGS["layers"]),
    "three layers": _set(3, *SETTINGS["layers"]),
    "heads that do not divide": _set(5, *SETTINGS["heads"]),
    "shared heads that do not divide": _set(3, "num_key_value_heads"),
    "unknown activation": _set("sigmoidal", "hidden_act", "feed_forward_proj"),
    "activation as a number": _set(7, "hidden_act", "feed_forward_proj"),
    "layer types of another number": _add(["full_attention"] * 5, "layer_types"),
    "layer types as a string": _add("full_attention", "layer_types"),
    "unknown layer types": _add(["imaginary"] * 2, "layer_types"),
    "padding beyond": _set(10**6, "pad_token_id"),
    "padding as a string": _set("0", "pad_token_id"),
    "quantised": _add(
        {"quant_method": "bitsandbytes", "load_in_4bit": True}, "quantization_config"
    ),
    "other weights": _add("other.safetensors", "transformers_weights"),
    "foreign code": _add({"AutoModel": "evil.Evil", "AutoConfig": "evil.Config"}, "auto_map"),
    "foreign attention": _add("someone/kernel", "_attn_implementation"),
    "unknown type": _set("imaginary", "model_type"),
    "type as a number": _set(7, "model_type"),
    "another type": _set("gpt2", "model_type"),
    "theta of zero": _set({"rope_type": "default", "rope_theta": 0}, "rope_parameters"),
    "theta as text": _set({"rope_type": "default", "rope_theta": "1e6"}, "rope_parameters"),
    "unknown rope": _set({"rope_type": "imaginary", "rope_theta": 1e4}, "rope_parameters"),
    "dropout": _set(-1, "attention_dropout", "attention_probs_dropout_prob", "dropout_rate"),
    "tied as text": _add("false", "tie_word_embeddings"),
    "no fields": _rewrite(lambda raw: b"{}"),
    "empty": _rewrite(lambda raw: b""),
    "a list": _rewrite(lambda raw: b"[]"),
    "null": _rewrite(lambda raw: b"null"),
    "cut": _rewrite(lambda raw: raw[: len(raw) // 2]),
    "twice": _rewrite(lambda raw: raw.rstrip()[:-1] + b', "vocab_size": 9, "vocab_size": 448}'),
    "byte order mark": _rewrite(lambda raw: b"\xef\xbb\xbf" + raw),
    "UTF-16": _rewrite(lambda raw: raw.decode().encode("utf-16")),
    "NUL": _rewrite(lambda raw: raw + b"\0"),
    "1e999": _rewrite(lambda raw: raw.rstrip()[:-1] + b', "initializer_range": 1e999}'),
    "a number of 5,000 digits": _rewrite(
        lambda raw: raw.rstrip()[:-1] + b', "x": ' + b"9" * 5000 + b"}"
    ),
    "deep": _rewrite(_nested(200)),
    "deeper": _rewrite(_nested(100_000)),
    "generation: cut": _rewrite(lambda raw: raw[:10], "generation_config.json"),
    "generation: a list": _rewrite(lambda raw: b"[]", "generation_config.json"),
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
    def change(modules):
        modules[index] = {**modules[index], **fields}
        return modules

    return _modules(change)


def _unlink(file):
    def apply(folder):
        if not (folder / file).is_file():
            return False
        (folder / file).unlink()
        return True

    return apply


def _dense(change):
    def apply(folder):
        file = folder / "2_Dense" / "model.safetensors"
        if not file.is_file():
            return False
        tensors = load_file(file)
        change(tensors)
        save_file(tensors, file, metadata={"format": "pt"})
        return True

    return apply


SENTENCE_MODULES = {
    "no modules": _modules(lambda modules: []),
    "modules as an object": _modules(lambda modules: {"0": modules[0]}),
    "modules: cut": _rewrite(lambda raw: raw[:20], MODULES),
    "module without a type": _modules(lambda modules: [{"idx": 0, "name": "0", "path": ""}]),
    "module of another library": _entry(1, type="os.system"),
    "module that does not exist": _entry(1, type="sentence_transformers.models.Imaginary"),
    "module of the library's own": _entry(1, type="sentence_transformers.util.http_get"),
    "module above": _entry(1, path="../1_Pooling"),
    "module at an absolute path": _entry(1, path="/etc"),
    "module with no folder": _entry(1, path="7_Nothing"),
    "path as a number": _entry(1, path=7),
    "same name twice": _entry(1, name="0"),
    "transformer twice": _modules(lambda modules: [modules[0], *modules]),
    "only the pooling": _modules(lambda modules: modules[1:]),
    "no pooling": _unlink(POOLING),
    "pooling: cut": _rewrite(lambda raw: raw[:9], POOLING),
    "pooling: a list": _rewrite(lambda raw: b"[]", POOLING),
    "pooling: width": _add("32", "embedding_dimension", POOLING),
    "pooling: negative width": _add(-32, "embedding_dimension", POOLING),
    "pooling: another width": _add(64, "embedding_dimension", POOLING),
    "pooling: unknown": _add("median", "pooling_mode", POOLING),
    "pooling: a number": _add(7, "pooling_mode", POOLING),
    "pooling: none": _add([], "pooling_mode", POOLING),
    "pooling: text for a flag": _rewrite(
        lambda raw: (
            b'{"embedding_dimension": 32, "pooling_mode_cls_token": "false",'
            b' "pooling_mode_mean_tokens": true}'
        ),
        POOLING,
    ),
    "pooling: no flag": _rewrite(
        lambda raw: b'{"embedding_dimension": 32, "pooling_mode_cls_token": false}', POOLING
    ),
    "pooling: prompt as text": _add("no", "include_prompt", POOLING),
    "pooling: strange key": _add(1, "strange", POOLING),
    "length: a string": _add("32", "max_seq_length", LENGTHS),
    "length: zero": _add(0, "max_seq_length", LENGTHS),
    "length: negative": _add(-1, "max_seq_length", LENGTHS),
    "length: a fraction": _add(1.5, "max_seq_length", LENGTHS),
    "length: beyond the positions": _add(2_000, "max_seq_length", LENGTHS),
    "length: cut": _rewrite(lambda raw: raw[:9], LENGTHS),
    "length: a list": _rewrite(lambda raw: b"[1]", LENGTHS),
    "length: lower case as text": _add("false", "do_lower_case", LENGTHS),
    "arguments: subfolder": _add({"subfolder": ".."}, "model_args", LENGTHS),
    "arguments: sizes": _add({"ignore_mismatched_sizes": True}, "model_args", LENGTHS),
    "arguments: names": _add({"key_mapping": {"query": "key"}}, "model_args", LENGTHS),
    "arguments: a list": _add([1], "model_args", LENGTHS),
    "arguments: code": _add({"trust_remote_code": True}, "model_args", LENGTHS),
    "another tokenizer": _add("bert-base-uncased", "tokenizer_name_or_path", LENGTHS),
    "unknown task": _add("dreaming", "transformer_task", LENGTHS),
    "strange setting": _add(1, "strange", LENGTHS),
    "dense: features": _add(31, "in_features", DENSE),
    "dense: negative": _add(-16, "out_features", DENSE),
    "dense: absurd": _add(10**12, "out_features", DENSE),
    "dense: large": _add(900_000, "in_features", DENSE),
    "dense: text": _add("16", "out_features", DENSE),
    "dense: bias as text": _add("true", "bias", DENSE),
    "dense: no bias": _add(False, "bias", DENSE),
    "dense: residual": _add(True, "use_residual", DENSE),
    "dense: activation": _add("evil.Evil", "activation_function", DENSE),
    "dense: activation that is none": _add("torch.save", "activation_function", DENSE),
    "dense: missing": _dense(lambda tensors: tensors.pop("linear.bias")),
    "dense: extra": _dense(lambda tensors: tensors.update(extra=torch.ones(2))),
    "dense: shape": _dense(lambda t: t.update({"linear.bias": torch.ones(3)})),
    "dense: type": _dense(lambda t: t.update({"linear.bias": torch.ones(16).long()})),
    "dense: NaN": _dense(lambda t: t["linear.weight"].view(-1)[:1].fill_(float("nan"))),
    "dense: prefix": _dense(lambda t: t.update({"module.linear.bias": t.pop("linear.bias")})),
    "dense: no weights": _unlink("2_Dense/model.safetensors"),
    "dense: no configuration": _unlink(DENSE),
    "norm: dimension": _add(8, "dimension", NORM),
    "norm: text": _add("16", "dimension", NORM),
    "root: cut": _rewrite(lambda raw: raw[:9], ROOT),
    "root: a list": _rewrite(lambda raw: b"[]", ROOT),
    "root: prompts": _add(["query: "], "prompts", ROOT),
    "root: a prompt as a number": _add({"query": 7}, "prompts", ROOT),
    "root: unknown default": _add("nobody", "default_prompt_name", ROOT),
    "root: unknown similarity": _add("taste", "similarity_fn_name", ROOT),
    "root: similarity as a number": _add(7, "similarity_fn_name", ROOT),
    "root: truncated vectors": _add(-5, "truncate_dim", ROOT),
    "root: requirements": _add({"imaginary": ">=1"}, "requirements", ROOT),
    "root: version": _add("x", "__version__", ROOT),
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

"""Tiny folders of every archetype, made by the constructors of the libraries that define them.

A function here writes a folder, given its path and that of a tokenizer. What becomes of each is
in ``tests/models/test_archetypes.py``.
"""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from helpers import TEXTS
from helpers.rerankers import write_reranker
from helpers.static_models import token_table, word_tokenizer
from helpers.tiny_models import BERT, LLAMA, QWEN

ROWS = 448
WIDTH = 32
_GEMMA = {**QWEN, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 16}
_VIT = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 8,
}
# The configuration of an architecture of transformers, by the prefix of its classes.
SIZES = {
    "Bart": {
        **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 48),
        **{"d_model": WIDTH, "max_position_embeddings": 80},
    },
    "Bert": BERT,
    "Gemma3Text": _GEMMA,
    "Llama": LLAMA,
    "MPNet": BERT,
    "ModernBert": {
        **BERT,
        **dict.fromkeys((f"{each}_token_id" for each in ("bos", "cls", "eos", "pad", "sep")), 1),
        "global_attn_every_n_layers": 1,
    },
    "Qwen3": QWEN,
    "T5": {"d_model": WIDTH, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
    "ViT": _VIT,
    "XLMRoberta": {**BERT, "pad_token_id": 1},
}


def copy_tokenizer(tokenizer, folder):
    for file in Path(tokenizer).iterdir():
        shutil.copyfile(file, Path(folder) / file.name)


def edit(folder, file, **fields):
    """Set fields of a JSON file; a field of None is removed."""
    path = Path(folder) / file
    content = {**(json.loads(path.read_text()) if path.is_file() else {}), **fields}
    kept = {key: value for key, value in content.items() if value is not None}
    path.write_text(json.dumps(kept))
    return folder


def write_transformer(folder, tokenizer, family="Bert", kind="Model", **changes):
    """A model of transformers, in its own class, with a tokenizer."""
    import transformers

    prefix = {"Gemma3Text": "Gemma3"}.get(family, family) if kind != "Model" else family
    config = getattr(transformers, f"{family}Config")
    sizes = {**SIZES.get(family, {}), "vocab_size": ROWS, **changes}
    torch.manual_seed(0)
    given = {name: value for name, value in sizes.items() if value is not None}
    model = getattr(transformers, f"{prefix}{kind}")(config(**given))
    model.save_pretrained(folder)
    copy_tokenizer(tokenizer, folder)
    return folder


def _transformer(folder, tokenizer, family="Bert", **changes):
    """Return the module Transformer of sentence-transformers around a tiny model."""
    from sentence_transformers.base.modules import Transformer

    inside = Path(folder).with_name(f"{Path(folder).name}-inside")
    write_transformer(inside, tokenizer, family, **changes)
    module = Transformer(str(inside))
    module.max_seq_length = 48
    shutil.rmtree(inside)
    return module


def _save(folder, modules, kind=None, **options):
    from sentence_transformers import SentenceTransformer

    model = (kind or SentenceTransformer)(modules=modules, device="cpu", **options)
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


def _modules():
    import sentence_transformers.sentence_transformer.modules as modules

    return modules


def words(folder, tokenizer, *, middle=None, width=12):
    """A SentenceTransformer that begins with WordEmbeddings."""
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    m = _modules()
    vocabulary = [*sorted({word for text in TEXTS for word in text.split()}), "PADDING"]
    first = m.WordEmbeddings(
        WhitespaceTokenizer(vocabulary, stop_words=[]), token_table(len(vocabulary))
    )
    torch.manual_seed(0)
    between = {
        "LSTM": lambda: [m.LSTM(12, 8)],
        "WordWeights": lambda: [m.WordWeights(vocabulary, {vocabulary[0]: 2.0, "the": 0.5})],
        None: list,
    }
    return _save(folder, [first, *between[middle](), m.Pooling(width, "mean")])


def static(folder, tokenizer, *, dense=False):
    m = _modules()
    rows = word_tokenizer().get_vocab_size()
    table = m.StaticEmbedding(word_tokenizer(), embedding_weights=token_table(rows))
    torch.manual_seed(0)
    return _save(folder, [table, *([m.Dense(12, 4)] if dense else [])])


def transformer_alone(folder, tokenizer):
    return _save(folder, [_transformer(folder, tokenizer)])


def router(folder, tokenizer):
    from sentence_transformers.base.modules import Router

    m = _modules()
    rows = word_tokenizer().get_vocab_size()
    table = m.StaticEmbedding(word_tokenizer(), embedding_weights=torch.randn(rows, WIDTH))
    routes = [_transformer(folder, tokenizer), m.Pooling(WIDTH, "mean")]
    return _save(folder, [Router.for_query_document([table], routes)])


def clip(folder, tokenizer):
    """A plain CLIP of transformers, with its tokenizer and image processor."""
    import transformers

    text = {**BERT, "vocab_size": ROWS, "eos_token_id": 1, "bos_token_id": 0, "pad_token_id": 1}
    sizes = {"text_config": text, "vision_config": _VIT, "projection_dim": 16}
    write_transformer(folder, tokenizer, "CLIP", **sizes)
    size = {"height": 16, "width": 16}
    transformers.CLIPImageProcessor(size=size, crop_size=size).save_pretrained(folder)
    return folder


def clip_modules(folder, tokenizer):
    """CLIP as sentence-transformers saves it."""
    from sentence_transformers.base.modules import Transformer

    return _save(folder, [Transformer(str(clip(folder.with_name("inside"), tokenizer)))])


def splade(folder, tokenizer):
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

    inside = folder.with_name(f"{folder.name}-inside")
    write_transformer(inside, tokenizer, "Bert", "ForMaskedLM")
    return _save(folder, [MLMTransformer(str(inside)), SpladePooling()], SparseEncoder)


def _of_library(name, folder, write, **options):
    """A model that a class of sentence-transformers makes of a plain one, and saves."""
    import sentence_transformers

    inside = write(folder.with_name(f"{folder.name}-inside"), **options)
    model = getattr(sentence_transformers, name)(str(inside), device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


def multi_vector(folder, tokenizer):
    return _of_library("MultiVectorEncoder", folder, write_transformer, tokenizer=tokenizer)


def cross_encoder(folder, tokenizer):
    kind = {"family": "Bert", "kind": "ForSequenceClassification", "num_labels": 1}
    return _of_library("CrossEncoder", folder, write_transformer, tokenizer=tokenizer, **kind)


def logit_reranker(folder, tokenizer):
    return _of_library("CrossEncoder", folder, write_reranker)


def adapter(folder, tokenizer, *, kind="CAUSAL_LM", base=True, whole=False):
    import peft
    import transformers

    inside = write_transformer(folder.parent / "base", tokenizer, "Qwen3", "ForCausalLM")
    auto = {
        "CAUSAL_LM": "ForCausalLM",
        "SEQ_CLS": "ForSequenceClassification",
        "TOKEN_CLS": "ForTokenClassification",
    }.get(kind, "")
    loader = getattr(transformers, f"AutoModel{auto}")
    model = loader.from_pretrained(inside, **({"num_labels": 2} if "CLS" in kind else {}))
    lora = peft.LoraConfig(
        task_type=kind, r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False
    )
    peft.get_peft_model(model, lora).save_pretrained(folder)
    copy_tokenizer(tokenizer, folder)
    edit(folder, "adapter_config.json", base_model_name_or_path="base")
    if whole:
        for name in ("config.json", "model.safetensors"):
            shutil.copyfile(inside / name, folder / name)
    if not base:
        shutil.rmtree(inside)
    return folder


def sentence_adapter(folder, tokenizer):
    """A SentenceTransformer whose transformer is a PEFT adapter, with the weights of another."""
    sentence()(folder, tokenizer)
    (folder / "config.json").rename(folder / "adapter_config.json")
    return folder


def config(write, *, file="config.json", **fields):
    """Write a folder with other fields in its ``config.json``."""
    return lambda folder, tokenizer: edit(write(folder, tokenizer), file, **fields)


def settings(write, **fields):
    """Write a folder with other fields in ``config_sentence_transformers.json``."""
    return config(write, file="config_sentence_transformers.json", **fields)


def module(write, index, **fields):
    """Write a folder with other fields in one entry of its ``modules.json``."""

    def made(folder, tokenizer):
        file = write(folder, tokenizer) / "modules.json"
        listed = json.loads(file.read_text())
        listed[index] |= fields
        file.write_text(json.dumps(listed))
        return folder

    return made


def stored_as(write, dtype):
    """Write a folder whose matrices are stored in another type."""

    def made(folder, tokenizer):
        file = write(folder, tokenizer) / "model.safetensors"
        tensors = load_file(file)
        matrices = {name: tensor.to(dtype) for name, tensor in tensors.items() if tensor.ndim == 2}
        save_file({**tensors, **matrices}, file, metadata={"format": "pt"})
        return folder

    return made


def gguf(folder, tokenizer):
    """A file of another format in the place of the weights."""
    weights = write_transformer(folder, tokenizer) / "model.safetensors"
    weights.rename(folder / "model-q4.gguf")
    return folder


def plain(family="Bert", kind="Model"):
    """Write a model of transformers alone."""
    return functools.partial(write_transformer, family=family, kind=kind)


def sentence(*more, family="Bert", pooling="mean", length=48, **options):
    """Write a SentenceTransformer; ``more`` make a module each, from that library's."""

    def made(folder, tokenizer):
        first = _transformer(folder, tokenizer, family)
        first.max_seq_length = length
        torch.manual_seed(0)
        after = [make(_modules()) for make in more]
        return _save(folder, [first, _modules().Pooling(WIDTH, pooling), *after], **options)

    return made


def write_sentence_bert(folder, tokenizer, *, normalize=True, **options):
    """Save a tiny BERT with mean pooling in ``folder``; return it as sentence-transformers.

    ``options`` are those of `SentenceTransformer`, such as ``prompts``.
    """
    from sentence_transformers import SentenceTransformer

    sentence(*[lambda m: m.Normalize()] * normalize, length=64, **options)(folder, tokenizer)
    return SentenceTransformer(str(folder), device="cpu")


def between(make, *, width=WIDTH, states=False):
    """Write a SentenceTransformer with a module between transformer and pooling."""

    def made(folder, tokenizer):
        changes = {"output_hidden_states": True} if states else {}
        first = _transformer(folder, tokenizer, **changes)
        return _save(folder, [first, make(_modules()), _modules().Pooling(width, "mean")])

    return made

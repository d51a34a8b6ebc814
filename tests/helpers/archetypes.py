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
from helpers.static_models import token_table, word_tokenizer, write_model2vec
from helpers.tiny_models import BERT, LLAMA, QWEN

ROWS = 448
WIDTH = 32
_BART = {
    "d_model": WIDTH,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 80,
}
_T5 = {"d_model": WIDTH, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
_GEMMA = {**QWEN, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 16}
_VIT = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 8,
}
_DISTIL = {"dim": WIDTH, "hidden_dim": 48, "n_layers": 2, "n_heads": 4}
_GPT2 = {
    "n_embd": WIDTH,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 80,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
# The configuration of an architecture of transformers, by the prefix of its classes.
SIZES = {
    "Albert": {**BERT, "embedding_size": 16},
    "Bart": _BART,
    "Bert": BERT,
    "DistilBert": _DISTIL,
    "Electra": {**BERT, "embedding_size": WIDTH},
    "GPT2": _GPT2,
    "Gemma": {**QWEN, "head_dim": 8},
    "Gemma3Text": _GEMMA,
    "Llama": LLAMA,
    "MPNet": BERT,
    "Mistral": {**LLAMA, "sliding_window": None},
    "ModernBert": {**BERT, "global_attn_every_n_layers": 1}
    | dict.fromkeys((f"{each}_token_id" for each in ("bos", "cls", "eos", "pad", "sep")), 1),
    "Qwen2": LLAMA,
    "Qwen3": QWEN,
    "Roberta": {**BERT, "pad_token_id": 1},
    "T5": _T5,
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
    sizes = {"vocab_size": ROWS, **{k: v for k, v in SIZES[family].items() if k != "vocab_size"}}
    torch.manual_seed(0)
    model = getattr(transformers, f"{prefix}{kind}")(config(**{**sizes, **changes}))
    model.save_pretrained(folder)
    copy_tokenizer(tokenizer, folder)
    return folder


def _transformer(folder, tokenizer, family="Bert", kind="Model", *, inner=None, **changes):
    """Return the module Transformer of sentence-transformers around a tiny model."""
    from sentence_transformers.base.modules import Transformer

    inside = Path(folder).with_name(f"{Path(folder).name}-inside")
    write_transformer(inside, tokenizer, family, kind, **changes)
    module = Transformer(str(inside), **(inner or {}))
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


def bag_of_words(folder, tokenizer):
    return _save(folder, [_modules().BoW(sorted({w for text in TEXTS for w in text.split()}))])


def static(folder, tokenizer, *, more=None):
    m = _modules()
    rows = word_tokenizer().get_vocab_size()
    table = m.StaticEmbedding(word_tokenizer(), embedding_weights=token_table(rows))
    after = {None: list, "Normalize": lambda: [m.Normalize()], "Dense": lambda: [m.Dense(12, 4)]}
    torch.manual_seed(0)
    return _save(folder, [table, *after[more]()])


def model2vec_dense(folder, tokenizer):
    """A model2vec folder to which sentence-transformers has added a layer."""
    other = static(folder.with_name("dense"), tokenizer, more="Dense")
    write_model2vec(folder)
    for name in ("modules.json", "config_sentence_transformers.json"):
        shutil.copyfile(other / name, folder / name)
    shutil.copytree(other / "1_Dense", folder / "1_Dense")
    return folder


def transformer_alone(folder, tokenizer):
    return _save(folder, [_transformer(folder, tokenizer)])


def fill_mask(folder, tokenizer):
    inner = {"transformer_task": "fill-mask"}
    return _save(folder, [_transformer(folder, tokenizer, "Bert", "ForMaskedLM", inner=inner)])


def router(folder, tokenizer, *, how="queries"):
    from sentence_transformers.base.modules import Router

    m = _modules()
    rows = word_tokenizer().get_vocab_size()
    table = m.StaticEmbedding(word_tokenizer(), embedding_weights=torch.randn(rows, WIDTH))
    routes = [_transformer(folder, tokenizer), m.Pooling(WIDTH, "mean")]
    if how == "queries":
        return _save(folder, [Router.for_query_document([table], routes)])
    return _save(folder, [Router({"text": routes, "other": [table]}, default_route="text")])


def saved(folder, tokenizer, family, head="ForConditionalGeneration", **fields):
    """A model of transformers of other fields than `SIZES`, with a tokenizer."""
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**fields)
    getattr(transformers, f"{family}{head}")(config).save_pretrained(folder)
    copy_tokenizer(tokenizer, folder)
    return folder


def image_processor(family, folder):
    import transformers

    size = {"height": 16, "width": 16}
    processor = getattr(transformers, f"{family}ImageProcessor")
    processor(size=size, **({"crop_size": size} if family == "CLIP" else {})).save_pretrained(
        folder
    )
    return folder


def clip(folder, tokenizer):
    """A plain CLIP of transformers, with its tokenizer and image processor."""
    text = {**BERT, "vocab_size": ROWS, "eos_token_id": 1, "bos_token_id": 0, "pad_token_id": 1}
    saved(
        *(folder, tokenizer, "CLIP", "Model"),
        text_config=text,
        vision_config=_VIT,
        projection_dim=16,
    )
    return image_processor("CLIP", folder)


def gemma_vision(folder, tokenizer):
    return saved(
        *(folder, tokenizer, "Gemma3"),
        text_config={**_GEMMA, "vocab_size": ROWS},
        vision_config=_VIT,
        mm_tokens_per_image=4,
        **dict.fromkeys(("boi_token_index", "eoi_token_index", "image_token_index"), 1),
    )


def images(folder, tokenizer):
    """A vision transformer as sentence-transformers saves it, with images as its only input."""
    from sentence_transformers.base.modules import Transformer

    inside = write_transformer(folder.with_name("inside"), tokenizer, "ViT")
    first = Transformer(str(image_processor("ViT", inside)))
    return _save(folder, [first, _modules().Pooling(WIDTH, "mean")])


def clip_modules(folder, tokenizer, *, legacy=False):
    """CLIP as sentence-transformers saves it, today or before 5.4."""
    from sentence_transformers.base.modules import Transformer

    kind = _modules().CLIPModel if legacy else Transformer
    return _save(folder, [kind(str(clip(folder.with_name("inside"), tokenizer)))])


def whisper(folder, tokenizer):
    return saved(
        *(folder, tokenizer, "Whisper"),
        **_BART | {"max_position_embeddings": None},
        vocab_size=ROWS,
        num_mel_bins=8,
        max_source_positions=20,
        max_target_positions=20,
        decoder_start_token_id=1,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0),
    )


def t5gemma(folder, tokenizer):
    sizes = {**_GEMMA, "vocab_size": ROWS, "max_position_embeddings": 80}
    stacks = {"encoder": dict(sizes), "decoder": dict(sizes)}
    return saved(folder, tokenizer, "T5Gemma", **stacks, vocab_size=ROWS)


def t5gemma2(folder, tokenizer):
    sizes = {**_GEMMA, "vocab_size": ROWS, "max_position_embeddings": 128}
    seeing = {"text_config": sizes, "vision_config": _VIT, "mm_tokens_per_image": 4}
    return saved(folder, tokenizer, "T5Gemma2", "Model", encoder=seeing, decoder=dict(sizes))


def splade(folder, tokenizer):
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

    inside = folder.with_name(f"{folder.name}-inside")
    write_transformer(inside, tokenizer, "Bert", "ForMaskedLM")
    return _save(folder, [MLMTransformer(str(inside)), SpladePooling()], SparseEncoder)


def csr(folder, tokenizer):
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder

    modules = [
        _transformer(folder, tokenizer),
        _modules().Pooling(WIDTH, "mean"),
        SparseAutoEncoder(WIDTH, hidden_dim=64),
    ]
    return _save(folder, modules, SparseEncoder)


def inference_free(folder, tokenizer, *, routed=True):
    import transformers
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sparse_encoder.modules import (
        MLMTransformer,
        SparseStaticEmbedding,
        SpladePooling,
    )

    inside = folder.with_name(f"{folder.name}-inside")
    write_transformer(inside, tokenizer, "Bert", "ForMaskedLM")
    table = SparseStaticEmbedding(transformers.AutoTokenizer.from_pretrained(inside))
    routes = [MLMTransformer(str(inside)), SpladePooling()]
    modules = [Router.for_query_document([table], routes)] if routed else [table]
    return _save(folder, modules, SparseEncoder)


def _of_library(name, folder, write, **options):
    """A model that a class of sentence-transformers makes of a plain one, and saves."""
    import sentence_transformers

    inside = write(folder.with_name(f"{folder.name}-inside"), **options)
    model = getattr(sentence_transformers, name)(str(inside), device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


def multi_vector(folder, tokenizer):
    return _of_library("MultiVectorEncoder", folder, write_transformer, tokenizer=tokenizer)


def pylate(folder, tokenizer):
    """What PyLate's ``ColBERT.save`` writes, which is not installed here."""
    multi_vector(folder, tokenizer)
    classes = {
        "": "sentence_transformers.models.Transformer",
        "1_Dense": "pylate.models.Dense.Dense",
    }
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": kind}
        for index, (path, kind) in enumerate(classes.items())
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    return edit(
        folder,
        "config_sentence_transformers.json",
        model_type="ColBERT",
        query_length=32,
        document_length=48,
        query_prefix="[Q] ",
        document_prefix="[D] ",
        skiplist_words=["."],
        do_query_expansion=True,
    )


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


def prompt_tuning(folder, tokenizer):
    return edit(adapter(folder, tokenizer), "adapter_config.json", peft_type="PROMPT_TUNING")


def sentence_adapter(folder, tokenizer):
    """A SentenceTransformer whose transformer is a PEFT adapter, as that library saves it."""
    import peft
    from sentence_transformers import SentenceTransformer

    inside = dense(folder.parent / "base", tokenizer)
    model = SentenceTransformer(str(inside), device="cpu")
    model.add_adapter(
        peft.LoraConfig(task_type="FEATURE_EXTRACTION", r=2, target_modules=["query", "value"])
    )
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


def config(write, *, file="config.json", **fields):
    """Write a folder with other fields in its ``config.json``."""
    return lambda folder, tokenizer: edit(write(folder, tokenizer), file, **fields)


def settings(write, **fields):
    """Write a folder with other fields in ``config_sentence_transformers.json``."""
    return config(write, file="config_sentence_transformers.json", **fields)


def listed(write, change):
    """Write a folder with another list in ``modules.json``."""

    def made(folder, tokenizer):
        file = write(folder, tokenizer) / "modules.json"
        file.write_text(json.dumps(change(json.loads(file.read_text()))))
        return folder

    return made


def module(write, index, **fields):
    """Write a folder with other fields in one entry of its ``modules.json``."""
    return listed(
        write, lambda all_: [{**m, **fields} if i == index else m for i, m in enumerate(all_)]
    )


def without(write, *names):
    """Write a folder without some of its files."""

    def made(folder, tokenizer):
        write(folder, tokenizer)
        for name in names:
            (folder / name).unlink()
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


def only(write, name):
    """Write a folder with a file of another format in the place of its weights."""

    def made(folder, tokenizer):
        without(write, "model.safetensors")(folder, tokenizer)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"GGUF" + bytes(32))
        return folder

    return made


def gguf_alone(folder, tokenizer):
    folder.mkdir()
    (folder / "model-q4.gguf").write_bytes(b"GGUF" + bytes(32))
    return folder


def plain(family="Bert", kind="Model"):
    """Write a model of transformers alone."""
    return functools.partial(write_transformer, family=family, kind=kind)


def sentence(*more, **options):
    """Write a SentenceTransformer; ``more`` make a module each, from that library's."""

    def made(folder, tokenizer):
        first = _transformer(folder, tokenizer, options.get("family", "Bert"))
        pooling = options.get("pooling", "mean")
        torch.manual_seed(0)
        after = [make(_modules()) for make in more]
        return _save(folder, [first, _modules().Pooling(WIDTH, pooling), *after])

    return made


def dense(folder, tokenizer):
    return sentence()(folder, tokenizer)


def between(make, *, width=WIDTH, states=False):
    """Write a SentenceTransformer with a module between transformer and pooling."""

    def made(folder, tokenizer):
        changes = {"output_hidden_states": True} if states else {}
        first = _transformer(folder, tokenizer, **changes)
        return _save(folder, [first, make(_modules()), _modules().Pooling(width, "mean")])

    return made

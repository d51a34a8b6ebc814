"""Tiny folders of every archetype, made by the constructors of the libraries that define them.

`FOLDERS` maps a name to a function that writes the folder. What becomes of each is in
``tests/models/test_archetypes.py``.
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
    "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
    "max_position_embeddings": 80,
}  # fmt: skip
_T5 = {"d_model": WIDTH, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
_GEMMA = {**QWEN, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 16}
_VIT = {
    "hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "image_size": 16, "patch_size": 8,
}  # fmt: skip
_DISTIL = {"dim": WIDTH, "hidden_dim": 48, "n_layers": 2, "n_heads": 4}
_GPT2 = {
    "n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 80, "bos_token_id": 1,
    "eos_token_id": 1,
}  # fmt: skip
_T5GEMMA = {"encoder": _GEMMA, "decoder": _GEMMA}
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


def dense(folder, tokenizer, *more, family="Bert", pooling="mean", inner=None, **options):
    """A SentenceTransformer of a transformer, a pooling and ``more`` modules."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    first = _transformer(folder, tokenizer, family, inner=inner)
    return _save(folder, [first, Pooling(WIDTH, pooling), *(each() for each in more)], **options)


def _modules():
    import sentence_transformers.sentence_transformer.modules as modules

    return modules


def _between(folder, tokenizer, *middle, width=WIDTH, output_states=False):
    """A SentenceTransformer with modules between transformer and pooling."""
    changes = {"output_hidden_states": True} if output_states else {}
    first = _transformer(folder, tokenizer, **changes)
    return _save(folder, [first, *(each() for each in middle), _modules().Pooling(width, "mean")])


def _words(folder, tokenizer, *middle, width=12):
    """A SentenceTransformer that begins with WordEmbeddings."""
    from sentence_transformers.sentence_transformer.modules import Pooling, WordEmbeddings
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    words = sorted({word for text in TEXTS for word in text.split()})
    table = token_table(len(words) + 1)
    first = WordEmbeddings(WhitespaceTokenizer([*words, "PADDING"], stop_words=[]), table)
    return _save(folder, [first, *(each(words) for each in middle), Pooling(width, "mean")])


def _bag_of_words(folder, tokenizer):
    words = sorted({word for text in TEXTS for word in text.split()})
    return _save(folder, [_modules().BoW(words)])


def _static(folder, tokenizer, *more):
    table = _modules().StaticEmbedding(
        word_tokenizer(), embedding_weights=token_table(word_tokenizer().get_vocab_size())
    )
    return _save(folder, [table, *(each() for each in more)])


def _router(folder, tokenizer, *, how="query"):
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sentence_transformer.modules import Pooling

    table = _modules().StaticEmbedding(
        word_tokenizer(), embedding_weights=torch.randn(word_tokenizer().get_vocab_size(), WIDTH)
    )
    routes = [_transformer(folder, tokenizer), Pooling(WIDTH, "mean")]
    if how == "query":
        router = Router.for_query_document([table], routes)
    else:
        router = Router({"text": routes, "other": [table]}, default_route="text")
    return _save(folder, [router])


def _clip(folder, tokenizer=None):
    """A plain CLIP of transformers, with its tokenizer and image processor."""
    import transformers

    torch.manual_seed(0)
    text = {**BERT, "vocab_size": ROWS, "eos_token_id": 1, "bos_token_id": 0, "pad_token_id": 1}
    config = transformers.CLIPConfig(text_config=text, vision_config=_VIT, projection_dim=16)
    transformers.CLIPModel(config).save_pretrained(folder)
    copy_tokenizer(tokenizer, folder)
    size = {"height": 16, "width": 16}
    transformers.CLIPImageProcessor(size=size, crop_size=size).save_pretrained(folder)
    return folder


def _whisper(folder, tokenizer):
    import transformers

    config = transformers.WhisperConfig(
        **_BART | {"max_position_embeddings": None}, vocab_size=ROWS, num_mel_bins=8,
        max_source_positions=20, max_target_positions=20, pad_token_id=0, bos_token_id=0,
        eos_token_id=0, decoder_start_token_id=1)  # fmt: skip
    transformers.WhisperForConditionalGeneration(config).save_pretrained(folder)
    copy_tokenizer(tokenizer, folder)
    return folder


def _t5gemma(folder, tokenizer):
    import transformers

    sizes = {**_GEMMA, "vocab_size": ROWS, "max_position_embeddings": 80}
    config = transformers.T5GemmaConfig(encoder=dict(sizes), decoder=dict(sizes), vocab_size=ROWS)
    transformers.T5GemmaForConditionalGeneration(config).save_pretrained(folder)
    copy_tokenizer(tokenizer, folder)
    return folder


def _splade(folder, tokenizer, *, legacy=False):
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

    inside = folder.with_name(f"{folder.name}-inside")
    write_transformer(inside, tokenizer, "Bert", "ForMaskedLM")
    _save(folder, [MLMTransformer(str(inside)), SpladePooling()], SparseEncoder)
    return edit(folder, "config_sentence_transformers.json", model_type=None) if legacy else folder


def _csr(folder, tokenizer):
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder

    modules = [_transformer(folder, tokenizer), _modules().Pooling(WIDTH, "mean"),
               SparseAutoEncoder(WIDTH, hidden_dim=64)]  # fmt: skip
    return _save(folder, modules, SparseEncoder)


def _inference_free(folder, tokenizer, *, routed=True):
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


def _multi_vector(folder, tokenizer, *, how=""):
    from sentence_transformers import MultiVectorEncoder

    inside = write_transformer(folder.with_name(f"{folder.name}-inside"), tokenizer)
    model = MultiVectorEncoder(str(inside), device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    settings = "config_sentence_transformers.json"
    if how == "undeclared":
        return edit(folder, settings, model_type=None)
    if how == "pylate":  # what PyLate's own save writes
        edit(folder, settings, model_type="ColBERT", query_length=32, document_length=48)
        dense_type = "pylate.models.Dense.Dense"
        listed = [{"idx": 0, "name": "0", "path": "", "type":
                   "sentence_transformers.models.Transformer.Transformer"},
                  {"idx": 1, "name": "1", "path": "1_Dense", "type": dense_type}]  # fmt: skip
        (folder / "modules.json").write_text(json.dumps(listed))
    if how == "old pylate":
        _multi_vector_pylate = _multi_vector(folder.with_name(folder.name + "2"), tokenizer,
                                             how="pylate")  # fmt: skip
        shutil.rmtree(folder)
        shutil.move(_multi_vector_pylate, folder)
        edit(folder, settings, model_type=None)
    return folder


def _stanford(folder, tokenizer):
    write_transformer(folder, tokenizer)
    return edit(folder, "config.json", architectures=["HF_ColBERT"])


def _cross_encoder(folder, tokenizer, *, undeclared=False):
    from sentence_transformers import CrossEncoder

    inside = write_transformer(
        folder.with_name(f"{folder.name}-inside"), tokenizer, "Bert",
        "ForSequenceClassification", num_labels=1)  # fmt: skip
    model = CrossEncoder(str(inside), device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    if undeclared:
        (folder / "config_sentence_transformers.json").unlink()
    return folder


def _logit_reranker(folder, tokenizer, *, words=("yes", "no"), undeclared=False):
    from sentence_transformers import CrossEncoder

    inside = write_reranker(folder.with_name(f"{folder.name}-inside"))
    model = CrossEncoder(str(inside), device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    if words != ("yes", "no"):
        numbers = [model.tokenizer.convert_tokens_to_ids(word) for word in words]
        edit(folder, "1_LogitScore/config.json", true_token_id=numbers[0],
             false_token_id=numbers[1])  # fmt: skip
    if undeclared:
        edit(folder, "config_sentence_transformers.json", model_type=None)
    return folder


def _adapter(folder, tokenizer, *, kind="CAUSAL_LM", base=True, whole=False):
    import peft
    import transformers

    inside = write_transformer(folder.parent / "base", tokenizer, "Qwen3", "ForCausalLM")
    auto = {"CAUSAL_LM": "ForCausalLM", "SEQ_CLS": "ForSequenceClassification",
            "TOKEN_CLS": "ForTokenClassification"}.get(kind, "")  # fmt: skip
    loader = getattr(transformers, f"AutoModel{auto}")
    model = loader.from_pretrained(inside, **({"num_labels": 2} if "CLS" in kind else {}))
    lora = peft.LoraConfig(task_type=kind, r=2, target_modules=["q_proj", "v_proj"],
                           init_lora_weights=False)  # fmt: skip
    peft.get_peft_model(model, lora).save_pretrained(folder)
    copy_tokenizer(tokenizer, folder)
    edit(folder, "adapter_config.json", base_model_name_or_path="base")
    if whole:
        for name in ("config.json", "model.safetensors"):
            shutil.copyfile(inside / name, folder / name)
    if not base:
        shutil.rmtree(inside)
    return folder


def _other_peft(folder, tokenizer):
    import peft
    import transformers

    inside = write_transformer(folder.parent / "base", tokenizer, "Qwen3", "ForCausalLM")
    model = transformers.AutoModelForCausalLM.from_pretrained(inside)
    prompts = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    peft.get_peft_model(model, prompts).save_pretrained(folder)
    return folder


def _sentence_adapter(folder, tokenizer):
    """A SentenceTransformer whose transformer is a PEFT adapter, as that library saves it."""
    import peft
    from sentence_transformers import SentenceTransformer

    inside = dense(folder.parent / "base", tokenizer)
    model = SentenceTransformer(str(inside), device="cpu")
    model.add_adapter(peft.LoraConfig(task_type="FEATURE_EXTRACTION", r=2,
                                      target_modules=["query", "value"]))  # fmt: skip
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


def _config(write, **fields):
    """A folder with other fields in its ``config.json``."""
    return lambda folder, tokenizer: edit(write(folder, tokenizer), "config.json", **fields)


def _settings(write, **fields):
    name = "config_sentence_transformers.json"
    return lambda folder, tokenizer: edit(write(folder, tokenizer), name, **fields)


def _module(write, index, **fields):
    """A folder with other fields in one entry of its ``modules.json``."""

    def made(folder, tokenizer):
        file = write(folder, tokenizer) / "modules.json"
        modules = json.loads(file.read_text())
        modules[index].update(fields)
        file.write_text(json.dumps(modules))
        return folder

    return made


def _without(write, *names):
    def made(folder, tokenizer):
        write(folder, tokenizer)
        for name in names:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return folder

    return made


def _stored_as(write, dtype):
    """A folder whose matrices are stored in another type."""

    def made(folder, tokenizer):
        file = write(folder, tokenizer) / "model.safetensors"
        tensors = load_file(file)
        for name, tensor in tensors.items():
            if tensor.ndim == 2:
                scaled = tensor * 50 if dtype == torch.int8 else tensor
                tensors[name] = scaled.to(dtype)
        save_file(tensors, file, metadata={"format": "pt"})
        return folder

    return made


def _only(write, *files):
    """A folder with files of other formats in the place of its weights."""

    def made(folder, tokenizer):
        write(folder, tokenizer)
        (folder / "model.safetensors").unlink()
        for name in files:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(b"GGUF" + bytes(32))
        return folder

    return made


def plain(family="Bert", kind="Model", **changes):
    return functools.partial(_plain, family=family, kind=kind, changes=changes)


def _plain(folder, tokenizer, *, family, kind, changes):
    return write_transformer(folder, tokenizer, family, kind, **changes)


def sentence(*more, **options):
    """A SentenceTransformer; ``more`` are made by functions of the modules of that library."""
    return lambda folder, tokenizer: dense(
        folder, tokenizer, *(functools.partial(each, _modules()) for each in more), **options
    )


def between(*middle, **options):
    return lambda folder, tokenizer: _between(
        folder, tokenizer, *(functools.partial(each, _modules()) for each in middle), **options
    )

"""A model runs as the class that its folder names, or is refused."""

import json
import shutil

import numpy as np
import pytest
import torch
from helpers.rerankers import write_reranker

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.gate.architecture import check_architecture
from qwen3nb.models.load import load_encoder
from qwen3nb.models.rerankers import load_reranker
from qwen3nb.models.types import CheckpointError, SpecError

TEXTS = ["sort the rows by date", "no", "the quick brown fox"]


def folder_of(tmp_path, **config):
    (tmp_path / "config.json").write_text(json.dumps(config))
    return ModelFolder(tmp_path)


@pytest.mark.parametrize(
    ("architectures", "model_type"),
    [
        (["LlamaModel"], "llama"),
        (["LlamaForCausalLM"], "llama"),
        (["LLaMAForCausalLM"], "llama"),  # as the first conversions spelled it
        (["llamamodel"], "llama"),
        (["LlamaForSequenceClassification"], "llama"),
        ("LlamaModel", "llama"),
        ([], "llama"),
        ([""], "llama"),
        (["Qwen3Model"], "llama"),  # both are causal
        (["LlamaModel", "LlamaForCausalLM"], "llama"),
        (["RobertaModel"], "bert"),
        (None, "llama"),
        (["LlamaForCausalLM"], "mistral"),  # both are causal
        (["GPT2LMHeadModel"], "gpt2"),
        (["T5WithLMHeadModel"], "t5"),  # dropped by transformers
        (["T5EncoderModel"], "t5"),
        (["BartForMaskedLM"], "bart"),
        (["BertModel"], "bert"),
        (["TFBertModel"], "bert"),
        (["FlaxRobertaModel"], "roberta"),
        (["BertForCL"], "bert"),  # of an architecture that attends in both directions
        (["XLMWithLMHeadModel"], "xlm"),
        (["CLIPTextModel"], "clip_text_model"),  # in no table of transformers
    ],
)
def test_a_class_whose_direction_is_known_is_accepted(tmp_path, architectures, model_type):
    check_architecture(folder_of(tmp_path, architectures=architectures, model_type=model_type))


@pytest.mark.parametrize(
    ("architectures", "model_type", "more"),
    [
        (["LlamaBiModel"], "llama", {}),
        (["LlamaModel", "LlamaBiModel"], "llama", {}),
        ("LlamaBiModel", "llama", {}),
        (["LlamaBidirectionalModel"], "llama", {}),
        (["LlamaForMaskedLM"], "llama", {}),
        (["MistralEncoderModel"], "mistral", {}),
        (["NVEmbedModel"], "llama", {}),
        (["Model"], "qwen3", {}),
        (["Qwen3EncoderModel"], "qwen3", {}),
        (["BertModel"], "llama", {}),
        (["T5EncoderModel"], "llama", {}),  # attends in both directions
        (["BartModel"], "llama", {}),
        (["LlamaForCausalLM", "T5EncoderModel"], "llama", {}),
        (["LlamaPreTrainedModel"], "llama", {}),  # the base of classes of both directions
        (["LlamaModel"], "bert", {}),
        ([7], "llama", {}),
        ({"a": 1}, "llama", {}),
        (["BertForCausalLM"], "bert", {}),
        (["BertBiModel"], "bert", {"is_decoder": True}),
        (["pipeline"], "llama", {}),
    ],
)
def test_another_one_is_refused_by_its_name(tmp_path, architectures, model_type, more):
    folder = folder_of(tmp_path, architectures=architectures, model_type=model_type, **more)
    with pytest.raises(CheckpointError, match=r"config.json: architectures names .*, a class that"):
        check_architecture(folder)
    check_architecture(
        folder_of(tmp_path, architectures=architectures, model_type=model_type, is_causal=False)
    )


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return write_reranker(tmp_path_factory.mktemp("models") / "llama", family="Llama")


@pytest.fixture
def named(llama, tmp_path):
    """Copy the model with other fields in its configuration."""

    def copy(**fields):
        folder = shutil.copytree(llama, tmp_path / "named", dirs_exist_ok=True)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **fields}))
        return folder

    return copy


def encoded(folder, **options):
    encoder = load_encoder(
        folder, pooling="mean", normalize=False, cache=False, show_progress=False, **options
    )
    return encoder.encode(TEXTS), encoder._tokenise(TEXTS)


def test_a_bidirectional_class_runs_in_its_direction_or_not_at_all(named):
    """Oracle: transformers, with the attention of a model that is not causal."""
    from transformers import AutoConfig, AutoModel

    folder = named(architectures=["LlamaBiModel"])
    with pytest.raises(SpecError, match="'LlamaBiModel'.*run it with bidirectional"):
        encoded(folder)
    config = AutoConfig.from_pretrained(folder)
    config.is_causal = False
    model = AutoModel.from_pretrained(folder, config=config).eval()
    chosen = encoded(folder, bidirectional=True)
    declared = encoded(named(architectures=["LlamaBiModel"], is_causal=False))
    for vectors, rows in (chosen, declared):
        for vector, row in zip(vectors, rows, strict=True):
            with torch.no_grad():
                mean = model(torch.tensor([row])).last_hidden_state[0].mean(0)
            np.testing.assert_allclose(vector, mean, rtol=0, atol=1e-5 * mean.abs().max())


def test_a_model_declared_bidirectional_that_runs_causally_is_refused(tmp_path):
    """A recurrent model reads in one direction whatever its configuration says."""
    import transformers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(write_reranker(tmp_path / "tokenizer"))
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": len(tokenizer)}
    config = transformers.MambaConfig(**sizes)
    transformers.MambaModel(config).save_pretrained(tmp_path / "mamba")
    tokenizer.save_pretrained(tmp_path / "mamba")
    file = tmp_path / "mamba/config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "is_causal": False}))
    with pytest.raises(SpecError, match="runs the model causally although it should be"):
        encoded(tmp_path / "mamba")


def test_neither_a_reranker_nor_a_sentence_transformer_hides_such_a_class(named, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    folder = named(architectures=["LlamaBiForCausalLM"])
    with pytest.raises(SpecError, match="names 'LlamaBiForCausalLM'"):
        load_reranker(folder, device="cpu")
    model = SentenceTransformer(modules=[Transformer(str(folder)), Pooling(32)], device="cpu")
    model.save_pretrained(str(tmp_path / "st"), create_model_card=False)
    file = tmp_path / "st/config.json"
    config = json.loads(file.read_text())
    load_encoder(tmp_path / "st", cache=False)
    file.write_text(json.dumps({**config, "architectures": ["LlamaBiModel"]}))
    with pytest.raises(SpecError, match="names 'LlamaBiModel'"):
        load_encoder(tmp_path / "st", cache=False)

import pytest
import torch
from helpers import TEXTS
from helpers.tolerances import TINY, assert_close, tolerance
from transformers import AutoTokenizer

from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.configuration import Qwen3EncoderConfig
from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel


def test_encode_of_the_class(encoder_folder):
    model = Qwen3EncoderModel.from_pretrained(encoder_folder).train()
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    texts = [*TEXTS, TEXTS[0]]
    vectors = model.encode(texts, tokenizer, batch_size=2)
    assert not model.training
    assert vectors.shape == (5, 32)
    ours = load_encoder(encoder_folder, cache=False).encode(texts)
    assert_close(vectors.numpy(), ours)
    one, other = (model.encode(TEXTS[index], tokenizer) for index in (1, 2))
    assert_close(one, vectors[1:2])
    close = torch.nn.functional.cosine_similarity(one, other)
    assert close.item() == pytest.approx(float(vectors[1] @ vectors[2]), abs=tolerance(**TINY))
    assert model.encode([], tokenizer).shape == (0, 32)
    with pytest.raises(ValueError, match=r"texts \[1\] have no token"):
        model.encode(["a", ""], tokenizer)


def test_the_encoder_class(encoder_folder):
    model = Qwen3EncoderModel.from_pretrained(encoder_folder).eval()
    ids = torch.tensor([[5, 6, 7], [8, 9, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    with torch.inference_mode():
        out = model(ids, mask, output_hidden_states=True)
        tuple_form = model(ids, mask, return_dict=False)
        from_embeds = model(inputs_embeds=model.embed_tokens(ids), attention_mask=mask)
    assert out.last_hidden_state.shape == (2, 3, 32)
    assert out.pooler_output.shape == (2, 32)
    assert len(out.hidden_states) == 3
    torch.testing.assert_close(out.pooler_output.norm(dim=1), torch.ones(2))
    assert torch.equal(tuple_form[1], out.pooler_output)
    torch.testing.assert_close(from_embeds.pooler_output, out.pooler_output)
    model.pooler.pooling_mode = "cls"
    model.config.normalize_embeddings = False
    with torch.inference_mode():
        torch.testing.assert_close(model(ids, mask).pooler_output, out.last_hidden_state[:, 0])
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        assert model(ids, mask, output_attentions=True).attentions[0].shape == (2, 4, 3, 3)


def test_the_encoder_class_refuses_what_it_is_not():
    with pytest.raises(ValueError, match="is_causal: false"):
        Qwen3EncoderModel(Qwen3EncoderConfig(is_causal=True))
    with pytest.raises(ValueError, match="unknown pooling_mode 'max'"):
        Qwen3EncoderModel(Qwen3EncoderConfig(pooling_mode="max"))


def test_gradients_reach_the_embedding_with_checkpointing(encoder_folder):
    model = Qwen3EncoderModel.from_pretrained(encoder_folder).train()
    # Renamed between transformers 5.18 and 5.23; the old name warns since then.
    new = getattr(model, "activation_checkpointing_enable", None)
    (new or model.gradient_checkpointing_enable)()
    model(torch.tensor([[5, 6, 7]])).pooler_output.sum().backward()
    assert model.embed_tokens.weight.grad.abs().sum() > 0

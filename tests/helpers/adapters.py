"""LoRA adapters that PEFT writes on a tiny model, and the changes that it computes of them."""

import json
import warnings
from contextlib import contextmanager

import torch
import transformers

MODULES = ["q_proj", "down_proj", "embed_tokens"]


@contextmanager
def quiet_peft():
    """Leave out what PEFT and transformers say of each other's old names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def tiny_model():
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    return transformers.Qwen3ForCausalLM(config)


def save_adapter(folder, seed, **options):
    """Save an adapter of random factors with PEFT."""
    from peft import LoraConfig, get_peft_model

    settings = {"r": 3, "lora_alpha": 6, "target_modules": MODULES, **options}
    with quiet_peft():
        model = get_peft_model(tiny_model(), LoraConfig(**settings))
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.1
    with quiet_peft():
        model.save_pretrained(folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "tiny"
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def changes_of(model, name):
    """Return the change of each matrix by an adapter of a model."""
    changes = {}
    for module_name, module in model.named_modules():
        if hasattr(module, "get_delta_weight") and (
            name in module.lora_A or name in module.lora_embedding_A
        ):
            changes[module_name] = module.get_delta_weight(name).detach().double().numpy()
    return changes


def of_ours(folder):
    """Return the changes of a merged adapter, as PEFT loads it."""
    from peft import PeftModel

    with quiet_peft():
        model = PeftModel.from_pretrained(tiny_model(), folder)
    return changes_of(model, "default")

"""A small byte-level tokenizer for the demo's models and for benchmarks."""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from tokenizers import decoders as token_decoders
from tokenizers import processors as token_processors

from qwen3nb.utils.atomic_files import write_json, write_text

# The pre-tokenization pattern of Qwen's tokenizers.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


END = "<|endoftext|>"
SPECIAL = (END, "<|im_start|>", "<|im_end|>")
SENTINELS = tuple(f"<extra_id_{number}>" for number in range(100))


def write_tokenizer(texts: Sequence[str], folder: Path, *, vocabulary: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer like Qwen's and write its files to ``folder``."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = token_decoders.ByteLevel()
    tokenizer.post_processor = token_processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([*SPECIAL, *SENTINELS])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    model = json.loads(tokenizer.to_str())["model"]
    write_json(folder / "vocab.json", model["vocab"], indent=None)
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    write_text(folder / "merges.txt", "#version: 0.2\n" + "\n".join(merges) + "\n")
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "Qwen2Tokenizer",
            "bos_token": None,
            "eos_token": END,
            "pad_token": END,
            "unk_token": None,
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>", *SENTINELS],
            "clean_up_tokenization_spaces": False,
            "model_max_length": 512,
        },
        indent=2,
    )
    return tokenizer

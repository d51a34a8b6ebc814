"""The options of a model. Each is declared here, once, with its type, bounds and help.

`qwen3nb.models.model.Model` has them as fields. The command line, the parameters of notebooks and
their checks, the entries of sweeps and the settings in records follow from this declaration.

A program leaves an option out with None. A notebook or a command, whose parameters have one type
each, writes it as its declaration says: ``auto``, 0 or an empty text. Both mean the same value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypedDict, Unpack

from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.types import CACHED, DTYPES, MOST_TOKENS
from qwen3nb.utils.option import Option, OptionFields

_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d+)?")
BATCH_SIZE = 32
# Options that a page of an evaluation states in its records, with the seed of its intervals.
RECORDED = (
    "pooling",
    "max_length",
    "dimensions",
    "prefix",
    "append_eos",
    "bidirectional",
    "batch_size",
    "device",
    "dtype",
    "seed",
    "cache_dtype",
)
# Options without effect on what a model computes.
WITHOUT_EFFECT = ("batch_size", "cache", "show_progress")


def check_device(device: str) -> None:
    """Raise ValueError unless ``device`` has the form of a device's name."""
    if not _DEVICE.fullmatch(device):
        raise ValueError(f"unknown device {device!r}; choose one of auto, cpu, mps, cuda, cuda:N")


def check_length(max_length: int) -> None:
    """Raise ValueError if a maximum length in tokens is above `MOST_TOKENS`."""
    if int(max_length) > MOST_TOKENS:
        raise ValueError(f"max_length is {max_length!s:.60}; expected at most {MOST_TOKENS:,}")


def check_prefix(prefix: str) -> None:
    """Raise ValueError if a prefix has lone surrogates, which no tokenizer takes."""
    try:
        prefix.encode()
    except UnicodeEncodeError:
        raise ValueError(f"expected a prefix that is valid Unicode; got {prefix!r:.60}") from None


def _declared(help: str, **declaration: Unpack[OptionFields]) -> dict[str, Option]:
    return {"option": Option(help, **declaration)}


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How a model is used. Prompts, pooling and maximum length given here come first.

    The registry's come second, and those in the model's folder third.

    Attributes:
        pooling: one of `POOLINGS`. A causal language model has none, so it must be given.
        max_length: tokens after which a text is truncated.
        dimensions: leading dimensions to keep (Matryoshka). Truncated vectors are normalised again
            if the model normalises.
        prompts: text before an input, by role (``query``, ``passage``, or ``symmetric`` for an
            input without a role) or task; or one line for `parse_prompts`. They replace all others;
            ``{}`` means no prompts, None those of the registry, else of the model's folder.
        base: the base model of a LoRA adapter; None for the one that the adapter names.
        prefix: text before every input, such as the mode ``[R]`` of a UL2 training.
        append_eos: whether the end-of-text token follows every input.
        bidirectional: let every token of a causal language model attend to every other.
        normalize: whether vectors get length 1; None for the model's own setting. Without it,
            similarities are dot products.
        instruction: for prompts that take one, where the task has none. An adapter applies it to
            queries, and by default pools the last token, the end of text.
        name: its label in records and tables; empty for the model's own, with a suffix that tells
            other prompts, 8 bits and rounded vectors apart.
        batch_size: texts per batch where texts are padded; affects speed, not vectors.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        dtype: ``float32``, ``bfloat16``, ``float16``, or ``int8`` for linear layers in 8 bits on a
            CPU with VNNI.
        seed: seed of the random baseline's vectors.
        cache: whether vectors are kept on disk.
        cache_dtype: ``float32``, or ``float16`` for half the disk: all vectors are rounded to it,
            cached or not, and the model has another identity.
        show_progress: whether long encodings show a progress bar.
    """

    pooling: str | None = field(
        default=None,
        metadata=_declared(
            "mean, cls, last, weighted_mean; auto: its own",
            plain="auto",
            choices=POOLINGS.keys(),
        ),
    )
    max_length: int | None = field(
        default=None,
        metadata=_declared(
            "most tokens per text; 0: the model's own", plain=0, minimum=0, check=check_length
        ),
    )
    dimensions: int | None = field(
        default=None,
        metadata=_declared("leading dimensions to keep (Matryoshka); 0: all", plain=0, minimum=0),
    )
    prompts: Mapping[str, str] | str | None = field(
        default=None,
        hash=False,
        metadata=_declared(
            "prompts by role, joined by ; none: no prompt; 15 or a TOML file: a set of them",
            plain="",
        ),
    )
    base: str | Path | None = field(
        default=None,
        metadata=_declared("base of a LoRA adapter, if not where it says", plain=""),
    )
    prefix: str = field(
        default="",
        metadata=_declared("text before every input; exports have their own", check=check_prefix),
    )
    append_eos: bool = field(
        default=False,
        metadata=_declared("append end-of-text; exports have their own"),
    )
    bidirectional: bool = field(
        default=False,
        metadata=_declared("let all tokens of a causal model see each other"),
    )
    normalize: bool | None = field(default=None, metadata=_declared("whether vectors get length 1"))
    instruction: str | None = field(
        default=None, metadata=_declared("instruction in prompts that take one")
    )
    name: str = field(
        default="", metadata=_declared("label in records and tables; empty: the model's own")
    )
    batch_size: int = field(
        default=BATCH_SIZE,
        metadata=_declared("texts per batch, for speed alone", minimum=1),
    )
    device: str = field(
        default="auto", metadata=_declared("auto, cpu, cuda or cuda:N", check=check_device)
    )
    dtype: str = field(
        default="float32",
        metadata=_declared("float32; faster: bfloat16, float16, int8", choices=DTYPES),
    )
    seed: int = field(
        default=0,
        metadata=_declared("seed of draws and random vectors", minimum=0),
    )
    cache: bool = field(
        default=True,
        metadata=_declared("keep and reuse vectors on disk"),
    )
    cache_dtype: str = field(
        default="float32",
        metadata=_declared("float32; float16: half the disk, rounded vectors", choices=CACHED),
    )
    show_progress: bool = field(
        default=True, metadata=_declared("whether long encodings show a progress bar")
    )

    def __post_init__(self) -> None:
        """Check each option, and read its plain form as None.

        Raises:
            ValueError: an unknown choice or a number below its bound; names the option.
        """
        for name, declaration in OPTIONS.items():
            value = getattr(self, name)
            if value is None:
                continue
            declaration.validate(name, value)
            if value == declaration.plain:
                object.__setattr__(self, name, None)

    def recorded(self) -> dict[str, Any]:
        """Return the options that a page of an evaluation states in its records."""
        return {name: self.plain(name) for name in RECORDED}

    def plain(self, name: str) -> Any:
        """Return an option as a notebook or a command writes it."""
        value = getattr(self, name)
        if value is None:
            return OPTIONS[name].plain
        return value


OPTIONS: Mapping[str, Option] = {
    entry.name: entry.metadata["option"] for entry in fields(ModelOptions)
}


class OptionArguments(TypedDict, total=False):
    """The options, for functions that pass them on: ``**options: Unpack[OptionArguments]``."""

    pooling: str | None
    max_length: int | None
    dimensions: int | None
    prompts: Mapping[str, str] | str | None
    base: str | Path | None
    prefix: str
    append_eos: bool
    bidirectional: bool
    normalize: bool | None
    instruction: str | None
    name: str
    batch_size: int
    device: str
    dtype: str
    seed: int
    cache: bool
    cache_dtype: str
    show_progress: bool

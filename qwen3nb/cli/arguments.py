"""What groups of common options pass to a command; the groups are in `qwen3nb.cli.options`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict


class EncoderArguments(TypedDict):
    """The arguments of `options.ENCODER`."""

    pooling: str
    max_length: int | None
    dimensions: int | None
    batch_size: int
    device: str
    dtype: str


class LoadedArguments(EncoderArguments):
    """The arguments of `options.LOADED`: all options of a model on the command line."""

    prompts: str
    base: str


class CardArguments(TypedDict):
    """The arguments of `options.CARD`: facts that a model's card states."""

    facts: Path | None
    license: str
    hub_id: str


class RuleArguments(TypedDict):
    """The arguments of `options.RULE`: the rule for recommending a candidate."""

    tested: Sequence[str]
    alpha: float
    margin: float

"""Tokens and passwords in the environment: kept from kernels, pages and uploads."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

__all__ = ["secret_values", "without", "without_secrets"]

_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL", re.IGNORECASE)
_SHORTEST = 8  # characters; a shorter value would be found in ordinary text


def secret_values() -> list[str]:
    """Tokens and passwords in the environment, to be looked for in what is published."""
    return _telling(_secrets())


@contextmanager
def without_secrets() -> Iterator[list[str]]:
    """Take tokens and passwords out of the environment that the kernel inherits.

    Yields their values, to be looked for in the output. Log in with `hf auth login`
    (a file) where a notebook needs the hub.
    """
    secrets = _secrets()
    for name in secrets:
        del os.environ[name]
    try:
        yield _telling(secrets)
    finally:
        os.environ.update(secrets)


def without(secrets: Sequence[str], text: str) -> str:
    """``text`` with each secret taken out, as it is or as JSON writes it."""
    for secret in secrets:
        text = text.replace(secret, "[removed]").replace(json.dumps(secret)[1:-1], "[removed]")
    return text


def _secrets() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if _SECRET.search(name)}


def _telling(secrets: Mapping[str, str]) -> list[str]:
    return [value for value in secrets.values() if len(value) >= _SHORTEST]

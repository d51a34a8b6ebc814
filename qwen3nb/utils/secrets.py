"""Keep tokens and passwords in the environment out of kernels, pages and uploads."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

__all__ = ["secret_values", "without", "without_secrets"]

_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL", re.IGNORECASE)
_SHORTEST = 8  # characters; shorter values occur in ordinary text


def secret_values() -> list[str]:
    """Return the tokens and passwords in the environment, to search publications for them."""
    return _distinctive(_secrets())


@contextmanager
def without_secrets() -> Iterator[list[str]]:
    """Remove tokens and passwords from the environment that the kernel inherits.

    Yields their values, so that the output can be searched for them. If a notebook needs the
    hub, log in with `hf auth login`, which stores the token in a file.
    """
    secrets = _secrets()
    for name in secrets:
        del os.environ[name]
    try:
        yield _distinctive(secrets)
    finally:
        os.environ.update(secrets)


def without(secrets: Sequence[str], text: str) -> str:
    """Replace each secret in ``text``, in plain and in JSON-escaped form."""
    for secret in secrets:
        text = text.replace(secret, "[removed]").replace(json.dumps(secret)[1:-1], "[removed]")
    return text


def _secrets() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if _SECRET.search(name)}


def _distinctive(secrets: Mapping[str, str]) -> list[str]:
    return [value for value in secrets.values() if len(value) >= _SHORTEST]

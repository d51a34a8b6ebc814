"""The HTTP library that the installed huggingface_hub is built on: httpx, or its successor."""

from __future__ import annotations

from typing import Any

from huggingface_hub import utils

httpx: Any = getattr(utils, "httpx", None)
if httpx is None:  # releases before the successor
    import importlib

    httpx = importlib.import_module("httpx")

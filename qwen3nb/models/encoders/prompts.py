"""Prompts: the text prepended to an input, by task, task type or role."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ROLES = ("query", "passage")
SYMMETRIC = "symmetric"
_MTEB_ROLE = {"query": "query", "passage": "document"}
_SLOT = "{instruction}"


def prompt_for(
    prompts: Mapping[str, str], *, role: str | None, task: Any = None, instruction: str = ""
) -> str:
    """Return the prompt of a text, or an empty string.

    Keys are tried in this order, the most specific first: ``<task>-<role>``, ``<task>``,
    ``<type>-<role>``, ``<type>``, ``<role>``; for a text without a role,
    ``<task>``, ``<type>``, ``symmetric``. This is MTEB's order. Without a task, a role is what
    ``encode_query`` and ``encode_document`` of sentence-transformers are, and no role is
    its ``encode``.

    Args:
        prompts: text per key. With an ``instruction``, ``{instruction}`` in it is replaced
            with the task's instruction, else with that one.
        role: ``query``, ``passage`` or None.
        task: MTEB's task metadata, with ``name``, ``type`` and perhaps ``prompt``.
        instruction: the model's default; empty for a model without instructions, whose
            prompts are used as they are.

    >>> prompts = {"query": "query: ", "STS": "similar: "}
    >>> prompt_for(prompts, role="query"), prompt_for(prompts, role="passage")
    ('query: ', '')
    """
    narrow = [task.name, task.type] if task is not None else []
    keys = [key for name in narrow for key in ([f"{name}-{role}", name] if role else [name])]
    prompt = next((prompts[key] for key in [*keys, role or SYMMETRIC] if key in prompts), "")
    if instruction and _SLOT in prompt:
        prompt = prompt.replace(_SLOT, _instruction(task, role) or instruction)
    return prompt


def _instruction(task: Any, role: str | None) -> str:
    """Return MTEB's instruction for the task and role; empty if it has none."""
    prompt = getattr(task, "prompt", None)
    if isinstance(prompt, Mapping):
        prompt = prompt.get(_MTEB_ROLE[role or "query"])
    return prompt if isinstance(prompt, str) else ""

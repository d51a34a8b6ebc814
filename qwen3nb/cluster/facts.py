"""What the results of a machine depend on: versions, code, notebooks, models, linear layers.

python -m qwen3nb.cluster.facts QUESTION ANSWER     this machine's facts, as JSON
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.records.record import Environment
from qwen3nb.utils.atomic_files import read_json, sha256_file, sha256_json, write_json
from qwen3nb.utils.code_version import code_digest
from qwen3nb.utils.files.digest_memory import remember_digests

_DIGITS = 12  # of a digest, where it is shown


@dataclass(frozen=True)
class Question:
    """What a node is asked.

    Attributes:
        models: models as given, whose content counts.
        adapters: folders of adapters, likewise.
        digests: the driver's memory of digests: files on a shared disk are not read again.
    """

    models: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict, repr=False)


def facts_here(question: Question) -> dict[str, str]:
    """Return what this process's results depend on, by name."""
    # They load torch, which a worker of Ray does not need.
    from qwen3nb.models.inference.onednn_linear import linear_library
    from qwen3nb.models.kinds.lora import adapter_fingerprint
    from qwen3nb.models.kinds.resolve import find_source
    from qwen3nb.models.kinds.source import fingerprint

    environment = Environment.current()
    notebooks = [paths.notebooks() / f"{name}.ipynb" for name in paths.notebook_names()]
    facts = {"python": environment.python, **environment.versions}
    facts["code"] = code_digest()[:_DIGITS]
    facts["notebooks"] = f"none in {paths.notebooks()}"
    if notebooks:
        facts["notebooks"] = _digest([sha256_file(file) for file in notebooks])
    facts["linear layers"] = _or_error(linear_library)
    for spec in question.models:
        facts[f"model {spec}"] = _or_error(lambda: fingerprint(find_source(spec)))  # noqa: B023
    for name in question.adapters:
        folder = Path(name).expanduser()
        facts[f"adapter {name}"] = _or_error(lambda: adapter_fingerprint(folder))  # noqa: B023
    return facts


def _digest(value: Any) -> str:
    return sha256_json(value)[:_DIGITS]


def _or_error(function: Callable[[], Any]) -> str:
    """Return a fact, the digest of one, or the first line of why there is none."""
    try:
        fact = function()
        return fact if isinstance(fact, str) else _digest(fact)
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        return f"none ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"


def answer_question(question_file: str, answer_file: str) -> None:
    """Answer a question that is stored as JSON."""
    question = Question(**read_json(Path(question_file)))
    remember_digests(question.digests)
    write_json(Path(answer_file), facts_here(question))


if __name__ == "__main__":
    answer_question(*sys.argv[1:])

"""Queries that a language model writes for documents.

The model is one that the user names. What it wrote is kept in a journal, so that a run that was
stopped goes on where it was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3nb.datasets.generated.queries import Source
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.journal import Journal

if TYPE_CHECKING:
    from qwen3nb.models.generation import Generator

_MOST_CHARACTERS = 6000  # of a document that the model reads
_MOST_TOKENS = 64
_LONGEST = 300  # characters of a query
_PROMPT = """\
Below is a document. Write one short search query that a person might type who needs what this
document says, and has not seen it. Write it in the language of the document. Use other words than
the document where you can. Answer with the query alone, on one line.

Document:
{text}
"""
# What models put around an answer: a label, quotation marks, a list's mark.
_AROUND = re.compile(
    r"^(?:[-*]\s+|(?:search\s+)?query\s*:\s*)|^[\"'“«「]+|[\"'”»」]+$", re.IGNORECASE
)


@dataclass(frozen=True)
class QueryWriter:
    """Asks a language model for the query of a document."""

    generator: Generator
    name: str  # of the model, as the user wrote it
    journal: Journal

    def __call__(self, source: Source) -> str:
        """Return the query of a document; empty if the model wrote none.

        Raises:
            EncoderError: the model cannot be used.
        """
        from qwen3nb.models.generation import PromptRefusedError

        prompt = _PROMPT.format(text=source.text[:_MOST_CHARACTERS])
        key = sha256_json([self.name, prompt])
        answer = self.journal.get(key)
        if answer is None:
            try:
                answer = self.generator.generate(prompt, max_tokens=_MOST_TOKENS)
            except PromptRefusedError:
                answer = ""
            self.journal.add(key, answer)
        return query_of_answer(str(answer))


def query_of_answer(answer: str) -> str:
    """Return the query in an answer: its first line, without what models put around it.

    >>> query_of_answer('Query: "sort a list"'), query_of_answer("")
    ('sort a list', '')
    """
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    if not lines:
        return ""
    text = lines[0]
    for _ in range(2):  # such as a label, then quotation marks
        text = _AROUND.sub("", text).strip()
    if len(text) > _LONGEST or not text.isprintable():
        return ""
    return text


def journal_of(file: Path) -> Path:
    """Return the journal of what a model wrote for a query file."""
    return file.with_name(f"{file.name}.journal")

"""The fenced blocks of the documentation, and the commands in them."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

# Why a block is not run by a test: what it needs that a test has not.
REASONS = (
    "continues a program of yours",
    "installs the program",
    "is output",
    "needs a cluster",
    "needs a network",
    "needs a second machine",
    "needs a server",
    "needs another library",
    "needs records of yours",
    "needs trained adapters",
    "sets up your shell",
    "takes minutes",
    "waits for a person",
)
_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]*?) -->\n+)?"
    r"^ *```(?P<language>[^\s`]*)[^\n`]*\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"\w+=\S*")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int  # on which it starts
    language: str
    text: str
    reason: str  # why it is not run; empty if it is

    def __str__(self):
        return f"{self.page.stem}:{self.line}"

    @property
    def commands(self):
        """The words of each command of a shell block, continued lines joined, without comments."""
        commands = []
        for line in re.sub(r"\\\n\s*", " ", self.text).splitlines():
            code = re.split(r"\s+# |\s+#$", line)[0]
            for command in code.split(" && "):
                if command.strip() and not command.startswith("#"):
                    commands.append(shlex.split(command))
        return commands


def blocks_of(page):
    """The blocks of a page that a reader types or runs; directives of the book are none."""
    text = page.read_text(encoding="utf-8")
    blocks = []
    for match in _BLOCK.finditer(text):
        if match["language"].startswith("{"):
            continue
        line = text.count("\n", 0, match.start("text"))
        reason = match["reason"] or ""
        blocks.append(Block(page, line, match["language"], match["text"], reason))
    return blocks


def environment_of(words):
    """The variables that a command sets for itself, and the command without them."""
    variables = {}
    rest = list(words)
    while rest and _ASSIGNMENT.fullmatch(rest[0]):
        name, _, value = rest.pop(0).partition("=")
        variables[name] = value
    return variables, rest

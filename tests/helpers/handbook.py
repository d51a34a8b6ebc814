"""The examples of CONTRIBUTING, which tests run as they stand there."""

import re

from helpers import REPOSITORY


def example(start, language="python"):
    """The only block of code that starts with a text."""
    handbook = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    pattern = rf"```{language}\n({re.escape(start)}.*?)```"
    (block,) = re.findall(pattern, handbook, re.DOTALL)
    return block

"""Escape text for LaTeX (pdfLaTeX of 2020 or later, which reads UTF-8)."""

import re
import unicodedata

from qwen3nb.utils.format import typeset


def _named(form: str, pairs: str) -> dict[str, str]:
    """Return commands by character, from text such as ``< textless > textgreater``."""
    words = pairs.split()
    chars, names = words[::2], words[1::2]
    return {char: form.format(name) for char, name in zip(chars, names, strict=True)}


# Brackets and stars have a meaning after the end of a row; quotes and < > print as other
# characters in LaTeX's default font encoding.
_COMMANDS = {
    **{char: f"\\{char}" for char in "{}#$%&_"},
    **{char: f"{{{char}}}" for char in "[]*"},
    **_named(r"\{}{{}}", r"\ textbackslash ^ textasciicircum ~ textasciitilde < textless"),
    **_named(r"\{}{{}}", "> textgreater | textbar ` textasciigrave † dag ‡ ddag … ldots"),
    **_named(r"\{}{{}}", "• textbullet"),
    **_named(r"$\{}$", "± pm × times · cdot ≤ leq ≥ geq ≈ approx → rightarrow Δ Delta ‖ | µ mu"),
    **dict(zip('"‘’“”–—', ("''", "`", "'", "``", "''", "--", "---"), strict=True)),
    "−": "$-$",
    "\u00a0": " ",
    "²": "$^{2}$",
    "°": r"$^{\circ}$",
}


def latex_label(kind: str, name: str) -> str:
    r"""Return a label: ``\label{tab:best-models}`` for the kind ``tab`` and the name."""
    slug = re.sub("[^A-Za-z0-9]+", "-", name)
    return rf"\label{{{kind}:{slug}}}"


def latex_text(text: str) -> str:
    """Escape ``text`` for LaTeX; characters missing from its default font become code points.

    >>> latex_text("50 % of $x_1$")
    '50 \\\\% of \\\\$x\\\\_1\\\\$'
    """
    line = typeset(" ".join(text.split()))
    parts = []
    previous_char = ""
    for char in line:
        if previous_char == char == "-":
            parts.append("{}")  # two hyphens would be printed as a dash
        parts.append(_latex_char(char))
        previous_char = char
    return "".join(parts)


def _latex_char(char: str) -> str:
    if char in _COMMANDS:
        return _COMMANDS[char]
    if " " <= char <= "~" or _is_accented_letter(char):
        return char
    return rf"\texttt{{U+{ord(char):04X}}}"


def _is_accented_letter(char: str) -> bool:
    """Whether the default font composes the character, as it does "é" of "e" and an accent."""
    base = unicodedata.normalize("NFD", char)[0]
    return "À" <= char <= "ž" and base != char and base.isascii()

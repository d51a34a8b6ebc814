"""Escape text for LaTeX (pdfLaTeX of 2020 or later, which reads UTF-8)."""

import unicodedata

from qwen3nb.utils.format import typeset


def _named(form: str, pairs: str) -> dict[str, str]:
    words = pairs.split()
    return {char: form.format(name) for char, name in zip(words[::2], words[1::2], strict=True)}


# Brackets and stars have a meaning after the end of a row; quotes and < > print as other
# characters in LaTeX's default font encoding.
_PRINTED = {
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


def latex_text(text: str) -> str:
    """Escape ``text`` for LaTeX; characters missing from its default font become code points.

    >>> latex_text("50 % of $x_1$")
    '50 \\\\% of \\\\$x\\\\_1\\\\$'
    """
    line = typeset(" ".join(text.split()))
    pairs = zip(" " + line, line, strict=False)
    return "".join("{}-" if before == char == "-" else _printed(char) for before, char in pairs)


def _printed(char: str) -> str:
    if char in _PRINTED:
        return _PRINTED[char]
    if " " <= char <= "~":
        return char
    base = unicodedata.normalize("NFD", char)[0]
    # The default font composes accented letters; it lacks other characters.
    if "À" <= char <= "ž" and base != char and base.isascii():
        return char
    return rf"\texttt{{U+{ord(char):04X}}}"

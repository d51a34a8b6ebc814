"""Hostile strings, and a parser that collects tags and links."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = [
    "<script>alert(1)</script>",
    "</table><img src=x onerror=alert(1)>",
    '"><a href="javascript:alert(1)">x</a>',
    "[x](javascript:alert(1))",
    "```{include} /etc/passwd\n```",
    "$\\input{/etc/passwd}$ | cell | {{ config }}",
    "</script><script>window.pwned=1</script>]]> <svg onload=window.pwned=1> {{ 7 * 7 }} $(id)",
    "{eval}`1` {raw}`html` {download}`/etc/passwd`\n:::{raw} html\n<img src=x onerror=pwned=1>",
    "</title></style><details open ontoggle=window.pwned=1><!-- \u202e <base href=//e> ${`x`}",
]


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.links = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src")]
        assert not any(name.startswith("on") for name, _ in attrs)

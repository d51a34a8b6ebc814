"""What a document says: its text without markup, its title, and its sentences."""

import re
from html.parser import HTMLParser

import regex

# The end of an element, or an element that has none; "if a <b and c> d" is no markup.
_MARKUP = re.compile(
    r"</(?:html|body|head|title|p|div|span|a|b|i|em|strong|h[1-6]|ul|ol|li|table|tr|td|pre|code)>"
    r"|<(?:!doctype html|html|body|br|hr|p)\s*/?>",
    re.IGNORECASE,
)
_HEADING = re.compile(r"#{1,3}\s+(.+)")  # of Markdown
_UNREAD = ("script", "style", "template")
_TITLES = ("title", "h1")
_HEADS = ("title", "h1", "h2", "h3", "h4", "h5", "h6")
_BLOCKS = frozenset(
    [*_HEADS, "article", "br", "div", "li", "p", "pre", "section", "table", "td", "tr"]
)
# After a mark and a blank, after a mark of a script without blanks, or at a blank line.
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’»)\]]*\s+|(?<=[。！？।॥؟۔])|\n\s*\n")
# Marks, but those within words and names, such as C++ and a.b; a mark above a letter is none.
_CLAUSE_END = regex.compile(
    r"[[\p{P}\p{S}]--['’`*_./+#-]]+|\.(?=\s|$)|\s[-–—]\s", flags=regex.VERSION1
)


class _PlainText(HTMLParser):
    """Collects the texts of HTML, and of its first title."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.title_parts: list[str] = []
        self._unread = 0  # elements around the text that nobody reads
        self._open_title = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Begin a paragraph, a title, or what nobody reads."""
        if tag in _UNREAD:
            self._unread += 1
        if tag in _TITLES and not self.title_parts:
            self._open_title = tag
        if tag in _BLOCKS:
            self.parts.append("\n\n")

    def handle_endtag(self, tag: str) -> None:
        """End what the tag began."""
        if tag in _UNREAD and self._unread:
            self._unread -= 1
        if tag == self._open_title:
            self._open_title = ""
        if tag in _BLOCKS:
            self.parts.append("\n\n")

    def handle_data(self, data: str) -> None:
        """Keep the text of an element."""
        if self._unread:
            return
        if self._open_title:
            self.title_parts.append(data)
        self.parts.append(data)


def without_markup(text: str) -> str:
    """Return a text without tags of HTML; any other text as it is.

    >>> without_markup("<p>Sort a list &amp; a <b>tuple</b>.</p><script>run()</script>")
    'Sort a list & a tuple.'
    >>> without_markup("if a < b and c > d: pass")
    'if a < b and c > d: pass'
    """
    if _MARKUP.search(text) is None:
        return text
    return "".join(_parsed(text).parts).strip()


def title_of(text: str) -> str:
    """Return the title that a text states: of HTML, or a heading of Markdown in its first line.

    >>> title_of("<html><title>Sorting</title>…"), title_of("# Sorting\\n\\nA list."), title_of("A")
    ('Sorting', 'Sorting', '')
    """
    if _MARKUP.search(text) is not None:
        return " ".join("".join(_parsed(text).title_parts).split())
    first_line = text.lstrip().partition("\n")[0].strip()
    heading = _HEADING.fullmatch(first_line)
    if heading is None:
        return ""
    return heading[1].rstrip("# ").strip()


def _parsed(text: str) -> _PlainText:
    parser = _PlainText()
    parser.feed(text)
    parser.close()
    return parser


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, each on one line.

    >>> sentences("Sort a list. It is stable!\\n\\nSee also")
    ['Sort a list.', 'It is stable!', 'See also']
    >>> sentences("打印机没有墨水。请更换。")
    ['打印机没有墨水。', '请更换。']
    """
    found = []
    for part in _SENTENCE_END.split(text):
        sentence = " ".join(part.split())
        if sentence:
            found.append(sentence)
    return found


def clauses(sentence: str) -> list[str]:
    """Return the parts of a sentence between marks.

    >>> clauses("Sort a list, in place (stable).")
    ['Sort a list', 'in place', 'stable']
    >>> clauses("प्रिंटर की स्याही।")
    ['प्रिंटर की स्याही']
    """
    found = []
    for part in _CLAUSE_END.split(sentence):
        if part.strip():
            found.append(part.strip())
    return found

"""The texts in a value of training data, at any depth, and their other readings.

Texts with markup are also read without it, words broken by a hyphen at the end of a line as whole
ones, lists of words as one text, and JSON within a text by its strings.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from qwen3nb.utils.strict_json import parse_json

NO_TEXT = "values of bytes that are no text"
_LONGEST_WORD = 200  # letters of a word in a list of words
_MARKUP = re.compile(r"<[^<>]*>|&#?\w+;")
# Tags within words; others stand between words.
_TAG_WITHIN_WORD = re.compile(
    r"</?(?:a|abbr|b|code|em|font|i|mark|s|small|span|strong|su[bp]|tt|u|wbr)\b[^<>]*>"
)
_TAG = re.compile(r"<[^<>]*>")
# A word broken at the end of a line, as "ex-\nample", also as in mails, and characters within words
# that nobody sees.
_WORD_BREAK = re.compile(r"(?<=\w)[-=\\\u2010\u2011]\s*\n\s*(?=\w)|[\u00ad\u200b\u2060]\s*")


def strings_of(value: object, notes: Counter[str] | None = None) -> Iterator[str]:
    """Yield the texts in a value at any depth, also of bytes that are UTF-8."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        try:
            yield value.decode("utf-8")
        except UnicodeDecodeError:
            if notes is not None:
                notes[NO_TEXT] += 1
    elif isinstance(value, Mapping):
        for name, inner_value in value.items():
            # A key may be a text itself, such as "how are you".
            if _is_text_not_field(name):
                yield name
            yield from strings_of(inner_value, notes)
    elif isinstance(value, list | tuple):
        for inner_value in value:
            yield from strings_of(inner_value, notes)


def _is_text_not_field(name: object) -> bool:
    """Return whether a key is a text of its own rather than the name of a field."""
    return isinstance(name, str) and (" " in name or not name.isascii())


def other_readings(text: str) -> Iterator[str]:
    """Yield a text without broken words, without its markup, and the strings of JSON in it."""
    whole_words = text
    if _may_have_broken_words(text) and _WORD_BREAK.search(text):
        # "ex-\nample" becomes "example".
        whole_words = _WORD_BREAK.sub("", text)
        yield whole_words
    may_have_markup = "<" in whole_words or "&" in whole_words  # faster than a search
    if may_have_markup and _MARKUP.search(whole_words):
        yield _without_markup(whole_words)
    may_be_json = text.lstrip().startswith(("{", "["))
    if not may_be_json:
        return
    try:
        value = parse_json(text, nan=True)
    except ValueError:
        return  # a text like any other
    yield from strings_of(value)
    yield from lists_of_words(value)


def _without_markup(text: str) -> str:
    """Return a text without tags, and with characters for entities such as ``&amp;``."""
    without_inner_tags = _TAG_WITHIN_WORD.sub("", text)
    without_tags = _TAG.sub(" ", without_inner_tags)
    return _WORD_BREAK.sub("", html.unescape(without_tags))


def _may_have_broken_words(text: str) -> bool:
    """Return whether a text may have what `_WORD_BREAK` finds; much faster than a search."""
    return "\n" in text or not text.isascii()


def lists_of_words(value: object) -> Iterator[str]:
    """Yield one text of each list of words in a value, as data for taggers have them."""
    if isinstance(value, Mapping):
        for inner_value in value.values():
            yield from lists_of_words(inner_value)
    elif isinstance(value, list | tuple):
        is_list_of_words = len(value) > 1 and all(map(is_word, value))
        if is_list_of_words:
            yield " ".join(value)
            return
        for inner_value in value:
            yield from lists_of_words(inner_value)


def is_word(value: object) -> bool:
    """Return whether a value is a text of one word."""
    return isinstance(value, str) and len(value) <= _LONGEST_WORD and " " not in value

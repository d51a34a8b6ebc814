"""The words of conclusions, captions and notes, counted as a reader would."""

import inspect
import re
from html.parser import HTMLParser

LONGEST_SENTENCE = 25  # words of a sentence in a conclusion
LONGEST_NOTE = 40  # words of a caption or a note
MOST_SENTENCES = 4  # of a conclusion

_ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|vs|cf|approx|Fig|Tab|et al)\.")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"”’)\]]*\s+(?=[^a-z])")
_OF_METHODS = ("wilcoxon",)  # on the page of methods, which explains
# Views of data that made answers lack.
_NEED_DATA = ("cases", "combinations", "in_fewer_bits", "pydocs_table", "verification_table")
_CLASSES = ("q-conclusion", "q-caption", "q-note")


def count_words(text):
    return sum(re.search(r"\w", word) is not None for word in text.split())


def sentences(text):
    text = _ABBREVIATIONS.sub(lambda match: match.group().replace(".", "\0"), text)
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence.strip()]


def too_long(page):
    """What is too long on a page or in a part of one, each with its number of words."""
    reader = _Reader()
    reader.feed(page)
    found = []
    for kind, text in reader.texts:
        if kind != "q-conclusion":
            if count_words(text) > LONGEST_NOTE:
                found.append((count_words(text), text))
            continue
        spoken = sentences(text)
        found += [(count_words(s), s) for s in spoken if count_words(s) > LONGEST_SENTENCE]
        if len(spoken) > MOST_SENTENCES:
            found.append((len(spoken), text))
    return found


def long_views(answer):
    """What is too long in the views of an answer, by their names."""
    found = {}
    for name in _names_of_views(type(answer)):
        view = getattr(answer, name)
        if callable(view):
            view = view()
        if view is not None:
            found[name] = too_long(view._repr_html_())
    return {name: texts for name, texts in found.items() if texts}


def _names_of_views(kind):
    """The conclusion, table and figure of an answer, and the others that need no arguments."""
    names = ["conclusion", "table", "figure"]
    for name, member in inspect.getmembers(kind):
        made = getattr(member, "fget", None) or member
        shows = getattr(made, "__annotations__", {}).get("return", "")
        is_view = str(shows).split(" | ")[0] in ("Conclusion", "Figure", "Table", "Tables")
        if is_view and name not in (*names, *_NEED_DATA, *_OF_METHODS) and not name.startswith("_"):
            parameters = list(inspect.signature(made).parameters.values())
            if all(parameter.default is not parameter.empty for parameter in parameters[1:]):
                names.append(name)
    return names


class _Reader(HTMLParser):
    """Collects conclusions, captions and notes; their links and numbers are no part of them."""

    def __init__(self):
        super().__init__()
        self.texts = []  # pairs of a class and a text
        self._kind = ""
        self._tag = ""
        self._left_out = ""

    def handle_starttag(self, tag, attrs):
        name = dict(attrs).get("class") or ""
        if self._kind:
            if tag == "a":
                self._left_out = tag
        elif tag == "figcaption" or name in _CLASSES:
            self._kind, self._tag = name or tag, tag
            self.texts.append((self._kind, ""))

    def handle_endtag(self, tag):
        if tag == self._left_out:
            self._left_out = ""
        elif tag == self._tag:
            self._kind, self._tag = "", ""

    def handle_data(self, data):
        if self._kind and not self._left_out:
            kind, text = self.texts[-1]
            self.texts[-1] = (kind, " ".join(f"{text} {data}".split()))

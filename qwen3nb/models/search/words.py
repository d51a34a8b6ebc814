"""What BM25 reads as words: by the declared language of the texts, else by their script.

::

    English is declared        runs of two letters or more, English stop words and stemmer, as in
                               MTEB's baseline
    another language           words of every script, without stop words and stemmer
    nothing is declared        as for English, unless the texts have letters that this misreads,
                               accents in a tenth of them, or ligatures or mathematical letters, as
                               in text from PDF; then words of every script without accents, with
                               English stop words and stemmer

Words of every script: texts are folded (NFKC, then full case folding), combining marks belong to
their letter, and scripts without blanks are read as bigrams: Chinese, Japanese, Korean, Thai, Lao,
Khmer, Burmese, Tibetan and others of their kind. Points of Arabic and Hebrew are left out, as
most texts are written without them. A single letter or digit next to a script without blanks is a
word, as in 维生素C. Other words of one letter are searched only if a query has no others.

Parts of words: a query of own data may have no word that is in any document, as "read csv" for
``read_csv``, "Versicherung" for "Krankenversicherung", or an Arabic word without its article. It
is searched by threes of letters, and by single letters of scripts without blanks.

Accents are left out in the languages for which Lucene's analyzers do so, and where no language is
declared: many people type "cancion" and "елка". The letters are vowels, the ç, those of Greek, and
the ё. Kept are letters of their own: å, ñ, й, ї, and all of Nordic, Slavic and Turkic languages
that are declared. Vowel signs of Indic scripts and Thai always belong to their letter.

References:
    Unicode Standard, chapter 3.13 (NFKC_Casefold); Lucene's CJKBigramFilter, GreekLowerCaseFilter,
    GermanNormalizationFilter and light stemmers; Snowball's stemmers of Catalan, Dutch and Russian.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, islice, pairwise

from qwen3nb.models.search.mteb_rows import ENGLISH
from qwen3nb.models.types import JsonObject

STEMMER = "english"
_LATIN = re.compile(r"\w{2,}")
_SPACES = {code: " " for code in range(128) if not _LATIN.fullmatch(2 * chr(code))}
# Languages (ISO 639-3) that Lucene's analyzers read without accents.
_WITHOUT_ACCENTS = frozenset(
    ["cat", "deu", "ell", "fra", "glg", "hun", "ita", "nld", "por", "rus", "spa"]
)
# A letter (group 1) and its accents, decomposed; of Greek, all marks.
_ACCENT = re.compile(
    "([aeiouy](?=[\u0300-\u0302\u0308])|[ao](?=\u0303)|[ou](?=\u030b)|c(?=\u0327)"
    "|[α-ω](?=[\u0300-\u0345])|[аеиоуыэюя](?=[\u0300\u0301])|е(?=\u0308))[\u0300-\u0345]+"
)
_ACCENTED_SHARE = 0.1  # of queries or documents, from which their accents are left out
_BLOCK = 1000  # documents that are split at once
_MISREAD_SHARE = 0.01  # of documents, from which texts without a language are read by script
# Blocks of scripts that are written without blanks between words, and Korean's.
_WITHOUT_BLANKS = (
    (0x0E00, 0x0FFF),  # Thai, Lao, Tibetan
    (0x1000, 0x109F),  # Burmese
    (0x1100, 0x11FF),  # Korean
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x1B00, 0x1B7F),  # Balinese
    (0x3005, 0x3007),  # marks of repetition, zero
    (0x3021, 0x303C),  # numerals
    (0x3041, 0x31FF),  # Japanese syllables, Bopomofo, Korean
    (0x3400, 0x9FFF),  # Chinese
    (0xA960, 0xA9FF),  # Korean, Javanese, Burmese
    (0xAA60, 0xAADF),  # Burmese, Tai Viet
    (0xAC00, 0xD7FF),  # Korean
    (0xF900, 0xFAFF),  # Chinese
    (0x1AFF0, 0x1B16F),  # Japanese syllables
    (0x20000, 0x323AF),  # Chinese
)
# Characters within words that are left out: points of Hebrew and Arabic, the Arabic dash for
# stretching, Tibetan's dot between syllables, joiners, and soft hyphens.
_POINTS = (
    (0x0591, 0x05BD),
    (0x05BF, 0x05BF),
    (0x05C1, 0x05C2),
    (0x05C4, 0x05C5),
    (0x05C7, 0x05C7),
    (0x0610, 0x061A),
    (0x064B, 0x0652),
    (0x0656, 0x065F),
    (0x0670, 0x0670),
    (0x06D6, 0x06DC),
    (0x06DF, 0x06E4),
    (0x06E7, 0x06E8),
    (0x06EA, 0x06ED),
    (0x0640, 0x0640),
    (0x0F0B, 0x0F0C),
    (0x00AD, 0x00AD),
    (0x200B, 0x200D),
    (0x2060, 0x2060),
    (0xFE00, 0xFE0F),
    (0xE0100, 0xE01EF),
)
_LEFT_OUT = {code: None for first, last in _POINTS for code in range(first, last + 1)}
_FULL_WIDTH = range(0xFF01, 0xFFDD)
_FOLDED_OTHERWISE = "ßẞςİŉǰΐΰև"  # letters whose case folding is not their lower case
# Letters that are other letters in another form, as `unicodedata.decomposition` calls it: those of
# mathematics, and the forms of Arabic and Hebrew.
_FORMS = ("<font>", "<initial>", "<medial>", "<final>", "<isolated>")
_LIGATURES = range(0xFB00, 0xFB18)  # Latin and Armenian
_DOTTED_I = "i\u0307"  # what is left of İ, which other texts write as i


@dataclass(frozen=True)
class Words:
    """How texts become words; equal words give equal indexes."""

    english: bool = False  # whether English stop words are left out, and words stemmed
    every_script: bool = True  # whether scripts other than Latin are read as above
    letters: bool = False  # whether words of one letter count, too
    accents: bool = True  # whether letters keep them in scripts other than ASCII
    parts: bool = False  # whether a query without a word of any document is searched by parts
    threes: bool = False  # whether words are split into threes of letters

    @property
    def name(self) -> str:
        """What a record states; empty for English words, as in records from before."""
        if self.parts:
            name = replace(self, parts=False).name or "words of English"
            return f"{name}; threes of letters for a query whose words are in no document"
        if self.is_english_alone:
            return ""
        script = "words of every script"
        if not self.accents:
            script += " without accents"
        language = "no stop words, no stemmer"
        if self.english:
            language = "English stop words and stemmer"
        return (
            f"{script}, bigrams where there are no blanks, single letters beside them; {language}"
        )

    @property
    def is_english_alone(self) -> bool:
        """Whether texts are read as MTEB's baseline reads them."""
        return self.english and not self.every_script

    @property
    def of_letters(self) -> "Words":
        """The same words and those of one letter, none of them left out or stemmed."""
        return Words(every_script=True, letters=True, accents=self.accents)

    @property
    def of_parts(self) -> "Words":
        """Parts of the same words, without accents, none of them left out or stemmed."""
        return Words(letters=True, accents=False, threes=True)

    @cached_property
    def left_out(self) -> frozenset[str]:
        """The stop words; "a" is none where it may be a letter beside Chinese."""
        from bm25s.stopwords import STOPWORDS_EN

        if not self.english:
            return frozenset()
        shortest = 2 if self.every_script else 1
        return frozenset(word for word in STOPWORDS_EN if len(word) >= shortest)

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the words of each text, stemmed, without stop words."""
        if self.is_english_alone:
            return _split_as_english(texts)
        stem = self.stem
        words_of_texts = []
        for text in texts:
            words = self.spaced(text).split()
            words_of_texts.append([stem(word) for word in words if word not in self.left_out])
        return words_of_texts

    @property
    def stem(self) -> Callable[[str], str]:
        """A function that returns the stem of a word.

        Without PyStemmer's own cache, which takes longer than it saves.
        """
        if not self.english:
            return str
        import Stemmer

        stem: Callable[[str], str] = Stemmer.Stemmer(STEMMER, 0).stemWord
        return stem

    def spaced(self, text: str) -> str:
        """Return a text with spaces between its words, of which none is stemmed or left out.

        Words of one letter may be left in English texts.

        >>> Words().spaced("ＡＢＣ 打印机")
        'abc 打印 印机'
        >>> Words().of_parts.spaced("readCSV_file")
        'rea ead adc dcs csv fil ile'
        """
        if self.every_script:
            folded = _folded(text, accents=self.accents)
            words = _of_every_script(folded, shortest=1 if self.letters else 2)
            if self.threes:
                words = chain.from_iterable(map(_threes, words))
            return " ".join(words)
        lower = text.lower()
        if lower.isascii():
            return lower.translate(_SPACES)
        return " ".join(_LATIN.findall(lower))


def _split_as_english(texts: Sequence[str]) -> list[list[str]]:
    """Return the words of each text as MTEB's baseline reads them."""
    import bm25s
    import Stemmer

    words_of_texts: list[list[str]] = bm25s.tokenize(
        list(texts),
        stopwords="en",
        stemmer=Stemmer.Stemmer(STEMMER),
        return_ids=False,
        show_progress=False,
    )
    return words_of_texts


ENGLISH_WORDS = Words(english=True, every_script=False)
_WORDS_BY_SCRIPT = replace(ENGLISH_WORDS, every_script=True, accents=False)


def words_of_languages(languages: Collection[str]) -> Words:
    """Return the words of texts in declared languages (ISO 639-3).

    >>> words_of_languages({"eng", "zho"}) == ENGLISH_WORDS, words_of_languages({"swe"}) == Words()
    (True, True)
    >>> words_of_languages({"spa"}).split(["canción"])
    [['cancion']]
    """
    if ENGLISH in languages:
        return ENGLISH_WORDS
    return Words(accents=not _WITHOUT_ACCENTS.issuperset(languages))


def words_of_texts(queries: Iterable[str], documents: Iterable[str]) -> Words:
    """Return the words of texts whose language nobody declares, by their script.

    They are English words unless a query, or a document in a hundred, has letters that English
    words misread, or a query has words of one letter only, or a tenth of the texts have accents,
    or any text has ligatures or letters of mathematics: these are folded, and all else is read
    alike.
    """
    query_texts = list(queries)
    # One such query is enough, as its words would not be found; of documents it takes a share.
    if any(map(_misread_query, query_texts)):
        return _WORDS_BY_SCRIPT
    accented_queries = sum(map(_has_accents, query_texts))
    if _reaches_share(accented_queries, len(query_texts), least=_ACCENTED_SHARE):
        return _WORDS_BY_SCRIPT
    count = 0
    misread = 0
    accented = 0
    for document in documents:
        if _has_forms(document):  # ligatures and the like are folded; all else is read alike
            return _WORDS_BY_SCRIPT
        count += 1
        misread += _misread(document)
        accented += _has_accents(document)
    is_misread = _reaches_share(misread, count, least=_MISREAD_SHARE)
    if is_misread or _reaches_share(accented, count, least=_ACCENTED_SHARE):
        return _WORDS_BY_SCRIPT
    return ENGLISH_WORDS


def with_parts_if_needed(
    words: Words, queries: Collection[str], documents: Collection[str]
) -> Words:
    """Return words, with parts of them if a query needs these.

    It does if none of its words is in a document, but a part of one is.
    """
    unmatched = _without_match(words, queries, documents)
    still_unmatched = _without_match(words.of_parts, unmatched, documents)
    return replace(words, parts=len(still_unmatched) < len(unmatched))


def _without_match(
    words: Words, queries: Collection[str], documents: Collection[str]
) -> Collection[str]:
    """Return the queries with words, of which none is in a document.

    Queries of single letters are left out: they are searched as such. The documents are read until
    every query has a match.
    """
    unmatched = {}
    for query, words_of_query in zip(queries, words.split(list(queries)), strict=True):
        if any(len(word) > 1 for word in words_of_query):
            unmatched[query] = set(words_of_query)
    remaining = iter(documents)
    while unmatched:
        block = list(islice(remaining, _BLOCK))
        if not block:
            break
        found = set(chain.from_iterable(words.split(block)))
        unmatched = {
            query: words_of_query
            for query, words_of_query in unmatched.items()
            if not words_of_query & found
        }
    return unmatched.keys()


def _reaches_share(part: int, total: int, *, least: float) -> bool:
    """Return whether some of ``total`` are a ``part`` of it, and at least such a share."""
    return part > 0 and part >= least * total


def stated_words(settings: JsonObject, names: Iterable[str]) -> str:
    """Return what a record states on words: nothing for English ones, or without BM25.

    Args:
        settings: those of the model.
        names: `Words.name` of each part of the data.
    """
    if not reads_words(settings):
        return ""
    return " / ".join(sorted({*names} - {""}))


def words_read(settings: JsonObject, stated: str) -> str:
    """Return how BM25 read the texts of a record, in words; empty for a model without BM25.

    Args:
        settings: those of the model.
        stated: what the record states; see `stated_words`.
    """
    if not reads_words(settings):
        return ""
    return stated or "words of English; English stop words and stemmer"


def reads_words(settings: JsonObject) -> bool:
    """Return whether a model, or a part of it, is BM25."""
    kind = settings.get("model", {}).get("kind")
    return kind == "bm25" or any(reads_words(part) for part in settings.get("of", ()))


def _misread_query(query: str) -> bool:
    if _misread(query) or _has_forms(query):
        return True
    words = query.lower().translate(_SPACES).split()
    # With nothing but letters and stop words, English words would leave nothing to search.
    has_letter = any(len(word) == 1 for word in words)
    for word in words:
        if len(word) > 1 and word not in ENGLISH_WORDS.left_out:
            return False
    return has_letter


def _misread(text: str) -> bool:
    """Return whether English words split or drop a word of a text."""
    return not text.isascii() and _patterns().misread.search(text) is not None


def _has_accents(text: str) -> bool:
    """Return whether a text has letters with accents that may be left out."""
    if text.isascii():
        return False
    return _ACCENT.search(unicodedata.normalize("NFD", text.casefold())) is not None


def _has_forms(text: str) -> bool:
    """Return whether a text has letters in another form, such as ligatures."""
    return not text.isascii() and _patterns().form.search(text) is not None


@dataclass(frozen=True)
class _Patterns:
    """Regular expressions that need the properties of all characters."""

    run: re.Pattern[str]  # letters of one kind: packed (without blanks), or a word
    letter: re.Pattern[str]  # a letter of a script without blanks, with its marks
    misread: re.Pattern[str]  # a character that English words misread
    form: re.Pattern[str]  # a letter in another form, such as a ligature


@lru_cache(maxsize=1)
def _patterns() -> _Patterns:
    # All that may match: above ASCII in Unicode's first two planes, and variation selectors.
    characters = [*range(0x80, 0x20000), *range(0xE0100, 0xE01F0)]
    marks = [code for code in characters if unicodedata.category(chr(code)).startswith("M")]
    packed = _packed_characters()
    forms = []
    for code in characters:
        if unicodedata.decomposition(chr(code)).startswith(_FORMS):
            forms.append(code)
    # Insides of […]:
    any_packed = _character_class(packed)
    any_mark = _character_class(marks)
    packed_letter = _character_class({*packed} - {*marks})
    mark_of_others = _character_class({*marks} - {*packed})
    misread = _character_class([*packed, *marks, *_LEFT_OUT, *_FULL_WIDTH])
    other_form = _character_class([*forms, *_LIGATURES])
    # A letter, digit or mark of a script with blanks: \w, unless it is packed.
    other_letter = rf"(?:[^\W{any_packed}]|[{mark_of_others}])"
    # ``run`` finds "维生素" and "C" in "维生素C".
    return _Patterns(
        run=re.compile(rf"(?P<packed>[{any_packed}][{any_packed}{any_mark}]*)|{other_letter}+"),
        letter=re.compile(rf"[{packed_letter}][{any_mark}]*|[{any_mark}]+"),
        misread=re.compile(rf"[{misread}{_FOLDED_OTHERWISE}]"),
        form=re.compile(rf"[{other_form}]"),
    )


def _packed_characters() -> list[int]:
    """Return the letters, marks and digits of scripts that are written without blanks."""
    packed = []
    for first_code, last_code in _WITHOUT_BLANKS:
        for code in range(first_code, last_code + 1):
            if unicodedata.category(chr(code)).startswith(("L", "M", "N")):
                packed.append(code)
    return packed


def _character_class(codes: Iterable[int]) -> str:
    """Return the inside of a regular expression's ``[…]`` for characters that are not ASCII.

    >>> _character_class([0x391, 0x392, 0x393, 0x3A9])
    'Α-ΓΩ-Ω'
    """
    ranges = [
        f"{chr(first_code)}-{chr(last_code)}" for first_code, last_code in _runs_of_codes(codes)
    ]
    return "".join(ranges)


def _runs_of_codes(codes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last code of each run without a gap."""
    sorted_codes = sorted({*codes})  # such as 65, 66, 67, 90: the runs 65-67 and 90-90
    first_code = previous_code = sorted_codes[0]
    for code in sorted_codes[1:]:
        if code != previous_code + 1:
            yield first_code, previous_code
            first_code = code
        previous_code = code
    yield first_code, previous_code


def _of_every_script(text: str, *, shortest: int) -> Iterator[str]:
    """Yield the words of a folded text of at least ``shortest`` letters; bigrams without blanks.

    With a ``shortest`` of 1, letters of scripts without blanks are words of their own. Else a
    single letter or digit is a word if the run before or after it is of such a script.
    """
    runs = list(_patterns().run.finditer(text))
    is_packed = [run["packed"] is not None for run in runs]
    for number, run in enumerate(runs):
        word = run[0]
        if is_packed[number]:
            yield from _packed_words(word, shortest=shortest)
        elif len(word) >= shortest:
            yield word
        else:  # a single letter: a word as in 维生素C, if the run before or after it is packed
            beside_packed = any(is_packed[max(number - 1, 0) : number + 2])
            if beside_packed and word.isalnum():
                yield word


def is_without_blanks(text: str) -> bool:
    """Return whether a text begins in a script that is written without blanks between words.

    >>> is_without_blanks("打印"), is_without_blanks("print")
    (True, False)
    """
    run = _patterns().run.match(text)
    return run is not None and run["packed"] is not None


def _packed_words(run: str, *, shortest: int) -> Iterator[str]:
    """Yield the bigrams of a run without blanks, or its letters if ``shortest`` is 1.

    >>> list(_packed_words("打印机", shortest=2))
    ['打印', '印机']
    """
    letters = _patterns().letter.findall(run)
    if shortest == 1:
        yield from letters
        return
    for first_letter, second_letter in pairwise(letters):
        yield first_letter + second_letter


def _threes(word: str) -> Iterator[str]:
    """Yield the threes of letters of each part of a word, or a shorter part itself."""
    for part in word.split("_"):
        for start in range(max(1, len(part) - 2)):
            yield part[start : start + 3]


def _folded(text: str, *, accents: bool = True) -> str:
    """Return a text without differences of width, composition and case, or of accents.

    >>> _folded("Ｓtraße"), _folded("Ελλάδα, ёлка, Перу́, Ørsted, España", accents=False)
    ('strasse', 'ελλαδα, елка, перу, ørsted, españa')
    """
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKC", text).casefold().translate(_LEFT_OUT)
    folded = folded.replace(_DOTTED_I, "i")
    if not accents:
        folded = _ACCENT.sub(r"\1", unicodedata.normalize("NFD", folded))
    return unicodedata.normalize("NFKC", folded)

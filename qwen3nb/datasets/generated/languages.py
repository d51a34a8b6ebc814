"""Which language a text is in, as far as templates of questions need it, and these templates.

::

    Japanese, Korean, Chinese     by script: kana, Hangul, and Chinese letters without kana
    others with a template        by their function words: a twentieth of the words or more, three
                                  different ones, and half as many again as of any other language;
                                  and letters of that language's alphabet alone
    any other language            no template: the question is the key phrase with a question mark

A text of a few words that shows no language is taken to be in that of most texts of the collection,
if it has letters of the same script and alphabet.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache

_LEAST_SHARE = 0.05  # of words that are function words
_LEAST_DIFFERENT = 3  # function words
_FOREIGN_SHARE = 0.02  # of letters that the alphabet of a language lacks
FEW_WORDS = 12  # of a text that may show no language
_LEAD = 1.5  # times the share of the next language
_MOST_CHARACTERS = 4000  # of a text that are looked at
_WORD = re.compile(r"[^\W\d_]+")
_KANA = re.compile(r"[\u3041-\u30ff]")
_HANGUL = re.compile(r"[\uac00-\ud7a3]")
_HAN = re.compile(r"[\u3400-\u9fff]")
_SCRIPT_SHARE = 0.2  # of the letters, from which a script decides
# Lists of function words in bm25s, by language (ISO 639-3).
_STOP_WORDS = {
    "eng": "EN_PLUS",
    "deu": "GERMAN",
    "fra": "FRENCH",
    "spa": "SPANISH",
    "ita": "ITALIAN",
    "por": "PORTUGUESE",
    "nld": "DUTCH",
    "rus": "RUSSIAN",
    "swe": "SWEDISH",
    "tur": "TURKISH",
}
# The same of languages that are known by their script.
_STOP_WORDS_BY_SCRIPT = {"zho": "CHINESE", "kor": "KOREAN"}
# Letters besides those of ASCII; of a language that is not here, all are its own.
_ALPHABETS = {
    "eng": "",
    "deu": "äöüß",
    "fra": "àâæçéèêëîïôœùûüÿ",
    "spa": "áéíóúüñ",
    "ita": "àèéìíîòóùú",
    "por": "áâãàçéêíóôõú",
    "nld": "éëïóöüèêáí",
    "swe": "åäöé",
    "tur": "çğıöşüâîû",
}
# Letters that are mostly endings and particles, in scripts without blanks or with few.
_PARTICLES = {
    "jpn": frozenset(map(chr, range(0x3041, 0x3097))),  # hiragana
    "kor": frozenset("은는이가을를의에와과도로니다면시오습하한할해"),
}
TEMPLATES = {
    "eng": ("what is {}", "how does {} work", "where can I read about {}"),
    "deu": ("was ist {}", "wie funktioniert {}", "wo steht etwas über {}"),
    "fra": ("que signifie {}", "comment fonctionne {}", "où trouver quelque chose sur {}"),
    "spa": ("qué es {}", "cómo funciona {}", "dónde se habla de {}"),
    "ita": ("che cos'è {}", "come funziona {}", "dove si parla di {}"),
    "por": ("o que é {}", "como funciona {}", "onde se fala de {}"),
    "nld": ("wat is {}", "hoe werkt {}", "waar staat iets over {}"),
    "rus": ("что такое {}", "как работает {}", "где написано про {}"),
    "swe": ("vad är {}", "hur fungerar {}", "var står det om {}"),
    "tur": ("{} nedir", "{} nasıl çalışır", "{} hakkında nerede bilgi var"),
    "zho": ("什么是{}", "{}怎么用", "哪里有关于{}的说明"),
    "jpn": ("{}とは何ですか", "{}はどう使いますか", "{}についてはどこに書いてありますか"),
    "kor": ("{} 란 무엇인가요", "{} 사용 방법", "{} 관련 설명은 어디에 있나요"),
}
_QUESTION_MARKS = {"zho": "？", "jpn": "？"}
_ARABIC_QUESTION_MARK = "؟"


@cache
def function_words(language: str) -> frozenset[str]:
    """Return the words of a language that say little; empty for one without a list."""
    from bm25s import stopwords

    name = (_STOP_WORDS | _STOP_WORDS_BY_SCRIPT).get(language)
    if name is None:
        return frozenset()
    return frozenset(getattr(stopwords, f"STOPWORDS_{name}"))


def language_of(text: str) -> str:
    """Return the language of a text (ISO 639-3); empty if it has none with a template.

    >>> language_of("打印机没有墨水"), language_of("Wie sortiert man eine Liste, die lang ist?")
    ('zho', 'deu')
    """
    beginning = text[:_MOST_CHARACTERS]
    by_script = _language_by_script(beginning)
    if by_script:
        return by_script
    words = [word.casefold() for word in _WORD.findall(beginning)]
    if not words:
        return ""
    counts: Counter[str] = Counter()
    for language in _STOP_WORDS:
        known_words = function_words(language)
        counts[language] = sum(word in known_words for word in words)
    (first, first_count), (_, second_count) = counts.most_common(2)
    different = len(function_words(first).intersection(words))
    is_shown = (
        first_count >= _LEAST_SHARE * len(words)
        and first_count >= _LEAD * second_count
        and different >= _LEAST_DIFFERENT
        and has_alphabet_of(beginning, first)
    )
    return first if is_shown else ""


def has_alphabet_of(text: str, language: str) -> bool:
    """Return whether a text has hardly a letter that the alphabet of a language lacks.

    >>> has_alphabet_of("Übergröße", "deu"), has_alphabet_of("Máy in đã hết mực", "ita")
    (True, False)
    """
    alphabet = _ALPHABETS.get(language)
    if alphabet is None:
        return True
    letters = [letter for letter in text.lower() if letter.isalpha()]
    foreign = [letter for letter in letters if not letter.isascii() and letter not in alphabet]
    return len(foreign) <= _FOREIGN_SHARE * len(letters)


def has_particle(word: str, language: str) -> bool:
    """Return whether a bigram has a letter that is mostly an ending, a particle or a word.

    >>> has_particle("の電", "jpn"), has_particle("电源", "zho")
    (True, False)
    """
    particles = _PARTICLES.get(language, frozenset())
    words = function_words(language) if language == "zho" else frozenset()
    return any(letter in particles or letter in words for letter in word)


def _language_by_script(text: str) -> str:
    """Return the language that the script of a text decides; empty for other scripts."""
    letters = sum(character.isalpha() for character in text)
    least = max(1.0, _SCRIPT_SHARE * letters)
    kana = len(_KANA.findall(text))
    han = len(_HAN.findall(text))
    if kana and kana + han >= least:
        return "jpn"
    if len(_HANGUL.findall(text)) >= least:
        return "kor"
    if han >= least:
        return "zho"
    return ""


def script_of(text: str) -> str:
    """Return the script of most letters of a text, such as ``LATIN``; empty without letters."""
    scripts: Counter[str] = Counter()
    for character in text[:_MOST_CHARACTERS]:
        if character.isalpha():
            scripts[unicodedata.name(character, "").partition(" ")[0]] += 1
    if not scripts:
        return ""
    return scripts.most_common(1)[0][0]


def most_frequent(values: Iterable[str]) -> str:
    """Return the most frequent value that is not empty; empty without one."""
    counts = Counter(value for value in values if value)
    if not counts:
        return ""
    return counts.most_common(1)[0][0]


def question(phrase: str, language: str, *, choice: int) -> str:
    """Return a question about a phrase; without a template, the phrase with a question mark.

    Args:
        phrase: what the question is about.
        language: of the phrase (ISO 639-3).
        choice: a number that selects the template.

    >>> question("sort a list", "eng", choice=1), question("sắp xếp", "", choice=0)
    ('how does sort a list work?', 'sắp xếp?')
    """
    mark = _QUESTION_MARKS.get(language, "?")
    if script_of(phrase) == "ARABIC":
        mark = _ARABIC_QUESTION_MARK
    templates = TEMPLATES.get(language)
    if templates is None:
        return f"{phrase}{mark}"
    return templates[choice % len(templates)].format(phrase) + mark

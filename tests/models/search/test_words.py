"""What BM25 reads as words, by hand; and that English is read as by bm25s, token by token."""

import unicodedata

import bm25s
import pytest
import Stemmer

from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.evaluation.retrieval.custom import search_domain
from qwen3nb.metrics.retrieval import ranking
from qwen3nb.models.load import load_model
from qwen3nb.models.search import bm25
from qwen3nb.models.search.words import (
    ENGLISH_WORDS,
    Words,
    stated_words,
    with_parts_if_needed,
    words_of_languages,
    words_of_texts,
)

BY_SCRIPT = Words(english=True, accents=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("打印机又卡纸", "打印 印机 机又 又卡 卡纸"),
        ("iPhone手机 12", "iphone 手机 12"),
        ("ガイド・ｶﾞｲﾄﾞ", "ガイ イド ガイ イド"),
        ("コンピューター", "コン ンピ ピュ ュー ータ ター"),
        ("가격이 집", "가격 격이"),
        ("สวัสดี", "สวั วัส สดี"),
        ("ພາສາລາວ", "ພາ າສ ສາ າລ ລາ າວ"),
        ("ភាសា", "ភាសា"),
        ("မြန်မာ", "မြန် န်မာ"),
        ("བོད་ཡིག", "བོད དཡི ཡིག"),
        ("हिन्दी में", "हिन्दी में"),
        ("தமிழ் மொழி", "தமிழ் மொழி"),
        ("كِتَابٌ كتـــاب", "كتاب كتاب"),
        ("שָׁלוֹם שלום", "שלום שלום"),
        ("می\u200cخواهم", "میخواهم"),
        ("e\u0301cole ÉCOLE", "école école"),
        ("Straße STRASSE", "strasse strasse"),
        ("İstanbul ISTANBUL", "istanbul istanbul"),
        ("ΟΔΟΣ οδος", "οδοσ οδοσ"),
        ("Ｒｕｓｔ　ｇｒｅｐ", "rust grep"),
        ("C R ß 猫", "ss"),
        ("维生素C", "维生 生素 c"),
        ("维生素 Ｄ（α型）", "维生 生素 d α"),
        ("第3章 T恤", "3 t"),
        ("비타민 A 많은 B", "비타 타민 a 많은 b"),
        ("ビタミンB C", "ビタ タミ ミン b"),
        ("猫_", ""),
        ("ﬁsh oﬃce 𝐁𝐨𝐥𝐝 𝒷ℯ", "fish office bold be"),
    ],
)
def test_words_of_every_script_by_hand(text, words):
    assert Words().split([text]) == [words.split()]


def test_english_words_are_those_of_bm25s_in_both_readings():
    texts = ["Running the tests", "naïve CAFÉ tables", "a b1 snake_case x", "", "e-mail o'clock"]
    options = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english"), "show_progress": False}
    theirs = bm25s.tokenize(texts, return_ids=False, **options)
    assert ENGLISH_WORDS.split(texts) == theirs
    assert Words(english=True).split(texts) == theirs


@pytest.mark.parametrize(
    ("queries", "documents", "words"),
    [
        (["sort a list"], ["Ca²⁺ μ-opioid, α-synuclein"], ENGLISH_WORDS),
        (["sort a list"], ["a naïve café"] * 9 + ["sort"] * 91, ENGLISH_WORDS),
        (["sort a list"], ["a naïve café"] * 10 + ["sort"] * 90, BY_SCRIPT),
        (["sort"] * 9 + ["canción"], ["cancion"], BY_SCRIPT),
        (["sort"] * 10 + ["canción"], ["cancion"], ENGLISH_WORDS),
        (["sort"], ["får, Ørsted, España, чай, Київ"], ENGLISH_WORDS),
        (["sort"], ["sort"] * 200 + ["打印"], ENGLISH_WORDS),  # fewer than one in a hundred
        (["sort"], ["sort"] * 50 + ["ＡＢＣ"], BY_SCRIPT),
        (["sort"] * 500 + ["打印"], ["sort"], BY_SCRIPT),
        (["हिन्दी"], ["sort"], BY_SCRIPT),
        (["C"], ["sort"], BY_SCRIPT),
        (["to be"], ["sort"], ENGLISH_WORDS),
        (["to a"], ["sort"], BY_SCRIPT),  # its only word that is no stop word has one letter
        ([""], ["sort"], ENGLISH_WORDS),
        (["sort"], ["sort"] * 500 + ["ﬁsh"], BY_SCRIPT),
        (["oﬃce"], ["sort"] * 500, BY_SCRIPT),
        (["sort"], ["sort"] * 500 + ["𝐛𝐨𝐥𝐝"], BY_SCRIPT),
        (["sort"], ["sort"] * 500 + ["in ℓ2 norm"], BY_SCRIPT),
    ],
)
def test_texts_without_a_language_are_read_by_their_script(queries, documents, words):
    assert words_of_texts(queries, documents) == words


WITHOUT_ACCENTS = [
    ("spa", "canción también pingüino España", "cancion tambien pinguino españa"),
    ("fra", "élève forêt où naïf garçon œuvre", "eleve foret ou naif garcon œuvre"),
    ("por", "coração avô informações", "coracao avo informacoes"),
    ("deu", "Müller Straße Öl Ärzte", "muller strasse ol arzte"),
    ("hun", "tűző fül", "tuzo ful"),
    ("ell", "Ελλάδα ΑΘΉΝΑ μαΐου ταΐζω", "ελλαδα αθηνα μαιου ταιζω"),
    ("rus", "ёлка Ещё чай йод Перу́", "елка еще чай йод перу"),
]


@pytest.mark.parametrize(("language", "text", "words"), WITHOUT_ACCENTS)
def test_accents_are_left_out_where_lucene_does_so(language, text, words):
    """In either form, composed or not; with each query typed without them, both are found."""
    declared = words_of_languages({language})
    for form in ("NFC", "NFD"):
        assert declared.split([unicodedata.normalize(form, text)]) == [words.split()]
    assert declared.name != Words().name
    assert declared.of_letters.accents is False
    assert found([text, "sort a list"], words.split()[0]) == ["d0"]


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("swe", "får för Ärlig", "får för ärlig"),
        ("fin", "näin Öljy", "näin öljy"),
        ("tur", "ağaç çöl", "ağaç çöl"),
        ("pol", "łódź góra", "łódź góra"),
        ("ukr", "Київ", "київ"),
        ("vie", "đường", "đường"),
    ],
)
def test_letters_of_their_own_are_kept(language, text, words):
    assert words_of_languages({language}).split([text]) == [words.split()]
    assert words_of_languages({language, "spa"}) == Words()


@pytest.mark.parametrize(
    "text",
    ["हिन्दी में", "தமிழ் மொழி", "สวัสดี", "བོད་ཡིག", "ガイド", "가격이", "كتاب", "чай їжа ўсё", "få ñu"],
)
def test_marks_of_other_scripts_are_read_alike(text):
    text = text.replace("ё", "е")
    assert Words(accents=False).split([text]) == Words().split([text])


def test_a_declared_language_decides_and_a_record_states_it():
    assert words_of_languages({"zho", "eng"}) == ENGLISH_WORDS
    assert words_of_languages({"jpn"}) == Words()
    plain, fusion = {"model": {"kind": "bm25"}}, {"model": {"kind": "fusion"}}
    assert stated_words(plain, [ENGLISH_WORDS.name]) == ""
    assert "no stemmer" in stated_words(plain, [Words().name])
    assert stated_words(fusion | {"of": [{}, plain]}, [Words().name, ""]) == Words().name
    assert stated_words({"model": {"kind": "qwen3"}}, [Words().name]) == ""


def rows(texts):
    return [{"id": f"d{index}", "text": text} for index, text in enumerate(texts)]


def found(documents, query):
    model = load_model("bm25")
    model.index(rows(documents), words=words_of_texts([query], documents))
    scores = model.search([{"id": "q", "text": query}], top_k=5)["q"]
    ranked = {"q": [row["id"] for row in rows(documents)]}
    assert model.search([{"id": "q", "text": query}], top_k=5, top_ranked=ranked)["q"] == scores
    assert model.score(query, [*scores]) == pytest.approx([*scores.values()])
    return [*scores]


def test_a_query_of_letters_is_searched_by_them():
    documents = ["the C language, a language", "written in R", "C and R", "sort a list"]
    assert set(found(documents, "C")) == {"d0", "d2"}
    assert set(found(documents, "the C++")) == {"d0", "d2"}
    assert found(documents, "C list") == ["d3"]  # it has a word
    assert found(["猫がいる", "犬がいる"], "猫") == ["d0"]
    assert found(["C", "R"], "R") == ["d1"]


@pytest.mark.parametrize("code", [*range(0xFB00, 0xFB07), 0x1D400, 0x1D54F, 0x1D7FF])
def test_ligatures_and_letters_of_mathematics_are_folded(code):
    written = f"x{chr(code)}yz"
    plain = unicodedata.normalize("NFKC", written).lower()
    assert found(["sort a list", *["a table"] * 200, written], plain) == ["d201"]
    assert found(["sort a list", *["a table"] * 200, plain], written) == ["d201"]


def test_declared_english_does_not_fold_ligatures():
    texts = ["the ﬁsh, oﬃce 𝐛𝐨𝐥𝐝", "维生素C"]
    options = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english"), "show_progress": False}
    assert ENGLISH_WORDS.split(texts) == bm25s.tokenize(texts, return_ids=False, **options)


@pytest.mark.parametrize("letter", ["A", "C", "9"])
@pytest.mark.parametrize("words", [BY_SCRIPT, Words()])
def test_a_letter_beside_chinese_tells_documents_apart(letter, words):
    model = load_model("bm25")
    model.index(rows(["维生素D的作用", f"维生素{letter}的作用", "其他"]), words=words)
    scores = model.search([{"id": "q", "text": f"维生素{letter}"}], top_k=3)["q"]
    assert scores["d1"] > scores["d0"] > 0
    # One word of one letter is no word to search by alone: 恤 counts, too.
    model.index(rows(["T恤很好", "毛恤", "T台", "其他"]), words=words)
    scores = model.search([{"id": "q", "text": "T恤"}], top_k=4)["q"]
    assert set(scores) == {"d0", "d1", "d2"}
    assert max(scores, key=scores.get) == "d0"


def test_scores_of_letters_by_hand():
    """One of two documents has it once; lengths 2 and 4: ln(1 + 1.5 / 1.5) / (1 + norm)."""
    model = load_model("bm25")
    model.index(rows(["C compiler", "sort a long list"]), words=BY_SCRIPT)
    norm = 1.5 * (0.25 + 0.75 * 2 / 3)
    expected = pytest.approx({"d0": 0.6931471805599453 / (1 + norm)}, rel=1e-6)
    assert model.search([{"id": "q", "text": "C"}], top_k=2)["q"] == expected


def test_declared_english_keeps_its_scores_and_finds_no_letters():
    model = load_model("bm25")
    model.index(rows(["the C language", "打印机"]), words=ENGLISH_WORDS)
    for query in ("C", "打印"):
        assert model.search([{"id": "q", "text": query}], top_k=2)["q"] == {}


def test_an_index_of_other_words_is_not_reused(home, monkeypatch):
    monkeypatch.setattr(bm25, "LARGE", 1)
    monkeypatch.setenv("QWEN3NB_CACHE", str(home / "cache"))
    documents, query = rows(["打印机又卡纸", "sorts tables"]), [{"id": "q", "text": "打印 table"}]
    hits = {}
    for words in (ENGLISH_WORDS, BY_SCRIPT, Words(), ENGLISH_WORDS):
        model = load_model("bm25")
        model.index(documents, words=words)
        hits[words] = set(model.search(query, top_k=2)["q"])
    assert hits == {ENGLISH_WORDS: {"d1"}, BY_SCRIPT: {"d0", "d1"}, Words(): {"d0"}}
    assert len([*(home / "cache" / "bm25").glob("*/manifest.json")]) == 3


# A query, and the document that it should find first, in which it may be part of a word alone.
EVERY_LANGUAGE = {
    "Chinese": ("重置密码", "如何重置路由器密码"),
    "Chinese, one letter in common": ("天氣", "今天天气很好"),
    "Japanese": ("東京の天気", "東京都の天気予報を確認する方法"),
    "Japanese of half width": ("パスワード", "ﾊﾟｽﾜｰﾄﾞ変更"),
    "Korean": ("비밀번호 변경", "비밀번호를 변경하는 방법"),
    "Thai": ("อากาศ", "พยากรณ์อากาศวันนี้"),
    "Arabic with points": ("كَلِمَة المُرُور", "كيفية تغيير كلمة المرور"),
    "Arabic without the article": ("طابعة", "الطابعة لا تعمل"),
    "Hebrew without the article": ("סיסמה", "כיצד לשנות את הסיסמה"),
    "Hindi": ("मौसम", "आज का मौसम"),
    "Russian": ("елки", "Принтер не печатает ёлки"),
    "Russian, another case": ("смена пароля", "Как изменить пароль учётной записи"),
    "Greek": ("ΕΚΤΥΠΩΤΗΣ", "Ο εκτυπωτής δεν λειτουργεί"),
    "German": ("strasse", "Donaudampfschifffahrt auf der Straße"),
    "German, part of a compound": ("Versicherung", "Krankenversicherung"),
    "Vietnamese": ("đổi mật khẩu", "Cách đổi mật khẩu tài khoản"),
    "Vietnamese without marks": ("thoi tiet", "Dự báo thời tiết hôm nay"),
    "code, snake case": ("read csv", "def read_csv_file(path)"),
    "code, camel case": ("request handler", "class HttpRequestHandler: serve"),
    "code, the other case": ("maxLength", "the max_length option"),
    "full width": ("ABC123", "ＡＢＣ１２３ の型番"),
    "one letter": ("R", "R for statistics"),
}


def test_every_language_finds_something_sensible_alone_and_in_a_mixed_collection():
    texts = [text for _, text in EVERY_LANGUAGE.values()]
    documents = [{"id": f"d{row}", "text": text} for row, text in enumerate(texts)]
    queries = [
        {"id": f"q{row}", "query": text, "expected": [f"d{row}"]}
        for row, (text, _) in enumerate(EVERY_LANGUAGE.values())
    ]
    others = [{"id": "x", "text": "nothing of it"}, {"id": "y", "text": "lorem ipsum"}]
    model = load_model("bm25")
    mixed = search_domain(model, load_domain(queries, documents))
    for row, (query, document) in enumerate(zip(queries, documents, strict=True)):
        alone = search_domain(model, load_domain([query], [document, *others]))
        for run in (alone, mixed):
            assert ranking(run, f"q{row}")[0] == f"d{row}", query


def test_parts_of_words_are_for_queries_without_a_known_word_alone():
    """Whatever other queries need, a query with a known word keeps its ranking and scores."""
    documents = [
        {"id": "compound", "text": "Krankenversicherung"},
        {"id": "word", "text": "a Versicherung contract"},
        {"id": "code", "text": "read_csv and more"},
    ]
    known = {"id": "known", "query": "Versicherung", "expected": ["word"]}
    unknown = {"id": "unknown", "query": "csv", "expected": ["code"]}
    model = load_model("bm25")
    without = load_domain([known], documents)
    both = load_domain([known, unknown], documents)
    assert without.words.name == ""
    assert both.words.name == (
        "words of English; threes of letters for a query whose words are in no document"
    )
    run = search_domain(model, both)
    assert run["known"] == search_domain(model, without)["known"]
    assert list(run["known"]) == ["word"]
    assert list(run["unknown"]) == ["code"]
    stop_words = {"id": "stop", "query": "the", "expected": ["word"]}
    assert load_domain([stop_words], documents).words.name == ""  # it still finds nothing


def test_documents_are_read_no_further_than_queries_need():
    class Documents(list):
        read = 0

        def __iter__(self):
            for text in super().__iter__():
                self.read += 1
                yield text

    documents = Documents(f"word{number}" for number in range(3000))
    assert with_parts_if_needed(ENGLISH_WORDS, ["word5", "the"], documents) == ENGLISH_WORDS
    assert documents.read == 1000
    assert with_parts_if_needed(ENGLISH_WORDS, ["word5", "wor"], documents).parts
    assert with_parts_if_needed(ENGLISH_WORDS, ["zebra"], documents) == ENGLISH_WORDS

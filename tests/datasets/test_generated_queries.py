"""Queries from documents: what they are made of, which are left out, and their mark."""

import json
from dataclasses import replace

import pytest
from helpers.grading import small_grading

import qwen3nb as q
from qwen3nb.datasets.custom.generated import kind_of
from qwen3nb.datasets.custom.grades import GradeFile, GradeLine
from qwen3nb.datasets.custom.queries import read_queries
from qwen3nb.datasets.custom.query_texts import read_entries
from qwen3nb.datasets.generated.languages import TEMPLATES, language_of, question
from qwen3nb.datasets.generated.queries import (
    BY_RULE,
    Kind,
    Refusal,
    SourceDocuments,
    generate_queries,
)
from qwen3nb.datasets.generated.query_file import write_query_file
from qwen3nb.datasets.generated.texts import without_markup
from qwen3nb.datasets.generated.written import QueryWriter, query_of_answer
from qwen3nb.datasets.rows import DataError
from qwen3nb.metrics.near_copies import plain_text
from qwen3nb.utils.journal import Journal

TEXTS = {
    "sort": "Sort the list in place. The sort is stable, so that equal items keep their order in "
    "the list when their keys agree, as a merge of runs would.",
    "join": "Concatenate any number of strings. The separator is inserted between each of the "
    "given strings, and the result is one string of all parts.",
    "open": "Open a file and return a stream. The mode says whether the file is read or written, "
    "and the encoding is that of its text in the file.",
    "copy": "Copy a file or a folder to another place. Its mode and its times stay, and a stream "
    "that is open elsewhere goes on reading the old file.",
}
TITLES = {"sort": "Sort a list", "join": "Join strings", "open": "Open a file", "copy": "Copying"}
CHINESE = {
    "printer": "打印机没有墨水。请更换打印机的墨盒，然后重新启动打印机再试一次。",
    "network": "网络连接失败时，请检查路由器的电源和网线。路由器的指示灯应该是绿色。",
    "scanner": "扫描仪无法识别文档，因为玻璃板上有灰尘。清洁玻璃板以后再扫描文档。",
}


def made(texts=TEXTS, titles=TITLES, **options):
    options.setdefault("show_progress", False)
    return generate_queries(texts, titles=titles, **options)


def report(kind, *, texts=TEXTS, titles=TITLES, **options):
    (one,) = made(texts, titles, kinds=[kind], **options).reports
    return one


def texts_of(one):
    return {query.document: query.text for query in one.queries}


def test_a_title_is_the_query_of_its_document():
    assert texts_of(report("title")) == TITLES


def test_a_question_by_a_template_is_in_the_language_of_the_document():
    for text in texts_of(report("question")).values():
        assert text.split()[0] in ("what", "how", "where")
    for text in texts_of(report("question", texts=CHINESE, titles=None)).values():
        assert text.isascii() is False
        assert not any(word in text for word in ("what", "how", "about"))
        assert text.endswith("？")


def test_a_language_without_a_template_asks_for_the_phrase_itself():
    assert language_of("Sắp xếp danh sách theo thứ tự tăng dần của khóa") not in TEMPLATES
    assert question("sắp xếp", "", choice=7) == "sắp xếp?"


def test_no_language_is_guessed_by_a_few_words_of_another():
    vietnamese = "Máy in đã hết mực. Vui lòng thay hộp mực rồi khởi động lại máy in một lần nữa."
    assert language_of(vietnamese) == ""
    assert language_of("Der Drucker hat keine Tinte mehr, und die Patrone ist leer.") == "deu"
    assert language_of("プリンターのインクがなくなりました。") == "jpn"
    texts = {**TEXTS, "vi": "Máy quét không nhận ra tài liệu vì kính có bụi"}
    assert texts_of(report("question", texts=texts, titles=None)).get("vi", "?").endswith("?")
    for words in ("what is", "how does", "where can"):
        assert words not in texts_of(report("question", texts=texts, titles=None)).get("vi", "")


def test_marks_of_letters_end_no_word():
    hindi = {
        "a": "प्रिंटर की स्याही खत्म हो गई है। नया कार्ट्रिज लगाएँ।",
        "b": "स्कैनर के काँच पर धूल है। उसे कपड़े से साफ करें।",
        "c": "राउटर की बिजली और केबल जाँचें, फिर नेटवर्क से जुड़ें।",
    }
    for document, text in texts_of(report("phrases", texts=hindi, titles=None)).items():
        assert set(text.split()) <= set(hindi[document].replace("।", " ").replace(",", " ").split())


def test_what_looks_like_markup_in_code_is_text():
    assert without_markup("if a <b and c> d: run") == "if a <b and c> d: run"
    assert without_markup("it <i>holds</i> for a < b") == "it holds for a < b"


def test_a_masked_sentence_lacks_its_rarest_words():
    texts = {
        f"d{number}": f"the pump moves water to tank {'ab'[number % 2]}" for number in range(4)
    }
    texts["rare"] = "the zyx pump moves water quickly to tank b"
    texts["more"] = "water and a pump for every tank that moves"
    one = report("masked", texts=texts, titles=None, number=9)
    assert "zyx" not in texts_of(one).get("rare", "")
    for document, text in texts_of(one).items():
        assert set(text.split()) < set(texts[document].split())


def test_same_input_gives_the_same_queries_and_more_documents_keep_their_ids():
    first, again = made(number=3, seed=5), made(number=3, seed=5)
    assert first == again
    assert made(number=2, seed=6).queries != made(number=2, seed=5).queries
    with_more = made({**TEXTS, "walk": "Walk through a tree of folders, from the top down."})
    titles = {query.id for query in made().queries if query.kind is Kind.TITLE}
    assert titles <= {query.id for query in with_more.queries}


def test_the_number_is_per_kind_and_every_query_has_its_document():
    generation = made(number=2)
    assert [len(one.queries) for one in generation.reports] == [2] * len(BY_RULE)
    assert {query.document for query in generation.queries} <= TEXTS.keys()


@pytest.mark.parametrize("kind", BY_RULE)
def test_copies_of_documents_have_no_queries(kind):
    texts = {**TEXTS, "sort2": TEXTS["sort"].upper()}
    one = report(kind, texts=texts, titles={**TITLES, "sort2": "Another"})
    assert not {"sort", "sort2"} & texts_of(one).keys()
    assert one.refusals[Refusal.COPY] == 2


def test_a_title_of_two_documents_is_ambiguous():
    one = report("title", titles={**TITLES, "copy": "open A  file"})
    assert texts_of(one).keys() == {"sort", "join"}
    assert one.refusals[Refusal.AMBIGUOUS] == 2


def test_a_query_that_fits_another_document_as_well_is_left_out():
    texts = {**TEXTS, "all": f"{TEXTS['open']} {TEXTS['join']} Copy a copy of many copies."}
    one = report("title", texts=texts, titles={**TITLES, "all": "Everything"})
    assert "join" not in texts_of(one)  # "all" has each of its words as often


def test_a_query_that_is_the_whole_document_is_left_out():
    one = report("title", texts={**TEXTS, "note": "Mind the gap"}, titles={"note": "mind the  GAP"})
    assert texts_of(one) == {}
    assert one.refusals[Refusal.WHOLE] == 1


def test_near_copies_of_queries_are_left_out():
    titles = {"sort": "stable merge sort order", "join": "stable merge sort order ", "open": "x y"}
    titles |= {"join": "Stable merge sort  ordered", "copy": "Copying"}
    one = report("title", titles=titles)
    assert one.refusals[Refusal.REPEATED] == 1


def test_documents_without_text_or_title_are_counted():
    texts = {**TEXTS, "empty": " \n"}
    assert report("phrases", texts=texts).refusals[Refusal.EMPTY] == 1
    assert report("title", titles=None).refusals[Refusal.NO_TITLE] == len(TEXTS)
    with pytest.raises(DataError, match="expected documents with a text; got 1 without"):
        made({"empty": ""})


def test_markup_is_not_read_and_its_title_is():
    page = (
        "<html><head><title>Pumps</title><style>p {color: red}</style></head><body><p>A pump "
        "moves the water of the tank.</p><script>alert(1)</script><p>The valve of the pump "
        "closes the tank, and the water stays.</p></body></html>"
    )
    generation = made({**TEXTS, "page": page}, None, number=20)
    of_page = {query.kind: query.text for query in generation.queries if query.document == "page"}
    assert of_page[Kind.TITLE] == "Pumps"
    assert not any(word in " ".join(of_page.values()) for word in ("<", "alert", "color"))


def test_three_documents_of_a_script_without_blanks_have_queries():
    generation = made(CHINESE, None, number=3)
    by_kind = {one.kind: texts_of(one) for one in generation.reports}
    assert by_kind[Kind.PHRASES]
    assert by_kind[Kind.MASKED]
    for document, text in by_kind[Kind.PHRASES].items():
        for phrase in text.split():
            assert phrase in CHINESE[document]


def test_what_a_model_writes_is_checked_alike():
    answers = {"sort": "how to order items", "join": "", "open": TEXTS["open"], "copy": "old file"}
    one = report("written", writer=lambda source: answers[source.name], model="api:http://x#m")
    assert texts_of(one)["sort"] == "how to order items"
    assert one.refusals[Refusal.NOT_WRITTEN] == 1
    assert one.refusals[Refusal.WHOLE] == 1
    with pytest.raises(ValueError, match="need a language model"):
        made(kinds=["written"])


@pytest.fixture(params=["toml", "json"])
def query_file(request, tmp_path):
    nasty = {'a"b\\c': TEXTS["sort"], "d\x7f\té": TEXTS["join"]}
    generation = made({**TEXTS, **{f"{name}2": f"{text} {name}" for name, text in nasty.items()}})
    return write_query_file(tmp_path / f"made.{request.param}", generation, source="docs.jsonl")


def test_a_file_says_of_each_query_that_it_is_generated(query_file):
    queries = read_queries(query_file)
    assert queries.queries
    for query in queries.queries:
        assert query.generated_kind == query.category == query.generated
        assert query.complete
        assert list(query.grades.values()) == [3]
    (origin,) = queries.origins
    assert (origin.seed, origin.source, len(origin.documents)) == (0, "docs.jsonl", 64)


def test_the_mark_stays_when_a_file_is_copied_edited_or_merged(tmp_path):
    file = write_query_file(tmp_path / "made.toml", made())
    text = file.read_text()
    total = len(read_queries(file).queries)
    # Without the marks, the ids remain; without the ids, the marks.
    lines = [line for line in text.splitlines() if not line.startswith("generated =")]
    file.write_text("\n".join(lines))
    assert all(query.generated_kind == query.category for query in read_queries(file).queries)
    renamed = text
    for number, query in enumerate(read_queries(file).queries):
        renamed = renamed.replace(query.id, f"q{number}")
    file.write_text(renamed)
    assert all(query.generated_kind == query.category for query in read_queries(file).queries)
    # Two files in one, and a query of a person.
    file.write_text(
        f'{text}\n[[generated]]\nseed = 1\n[[queries]]\nid = "q1"\nquery = "sorting"\n'
        'expected = ["sort"]\n'
    )
    kinds = [query.generated_kind for query in read_queries(file).queries]
    assert (len(kinds), kinds.count("")) == (total + 1, 1)


def test_the_mark_stays_in_a_table_of_judgements_and_in_grades(tmp_path):
    table = tmp_path / "judgements.csv"
    table.write_text("query_id,query,docid,rating\ngenerated-title-1a,sort,d1,3\nq1,join,d2,3\n")
    assert [query.generated_kind for query in read_queries(table).queries] == ["title", ""]
    table.write_text("query,docid,rating,generated\nsort,d1,3,masked\njoin,d2,3,\n")
    assert [query.generated_kind for query in read_queries(table).queries] == ["masked", ""]
    grades = GradeFile(tmp_path / "grades.jsonl")
    grades.add(GradeLine("sort", "d1", 3, "ann", "2026-01-01T00:00:00", generated="title"))
    grades.add(GradeLine("join", "d2", 3, "ann", "2026-01-01T00:00:00"))
    assert "generated" not in json.loads(grades.file.read_text().splitlines()[-1])
    assert [query.generated_kind for query in read_queries(grades.file).queries] == ["title", ""]
    assert read_entries(grades.file).generated == {"sort": "title"}


@pytest.mark.parametrize(
    ("query", "stated", "kind"),
    [("generated-title-1", "", "title"), ("generated-", "", "unknown"), ("q", "masked", "masked"),
     ("q", "", ""), ("generated-x", "", "unknown"), ("regenerated-title-1", "", "")],
)  # fmt: skip
def test_what_marks_a_query(query, stated, kind):
    assert kind_of(query, stated) == kind


def test_a_mark_that_is_no_name_is_refused():
    row = {"id": "q1", "query": "x", "expected": ["d"]}
    assert read_queries([{**row, "generated": True}]).queries[0].generated_kind == "unknown"
    assert read_queries([{**row, "generated": False}]).queries[0].generated_kind == ""
    with pytest.raises(DataError, match=r"generated: expected a name .* or true; got 'a b'"):
        read_queries([{**row, "generated": "a b"}])


def test_a_file_that_somebody_wrote_is_not_replaced(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[[queries]]\nid = "q1"\nquery = "sorting"\nexpected = ["sort"]\n')
    with pytest.raises(DataError, match=r"not generated, such as 'q1'; name another file: --out"):
        write_query_file(file, made())
    file.write_text("a letter")
    with pytest.raises(DataError, match="is no query file; name another one: --out"):
        write_query_file(file, made())
    with pytest.raises(DataError, match=r"expected a name that ends in \.toml or \.json"):
        write_query_file(tmp_path / "queries.txt", made())
    with pytest.raises(DataError, match="no query could be generated"):
        write_query_file(tmp_path / "new.toml", made(kinds=["title"], titles=None))


def domain(*rows, texts=TEXTS):
    documents = [{"id": name, "text": text} for name, text in texts.items()]
    return q.datasets.load_domain(list(rows), documents, name="notes")


GENERATED_QUERY = {
    "id": "generated-title-1",
    "query": "sort list",
    "expected": ["sort"],
    "complete": True,
}
PLAIN_QUERY = {"id": "q1", "query": "open a file", "expected": ["open"]}


def test_a_collection_says_in_its_name_and_revision_that_queries_are_generated():
    plain, all_made, mixed = (
        domain(PLAIN_QUERY),
        domain(GENERATED_QUERY),
        domain(PLAIN_QUERY, GENERATED_QUERY),
    )
    assert plain.name.startswith("domain-notes-")
    assert "generated" not in plain.name + plain.revision
    assert all_made.name.startswith("domain-notes-generated-")
    assert mixed.name.startswith("domain-notes-part-generated-")
    assert all_made.revision.startswith("generated-")
    assert mixed.generated == {"generated-title-1": "title"}
    assert "1 of 2 queries are generated: 1 title" in mixed.notes
    # Another mark is other data, which has no record yet.
    assert domain({**PLAIN_QUERY, "generated": "masked"}).revision != plain.revision


def test_a_query_that_is_complete_leaves_nothing_unjudged_in_a_mixed_file():
    mixed = domain(PLAIN_QUERY, GENERATED_QUERY)
    assert not mixed.complete
    assert domain(GENERATED_QUERY).complete
    (record,) = q.evaluate("bm25", mixed, output=None).results
    grades = {name: set(entry["first"]) for name, entry in record.data.judgements.items()}
    assert -1 not in grades["generated-title-1"]
    shares = dict(record.per_query["Judged@10"])
    assert shares["generated-title-1"] == 1.0 > shares["q1"]
    assert record.data.generated == {"queries": 1, "kinds": {"title": 1}, "origins": []}


def test_queries_are_no_copies_of_each_other():
    texts = [plain_text(query.text) for query in made(number=9).queries if query.kind != "title"]
    assert len(texts) == len(set(texts))


class Model:
    """A language model that fails at its second prompt, as when it is stopped."""

    def __init__(self, answers):
        self.answers = iter(answers)
        self.prompts = []

    def generate(self, prompt, *, max_tokens):
        self.prompts.append(prompt)
        answer = next(self.answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def test_what_a_model_wrote_is_kept_when_a_run_is_stopped(tmp_path):
    file = tmp_path / "made.toml.journal"
    sources = SourceDocuments(TEXTS, None).sources
    model = Model(['Query: "order of items"\nmore', KeyboardInterrupt()])
    writer = QueryWriter(model, "m", Journal(file))
    assert writer(sources[0]) == "order of items"
    with pytest.raises(KeyboardInterrupt):
        writer(sources[1])
    again = Model(["join parts"])
    writer = QueryWriter(again, "m", Journal(file))
    assert (writer(sources[0]), writer(sources[1])) == ("order of items", "join parts")
    assert len(again.prompts) == 1
    assert TEXTS["join"] in again.prompts[0]


@pytest.mark.parametrize(
    ("answer", "query"),
    [("- sort a list", "sort a list"), ("“sort”", "sort"), (" \n", ""), ("x" * 400, "")],
)
def test_the_query_of_an_answer(answer, query):
    assert query_of_answer(answer) == query


def test_grades_and_their_verdict_say_that_queries_are_generated(tmp_path):
    grading = small_grading(tmp_path / "grades.jsonl")
    queries = sorted(set(grading.task.pool.queries))
    marked = dict.fromkeys(queries[:1], "title")
    grading.task = replace(grading.task, generated=marked)
    assert f"1 of {len(queries)} queries are generated, not asked" in grading.verdict().text
    grading.task = replace(grading.task, generated=dict.fromkeys(queries, "title"))
    assert "The queries are generated, not asked by people." in grading.verdict().text
    question = grading.question()
    grading.grade(question.query, question.document, 2)
    (line,) = grading.file.read()
    assert line.generated == "title"

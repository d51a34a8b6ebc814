"""Long documents: where they are split, and that the best chunk counts exactly."""

import json
import random

import numpy as np
import pytest
from helpers import TEXTS
from helpers.archetypes import edit, multi_vector, sentence, splade

import qwen3nb as q
from qwen3nb.answers.long_documents import long_documents, long_documents_table
from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.evaluation.judging import judging_task
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.evaluation.retrieval.custom import evaluate_domain, search_domain
from qwen3nb.evaluation.run import TEXTS_CUT
from qwen3nb.models.encoders.wrapped import WrappedEncoder
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_model, with_chunks
from qwen3nb.models.model import Model
from qwen3nb.models.search.chunked import ChunkedSearch
from qwen3nb.models.search.chunks import check_chunks, split_texts
from qwen3nb.models.search.exact import search

TINY = "dense0-tiny"  # label of the model below
SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "Rain falls in the north!",
    "A list is sorted in place, and None is returned",
    "Wer baut das Haus? Er.\n",
    "largest element of an array:",
]


def characters(texts):
    return [len(text) for text in texts]


def long_text(seed, count):
    """Sentences, with Chinese and a word without blanks in between; no two parts are equal."""
    draw = random.Random(seed)
    chinese = iter(range(0x4E00, 0x9000))
    pieces = []
    for number in range(count):
        kind = draw.randrange(7)
        characters_of_kind = [chr(next(chinese)) for _ in range(40)]
        if kind == 5:
            pieces.append("。".join(["".join(characters_of_kind[:15]), *characters_of_kind[15:]]))
        elif kind == 6:
            pieces.append("".join(characters_of_kind))
        else:
            pieces.append(f"{number} {SENTENCES[kind]}")
    return " ".join(pieces)


def test_a_window_ends_with_a_sentence_and_the_next_begins_before_it():
    text = "one two three. four five six seven. eight nine ten eleven."
    chunks = split_texts(["short", text], characters, 40)
    first, second = chunks.texts[1:]
    assert first == "one two three. four five six seven."
    assert second == "eight nine ten eleven."  # an eighth of 40 has room for no whole word
    assert chunks.owners.tolist() == [0, 1, 1]
    assert chunks.split == (1, 2)
    wider = split_texts([text], characters, 56).texts
    assert wider == ["one two three. four five six seven.", "seven. eight nine ten eleven."]


@pytest.mark.parametrize("size", [20, 61, 200])
def test_every_character_is_in_a_window_that_fits(size):
    texts = [long_text(seed, count) for seed, count in enumerate([0, 1, 30, 60])]
    chunks = split_texts(texts, characters, size)
    for number, text in enumerate(texts):
        assert len(set(text)) > 150 or number < 2
        parts = [chunks.texts[row] for row in np.flatnonzero(chunks.owners == number)]
        if len(text) <= size:
            assert parts == [text]
            continue
        covered = 0  # characters of the text so far
        for part in parts:
            assert 0 < len(part) <= size
            begin = text.index(part, max(0, covered - size // 8 - 1))
            assert not text[covered:begin].strip()  # only blanks are left out
            covered = begin + len(part)
        assert not text[covered:].strip()


def test_a_length_that_is_not_that_of_the_pieces_still_fits():
    """As tokens: a sentence has more than its words together."""

    def tokens(texts):
        return [2 + 3 * len(text.split()) // 2 for text in texts]

    chunks = split_texts([" ".join(SENTENCES * 9)], tokens, 14)
    assert max(tokens(chunks.texts)) <= 14
    assert chunks.split[1] > 9


def test_a_prompt_as_long_as_a_text_changes_nothing():
    assert split_texts(["a b c d"], lambda texts: [9 + len(text) for text in texts], 9).texts == [
        "a b c d"
    ]


@pytest.mark.parametrize("wrong", ["first", "", "19", "-3", "1e3", "9999999"])
def test_other_settings_are_refused(wrong, cli):
    with pytest.raises(ValueError, match="chunks"):
        check_chunks(wrong)
    with pytest.raises(ValueError, match="chunks"):
        Model("bm25", chunks=wrong)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("block", [1, 7, 1000])
def test_the_best_chunk_of_a_document_counts_exactly(device, block):
    """Against all scores at once; few different values, so that many tie."""
    draw = np.random.default_rng(block)
    vectors = draw.integers(-2, 3, size=(120, 4)).astype(np.float32)
    queries = draw.integers(-2, 3, size=(9, 4)).astype(np.float32)
    owners = np.sort(draw.integers(0, 30, size=120))
    _, owners = np.unique(owners, return_inverse=True)
    scores = queries @ vectors.T
    best = np.array([scores[:, owners == each].max(axis=1) for each in np.unique(owners)]).T
    for k in (1, 5, 29, 100):
        hits = search(queries, vectors, k=k, block=block, device=device, owners=owners)
        ids = np.argsort(-best, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(hits.ids, ids)
        np.testing.assert_array_equal(hits.scores, np.take_along_axis(best, ids, 1))
        tied = search(
            queries, vectors, k=k, block=block, device=device, owners=owners, keep_ties=True
        )
        last = hits.scores[:, -1]
        np.testing.assert_array_equal((tied.ids >= 0).sum(1), (best >= last[:, None]).sum(1))


@pytest.fixture(scope="module")
def dense_folder(tmp_path_factory, tokenizer_folder):
    """A tiny sentence-transformers model that reads 16 tokens."""
    folder = tmp_path_factory.mktemp("dense") / "tiny"
    sentence(family="Qwen3", pooling="mean")(folder, tokenizer_folder)
    edit(folder, "sentence_bert_config.json", max_seq_length=16)
    return folder


DOCUMENTS = [*TEXTS[:12], *(long_text(seed, 6) for seed in range(12)), ""]
QUERIES = ["largest element", "newest rows first", "the lazy dog"]


@pytest.fixture
def domain():
    rows = [{"id": f"d{number}", "text": text} for number, text in enumerate(DOCUMENTS)]
    judged = [
        {"id": f"q{number}", "query": query, "relevance_grades": {f"d{number}": 3}}
        for number, query in enumerate(QUERIES)
    ]
    return load_domain(judged, rows, name="long")


def test_scores_are_those_of_sentence_transformers_on_the_chunks(dense_folder, domain):
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(dense_folder), device="cpu")
    model = with_chunks(load_model(dense_folder, prompts={"passage": "of: "}), "max")
    assert isinstance(model, ChunkedSearch)
    chunks = model.chunks_of(DOCUMENTS)
    tokens = theirs.tokenizer([f"of: {text}" for text in chunks.texts])["input_ids"]
    assert max(map(len, tokens)) <= 16 < len(theirs.tokenizer(DOCUMENTS[14])["input_ids"])
    filled = [row for row, text in enumerate(chunks.texts) if text]
    vectors = theirs.encode([f"of: {chunks.texts[row]}" for row in filled])
    cosines = theirs.similarity(theirs.encode(QUERIES), vectors).numpy()
    expected = np.full((len(QUERIES), len(DOCUMENTS)), -np.inf)
    for column, row in enumerate(filled):
        owner = chunks.owners[row]
        expected[:, owner] = np.maximum(expected[:, owner], cosines[:, column])
    run = search_domain(model, domain, depth=10)
    for row, name in enumerate(domain.queries):
        ours = [run[name].get(f"d{number}", np.nan) for number in range(len(DOCUMENTS))]
        found = ~np.isnan(ours)
        assert found.sum() >= 10
        np.testing.assert_allclose(np.array(ours)[found], expected[row][found], atol=2e-6)
        assert expected[row][~found].max() <= np.nanmin(ours) + 2e-6


@pytest.mark.parametrize("write", [splade, multi_vector])
def test_searchers_of_pairs_take_the_best_chunk(write, tmp_path, tokenizer_folder):
    write(tmp_path / "model", tokenizer_folder)
    inner = load_model(tmp_path / "model", max_length=16, show_progress=False)
    model = with_chunks(inner, "max")
    chunks = model.chunks_of(DOCUMENTS)
    assert chunks.split[0] > 8
    rows = [{"id": str(number), "text": text} for number, text in enumerate(DOCUMENTS)]
    model.index(rows)
    run = model.search([{"id": "q", "text": QUERIES[0]}], top_k=5)["q"]
    scores = inner.score_documents(QUERIES[0], chunks.texts)
    best = [scores[chunks.owners == number].max() for number in range(len(DOCUMENTS))]
    expected = np.argsort(-np.array(best), kind="stable")[:5]
    assert list(run) == [str(number) for number in expected]
    assert list(run.values()) == pytest.approx([best[number] for number in expected], rel=1e-5)
    few = model.search([{"id": "q", "text": QUERIES[0]}], top_k=2, top_ranked={"q": ["3", "14"]})
    assert few["q"] == pytest.approx({"3": best[3], "14": best[14]}, rel=1e-5)


def test_records_say_how_many_are_split_and_others_do_not_change(
    dense_folder, domain, tmp_path, monkeypatch
):
    options = {"output": tmp_path / "r", "show_progress": False, "strict": True}
    models = [str(dense_folder), "bm25", f"bm25+{dense_folder}"]
    cut, words, _ = evaluate_domain(models, domain, chunks="cut", **options)
    assert (cut.search.split, words.search.split) == (None, None)
    assert cut.task.counts[TEXTS_CUT] >= 12
    split, same_words, fusion = evaluate_domain(models, domain, **options)
    assert same_words.model.identity == words.model.identity
    assert (split.model.label, fusion.model.label) == (f"{TINY}-chunks", f"bm25-plus-{TINY}-chunks")
    assert split.model.identity != cut.model.identity
    assert split.model.settings["chunks"] == {
        "rule": 1,
        "size": 16,
        "unit": "tokens",
        "score": "max",
    }
    (facts,) = split.search.split
    assert (facts["documents"], facts["size"], facts["unit"]) == (16, 16, "tokens")
    assert fusion.search.split == [facts]
    assert TEXTS_CUT not in split.task.counts
    assert long_documents(split) == [
        f"16 of 17 documents were longer than 16 tokens; split into {facts['chunks']} chunks, the "
        "best counts."
    ]
    (sentence_on_cut,) = long_documents(cut)
    assert "longer than 16 tokens; only their beginning was read" in sentence_on_cut
    table = long_documents_table([cut, split, words, fusion])
    assert [row[0].text for row in table.rows] == [
        TINY,
        f"{TINY}-chunks",
        f"bm25-plus-{TINY}-chunks",
    ]
    # Records of both settings stay, and are found again without loading a model.
    monkeypatch.setattr(Model, "load", lambda model: pytest.fail(f"{model.spec} is loaded"))
    assert len(evaluate_domain(models, domain, **options).reused) == 3
    assert len(evaluate_domain(models, domain, chunks="cut", **options).reused) == 3


def test_where_all_documents_fit_nothing_is_different(dense_folder, tmp_path, monkeypatch):
    rows = [{"id": f"d{number}", "text": f"text {number}"} for number in range(9)]
    short = load_domain([{"id": "q", "query": "text 3", "relevance_grades": {"d3": 3}}], rows)
    options = {"output": tmp_path / "r", "show_progress": False, "strict": True}
    (before,) = evaluate_domain([str(dense_folder)], short, chunks="cut", **options)
    again = evaluate_domain([str(dense_folder)], short, **options)
    assert len(again.reused) == 1  # also a record that does not say whether texts were cut
    (record,) = evaluate_domain([str(dense_folder)], short, fresh=True, **options)
    assert (record.model.identity, record.per_query) == (before.model.identity, before.per_query)
    assert (record.model.label, record.search.split) == (TINY, [])
    assert long_documents_table([record]) is None
    monkeypatch.setattr(Model, "load", lambda model: pytest.fail(f"{model.spec} is loaded"))
    assert len(evaluate_domain([str(dense_folder)], short, **options).reused) == 1


def test_a_model_without_a_tokenizer_is_split_by_characters(domain, tmp_path):
    """As one behind an API: whole documents are sent, unless the user says a length."""
    options = {"output": tmp_path / "r", "show_progress": False, "strict": True}
    (whole,) = evaluate_domain(["random:32"], domain, **options)
    assert (whole.search.split, whole.model.label) == ([], "random-32")
    (split,) = evaluate_domain(["random:32"], domain, chunks="100", **options)
    assert split.model.label == "random-32-chunks-100"
    assert long_documents(split)[0].startswith("12 of 17 documents were longer than 100 char")


def test_an_object_of_sentence_transformers_is_split_as_its_folder(dense_folder, domain, tmp_path):
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(dense_folder), device="cpu")
    wrapped = WrappedEncoder(theirs, label="mine", show_progress=False)
    options = {"output": tmp_path / "r", "show_progress": False, "strict": True}
    (ours,) = evaluate_domain([str(dense_folder)], domain, **options)
    (record,) = evaluate_domain([wrapped], domain, **options)
    assert record.model.label == "mine-chunks"
    assert record.per_query["nDCG@10"] == pytest.approx(ours.per_query["nDCG@10"])


MINILM = "all-MiniLM-L6-v2"
FACTS = {
    "who built the lighthouse of Arko": "The lighthouse of Arko was built by Jens Holm in 1884.",
    "what does lactase do": "The enzyme lactase splits lactose into glucose and galactose.",
    "weight of the heart of a blue whale": "A blue whale's heart weighs about 180 kilograms.",
    "frequency of the G string of a violin": "A violin's G string is tuned to 196 hertz.",
    "when did Cotopaxi last erupt": "The volcano Cotopaxi last erupted in 1877.",
}
CHATTER = [
    "The committee met on Tuesday and discussed the budget in detail.",
    "Rain is expected in the north, with sun later in the day.",
    "She planted tomatoes and beans along the southern wall.",
]


@pytest.mark.integration
@pytest.mark.skipif(find_source(MINILM).folder is None, reason="qwen3nb[demo] brings the model")
def test_an_answer_at_the_end_of_a_long_document_is_found(tmp_path):
    """Each document has one fact, after some 270 words on nothing; others have none."""
    rows = [
        {
            "id": f"d{number}",
            "text": " ".join([*random.Random(number).choices(CHATTER, k=24), fact]),
        }
        for number, fact in enumerate([*FACTS.values(), *CHATTER * 3])
    ]
    queries = [
        {"id": f"q{number}", "query": query, "relevance_grades": {f"d{number}": 3}}
        for number, query in enumerate(FACTS)
    ]
    long = load_domain(queries, rows, name="planted")
    options = {"output": tmp_path, "show_progress": False, "strict": True}
    (cut,) = evaluate_domain([MINILM], long, chunks="cut", **options)
    (split,) = evaluate_domain([MINILM], long, **options)
    assert cut.metrics["nDCG@10"].value < 0.6  # all beginnings are alike
    assert split.metrics["nDCG@10"].value > 0.9


def test_a_model_with_chunks_only_searches(dense_folder):
    model = q.Model(str(dense_folder), chunks="max")
    assert model.label == f"{TINY}-chunks"
    assert "splits documents" in model.only_searches
    with pytest.raises(ValueError, match="splits documents"):
        model.encode("a text")
    (hits,) = model.search(["the lazy dog"], ["largest element", "the lazy dog"], k=1)
    assert list(hits) == [1]
    assert q.Model("bm25", chunks="max").identity == q.Model("bm25").identity
    assert model.with_chunks("cut").identity == q.Model(str(dense_folder)).identity


def test_chunks_are_counted_with_the_prompt_of_each_task(dense_folder, monkeypatch):
    model = ChunkedSearch(load_model(str(dense_folder), show_progress=False), "max")
    searcher = model._searcher
    tokens = searcher.document_tokens

    def with_prompt(texts):
        """A task has a prompt of half of what the model reads."""
        prompt = 0 if searcher._task is None else model.size // 2
        return [count + prompt for count in tokens(texts)]

    monkeypatch.setattr(searcher, "document_tokens", with_prompt)
    documents = [" ".join(SENTENCES * 12)]
    without_prompt = len(model.chunks_of(documents).texts)
    (task,) = choose_tasks(tasks="PyDocsSampleRetrieval")
    with model.of_task(task.metadata):
        assert len(model.chunks_of(documents).texts) > without_prompt
    assert len(model.chunks_of(documents).texts) == without_prompt


def test_documents_are_judged_as_chunks_find_them(dense_folder):
    documents = {"long": " ".join([*SENTENCES * 3, "the zebra"]), "short": "a fox", "none": "rain"}
    models = [Model(str(dense_folder)), Model("bm25")]
    task = judging_task(["the zebra"], documents, models)
    assert task.pool.current == f"{TINY}-chunks"
    assert judging_task(["the zebra"], documents, models, chunks="cut").pool.current == TINY
    assert ("the zebra", "long") in task.pool.pairs


def test_the_command_and_the_page_say_what_was_split(dense_folder, tmp_path, cli):
    lines = [json.dumps({"id": f"d{n}", "text": text}) for n, text in enumerate(DOCUMENTS)]
    (tmp_path / "docs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    judged = [{"query": text, "relevance_grades": {f"d{n}": 3}} for n, text in enumerate(QUERIES)]
    (tmp_path / "q.json").write_text(json.dumps(judged), encoding="utf-8")
    arguments = ["domain", "--queries", str(tmp_path / "q.json"), "--documents"]
    arguments += [str(tmp_path / "docs.jsonl"), "--out", str(tmp_path / "r"), "--no-cache"]
    arguments += ["--reports", str(tmp_path), "--model", f"bm25,{dense_folder}"]
    result = cli(*arguments)
    sentence_on_split = "16 of 17 documents were longer than 16 tokens; split into"
    assert sentence_on_split in result.output
    (report,) = tmp_path.glob("evaluation_*.md")
    assert sentence_on_split in report.read_text(encoding="utf-8")
    table = q.load_results(tmp_path / "r").own_data().long_documents_table()
    assert sentence_on_split in table.rows[0][1].text
    assert "beginning was read" in cli(*arguments, "--no-report", "--chunks", "cut").output
    assert "expected 20 to" in cli(*arguments, "--chunks", "7").output

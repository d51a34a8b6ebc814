from math import log
from types import SimpleNamespace

import bm25s
import numpy as np
import pytest
import Stemmer
from datasets import Dataset

from qwen3nb.models.load import load_model
from qwen3nb.models.search import bm25
from qwen3nb.models.search.mteb_rows import joined_query
from qwen3nb.models.search.words import ENGLISH_WORDS, Words

SENTENCE = "runs running runner sorted sorting sorts table tables list lists quickly the of"
WORDS = SENTENCE.split()
ENGLISH = SimpleNamespace(eval_langs=["eng-Latn"])


def rows(texts):
    return [{"id": f"{index:03d}", "title": "", "text": text} for index, text in enumerate(texts)]


def test_english_words_are_stemmed_and_nothing_else():
    documents = rows(["He sorts the tables", "Nothing here", "Tabelle sortieren"])
    model = load_model("bm25")
    model.index(documents)
    assert set(model.search(rows(["sorting a table"]), top_k=3)["000"]) == {"000"}
    german = SimpleNamespace(eval_langs={"de": ["deu-Latn"], "en": ["eng-Latn"]})
    model.index(documents, task_metadata=german, hf_subset="de")
    assert model.search(rows(["sorting a table"]), top_k=3)["000"] == {}
    assert set(model.search(rows(["the tables"]), top_k=3)["000"]) == {"000"}
    model.index(documents, task_metadata=german, hf_subset="en")
    assert set(model.search(rows(["sorting a table"]), top_k=3)["000"]) == {"000"}


def test_scores_by_hand():
    """Lucene's: ln(1 + (N - n + 0.5) / (n + 0.5)) tf / (tf + 1.5 (1 - 0.75 + 0.75 l / mean l))."""
    model = load_model("bm25")
    model.index(rows(["sort sort table", "table", "list list"]))
    one, two = log(1 + 2.5 / 1.5), log(1 + 1.5 / 2.5)  # in one and in two of three documents
    longer, shorter = (1.5 * (0.25 + 0.75 * length / 2) for length in (3, 1))
    expected = {"000": one * 2 / (2 + longer) + two / (1 + longer), "001": two / (1 + shorter)}
    run = model.search(rows(["sort table"]), top_k=3)["000"]
    assert run == pytest.approx(expected, rel=1e-5)
    assert model.search(rows(["sort table"]), top_k=1)["000"].keys() == {"000"}
    ranked = {"000": ["002", "001", "elsewhere"]}
    among = model.search(rows(["sort table"]), top_k=1, top_ranked=ranked)
    assert among == {"000": {"001": pytest.approx(expected["001"], rel=1e-5)}}
    scores = model.score("sort table", ["002", "001"])
    assert scores == pytest.approx([0, expected["001"]], rel=1e-5)


ODD = [
    "",
    "the of",
    "Naïve CAFÉ naïve İstanbul",
    "a b1 snake_case x",
    "日本語 テキスト",
    "e-mail o'clock",
]


@pytest.mark.parametrize("english", [True, False])
def test_the_index_is_that_of_bm25s(english, monkeypatch):
    monkeypatch.setattr(bm25, "_BLOCK", 99)  # characters: several blocks
    generator = np.random.default_rng(0)
    texts = ODD + [" ".join(generator.choice(WORDS, n)) for n in generator.integers(0, 20, 40)]
    texts += ODD
    model = load_model("bm25")
    words = ENGLISH_WORDS if english else Words(every_script=False)
    index = bm25.build_index(texts, words=words, settings=model.settings)
    theirs = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    options = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english")}
    options = options if english else {"stopwords": None}
    theirs.index(bm25s.tokenize(texts, **options, show_progress=False), show_progress=False)
    assert index.vocab_dict.keys() == theirs.vocab_dict.keys() - {""}
    for word in index.vocab_dict:
        assert index.get_scores([word]).tobytes() == theirs.get_scores([word]).tobytes(), word


def test_ties_at_the_cutoff_rank_in_corpus_order(monkeypatch):
    documents = rows(["sort", "table sort", "list"] + ["table list"] * 20)
    query = rows(["table sort"])
    model = load_model("bm25")
    model.index(documents)
    assert len(model.search(query, top_k=5)["000"]) == 5
    monkeypatch.setattr(bm25, "LARGE", 23)
    assert set(model.search(query, top_k=5)["000"]) == {"000", "001", "003", "004", "005"}
    assert len(model.search(query, top_k=22)["000"]) == 22  # all but "list"


def test_an_index_is_kept_for_all_tasks_on_a_corpus(home, monkeypatch, caplog):
    monkeypatch.setattr(bm25, "LARGE", 2)
    monkeypatch.setenv("QWEN3NB_CACHE", str(home / "cache"))
    texts, query = ["sorted tables", "lists", "a table"], rows(["table"])
    made = []
    build = bm25.build_index
    counted = lambda *texts, **options: made.append(1) or build(*texts, **options)  # noqa: E731
    monkeypatch.setattr(bm25, "build_index", counted)

    def run(documents, **options):
        model = load_model("bm25", **options)
        model.index(documents)
        return list(model.search(query, top_k=9)["000"].values())

    plain = run(rows(texts), cache=False)
    kept = home / "cache" / "bm25"
    assert not kept.exists()
    made.clear()
    data = Dataset.from_list(rows(texts)).select_columns(["id", "text"])
    renamed = [{**row, "id": f"other {row['id']}"} for row in rows(texts)]
    assert [run(each) for each in (rows(texts), data, renamed)] == [plain] * 3
    assert len(made) == 1
    run(rows([*texts, "more"]))
    run(rows(texts[::-1]))
    assert len(made) == 3  # another text, another order
    for file in kept.glob("*/*.index.*"):  # too short to map, and one other byte
        data = file.read_bytes()
        file.write_bytes(data[:-1] if file.suffix == ".npy" else b"?" + data[1:])
    assert run(rows(texts)) == plain
    assert len(made) == 4
    assert "damaged" in caplog.text


def test_an_index_that_cannot_be_kept_is_used(home, monkeypatch, caplog):
    monkeypatch.setattr(bm25, "LARGE", 1)
    monkeypatch.setenv("QWEN3NB_CACHE", str(home / "file"))
    (home / "file").write_text("no folder")
    model = load_model("bm25")
    model.index(rows(["sort", "list"]))
    assert model.search(rows(["sort"]), top_k=1)["000"].keys() == {"000"}
    assert "not kept" in caplog.text


@pytest.mark.integration
def test_scores_are_those_of_mtebs_own_baseline():
    from mteb.models.model_implementations.bm25 import BM25Search

    generator = np.random.default_rng(0)
    documents, queries = (
        rows(" ".join(generator.choice(WORDS, size)) for _ in range(count))
        for count, size in ((40, 9), (10, 3))
    )
    options = {"task_metadata": ENGLISH, "hf_subset": "default"}
    theirs = BM25Search()
    more = {**options, "hf_split": "test", "encode_kwargs": {}}
    theirs.index(Dataset.from_list(documents), **more)
    expected = theirs.search(Dataset.from_list(queries), top_k=40, **more)
    model = load_model("bm25")
    model.index(documents, **options)
    run = model.search(queries, top_k=40, **options)
    for query, scores in expected.items():
        hits = {document: score for document, score in scores.items() if score > 0}
        assert run[query] == pytest.approx(hits, rel=1e-6)
    # One query against given documents has the same scores.
    text, names = queries[0]["text"], [row["id"] for row in documents]
    one = dict(zip(names, model.score(text, names), strict=True))
    assert one == pytest.approx({**dict.fromkeys(names, 0.0), **run["000"]}, rel=1e-6)


@pytest.mark.filterwarnings("ignore:Conversations are a list of strings")
@pytest.mark.parametrize(
    "query",
    [
        {"text": ["sort", "a table"]},
        {"text": [{"role": "user", "content": "sort"}, {"role": "bot", "content": "a table"}]},
        {"text": [{"role": "user", "content": "sort"}], "instruction": "Name a table."},
        {"text": "sort", "instruction": "Name a table."},
    ],
)
def test_conversations_and_instructions_are_joined_as_mteb_joins_them(query):
    from mteb._create_dataloaders import _retrieval_texts
    from mteb.types import PromptType

    expected = _retrieval_texts(Dataset.from_list([{"id": "q", **query}]), PromptType.query)
    assert [joined_query(query)] == expected
    model = load_model("bm25")
    model.index(rows(["sorted tables", "nothing"]))
    assert set(model.search([{"id": "q", **query}], top_k=2)["q"]) == {"000"}

"""Golden sets as other tools write them, and a query file that must not send data."""

import gzip
import json
import re

import pytest
import yaml

from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.datasets.custom.queries import model_entry, read_queries
from qwen3nb.datasets.rows import DataError

DOCUMENTS = [{"id": "a", "text": "service discovery"}, {"id": "b", "text": "whats new"}]
GRADED = {"b": 3, "a": 1}
ONE = {"id": "q1", "query": "whats new"}
FORMS = {
    "ours": ONE | {"relevance_grades": GRADED},
    "judgments": ONE | {"judgments": [{"doc": "b", "grade": 3}, {"doc": "a", "grade": 1}]},
    "judgements": ONE | {"judgements": [{"doc_id": "b", "rating": 3}, {"id": "a", "rel": 1}]},
    "qrels": {"qid": "q1", "text": "whats new", "qrels": GRADED},
    "no id": {"question": "whats new", "relevance": GRADED},
}


def grades(source):
    (query,) = read_queries(source).queries
    assert (query.id, query.text) == ("q1", "whats new")
    return query.grades


@pytest.mark.parametrize("query", FORMS.values(), ids=FORMS.keys())
def test_golden_sets_in_every_form(tmp_path, query):
    written = {
        "g.json": json.dumps([query]),
        "whole.json": json.dumps({"queries": [query]}),
        "g.jsonl": json.dumps(query) + "\n\n",
        "g.ndjson": json.dumps(query),
        "bom.json": "\ufeff" + json.dumps([query]),
        "g.yaml": yaml.safe_dump([query]),
        "g.yml": yaml.safe_dump({"queries": [query]}),
    }
    for name, text in written.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert grades(tmp_path / name) == GRADED
    (tmp_path / "g.jsonl.gz").write_bytes(gzip.compress(json.dumps(query).encode()))
    assert grades(tmp_path / "g.jsonl.gz") == GRADED
    assert grades([query]) == GRADED


@pytest.mark.parametrize("name", ["expected", "relevant_docs", "relevant", "Expected IDs"])
def test_lists_of_relevant_documents_have_the_highest_grade(name):
    assert grades([ONE | {name: ["b"]}]) == {"b": 3}
    assert grades([ONE | {"relevant": "b"}]) == {"b": 3}
    assert grades([ONE | {"relevant": [{"id": "b"}]}]) == {"b": 3}


def test_models_and_settings_stand_beside_queries_in_json(tmp_path):
    content = {
        "queries": [ONE | {"expected": ["b"]}],
        "models": {"current": {"model_id": "bm25"}},
        "settings": {"relevance_threshold": 1},
    }
    (tmp_path / "g.json").write_text(json.dumps(content))
    file = read_queries(tmp_path / "g.json")
    assert (file.models[0].spec, file.settings.relevance_threshold) == ("bm25", 1)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("g.json", '{"a": 1}', "expected a list of queries, such as"),
        ("g.json", "[1]", "g.json"),
        ("g.json", "[", "g.json:1:2: not JSON"),
        ("g.jsonl", '{"query": "x"}\n[1]\n', "g.jsonl:2: expected an object; got list"),
        ("g.json", '[{"query": "x"}]', "Either 'relevance_grades' or 'expected' is required"),
        ("g.json", '[{"query": "x", "expcted": ["a"]}]', "expcted"),
        ("g.json", '[{"query": "x", "relevant": [3.5]}]', "expected a valid string; got 3.5"),
        ("g.txt", '[{"query": "x"}]', "expected a name that ends in .toml, .json, .jsonl"),
    ],
)
def test_other_content_is_refused_in_a_line_that_says_what_is_expected(
    tmp_path, name, text, message
):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=re.escape(message)):
        read_queries(tmp_path / name)


def test_grades_of_0_and_1_are_relevant_from_1_which_is_stated_unless_a_threshold_is_stated():
    queries = [ONE | {"relevance_grades": {"b": 1, "a": 0}}]
    with pytest.raises(DataError, match="highest grade is 1: set relevance_threshold = 1"):
        load_domain(queries, DOCUMENTS, relevance_threshold=2)
    domain = load_domain(queries, DOCUMENTS)
    assert domain.relevant == {"q1": {"b": 1, "a": 0}}
    assert "no grade is above 1, so relevant from grade 1" in "\n".join(domain.understood)
    stated = load_domain(queries, DOCUMENTS, relevance_threshold=1)
    assert (stated.threshold, stated.revision) == (domain.threshold, domain.revision)
    assert "no grade is above" not in "\n".join(stated.understood)
    half = [ONE | {"relevance_grades": {"b": 0.7, "a": 0.1}}]
    with pytest.raises(DataError, match=r"highest grade is 0\.7: .*--relevance-threshold 0\.7"):
        load_domain(half, DOCUMENTS)
    assert load_domain(half, DOCUMENTS, relevance_threshold=0.5).relevant["q1"] == {"b": 1, "a": 0}
    with pytest.raises(DataError, match="check the id column"):
        load_domain([ONE | {"relevance_grades": {"x": 1, "a": 0}}], DOCUMENTS)


@pytest.mark.parametrize(
    "spec",
    [
        "api:http://127.0.0.1:9/v1#m",
        "API:http://127.0.0.1:9/v1#m",
        " api:http://user:word@127.0.0.1:9#m",
        "bm25+api:https://evil.org#m",
        "api:http://127.0.0.1:9/v1#m+bm25",
        "https://evil.org/model",
    ],
)
def test_a_query_file_names_no_server(tmp_path, spec):
    tables = {"queries": [ONE | {"expected": ["b"]}], "models": {"current": {"model_id": spec}}}
    (tmp_path / "g.json").write_text(json.dumps(tables))
    (tmp_path / "g.toml").write_text(
        f'[[queries]]\nid="q1"\nquery="x"\nexpected=["b"]\n[models.current]\nmodel_id="{spec}"\n'
    )
    for name in ("g.json", "g.toml"):
        with pytest.raises(DataError, match="cannot name a server") as raised:
            read_queries(tmp_path / name)
        assert "word" not in str(raised.value)
    (tmp_path / "plain.json").write_text(json.dumps({"queries": tables["queries"]}))
    entry = model_entry(f"current={spec}", read_queries(tmp_path / "plain.json"))
    assert (entry.label, entry.spec) == ("current", spec)  # on the command line


def test_a_list_of_judgements_is_a_golden_set(tmp_path):
    file = tmp_path / "judgements.csv"
    file.write_text('query,docid,rating\n"whats, new",b,3\nhow to find,a,1\n"whats, new",a,0\n')
    first, second = read_queries(file).queries
    assert (first.id, first.text, first.grades) == ("q1", "whats, new", {"b": 3, "a": 0})
    assert (second.id, second.text, second.grades) == ("q2", "how to find", {"a": 1})
    tabs = tmp_path / "judgements.tsv"
    tabs.write_text("doc_id\tquery\tgrade\nb\twhats new\t2.0\n")
    assert grades(tabs) == {"b": 2}
    no_number = ":2: expected a number as grade; got "
    for rows, message in (
        ("query,docid\nwhats new,b\n", "no column 'score'; columns: docid"),
        ("query,docid,rating\nwhats new,b,high\n", f"{no_number}'high'; right: "),
        ("query,docid,rating\nwhats new,b,inf\n", f"{no_number}'inf'"),
        ("query,docid,rating\nwhats new,b,1\nwhats new,b,2\n", ":3: 'b' is judged twice"),
    ):
        file.write_text(rows)
        with pytest.raises(DataError, match=message):
            read_queries(file)

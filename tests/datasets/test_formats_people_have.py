"""Small files as other programs and people write them, right and wrong, and what is understood."""

import gzip
import json
import re

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner
from datasets import Dataset
from helpers import REPOSITORY
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.cli.main import main
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.datasets.custom.query_texts import read_entries
from qwen3nb.datasets.rows import DataError

DOCUMENTS = {"d1": "a red dress", "d2": "a blue dress", "d3": "a red hat", "007": "a spy"}
DRESS = {"red dress": {"d1": 3, "d2": 1}, "hat": {"d3": 2}}
BINARY = {"red dress": {"d1": 1, "d2": 0}, "hat": {"d3": 1}}
TEXTS = {
    "q.tsv": "q1\tred dress\nq2\that\n",
    "q.jsonl": '{"_id": "q1", "text": "red dress"}\n{"_id": "q2", "text": "hat"}\n',
    "ids.tsv": "1\tred dress\n2\that\n",
}
LTR = "# qid:1: red dress\n# qid:2: hat*1\n#\n\n"
OPENSEARCH = [
    {
        "query": "red dress",
        "ratings": [{"docId": "d1", "rating": "3.000"}, {"docId": "d2", "rating": "1.000"}],
    },
    {"query": "hat", "ratings": [{"docId": "d3", "rating": "2.000"}]},
]
QUEPID = [
    {"query_text": "red dress", "arranged_next": 2, "ratings": {"d1": 3.0, "d2": 1.0}},
    {"query_text": "hat", "arranged_next": None, "ratings": {"d3": 2.0, "d1": None}},
]
RRE = [
    {"placeholders": {"$query": "red dress"}, "relevant_documents": {"3.0": ["d1"], "1": ["d2"]}},
    {"placeholders": {"$query": "hat"}, "relevant_documents": {"d3": {"gain": 2}}},
]
LLAMA = {
    "queries": {"q1": "red dress", "q2": "hat"},
    "corpus": DOCUMENTS,
    "relevant_docs": {"q1": ["d1"], "q2": ["d3"]},
    "mode": "text",
}
RAGAS = [
    {"user_input": "red dress", "reference_contexts": ["A  red dress"], "reference": "…"},
    {"user_input": "hat", "reference_contexts": ["a red hat"], "synthesizer_name": "single"},
]
HIT = {"hits": {"total": 1, "hits": [{"_source": {"name": "n", "judgmentRatings": OPENSEARCH}}]}}
CSV = "query,docid,rating\nred dress,d1,3\nred dress,d2,1\nhat,d3,2\n"
TOML = (
    '[[queries]]\nid = "q1"\nquery = "red dress"\nrelevance_grades = { d1 = 3, d2 = 1.0 }\n'
    '[[queries]]\nid = "q2"\nquery = "hat"\nrelevance_grades = { d3 = "2e0" }\n'
)
ROWS = [
    {"query": "red dress", "docid": "d1", "rating": 3},
    {"query": "red dress", "docid": "d2", "rating": 1},
    {"query": "hat", "docid": "d3", "rating": 2},
]


def lines(rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


# Queries with their grades in one file: its name, its text, and the grades by the query's text.
# fmt: off
# ruff: noqa: E501
GOLDEN = {
    "TOML": ("g.toml", TOML, DRESS),
    "JSON": (
        "g.json",
        json.dumps([{"query": q, "relevance_grades": g} for q, g in DRESS.items()]),
        DRESS,
    ),
    "JSON Lines": ("g.jsonl", lines({"query": q, "qrels": g} for q, g in DRESS.items()), DRESS),
    "JSON Lines with blank lines": (
        "g.jsonl",
        "\n\n" + lines({"query": q, "qrels": g} for q, g in DRESS.items()) + "\n \n",
        DRESS,
    ),
    "YAML": (
        "g.yaml",
        yaml.safe_dump([{"query": q, "grades": g} for q, g in DRESS.items()]),
        DRESS,
    ),
    "rows in JSON": ("g.json", json.dumps(ROWS), DRESS),
    "rows in JSON Lines": ("g.jsonl", lines(ROWS), DRESS),
    "Quepid's CSV": ("g.csv", CSV, DRESS),
    "a byte order mark": ("g.csv", "\ufeff" + CSV, DRESS),
    "CRLF": ("g.csv", CSV.replace("\n", "\r\n"), DRESS),
    "blank lines at the end": ("g.csv", CSV + "\n,,\n\n", DRESS),
    "semicolons": ("g.csv", CSV.replace(",", ";"), DRESS),
    "Excel's sep line": ("g.csv", "sep=;\n" + CSV.replace(",", ";"), DRESS),
    "tabs in a CSV": ("g.csv", CSV.replace(",", "\t"), DRESS),
    "TSV": ("g.tsv", CSV.replace(",", "\t"), DRESS),
    "a line break in quotes": (
        "g.csv",
        'query,docid,rating\n"red\ndress",d1,3\n',
        {"red\ndress": {"d1": 3}},
    ),
    "a comma in quotes": (
        "g.csv",
        'query,docid,rating\n"red, dress",d1,3\n',
        {"red, dress": {"d1": 3}},
    ),
    "a header in another order": (
        "g.csv",
        "Rating;DocID;Query\n3;d1;red dress\n1;d2;red dress\n2;d3;hat\n",
        DRESS,
    ),
    "more columns": (
        "g.csv",
        "query,team,docid,rating,note\nred dress,x,d1,3,\nred dress,x,d2,1,ok\nhat,x,d3,2,\n",
        DRESS,
    ),
    "ids and texts": (
        "g.csv",
        "qid,query,docid,rating\n7,red dress,d1,3\n7,red dress,d2,1\n9,hat,d3,2\n",
        DRESS,
    ),
    "no header": ("g.csv", "red dress,d1,3\nred dress,d2,1\nhat,d3,2\n", DRESS),
    "a query without grades": ("g.csv", CSV + "shoes\n", DRESS | {"shoes": {}}),
    "documents without a grade": ("g.csv", CSV + "hat,d1,\nhat,d2,\n", DRESS),
    "a row twice": ("g.csv", CSV + "hat,d3,2.0\n", DRESS),
    "fractions": (
        "g.csv",
        "query,docid,rating\nred dress,d1,2.5\nhat,d3,3e0\n",
        {"red dress": {"d1": 2.5}, "hat": {"d3": 3}},
    ),
    "negative grades": (
        "g.csv",
        "query,docid,rating\nred dress,d1,3\nred dress,d2,-2\n",
        {"red dress": {"d1": 3, "d2": -2}},
    ),
    "grades of 0 and 1": (
        "g.csv",
        "query,docid,rating\nred dress,d1,1\nred dress,d2,0\nhat,d3,1\n",
        BINARY,
    ),
    "a scale to 10": (
        "g.csv",
        "query,docid,rating\nred dress,d1,10\nhat,d3,7\n",
        {"red dress": {"d1": 10}, "hat": {"d3": 7}},
    ),
    "leading zeros": ("g.csv", "query,docid,rating\nspy,007,3\n", {"spy": {"007": 3}}),
    "LTR": (
        "g.txt",
        LTR + "3\tqid:1 #\td1\tA red dress\n1\tqid:1 # d2 Blue\n2 qid:2 # d3 hat\n",
        DRESS,
    ),
    "LTR with features": (
        "g.txt",
        LTR + "3 qid:1 1:0.5 2:1e3 # d1\n1 qid:1 1:0 2:4 # d2\n2 qid:2 1:0 # d3\n",
        DRESS,
    ),
    "Quepid's LTR": (
        "g.txt",
        '3.0    qid:12 #    d1; "red dress"\n\n1.0    qid:12 #    d2; "red dress"\n2.0    qid:15 #    d3; "hat"\n',
        DRESS,
    ),
    "Quepid's new LTR": (
        "g.txt",
        "3.0 qid:12 # d1 red dress\n1.0 qid:12 # d2 red dress\n2.0 qid:15 # d3 hat\n",
        DRESS,
    ),
    "OpenSearch": (
        "g.json",
        json.dumps({"name": "n", "type": "IMPORT_JUDGMENT", "judgmentRatings": OPENSEARCH}),
        DRESS,
    ),
    "OpenSearch's answer": ("g.json", json.dumps(HIT), DRESS),
    "OpenSearch's first form": (
        "g.json",
        json.dumps(
            {
                "judgmentScores": {
                    "red dress": [{"docId": "d1", "score": "3.0"}, {"docId": "d2", "score": "1"}],
                    "hat": [{"docId": "d3", "score": "2"}],
                }
            }
        ),
        DRESS,
    ),
    "Quepid's ratings": (
        "g.json",
        json.dumps({"queries": [{"query": q, "ratings": g} for q, g in DRESS.items()]}),
        DRESS,
    ),
    "Quepid's case": (
        "g.json",
        json.dumps({"case_name": "c", "scorer": {"name": "AP"}, "queries": QUEPID, "try": {}}),
        DRESS,
    ),
    "RRE": (
        "g.json",
        json.dumps({"id_field": "id", "index": "i", "template": "t", "queries": RRE}),
        DRESS,
    ),
    "LlamaIndex": ("g.json", json.dumps(LLAMA), {"red dress": {"d1": 3}, "hat": {"d3": 3}}),
    "Ragas with texts": ("g.jsonl", lines(RAGAS), {"red dress": {"d1": 3}, "hat": {"d3": 3}}),
    "Ragas with ids": (
        "g.json",
        json.dumps([{"user_input": "hat", "reference_context_ids": ["d3", "d3"]}]),
        {"hat": {"d3": 3}},
    ),
    "other fields": ("g.json", json.dumps([{"question": q, "relevant_doc_ids": list(g), "difficulty": "hard", "category": "two words"} for q, g in DRESS.items()]), {"red dress": {"d1": 3, "d2": 3}, "hat": {"d3": 3}}),
    "a list under another key": ("g.json", json.dumps({"name": "set", "samples": [{"q": "hat", "expected_chunk_ids": ["d3"]}]}), {"hat": {"d3": 3}}),
    "objects with a gain": ("g.jsonl", lines([{"query": "hat", "collection": "c", "relevance": [{"doc_id": "d3", "path": "x", "gain": 2.0}]}]), {"hat": {"d3": 2}}),
    "lists in a CSV": ("g.csv", "qid,question,answers,pos_chunk_ids\nq1,hat,x,d3\nq2,red dress,y,d1|d2\n", {"hat": {"d3": 3}, "red dress": {"d1": 3, "d2": 3}}),
    "Ragas in a CSV": ("g.csv", "user_input,reference_contexts,reference\nhat,\"['a red hat']\",x\n", {"hat": {"d3": 3}}),
    "a dictionary by text": ("g.json", json.dumps({"red dress": {"d1": 3, "d2": 1}, "hat": {"d3": 2}}), DRESS),
    "ids with blanks and commas": (
        "g.json",
        json.dumps([{"id": "q 1, a", "query": "hat", "expected": ["d3"]}]),
        {"hat": {"d3": 3}},
    ),
}
# Grades in a file of their own, with the texts of the queries in one of `TEXTS`.
LISTS = {
    "qrels": ("q.tsv", "qrels.txt", "q1 0 d1 3\nq1 0 d2 1\nq2 0 d3 2\n"),
    "qrels with tabs": ("q.tsv", "qrels", "q1\t0\td1\t3\nq1\t0\td2\t1\nq2\t0\td3\t2\n"),
    "qrels with many blanks": (
        "q.tsv",
        "qrels.dl19.txt",
        "q1  Q0   d1  3\r\nq1 Q0 d2 1\r\n\r\nq2 Q0 d3 2\r\n\r\n",
    ),
    "qrels with a comment": (
        "q.tsv",
        "qrels.txt",
        "# judged in May\nq1 0 d1 3\nq1 0 d2 1\nq2 0 d3 2\n",
    ),
    "qrels with a header": (
        "q.tsv",
        "qrels.txt",
        "topic iter docno rel\nq1 0 d1 3\nq1 0 d2 1\nq2 0 d3 2\n",
    ),
    "qrels with a header in a comment": (
        "q.tsv",
        "qrels.txt",
        "# qid iter docid rel\nq1 0 d1 3\nq1 0 d2 1\nq2 0 d3 2\n",
    ),
    "a header in another order": (
        "q.tsv",
        "qrels.tsv",
        "relevance\tdoc_id\tquery_id\n3\td1\tq1\n1\td2\tq1\n2\td3\tq2\n",
    ),
    "BEIR's header": (
        "q.jsonl",
        "test.tsv",
        "query-id\tcorpus-id\tscore\nq1\td1\t3\nq1\td2\t1\nq2\td3\t2\n",
    ),
    "three columns": ("q.jsonl", "qrels.txt", "q1 d1 3\nq1 d2 1\nq2 d3 2\n"),
    "three columns, the document first": ("q.jsonl", "qrels.txt", "d1 q1 3\nd2 q1 1\nd3 q2 2\n"),
    "three columns, the grade first": ("q.jsonl", "qrels.txt", "3 q1 d1\n1 q1 d2\n2 q2 d3\n"),
    "commas without a header": ("q.jsonl", "qrels.csv", "q1,d1,3\nq1,d2,1\nq2,d3,2\n"),
    "numbers as ids of queries": ("ids.tsv", "qrels.txt", "1 0 d1 3\n1 0 d2 1\n2 0 d3 2\n"),
    "LTR without texts": ("ids.tsv", "ltr.txt", "3 qid:1 # d1\n1 qid:1 # d2\n2 qid:2 # d3\n"),
    "by the text of queries": ("q.tsv", "j.csv", CSV),
    "ranx": ("q.tsv", "qrels.json", json.dumps({"q1": {"d1": 3, "d2": 1}, "q2": {"d3": 2}})),
    "rows in JSON": (
        "q.tsv",
        "qrels.jsonl",
        lines(
            [
                {"query-id": "q1", "corpus-id": "d1", "score": 3},
                {"query-id": "q1", "corpus-id": "d2", "score": 1},
                {"query-id": "q2", "corpus-id": "d3", "score": 2},
            ]
        ),
    ),
    "OpenSearch, by text": ("q.tsv", "j.json", json.dumps({"judgmentRatings": OPENSEARCH})),
    "our own form, by text": ("q.tsv", "j.jsonl", lines({"query": q, "grades": g} for q, g in DRESS.items())),
    "judged queries that are unknown": (
        "q.tsv",
        "qrels.txt",
        "q1 0 d1 3\nq1 0 d2 1\nq2 0 d3 2\nq9 0 d3 2\n",
    ),
}
# A wrong file: its name, its text, the line of the error, words of it, and of what is right.
WRONG = {
    "a word as grade": ("g.csv", CSV + "hat,d1,high\n", ":5: ", "got 'high'", 'right: "sort a list",d7,2'),
    "NaN": ("g.csv", CSV + "hat,d1,NaN\n", ":5: ", "got 'NaN'", "right: "),
    "truth values": ("g.csv", CSV + "hat,d1,true\n", ":5: ", "got 'true'", "right: "),
    "a decimal comma": ("g.csv", "query;docid;rating\nhat;d1;0,5\n", ":2: ", "got '0,5'", "right: "),
    "a grade of a million": ("g.csv", CSV + "hat,d1,1e6\n", ":5: ", "at most 1,000", "right: "),
    "two grades": ("g.csv", CSV + "hat,d3,1\n", ":5: ", "1 here, 2 at", "keep one of the two lines"),
    "no column of grades": ("g.csv", "query,docid\nhat,d3\n", ":1: ", "no column 'score'; columns: docid", "right: a header"),
    "no column of documents": ("g.csv", "query,product,rating\nhat,d3,1\n", ":1: ", "no column 'corpus-id'", "right: a header"),
    "an unknown header": ("g.csv", "what,where,how\nhat,d3,1\n", ":1: ", "columns: what, where, how", "right: a header"),
    "a comma without quotes": ("g.csv", CSV + "red, dress,d3,1\n", ":5: ", "4 cells, expected 3", "stands in quotes"),
    "quotes that do not close": ("g.csv", CSV + '"hat,d3,1\n', ":5: ", "invalid CSV", ""),
    "objects without an id": ("g.json", '[{"query": "hat", "relevance": [{"path_contains": "x", "gain": 1}]}]', ":1:", "expected an object", "right: {"),
    "a field spelt like ours": ("g.json", '[{"query": "hat", "qrels": {"d3": 1}, "catgory": "x"}]', ":1:", "did you mean 'category'", "right: {"),
    "a column twice": ("g.csv", "query,docid,rating,rating\nhat,d3,1,2\n", ":1: ", "duplicate column 'rating'", ""),
    "NaN in JSON": ("g.json", '[{"query": "hat",\n  "qrels": {"d3": NaN}}]', ":2:19: ", "NaN is not JSON", ""),
    "a workbook": ("g.xlsx", "PK", "", "a workbook is not read", "CSV UTF-8"),
    "a quote in a TSV": ("g.tsv", 'query\tdocid\trating\n"hat\td3\t1\n', ":2: ", "invalid CSV", 'the text in quotes: "a'),
    "no query": ("g.csv", CSV + ",d3,1\n", ":5: ", "the query is ''", "right: "),
    "no document": ("g.csv", CSV + "hat,,1\n", ":5: ", "the id is ''", ""),
    "only a header": ("g.csv", "query,docid,rating\n", "", "no judgements", ""),
    "an empty file": ("g.csv", "", "", "no judgements", '"sort a list",d7,2'),
    "qrels without texts": ("qrels.txt", "q1 0 d1 1\n", ":1: ", "has no text here", "--judgements"),
    "a run": ("run.txt", "q1 Q0 d1 1 2.5 tag\n", ":1: ", "those of a run", "right: q1 0 d7 2"),
    "two columns": ("qrels.txt", "q1 d1\n", ":1: ", "2 columns, expected 3 or 4", "right: q1 0 d7 2"),
    "LTR without a document": ("ltr.txt", LTR + "3 qid:1 1:0.5\n", ":5: ", "# with the document", "right: 2 qid:1 # d7"),
    "LTR with a word": ("ltr.txt", LTR + "good qid:1 # d1\n", ":5: ", "got 'good'", "right: 2 qid:1"),
    "no JSON": ("g.json", '[{"query": "hat",]', "", "not JSON", ""),
    "a broken line of JSON": ("g.jsonl", lines(ROWS) + "{\n", ":4: ", "not JSON", ""),
    "JSON without queries": ("g.json", '{"a": 1}', "", "expected a list of queries", '{"query": "sort a list"'),
    "a wrong grade in JSON": ("g.json", '[\n {"query": "hat",\n  "qrels": {"d3": "two"}}]', ":3:", "a number from -1,000 to 1,000", "right: {"),
    "a wrong grade in YAML": ("g.yaml", "- query: hat\n  qrels:\n    d3: two\n", ":3:", "a number from -1,000", "right: {"),
    "a wrong grade in JSON Lines": ("g.jsonl", '{"query": "hat", "qrels": {"d3": "two"}}\n', ":1: ", "a number from -1,000", "right: {"),
    "a word in OpenSearch's list": ("g.json", '{"name": "n",\n "judgmentRatings": [\n  {"query": "hat", "ratings": [{"docId": "d3", "rating": "two"}]}]}', ":3:", "a number from -1,000 to 1,000", "right: {"),
    "two grades in JSON": ("g.json", '[{"query": "hat", "judgments": [{"doc": "d3", "grade": 1}, {"doc": "d3", "grade": 2}]}]', "", "'d3' is judged twice", "keep one"),
    "a wrong grade in TOML": ("g.toml", TOML.replace('"2e0"', '"two"'), ":8: ", "a number from -1,000", "right: "),
    "a grade above the scale": ("g.toml", TOML.replace("3,", "4,"), ":4: ", "at most 3; got 4", "highest_grade"),
    "a misspelt key in TOML": ("g.toml", TOML + "expcted = 1\n", ":9: ", "did you mean 'expected'", "right: "),
    "no TOML": ("g.toml", "[[queries]\n", ":1:10: ", "not TOML", "right: "),
    "an id twice": ("g.toml", TOML.replace("q2", "q1"), ":6: ", "Duplicate id 'q1'", "right: "),
    "no relevant documents for LlamaIndex": ("g.json", '{"queries": {"q1": "hat"}}', "", 'expected "relevant_docs"', '{"q1": ["list.sort"]}'),
}
# fmt: on


def write(folder, name, text):
    file = folder / name
    file.write_text(text, encoding="utf-8", newline="")
    return file


def read(queries, judgements=None, documents=DOCUMENTS):
    """The grades that are loaded, by the texts of queries."""
    domain = load_domain(queries, documents, judgements=judgements, relevance_threshold=1)
    return {domain.queries[query]: dict(grades) for query, grades in domain.grades.items()}


def judged(expected):
    """Those of the grades that a domain has: of queries with a relevant document."""
    return {text: grades for text, grades in expected.items() if max([0, *grades.values()]) >= 1}


@pytest.mark.parametrize("case", GOLDEN)
def test_queries_with_grades_in_every_form(tmp_path, case):
    name, text, expected = GOLDEN[case]
    file = write(tmp_path, name, text)
    assert read(file) == judged(expected)
    assert set(read_entries(file).texts) == set(expected)
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read(packed) == judged(expected)


@pytest.mark.parametrize("case", LISTS)
def test_grades_in_a_file_of_their_own(tmp_path, case):
    texts, name, text = LISTS[case]
    queries = write(tmp_path, texts, TEXTS[texts])
    assert read(queries, write(tmp_path, name, text)) == DRESS
    if name.endswith((".csv", ".txt", ".tsv")):  # as Excel writes "Unicode text"
        (tmp_path / name).write_bytes(text.encode("utf-16"))
        assert read(queries, tmp_path / name) == DRESS


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_one_line_with_its_place_and_what_is_right(tmp_path, case):
    name, text, place, problem, right = WRONG[case]
    file = write(tmp_path, name, text)
    with pytest.raises(DataError) as error:
        read(file)
    message = str(error.value)
    assert message.startswith(f"{file}{place}"), message
    assert problem in message
    assert right in message
    assert "\n" not in message


def test_what_was_taken_is_printed_by_check(tmp_path):
    file = write(tmp_path, "g.csv", GOLDEN["grades of 0 and 1"][1])
    documents = write(tmp_path, "d.json", json.dumps(DOCUMENTS))
    command = ["domain", "--check", "--queries", str(file), "--documents", str(documents)]
    shown = CliRunner().invoke(main, command)
    assert shown.exit_code == 0, shown.output
    assert (
        "g.csv: 2 queries, 3 grades from 0 to 1 (CSV, columns query, docid, rating)" in shown.output
    )
    assert "no grade is above 1, so relevant from grade 1" in shown.output
    qrels = write(tmp_path, "qrels.txt", LISTS["three columns, the grade first"][2])
    texts = write(tmp_path, "q.tsv", TEXTS["q.tsv"])
    command = ["domain", "--check", "--queries", str(texts), "--judgements", str(qrels)]
    shown = CliRunner().invoke(main, [*command, "--documents", str(documents)])
    assert "no header, columns taken as grade, query, document" in shown.output
    without = CliRunner().invoke(main, command)
    assert "give them, too, such as --documents docs.jsonl" in without.output


def test_grades_of_judge_are_judgements_with_what_was_taken_back(tmp_path):
    rows = [
        {"query": "hat", "document": "d3", "grade": 1, "grader": "ann", "time": ""},
        {"query": "hat", "document": "d3", "grade": 2, "grader": "ann", "time": ""},
        {"query": "hat", "document": "d1", "grade": 3, "grader": "ann", "time": ""},
        {"undo": True, "grader": "ann", "time": ""},
        {"query": "hat", "document": "d2", "grade": None, "grader": "ann", "time": ""},
    ]
    file = write(tmp_path, "grades.jsonl", lines(rows))
    assert read(write(tmp_path, "q.tsv", TEXTS["q.tsv"]), file) == {"hat": {"d3": 2}} == read(file)
    assert read(tmp_path / "q.tsv", write(tmp_path, "g.toml", TOML)) == DRESS


def test_a_line_per_relevant_document_needs_the_ids_of_the_queries(tmp_path):
    relevant = write(tmp_path, "qrels.txt", "q1 d1\nq1 d2\nq2 d3\n")
    queries = write(tmp_path, "q.tsv", TEXTS["q.tsv"])
    assert read(queries, relevant) == {"red dress": {"d1": 1, "d2": 1}, "hat": {"d3": 1}}
    with pytest.raises(DataError, match=r"no judged query is among the 2 queries of .*: 'x1'"):
        read(queries, write(tmp_path, "other.txt", "x1 0 d1 1\n"))
    with pytest.raises(DataError, match=r"q\.txt:1: these are judgements, not queries"):
        read_entries(write(tmp_path, "q.txt", LISTS["qrels"][2]))


def write_beir(folder, suffix="", split="test"):
    (folder / "qrels").mkdir(parents=True)
    texts = {
        "corpus.jsonl": lines({"_id": i, "title": "", "text": t} for i, t in DOCUMENTS.items()),
        "queries.jsonl": TEXTS["q.jsonl"],
        f"qrels/{split}.tsv": LISTS["BEIR's header"][2],
    }
    for name, text in texts.items():
        (folder / f"{name}{suffix}").write_bytes(
            gzip.compress(text.encode()) if suffix else text.encode()
        )
    return folder


def write_mteb(folder, table="qrels"):
    rows = {
        "corpus": [{"_id": i, "title": "", "text": t} for i, t in DOCUMENTS.items()],
        "queries": [{"_id": "q1", "text": "red dress"}, {"_id": "q2", "text": "hat"}],
        table: [
            {"query-id": query, "corpus-id": document, "score": grade}
            for query, document, grade in (("q1", "d1", 3), ("q1", "d2", 1), ("q2", "d3", 2))
        ],
    }
    for part, part_rows in rows.items():
        (folder / part).mkdir(parents=True)
        pq.write_table(
            pa.Table.from_pylist(part_rows), folder / part / "test-00000-of-00001.parquet"
        )
    return folder


@pytest.mark.parametrize("make", [
    write_beir,
    lambda folder: write_beir(folder, ".gz"),
    lambda folder: write_beir(folder, split="dev"),
    write_mteb,
    lambda folder: write_mteb(folder, "default"),
    lambda folder: write_mteb(folder, "data"),
], ids=["BEIR", "packed", "another split", "MTEB", "MTEB default", "MTEB data"])  # fmt: skip
def test_a_folder_is_one_collection_through_every_door(tmp_path, make):
    folder = make(tmp_path / "dresses")
    assert read(folder, documents=None) == DRESS
    assert read(folder, documents=folder) == DRESS
    (collection,) = find_collections(folder)
    by_text = {collection.queries[query]: grades for query, grades in collection.qrels.items()}
    assert by_text == DRESS
    assert dict(collection.documents) == DOCUMENTS == dict(load_domain(folder).texts)
    assert read_entries(folder).texts == ["red dress", "hat"]


def test_several_splits_are_named_and_none_is_guessed(tmp_path):
    folder = write_beir(tmp_path / "b", split="dev")
    (folder / "qrels/train.tsv").write_text("q1\td1\t1\n")
    with pytest.raises(DataError, match=r"several other splits: dev, train.* --judgements"):
        load_domain(folder)
    assert read(folder, folder / "qrels/dev.tsv", documents=None) == DRESS
    assert read_entries(folder).texts == ["red dress", "hat"]


def test_data_in_memory():
    class EmbeddingQAFinetuneDataset:
        queries, corpus, relevant_docs = (LLAMA[n] for n in ("queries", "corpus", "relevant_docs"))

    relevant = {"red dress": {"d1": 3}, "hat": {"d3": 3}}
    for source in (LLAMA, EmbeddingQAFinetuneDataset()):
        assert read(source, documents=None) == relevant
    frame = pd.DataFrame(ROWS)
    for table in (frame, pl.DataFrame(ROWS), Dataset.from_list(ROWS), ROWS):
        assert read(table) == DRESS
    texts = {"q1": "red dress", "q2": "hat"}
    qrels = {"q1": {"d1": 3, "d2": 1}, "q2": {"d3": 2}}
    from ir_measures import Qrel

    named = [Qrel(q, d, g) for q, grades in qrels.items() for d, g in grades.items()]
    columns = [
        {"query_id": row.query_id, "doc_id": row.doc_id, "relevance": row.relevance}
        for row in named
    ]
    for judgements in (qrels, named, pd.DataFrame(columns), pl.DataFrame(columns)):
        assert read(texts, judgements) == DRESS
    assert read([{"id": "q1", "text": "red dress"}, {"id": "q2", "text": "hat"}], qrels) == DRESS


def test_ids_are_texts_and_other_spellings_are_named():
    # A column of whole numbers becomes one of floats as soon as a value is missing.
    frame = pd.DataFrame({"query": ["a", "b"], "docid": [1.0, 2.0], "rating": [1, None]})
    assert read(frame, documents={"1": "x", "2": "y"}) == {"a": {"1": 1}}
    with pytest.raises(DataError, match=r"'7' is missing, and '007' is there"):
        read([{"query": "spy", "expected": ["7"]}])
    with pytest.raises(DataError, match=r"'D1' is missing, and 'd1' is there"):
        read([{"query": "spy", "expected": ["D1"]}])
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    with pytest.raises(DataError, match="another Unicode form"):
        read([{"query": "x", "expected": [composed, "d1"]}], documents={decomposed: "x", "d1": "y"})


def test_documents_of_people(tmp_path):
    folder = tmp_path / "notes"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a red dress")
    (folder / "sub/b.md").write_text("# A hat")
    (folder / ".hidden.md").write_text("no")
    (folder / "c.pdf").write_bytes(b"%PDF")
    (folder / "link.txt").symlink_to(folder / "a.txt")
    domain = load_domain([{"query": "hat", "expected": ["sub/b.md"]}], folder)
    assert dict(domain.texts) == {"a.txt": "a red dress", "sub/b.md": "# A hat"}
    assert (
        "2 documents (files that end in .txt, .md; their paths are the ids; 1 other"
        in "\n".join(domain.understood)
    )
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: expected files that end in \.txt, \.md"):
        load_domain([{"query": "hat", "expected": ["a"]}], tmp_path / "empty")
    corpus = write(
        tmp_path, "corpus.jsonl", lines([{"_id": "d1", "title": "Dress", "text": "red"}])
    )
    domain = load_domain([{"query": "x", "expected": ["d1"]}], corpus)
    assert dict(domain.texts) == {"d1": "Dress red"}
    assert "corpus.jsonl: 1 document (columns _id, title, text)" in "\n".join(domain.understood)


def test_texts_of_queries_without_judgements(tmp_path):
    expected = ["red dress", "hat"]
    for name, text in {
        "q.txt": "red dress\n\nhat\n",
        "ids.txt": "1\tred dress\n2\that\n",
        "q.tsv": TEXTS["q.tsv"],
        "q.csv": "query\nred dress\nhat\n",
        "log.csv": "time,query,clicks\n10:00,red dress,3\n10:01,hat,0\n10:02,red dress,1\n",
        "q.jsonl": TEXTS["q.jsonl"],
        "q.json": json.dumps({"q1": "red dress", "q2": "hat"}),
        "strings.json": json.dumps(expected),
        "set.json": json.dumps(
            {"name": "s", "querySetQueries": [{"queryText": t} for t in expected]}
        ),
    }.items():
        assert read_entries(write(tmp_path, name, text)).texts == expected, name
    with pytest.raises(DataError, match=r"x\.csv:1: no column 'query'; columns: a, b, c; right"):
        read_entries(write(tmp_path, "x.csv", "a,b,c\n1,2,3\n"))


def test_every_example_of_the_guide_is_read(tmp_path):
    page = (REPOSITORY / "book/guide/decide.md").read_text(encoding="utf-8")
    fold = page.split("<summary>An example of each</summary>")[1].split("</details>")[0]
    pattern = r"^```{code-block} text\n:caption: (\S+)[^\n]*\n(.*?)```"
    texts = dict(re.findall(pattern, fold, re.MULTILINE | re.DOTALL))
    assert len(texts) == 12
    queries = write(tmp_path, "queries.tsv", texts.pop("queries.tsv"))
    documents = write(tmp_path, "docs.csv", texts.pop("docs.csv"))
    assert load_domain(queries, documents, judgements={"q2": ["d3"]}).texts["d3"] == (
        "a red hat; with a\nfeather"
    )
    for name, text in texts.items():
        file = write(tmp_path, name.replace("/", "-"), text)
        if "qrels" in name:
            assert read(queries, file) == DRESS, name
        else:
            found = read(file)
            assert found.keys() == DRESS.keys(), name
            assert all("d3" in grades or "d1" in grades for grades in found.values()), name


def test_a_collection_is_made_of_files_too(tmp_path):
    queries = write(tmp_path, "q.tsv", TEXTS["q.tsv"])
    documents = write(tmp_path, "d.json", json.dumps(DOCUMENTS))
    qrels = write(tmp_path, "qrels.txt", LISTS["qrels"][2])
    collection = TestCollection.from_texts(queries, documents, qrels)
    assert dict(collection.qrels) == {"q1": {"d1": 3, "d2": 1}, "q2": {"d3": 2}}
    assert dict(collection.documents) == DOCUMENTS
    with pytest.raises(DataError, match=r"is read by qwen3nb domain --queries"):
        find_collections(qrels)


IDS = st.text(
    st.characters(whitelist_categories=("L", "N"), whitelist_characters=" ,;-_/#\"'"),
    min_size=1,
    max_size=8,
).filter(lambda text: text.strip() == text and not text.startswith(("/", "#", "'")))
GRADES = st.one_of(st.integers(-2, 9), st.sampled_from([0.5, 1.25, 2.75]))


def golden(name, qrels):
    """Queries with their grades under the name that a format has for them."""
    return [{"query": query, name: grades} for query, grades in qrels.items()]


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(
        IDS, st.dictionaries(IDS, GRADES, min_size=1, max_size=3), min_size=1, max_size=4
    )
)
def test_every_format_gives_the_same_queries_and_grades(tmp_path_factory, qrels):
    """Queries are called by their texts, so that formats without ids can express them."""
    qrels = {query: {**grades, "d1": 2} for query, grades in qrels.items()}
    documents = {document: "text" for grades in qrels.values() for document in grades}
    folder = tmp_path_factory.mktemp("formats")
    rows = [
        {"query": query, "docid": document, "rating": grade}
        for query, grades in qrels.items()
        for document, grade in grades.items()
    ]
    frame = pd.DataFrame(rows)
    frame.to_csv(folder / "g.csv", index=False)
    frame.to_csv(folder / "semicolons.csv", index=False, sep=";")
    frame.to_csv(folder / "utf16.csv", index=False, encoding="utf-16")
    frame.to_csv(folder / "g.tsv", index=False, sep="\t")
    frame.to_parquet(folder / "g.parquet")
    (folder / "g.jsonl").write_text(lines(rows))
    (folder / "quepid.json").write_text(json.dumps({"queries": golden("ratings", qrels)}))
    rated = {
        query: [{"docId": document, "rating": f"{grade:.3f}"} for document, grade in grades.items()]
        for query, grades in qrels.items()
    }
    (folder / "opensearch.json").write_text(
        json.dumps({"judgmentRatings": golden("ratings", rated)})
    )
    highest = max(max(grades.values()) for grades in qrels.values())
    scale = {"queries": golden("relevance_grades", qrels), "settings": {"highest_grade": 9}}
    (folder / "ours.json").write_text(json.dumps(scale))
    (folder / "ours.yaml").write_text(yaml.safe_dump(scale))
    found = {file.name: read(file, documents=documents) for file in folder.iterdir()}
    found["ranx"] = read({query: query for query in qrels}, qrels, documents=documents)
    found["frame"] = read(frame, documents=documents)
    for name, grades in found.items():
        assert grades == qrels, name
    collection = TestCollection.from_texts({query: query for query in qrels}, documents, qrels)
    assert {query: dict(grades) for query, grades in collection.qrels.items()} == qrels
    if highest > 3:
        with pytest.raises(DataError, match="highest_grade under"):
            read(golden("relevance_grades", qrels), documents=documents)

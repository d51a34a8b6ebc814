"""A mean over a folder of BEIR folders: a part that is incomplete is an error with its name."""

import json
import shutil
from pathlib import Path

import pytest

from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.retrieval.rerank import rerank_items

QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t1\n"


def write(folder, *, qrels=QRELS, split="test"):
    (folder / "qrels").mkdir(parents=True)
    texts = {"d1": "sort a list", "d2": "join two strings"}
    lines = [json.dumps({"_id": name, "title": "", "text": text}) for name, text in texts.items()]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "sort list"}\n')
    (folder / f"qrels/{split}.tsv").write_text(qrels)
    return folder


@pytest.fixture
def group(tmp_path):
    for name in ("android", "english", "gaming"):
        write(tmp_path / "cqa" / name)
    (tmp_path / "cqa/README.md").write_text("# Data")
    (tmp_path / "cqa/.cache").mkdir()
    return tmp_path / "cqa"


def test_a_whole_group_is_read(group):
    names = [collection.name for collection in find_collections(group)]
    assert names == ["cqa-android", "cqa-english", "cqa-gaming"]


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (lambda part: (part / "corpus.jsonl").unlink(), "gaming: no corpus.jsonl"),
        (lambda part: (part / "queries.jsonl").unlink(), "gaming: no queries.jsonl"),
        (lambda part: (part / "qrels/test.tsv").unlink(), "gaming: no qrels/test.tsv"),
        (lambda part: shutil.rmtree(part / "qrels"), "gaming: no qrels/test.tsv"),
        (lambda part: (part / "corpus.jsonl").write_text(""), "gaming"),
        (lambda part: (part / "qrels/test.tsv").write_text(""), "gaming"),
        (lambda part: (shutil.rmtree(part), part.mkdir()), "gaming: no BEIR folder"),
        (
            lambda part: (shutil.rmtree(part), part.with_suffix(".zip").write_bytes(b"PK")),
            "gaming.zip: no BEIR folder",
        ),
        (
            lambda part: (part / "qrels/test.tsv").rename(part / "qrels/dev.tsv"),
            "gaming: has the split 'dev', and android has 'test'",
        ),
    ],
)
def test_an_incomplete_part_is_an_error_with_its_name(group, tmp_path, damage, name):
    damage(group / "gaming")
    with pytest.raises(DataError, match=name):
        find_collections(group)
    with pytest.raises(DataError, match=name):
        list(rerank_items(group))
    run = evaluate("bm25", group, output=tmp_path / "o", show_progress=False, strict=False)
    assert list(run.results) == []
    assert name in run.failures[str(group)]


def test_a_part_that_cannot_be_listed_is_named(group, monkeypatch):
    listed = Path.iterdir

    def refuse(path):
        if path.name == "gaming":
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(DataError, match="gaming: cannot be read"):
        find_collections(group)


def test_the_only_split_is_read_and_named(tmp_path):
    folder = write(tmp_path / "mine", split="dev")
    assert TestCollection.from_beir(folder).name == "mine-dev"
    (folder / "qrels/train.tsv").write_text(QRELS)
    with pytest.raises(DataError, match="several other splits: dev, train"):
        TestCollection.from_beir(folder)
    assert TestCollection.from_beir(folder, split="train").name == "mine-train"


@pytest.mark.parametrize(
    "qrels",
    [
        QRELS + "\n",
        "\n" + QRELS.partition("\n")[2] + "\r\n",
        "query_id\tdoc_id\tRelevance\nq1\td1\t1\n",
        "qid\tpid\tlabel\nq1\td1\t1\n",
    ],
)
def test_blank_lines_and_other_headers_of_qrels(tmp_path, qrels):
    collection = TestCollection.from_beir(write(tmp_path / "mine", qrels=qrels))
    assert collection.qrels == {"q1": {"d1": 1}}

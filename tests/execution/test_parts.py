"""Parts of an evaluation: how it is divided, and that their records are those of the whole."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
from helpers.study import with_small_pydocs

from qwen3nb.cluster.nodes import run_facts
from qwen3nb.evaluation.mteb.costs import Planned
from qwen3nb.execution import child, parts
from qwen3nb.execution import sweep as sweeps
from qwen3nb.execution.executors import RayExecutor, RunOutcome
from qwen3nb.execution.parts import divided, parts_of, tasks_memory
from qwen3nb.execution.sweep import Job, needs_gpu, sweep
from qwen3nb.records.store import load_results
from qwen3nb.report.evaluation.checked_run import check_and_evaluate
from qwen3nb.utils.atomic_files import read_json, write_json


def planned(task, characters, dataset=""):
    sized = {"minutes": None, "characters": characters}
    return Planned(task, "Retrieval", dataset or task, "1", None, **sized)


def test_parts_are_about_equal_and_a_corpus_is_in_one():
    tasks = [
        planned("A", 4),
        planned("B", 7),
        planned("C", 5, dataset="shared"),  # the texts of C are encoded once, with D
        planned("D", 1, dataset="shared"),
        planned("E", 3),
        planned("BHardNegatives", 1),
        planned("F", 0),
    ]
    # 7, 5, 4 and 3 into two: 7 + 3 and 5 + 4; F, of unknown size, goes to the smaller.
    first, second = divided(tasks, 2)
    assert first == ("B", "BHardNegatives", "E")
    assert second == ("C", "D", "A", "F")
    assert [len(divided(tasks, count)) for count in (1, 3, 9)] == [1, 3, 5]


def test_an_evaluation_is_divided_if_that_is_worth_it(monkeypatch):
    values = dict.fromkeys(parts.SELECTION, "") | {"tier": "smoke", "checkpoint": "random:8"}
    values |= {"data": "", "limit": 0, "prompts": "", "base": ""}
    assert parts_of(values, slots=4, runs=1) == []  # too small
    monkeypatch.setattr(parts, "_LEAST_CHARACTERS", 1e3)
    pydocs, pairs = parts_of(values, slots=4, runs=1)
    assert pairs == ("AuthorSTS",)
    assert len(pydocs) == 4  # on one corpus
    assert parts_of(values | {"checkpoint": "bm25"}, slots=4, runs=1) == []
    # Processes that share it have what one process does, however small.
    assert parts.shares_of(values, 2) == [pydocs, pairs]
    assert parts.shares_of(values | {"checkpoint": "bm25"}, 4) == [
        ("PyDocsSampleRetrieval", "PyDocsSampleReranking")
    ]
    shares = parts.shares_of(values | {"data": "a, b,c"}, 2)
    assert shares == [("a", "c"), ("b",)]
    for other in ({"data": "folder"}, {"limit": 5}, {"prompts": "3"}, {"checkpoint": ""}):
        assert parts_of(values | other, slots=4, runs=1) == []


@pytest.mark.integration
def test_the_records_of_parts_are_those_of_the_whole(checkout, tmp_path, monkeypatch):
    with_small_pydocs(monkeypatch)
    values = {"tier": "smoke", "pooling": "auto", "seed": 0, "batch_size": 32, "cache": False}
    whole = check_and_evaluate("random:8", **values).results
    monkeypatch.setenv("QWEN3NB_RESULTS", str(tmp_path / "parts"))
    for key in {result.task.key for result in whole}:
        check_and_evaluate("random:8", only=[key], **values)
    for one, other in zip(load_results(), sorted(whole, key=lambda r: r.task.key), strict=True):
        for name in ("model", "metrics", "per_query", "config", "environment", "parts"):
            assert getattr(one, name) == getattr(other, name), name
        assert replace(one.task, mteb=None) == replace(other.task, mteb=None)  # with its time


def test_a_node_runs_only_with_the_facts_of_the_driver(checkout, tmp_path, monkeypatch):
    ran, orders, facts = [], tmp_path / "orders.json", run_facts()
    monkeypatch.setattr(child, "check_and_evaluate", lambda **part: ran.append(part))
    for given, count in (({}, 1), (facts, 2), (facts | {"code": "b35f"}, 2)):
        part = {"only": ["T"]}
        write_json(orders, {"facts": given, "models": [], "arguments": [], "part": part})
        child.main(orders)
        assert ran == [part] * count
    assert read_json(tmp_path / "facts.json") == facts


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("status", [0, 1])  # of a part; the page reports failures
def test_the_page_of_parts_comes_last_and_where_their_records_are(
    checkout, monkeypatch, shared, status
):
    class Cluster(RayExecutor):
        slots, at_once, stopped = 4, 1, False

        def __init__(self):
            self.ran, self.needs, self.nodes_see_records = [], [], shared

        def check_presence_of_nodes(self):
            """Its nodes are there."""

        def run(self, command, *, log):
            self.ran.append((command.part.get("only"), command.on_this_machine))
            self.needs.append((command.memory >> 30, command.needs_gpu))
            return RunOutcome(command.name, status if command.part else 0)

    cluster = Cluster()
    monkeypatch.setattr(sweeps, "_executor", lambda *_, **__: nullcontext(cluster))
    monkeypatch.setattr(sweeps, "parts_of", lambda *_, **__: [("A", "B"), ("C",)])
    needs = {(): 95 << 30, ("A", "B"): 95 << 30, ("C",): 3 << 30}
    monkeypatch.setattr(sweeps, "tasks_memory", lambda _, keys=(): needs[keys])
    (outcome,) = sweep([Job("eval", {"checkpoint": "random:8"})], ray="auto", show_progress=False)
    assert outcome.status == "done"
    assert sorted(cluster.ran[:2]) == [(("A", "B"), False), (("C",), False)]
    assert cluster.ran[2:] == [(None, not shared)]
    # Memory for its tasks and 1.5 GiB; random vectors need no GPU.
    page = (96, False) if status else (1, False)
    assert sorted(cluster.needs[:2]) == [(4, False), (96, False)]
    assert cluster.needs[2:] == [page]


def test_a_part_asks_for_the_memory_of_its_largest_task():
    values = dict.fromkeys(parts.SELECTION, "") | {"checkpoint": "random:8", "data": ""}
    values |= {"tasks": "MindSmallReranking,SciFact", "limit": 0, "prompts": "", "base": ""}
    scifact = tasks_memory(values, ["SciFact"])
    assert scifact < 2e9
    assert tasks_memory(values) == tasks_memory(values, ["MindSmallReranking"]) > 10 * scifact
    bm25 = tasks_memory(values | {"checkpoint": "bm25"}, ["SciFact"])
    assert 1.5e8 < bm25 < 3e8  # an index
    assert tasks_memory(values | {"data": "folder"}) == 0


def test_only_what_encodes_asks_for_a_gpu(checkout):
    models = {"bm25": False, "random:8": False, "bm25+random:8": False, "all-MiniLM-L6-v2": True}
    for model, expected in models.items():
        assert needs_gpu(Job("eval", {"checkpoint": model})) is expected
    assert needs_gpu(Job("compare", {}))  # a page; runs on this machine, see `_runs_here`

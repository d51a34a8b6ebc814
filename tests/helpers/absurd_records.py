"""Records with absurd fields, and everything that shows records."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import qwen3nb as q
from helpers.records import RERANKING, RETRIEVAL, amend, make, noisy, own, signed
from qwen3nb import paths
from qwen3nb.book.build import page_links, write_card_page
from qwen3nb.book.sphinx_ext import toy_labels
from qwen3nb.book.status import (
    data_versions_table,
    failed_runs_table,
    software_table,
    status_conclusion,
    verification_table,
)
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.records.record import MTEBScore, Part
from qwen3nb.records.store import load_failures
from qwen3nb.report.comparison.explorer import explore
from qwen3nb.report.leaderboard.board import headline_task, standings
from qwen3nb.report.render.home import command_again

LONG = "x" * 10_000
ABSURD = {
    "nothing": None,
    "a long text": LONG,
    "a long path": "/".join(["y" * 200] * 50),
    "a long name": "z" * 300,
    "empty": "",
    "NaN as text": "NaN",
    "a lone surrogate": "\ud800",
    "control characters": "\x1b[31m\x00\n",
    "out of the folder": "../../../etc/passwd",
    "negative": -5,
    "huge": 1e308,
    "an endless integer": 10**400,
    "a fraction": 0.5,
    "truth": True,
    "a list": [[]],
    "a mapping": {"a": {"b": [1]}},
    "deep": json.loads("[" * 300 + "]" * 300),
    "wide": {LONG: 1},
}


def of_many_kinds():
    """Records of a retrieval with parts, of data of one's own, of a reranking, of an STS task."""
    retrieval = make("bad", noisy(0.5, seed=1), task=RETRIEVAL, config={"tier": "smoke"})
    amend(
        retrieval,
        "task",
        mteb=MTEBScore("ndcg_at_10", retrieval.main.value),
        size={"documents": 90, "queries": 40},
        counts={"empty texts": 2},
        splits=("test",),
        subsets=("default",),
        languages=("eng-Latn",),
    )
    part = Part("test", "default", ("eng-Latn",), retrieval.main, retrieval.main.value)
    object.__setattr__(retrieval, "parts", (part,))
    retrieval.config["checkpoint"] = "bad"
    retrieval.config["top"] = {f"q{i}": ["d1", "d2"] for i in range(40)}
    reranking = make(
        "bad",
        noisy(0.5, seed=2),
        task="PyDocs.bm25-20",
        config={
            "collection": "PyDocs",
            "group": "",
            "parts": 1,
            "limit": 0,
            "counts": {"scored": 3},
            "first": {"kind": "bm25", "depth": 20, "data": "r"},
            "longest_query": None,
        },
    )
    amend(reranking, "task", type="Reranking")
    return {"retrieval": retrieval, "own": own("bad", 0.5), "reranking": reranking, "sts": sts()}


def sts():
    """A record of an STS task, whose main metric is a correlation."""
    pairs = {f"p{i}": i / 30 for i in range(30)}
    columns = {"gold": pairs, "cosine": {name: value**2 for name, value in pairs.items()}}
    spearman = aggregate(columns, how="spearman", columns=("gold", "cosine"))
    result = make(
        "bad",
        pairs,
        task="AuthorSTS",
        metric="cosine_spearman",
        metrics={"cosine_spearman": spearman},
        per_query=columns,
    )
    amend(result, "task", type="STS", unit="pairs")
    return result


def good_records():
    """Records of three models that nothing is wrong with, on the tasks of the others."""
    for number, label in enumerate(("one", "two", "three")):
        make(label, noisy(0.5 + number / 20, seed=number), task=RETRIEVAL).save()
        make(label, noisy(0.4 + number / 20, seed=number), task=RERANKING).save()
    own("one", 0.4).save()


def field_paths(value, at=()):
    """Yield the path of every field of a record's JSON."""
    for name in value:
        yield (*at, name)
        if isinstance(value[name], dict):
            yield from field_paths(value[name], (*at, name))
        elif isinstance(value[name], list) and value[name] and isinstance(value[name][0], dict):
            yield (*at, name, 0)
            yield from field_paths(value[name][0], (*at, name, 0))


def spoiled(value, keys, absurd):
    """A record's JSON with ``absurd`` at ``keys``, signed as if it had been written so."""
    changed = copy.deepcopy(value)
    inner = changed
    for name in keys[:-1]:
        inner = inner[name]
    inner[keys[-1]] = absurd
    return signed(changed)


def show_everything(folder: Path):
    """Make what the pages, the commands and the card show of the records; return them."""
    results = q.load_results(adapters=False)
    links = page_links(results)
    tier = "smoke"
    task = headline_task(results, tier=tier)
    comparison = q.compare(results, tier=tier)
    tables = [
        q.leaderboard(results, tier=tier, comparison=comparison, links=links),
        q.tables.task_tables(results, tier=tier, links=links),
        q.tables.rank_table(standings(results, tier=tier)),
        q.tables.sts_and_msmarco_table(results),
        q.tables.expected_table(results),
        q.tables.other_scores_table(results, tier=tier),
        q.tables.cost_table(results, links=links),
        q.tables.failures_table(load_failures()),
        q.tables.headline_table(results, tier=tier, links=links, most=10),
        q.tables.overview_table(comparison),
        q.tables.correlations_table(comparison),
        q.tables.breakdown_table(comparison),
        failed_runs_table(),
        verification_table(),
        data_versions_table(results),
        software_table(results),
    ]
    for table in tables:
        if table is not None:
            getattr(table, "to_html", table.__str__)()
    str(status_conclusion(results))
    explorer = explore(results, task=task, metric="nDCG@10")
    explorer.to_frame()
    explorer.table()
    toy_labels(results)
    write_card_page(results)
    [command_again(result) for result in results]
    results.to_frame(all_metrics=True)
    repr(results)
    [repr(result) for result in results]
    paths.results()
    return results

"""A study of two models in a folder, as evaluations leave it, in a tenth of a second.

One model's run and qrels are kept, and MTEB's own result of it; the other has best documents only.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from helpers.records import make
from qwen3nb.answers.all_results import write_all_results
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.records.details import DataFacts, RunFiles, SearchFacts, UsedPrompt
from qwen3nb.records.record import MTEBScore, TaskInfo
from qwen3nb.records.side_files import run_path
from qwen3nb.utils.atomic_files import sha256_file, write_text
from qwen3nb.utils.journal import noted

TASK, OTHER = "Search", "Pairs"
METRICS = ("nDCG@10", "MRR@10", "Recall@10")
QUERIES, DOCUMENTS = [f"q{i}" for i in range(12)], [f"d{i}" for i in range(20)]


def write_study(folder):
    """Write records of models ``a`` and ``b`` with their files, list and summary; ``c`` failed."""
    rng = np.random.default_rng(0)
    qrels = {query: {f"d{i}": 1} for i, query in enumerate(QUERIES)}
    for label in ("a", "b"):
        drawn = rng.uniform(size=(len(QUERIES), len(DOCUMENTS))).tolist()
        rows = [dict(zip(DOCUMENTS, row, strict=True)) for row in drawn]
        run = dict(zip(QUERIES, rows, strict=True))
        result = _searched(label, run, qrels)
        if label == "a":
            result = _with_runs(result, folder, run, qrels)
        result = _with_mteb(result, folder)
        result.save(folder)
        make(label, rng.uniform(size=12).tolist(), task=OTHER).save(folder)
    write_text(folder / "c-1a2b3c4d" / "seed_0" / f"{TASK}.error.txt", "ValueError: no model")
    write_all_results(folder)


def _searched(label, run, qrels):
    scores = score_run(qrels, run, METRICS, zeros=True)
    per_query = {name: dict(scores[name]) for name in METRICS}
    metrics = {name: aggregate(per_query, how="mean", columns=(name,)) for name in METRICS}
    task = TaskInfo(
        TASK,
        "Retrieval",
        "nDCG@10",
        dataset="lab/search",
        revision="r" * 40,
        size={"documents": 20, "queries": 12},
        mteb=MTEBScore("ndcg_at_10", metrics["nDCG@10"].value),
        categories=dict.fromkeys(QUERIES, "all"),
        splits=("test",),
        subsets=("default",),
        languages=("eng",),
        counts={"empty texts": 1},
        clusters={query: f"c{i // 2}" for i, query in enumerate(QUERIES)},
    )
    best = {query: sorted(ranked, key=ranked.get)[::-1][:5] for query, ranked in run.items()}
    return replace(
        make(label),
        task=task,
        metrics=metrics,
        per_query=per_query,
        options={"tier": "smoke", "limit": 0},
        prompt=UsedPrompt("short", "find: ", "0" * 64),
        data=DataFacts(queries={query: f"text of {query}" for query in QUERIES}),
        search=SearchFacts(depth=20, dimensions=8, seconds_per_query=0.01),
        top=best,
    )


def _with_runs(result, folder, run, qrels):
    """Keep run and qrels next to the record, as ``--runs`` does."""
    lines = [
        f"{query} Q0 {document} {rank} {score} a\n"
        for query, ranked in run.items()
        for rank, (document, score) in enumerate(
            sorted(ranked.items(), key=lambda item: -item[1]), start=1
        )
    ]
    grades = [
        f"{query} 0 {name} {grade}\n" for query in qrels for name, grade in qrels[query].items()
    ]
    names = {}
    for kind, text in (("trec", "".join(lines)), ("qrels", "".join(grades))):
        draft = write_text(folder / "draft", text)
        digest = sha256_file(draft)
        file = run_path(result.path(folder), digest, kind=kind)
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.rename(file)
        names[kind] = {file.name: digest}
    return replace(result, files=RunFiles(runs=names["trec"], qrels=names["qrels"]))


def _with_mteb(result, folder):
    """Keep MTEB's own result, with its list of checksums."""
    theirs = folder / "mteb" / "results" / f"qwen3nb__{result.model.label}"
    theirs /= result.model.identity[:40]
    scores = [{"main_score": result.main.value, "hf_subset": "default", "languages": ["eng-Latn"]}]
    outcome = {"dataset_revision": result.task.revision, "scores": {"test": scores}}
    model = result.model
    meta = {"name": f"qwen3nb/{model.label}", "revision": theirs.name}
    meta["n_parameters"] = model.parameters
    digests = {}
    for name, value in ((f"{TASK}.json", outcome), ("model_meta.json", meta)):
        file = write_text(theirs / name, json.dumps(value))
        digests[name] = sha256_file(file)
        with noted(file.with_name("checksums.jsonl"), f"{name} {digests[name]}"):
            pass
    mteb = replace(result.task.mteb, file=digests[f"{TASK}.json"])
    return replace(result, task=replace(result.task, mteb=mteb))

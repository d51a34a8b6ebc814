"""Links to the provenance of a number: the page of its run, formula, command and file."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from qwen3nb.records.record import Result
from qwen3nb.records.side_files import ResultError
from qwen3nb.utils.format import option_words

_AT = re.compile(r"(?:@|_at_)\d+$")
_BEFORE = re.compile(r"^(?:first|gain|oracle|macro|cosine|max_over_subqueries)[ _]")

# Metrics (without cut-off) with a formula in book/methods.md, and aliases.
FORMULAS = frozenset(
    "ndcg mrr recall precision map accuracy f1 v-measure spearman difference tir".split()  # noqa: SIM905
)
_ALSO = {"ndcgexp": "ndcg", "hit": "recall", "p": "precision", "judged": "precision"}
_ALSO |= {"ap": "map", "pearson": "spearman"}

# Parameters of the evaluation notebook that a command may omit, with their defaults.
EVAL_DEFAULTS: Mapping[str, Any] = {
    "languages": "",
    "splits": "",
    "subsets": "",
    "limit": 0,
    "relevance_threshold": 1,
    "pooling": "auto",
    "max_length": 0,
    "dimensions": 0,
    "prefix": "",
    "append_eos": False,
    "bidirectional": False,
    "batch_size": 32,
    "device": "auto",
    "dtype": "float32",
    "seed": 0,
}


def task_anchor(task: str) -> str:
    """Return the id of a task's row in the provenance table of a run's page."""
    return "score-" + re.sub(r"[^a-z0-9]+", "-", task.lower()).strip("-")


def score_link(result: Result, links: Mapping[str, str]) -> str:
    """Return the link to that row; empty if the run has no page in ``links`` (see `page_links`)."""
    page = links.get(result.run, "")
    return f"{page}#{task_anchor(result.task.key)}" if page else ""


def formula_link(metric: str) -> str:
    """Return the link to a metric's definition; empty if it has none.

    >>> formula_link("first nDCG@10"), formula_link("summary score")
    ('../methods.html#formula-ndcg', '')
    """
    name = _BEFORE.sub("", _AT.sub("", metric.strip())).lower().replace("_", "-")
    name = _ALSO.get(name, name)
    return f"../methods.html#formula-{name}" if name in FORMULAS else ""


def record_link(result: Result) -> str:
    """Return the link to a record's file, with the scores of every query.

    Empty if the record has no file, because a name is not safe in a path.
    """
    try:
        path = result.path()
    except ResultError:
        return ""
    return "/".join(("../records", *path.parts[-3:]))


def command_again(result: Result, *, whole: bool = False) -> str:
    """Return the command that measures a score again; empty if there is none.

    It writes to another folder, so stored records are neither reused nor replaced. With ``whole``,
    it repeats the whole evaluation with all of its tasks.
    """
    config, settings = result.config, result.model.settings
    if "first" in config and "collection" in config:
        first, template = config["first"], settings.get("template") or [""]
        label = result.task.name.removeprefix(f"{config['collection']}.").rpartition("-")[0]
        options = {
            "model": result.model.spec,
            "first": first["kind"] if first.get("kind") in ("bm25", "given") else label,
            "depth": first["depth"],
            "max-length": settings.get("max_length", 512),
            "template": template[0],
            "instruction": settings.get("instruction", ""),
            "dtype": settings.get("dtype", "float32"),
            "seed": result.seed,
        }
        options |= {"limit": config["limit"]} if config.get("limit") else {}
        words = ["qwen3nb", "rerank-suite", str(config["collection"])]
    elif settings.get("normalize") is False:
        return ""  # the evaluation has no such option
    else:
        words = ["qwen3nb", "eval"]
        given = {name: config.get(name) for name in ("tasks", "benchmark", "types", "tier")}
        selected = {"tasks": result.task.name}
        if config.get("data"):
            selected = {"data": config["data"]}
        elif whole:
            selected = {name: value for name, value in given.items() if value}
            if len(selected) > 1:
                selected.pop("tier", None)  # replaced by the other options
        used = config if "checkpoint" in config else {**settings, "seed": result.seed}
        options = {"model": config.get("checkpoint") or result.model.spec, **selected}
        for name, default in EVAL_DEFAULTS.items():
            if used.get(name, default) not in (None, default):
                options[name] = used[name]
    words += [word for name, value in options.items() for word in option_words(name, value)]
    # A separate folder: the original records are not reused.
    return shlex.join([*words, "--out", "again", "--fresh"])

"""Links to the provenance of a number: the page of its run, formula, command and file."""

import functools
import re
import shlex
from collections.abc import Mapping
from typing import Any

from qwen3nb.metrics.retrieval import METRICS
from qwen3nb.records.record import Result
from qwen3nb.records.side_files import ResultError
from qwen3nb.tiers import NANO
from qwen3nb.utils.format import option_words

_THRESHOLD = re.compile(r"\(rel=[\d.]+\)$")  # "(rel=2)" of "P(rel=2)"
_DEPTH = re.compile(r"(?:@|_at_)\d+$")  # "@10" of "nDCG@10", "_at_10" of "ndcg_at_10"
# "oracle " of "oracle nDCG@10", "cosine_" of "cosine_spearman"
_PREFIX = re.compile(r"^(?:first|gain|oracle|macro|cosine|max_over_subqueries)[ _]")

# Formulas in book/methods.md of scores that are no retrieval metrics, and other names of scores.
OTHER_FORMULAS = ("accuracy", "f1", "v-measure", "spearman", "difference", "tir")
_OTHER_NAMES = {"precision": "precision", "ap": "map", "pearson": "spearman"}

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
    if not page:
        return ""
    return f"{page}#{task_anchor(result.task.key)}"


def formula_link(metric: str) -> str:
    """Return the link to a metric's definition; empty if it has none.

    >>> formula_link("first nDCG@10"), formula_link("summary score")
    ('../methods.html#formula-ndcg', '')
    """
    name = _THRESHOLD.sub("", _DEPTH.sub("", metric.strip()))
    name = _PREFIX.sub("", name)
    anchor = _formula_anchors().get(name.lower().replace("_", "-"))
    if anchor is None:
        return ""
    return f"../methods.html#formula-{anchor}"


@functools.cache
def _formula_anchors() -> dict[str, str]:
    """Return the anchor of the formula of each metric."""
    anchors = {name: name for name in OTHER_FORMULAS} | _OTHER_NAMES
    for metric, definition in METRICS.items():
        anchors[metric.lower().replace("_", "-")] = definition.formula
    return anchors


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
    # Folders are cut by `eval` alone.
    is_cut_folder = bool(result.data.nano and result.options.get("data"))
    first_stage, collection = result.search.first, result.data.collection
    if first_stage is not None and collection is not None and not is_cut_folder:
        name = f"{collection}-{NANO}" if result.data.nano else collection
        words = ["qwen3nb", "rerank", "suite", name]
        options = _rerank_options(result, first_stage, collection)
    elif result.model.settings.get("normalize") is False:
        return ""  # the evaluation has no such option
    else:
        words = ["qwen3nb", "eval"]
        options = _eval_options(result, whole=whole)
    for name, value in options.items():
        words += option_words(name, value)
    # A separate folder: the original records are not reused.
    return shlex.join([*words, "--out", "again", "--fresh"])


def _rerank_options(
    result: Result, first_stage: Mapping[str, Any], collection: str
) -> dict[str, object]:
    """Return the options of ``qwen3nb rerank suite`` that measure a reranking again."""
    settings = result.model.settings
    # The template's name, then its texts.
    template = settings.get("template") or [""]
    options: dict[str, object] = {
        "model": result.model.spec,
        "first": _first_stage(result, first_stage, collection),
        "depth": first_stage["depth"],
        "max-length": settings.get("max_length", 512),
        "template": template[0],
        "instruction": settings.get("instruction", ""),
        "dtype": settings.get("dtype", "float32"),
        "seed": result.seed,
    }
    if result.limit:
        options["limit"] = result.limit
    return options


def _first_stage(result: Result, first_stage: Mapping[str, Any], collection: str) -> str:
    """Return ``bm25``, ``given``, or the model whose candidates were reranked."""
    kind = str(first_stage.get("kind"))
    if kind in ("bm25", "given"):
        return kind
    # The task "scifact.all-MiniLM-L6-v2-100" reranks 100 documents of that model.
    model_and_depth = result.task.name.removeprefix(f"{collection}.")
    model, _, _ = model_and_depth.rpartition("-")
    return model


def _eval_options(result: Result, *, whole: bool) -> dict[str, object]:
    """Return the options of ``qwen3nb eval`` that measure a score again."""
    options: dict[str, object] = {"model": result.options.get("checkpoint") or result.model.spec}
    options |= _selection(result, whole=whole)
    # Measured in another way: only the settings of its model are known.
    recorded_values = {**result.model.settings, "seed": result.seed}
    if "checkpoint" in result.options:  # measured by this command, or by its notebook
        recorded_values = {**result.options, "relevance_threshold": result.data.relevance_threshold}
    for name, default in EVAL_DEFAULTS.items():
        value = recorded_values.get(name)
        if value is not None and value != default:
            options[name] = value
    return options


def _selection(result: Result, *, whole: bool) -> dict[str, object]:
    """Return the options that select the data of a record, or of its whole evaluation."""
    options = result.options
    if options.get("data"):
        # A tier that cuts the data; it says nothing else about them.
        if result.data.nano:
            return {"data": options["data"], "tier": NANO}
        return {"data": options["data"]}
    if not whole and result.data.nano:
        return {"tasks": f"{result.task.name}-{NANO}"}
    if not whole:
        return {"tasks": result.task.name}  # the task of this record alone
    names = ("tasks", "benchmark", "types", "tier")
    selection: dict[str, object] = {name: options[name] for name in names if options.get(name)}
    if len(selection) > 1 and options.get("tier") != NANO:
        # Tasks, a benchmark or types replace the tier; the tier nano cuts them.
        selection.pop("tier", None)
    return selection

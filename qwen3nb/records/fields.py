"""What the fields of a record may hold: types and bounds, checked before anything uses them.

A file of records may be damaged, or written by another program. What passes here can be shown,
sorted, compared and looked up as a path; a record with anything else is refused as a whole, by
the name of the field. Its scores are checked where they are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from reprlib import Repr
from types import MappingProxyType
from typing import Any

from qwen3nb.metrics.aggregate import AGGREGATES, REPORTED
from qwen3nb.metrics.intervals import INTERVALS

__all__ = ["field_problem"]

Check = Callable[[Any], str]  # returns what is wrong with a value, empty if nothing is

_NAME = 255  # characters
_TEXT = 4096
_PATH = 2048  # with the folder that it is in, no more than any system takes
_LARGEST = 1 << 63  # of a whole number
_LARGEST_NUMBER = 1e15
_LONGEST = 200  # characters of a message
_DEEPEST = 32  # levels of settings and parameters
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SURROGATE = re.compile("[\ud800-\udfff]")


def field_problem(record: Mapping[str, Any]) -> str:
    """Return what is wrong with the fields of a record's JSON; empty if nothing is.

    >>> field_problem({"seed": 0})
    'model: is missing'
    """
    if problem := _RECORD(record):
        problem = problem.removeprefix(".")
        return problem if len(problem) <= _LONGEST else f"…{problem[-_LONGEST:]}"
    main, metrics = record["task"]["main_metric"], record["metrics"]
    return "" if main in metrics else f"task.main_metric: {_cut(main)} is not among the metrics"


def _expected(what: str, value: object) -> str:
    return f": expected {what}; got {_cut(value)}"


def _cut(value: object) -> str:
    short = Repr()
    short.maxlevel, short.maxstring, short.maxlong, short.maxother = 2, 60, 40, 60
    return short.repr(value)


def _text_of(most: int) -> Check:
    def check(value: Any) -> str:
        if type(value) is str and len(value) <= most and not _CONTROL.search(value):
            return ""
        return _expected(f"a text of at most {most:,} characters without control characters", value)

    return check


def _path(value: Any) -> str:
    """Check a model's spec, which may be a path that the system is asked for."""
    if problem := _text_of(_PATH)(value):
        return problem
    if max(len(part.encode()) for part in value.split("/")) <= _NAME:
        return ""
    return _expected(f"names of at most {_NAME} bytes in a path", value)


def _count(value: Any) -> str:
    if type(value) is int and 0 <= value <= _LARGEST:
        return ""
    return _expected("a whole number from 0 to 2^63", value)


def _number(value: Any) -> str:
    if type(value) in (int, float) and abs(value) <= _LARGEST_NUMBER:
        return ""
    return _expected(f"a number of at most {_LARGEST_NUMBER:.0e}", value)


def _amount(value: Any) -> str:
    return _number(value) or ("" if value >= 0 else _expected("a number from 0", value))


def _flag(value: Any) -> str:
    return "" if type(value) is bool else _expected("true or false", value)


def _moment(value: Any) -> str:
    try:
        datetime.fromisoformat(value or "2026-01-01")
    except (TypeError, ValueError):
        return _expected("a time in ISO 8601", value)
    return ""


def _choice(*names: str) -> Check:
    def check(value: Any) -> str:
        if type(value) is str and value in names:
            return ""
        return _expected(f"one of {', '.join(filter(None, names))}", value)

    return check


def _unicode(value: Any) -> str:
    if isinstance(value, str) and not _SURROGATE.search(value):
        return ""
    return _expected("valid Unicode text", value)


def _or_null(check: Check) -> Check:
    return lambda value: "" if value is None else check(value)


def _list_of(check: Check) -> Check:
    def checked(value: Any) -> str:
        if type(value) is not list:
            return _expected("a list", value)
        checks = ((at, check(each)) for at, each in enumerate(value))
        return next((f"[{at}]{problem}" for at, problem in checks if problem), "")

    return checked


def _map_of(check: Check, *, key: Check) -> Check:
    def checked(value: Any) -> str:
        if type(value) is not dict:
            return _expected("an object", value)
        for name, each in value.items():
            if problem := key(name):
                return problem
            if problem := check(each):
                return f".{name}{problem}"
        return ""

    return checked


def _table(fields: Mapping[str, Check], *, needed: tuple[str, ...] = ()) -> Check:
    """Check an object by field; what is absent or not listed is up to the reader."""

    def checked(value: Any) -> str:
        if type(value) is not dict:
            return _expected("an object", value)
        if missing := [name for name in needed if name not in value]:
            return f".{missing[0]}: is missing"
        for name, check in fields.items():
            if name in value and (problem := check(value[name])):
                return f".{name}{problem}"
        return ""

    return checked


def _any(value: Any) -> str:
    """Check settings or parameters, which hold any JSON."""
    rest = [(value, 0)]
    while rest:
        each, depth = rest.pop()
        if depth > _DEEPEST:
            return f": expected at most {_DEEPEST} levels"
        if isinstance(each, dict):
            rest += [(part, depth + 1) for pair in each.items() for part in pair]
        elif isinstance(each, list):
            rest += [(part, depth + 1) for part in each]
        elif problem := _scalar(each):
            return problem
    return ""


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _unicode(value)
    if type(value) in (int, float) and not abs(value) <= _LARGEST:
        return _expected("a number of at most 2^63", value)
    return ""


def _both(first: Check, second: Check) -> Check:
    return lambda value: first(value) or second(value)


_name, _text = _text_of(_NAME), _text_of(_TEXT)
_label = _both(_name, lambda value: "" if value else _expected("a name", value))
_names = _list_of(_name)
_file = _both(
    _name, lambda value: "" if _PLAIN.fullmatch(value) else _expected("a file's name", value)
)
_counts = _map_of(_count, key=_name)
_ids = _list_of(_unicode)

_AGGREGATE = _table(
    {
        "value": _or_null(_number), "low": _or_null(_number), "high": _or_null(_number),
        "n": _count, "how": _choice(*AGGREGATES, REPORTED), "columns": _names,
        "undefined": _text, "parts": _list_of(_text), "interval": _choice("", *INTERVALS),
    }
)  # fmt: skip
_SCORES = _table(
    {
        "file": _text, "sha256": _name, "ids": _name, "queries": _count,
        "columns": _map_of(_count, key=_unicode),
    },
    needed=("file", "sha256", "ids", "queries", "columns"),
)  # fmt: skip
_TOP = _table(
    {"file": _text, "sha256": _name, "queries": _count}, needed=("file", "sha256", "queries")
)
_MODEL = _table(
    {
        "label": _label, "identity": _label, "spec": _path,
        "settings": _both(_table({"model": _table({})}), _any), "parameters": _or_null(_count),
    },
    needed=("label", "identity"),
)  # fmt: skip
_TASK = _table(
    {
        "name": _label, "type": _name, "main_metric": _label, "dataset": _text,
        "revision": _text, "unit": _name, "size": _counts,
        "mteb": _or_null(_table({"metric": _name, "value": _number, "file": _name})),
        "group": _name, "categories": _map_of(_text, key=_unicode), "splits": _names,
        "subsets": _names, "languages": _names, "selection": _name, "counts": _counts,
    },
    needed=("name", "type", "main_metric"),
)  # fmt: skip
_ENVIRONMENT = _table(
    {
        "versions": _map_of(_name, key=_name), "python": _name, "platform": _text,
        "device": _name, "precision": _name, "linear": _name,
    }
)  # fmt: skip
_COST = _table(
    {
        "seconds": _amount, "texts": _count, "encoded": _count, "cached": _count,
        "texts_per_second": _or_null(_amount), "peak_memory_bytes": _or_null(_count),
    }
)  # fmt: skip
_PART = _table(
    {
        "split": _name, "subset": _name, "languages": _names, "score": _AGGREGATE,
        "mteb": _number,
    },
    needed=("split", "subset", "languages", "score", "mteb"),
)  # fmt: skip
# Parameters of a run that a page, a name or a command is made from.
_USED = {
    **dict.fromkeys(
        ("tier", "tasks", "benchmark", "types", "languages", "splits", "subsets",
         "pooling", "prefix", "device", "dtype", "baseline"), _text,
    ),
    **dict.fromkeys(("checkpoint", "data"), _path),
    **dict.fromkeys(("limit", "max_length", "batch_size", "seed", "depth"), _count),
    **dict.fromkeys(("parts", "dimensions"), _or_null(_count)),
    **dict.fromkeys(("append_eos", "bidirectional"), _flag),
    "queries": _map_of(_unicode, key=_unicode),
    "top": _map_of(_ids, key=_unicode),
    "notes": _list_of(_unicode),
    **dict.fromkeys(("runs", "qrels"), _map_of(_name, key=_file)),
    "first_run": _table({"name": _file, "sha256": _name}, needed=("name", "sha256")),
}  # fmt: skip
# Of a reranking, whose record has a first stage.
_RERANKING = _table(
    {
        "collection": _label, "group": _name, "counts": _counts, "limit": _count,
        "first": _table({"kind": _name, "depth": _count}, needed=("kind", "depth")),
        "longest_query": _or_null(_table({})),
    },
    needed=("collection", "group"),
)  # fmt: skip


def _config(value: Any) -> str:
    reranking = isinstance(value, dict) and "first" in value
    return _table(_USED)(value) or (_RERANKING(value) if reranking else "") or _any(value)


_RECORD = _table(
    MappingProxyType(
        {
            "model": _MODEL, "task": _TASK, "metrics": _map_of(_AGGREGATE, key=_name),
            "seed": _count, "config": _config, "environment": _ENVIRONMENT, "cost": _COST,
            "run": _text, "finished": _both(_text, _moment), "checksum": _name,
            "parts": _list_of(_PART), "scores": _or_null(_SCORES), "top": _or_null(_TOP),
        }
    ),
    needed=("model", "task", "metrics", "seed"),
)  # fmt: skip

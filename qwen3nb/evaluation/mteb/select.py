"""Select MTEB tasks by name, type, language, benchmark or tier, and limit their size."""

from __future__ import annotations

import copy
import difflib
import hashlib
import itertools
import logging
import re
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb import paths
from qwen3nb.models.capabilities import SEARCH_TYPES
from qwen3nb.models.search.mteb_rows import ColumnValues
from qwen3nb.tiers import BENCHMARKS, NANO, TIERS, Benchmark
from qwen3nb.utils.atomic_files import read_json, write_json
from qwen3nb.utils.choices import check_choice, split_names
from qwen3nb.utils.code_version import installed_version
from qwen3nb.utils.imports import load_library

if TYPE_CHECKING:
    from mteb import AbsTask

# Parameters of `choose_tasks` that a notebook has.
SELECTION = ("tier", "tasks", "benchmark", "types", "languages", "splits", "subsets")
ALL = "all"  # instead of task names: every task of MTEB
_BUILT_IN = ("PyDocs", "AuthorSTS")
_SCORERS = "mteb._evaluators."  # how the names of the modules of MTEB's scorers begin
_NANO_SUFFIX = f"-{NANO}"  # of a task's name, for its small set
_MAX_SELECTION = 60  # characters of a selection in a file name
_NOUNS = {"eval_splits": "split", "hf_subsets": "subset", "languages": "language"}
_TYPES_WITH_LISTS = ("Clustering", "PairClassification")  # types whose rows may hold lists of texts


def tier_tasks(tier: str) -> list[AbsTask]:
    """Return the MTEB task objects of a tier, in the order of `Tier.task_keys`, without data.

    Tasks of MTEB's benchmarks are restricted as by MTEB.

    Raises:
        ValueError: unknown tier.
    """
    entry = TIERS[check_choice("tier", tier, TIERS)]
    tasks = choose_tasks(tasks=entry.tasks) if entry.tasks else []
    for name in entry.benchmarks:
        tasks += benchmark_tasks(name).values()
    order = entry.task_keys
    return sorted(split_groups(tasks), key=lambda task: order.index(task_key(task)))


def benchmark_tasks(name: str) -> dict[str, AbsTask]:
    """Return the MTEB task objects of a benchmark by their keys, without data.

    A key may say more than a task's name: which subset counts, as in ``STS17-en-en``.
    """
    return {task_key(task): task for task in split_groups(_benchmark_tasks(BENCHMARKS[name]))}


def _benchmark_tasks(benchmark: Benchmark) -> list[AbsTask]:
    """Return the MTEB task objects of a benchmark, with the splits and subsets that count."""
    if not benchmark.part_of:
        return choose_tasks(tasks=benchmark.tasks)
    # MTEB's benchmarks also say which splits and subsets of a task count.
    all_tasks = load_library("mteb").get_benchmark(benchmark.part_of).tasks
    return [task for task in all_tasks if task_key(task) in benchmark.tasks]


def split_groups(tasks: Iterable[AbsTask]) -> list[AbsTask]:
    """Replace tasks that consist of others by their parts; keep the first of equal keys."""
    unique: dict[str, AbsTask] = {}
    for task in tasks:
        for part in getattr(task.metadata, "tasks", None) or [task]:
            unique.setdefault(task_key(part), part)
    return list(unique.values())


def task_key(task: AbsTask, *, limit: int = 0) -> str:
    """Return the name of a task with its selection; see `qwen3nb.records.TaskInfo.key`."""
    name = str(task.metadata.name)
    part = selection(task, limit=limit)
    if not part:
        return name
    return f"{name}-{part}"


def selection(task: AbsTask, *, limit: int = 0) -> str:
    """Return the evaluated part of a task: subsets, splits, `nano`, limit; empty for all of it.

    >>> import mteb
    >>> selection(mteb.get_task("STS17", hf_subsets=["en-en"]), limit=20)
    'en-en-limit20'
    """
    whole_task = task.metadata
    parts = []
    if set(task.hf_subsets) != set(whole_task.hf_subsets):
        parts.append("_".join(task.hf_subsets))
    if set(task.eval_splits) != set(whole_task.eval_splits):
        parts.append("_".join(task.eval_splits))
    if is_nano(task):
        parts.append(NANO)
    if limit:
        parts.append(f"limit{limit}")
    # Only characters that a file name may have.
    text = re.sub(r"[^A-Za-z0-9._-]", "", "-".join(parts))
    if len(text) <= _MAX_SELECTION:
        return text
    # Selections that begin alike are told apart by the digest.
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()
    return f"{text[:_MAX_SELECTION]}-{digest[:8]}"


def suite_tasks(*, tier: str, tasks: Iterable[AbsTask] | str | None) -> list[AbsTask]:
    """Return the task objects to evaluate, with aggregate tasks split into parts."""
    if isinstance(tasks, str):
        tasks = split_names(tasks) or None
    if tasks is None:
        return tier_tasks(tier)
    parts = split_groups(_find_task(task) if isinstance(task, str) else task for task in tasks)
    if tier == NANO:
        return [nano_task(part) for part in parts]
    return parts


def is_nano(task: Any) -> bool:
    """Return whether a task is to be cut to the tier `nano`."""
    return bool(getattr(task, "is_nano", False))


def whole_or_nano_name(task: AbsTask) -> str:
    """Return the name of a task as one may give it, without its subsets and splits."""
    name = str(task.metadata.name)
    return f"{name}{_NANO_SUFFIX}" if is_nano(task) else name


def nano_task(task: AbsTask) -> AbsTask:
    """Return a copy of a task that is to be cut to the tier `nano`; one of NanoBEIR as it is.

    Raises:
        ValueError: the task is no search.
    """
    metadata = task.metadata
    if is_nano(task) or metadata.name in BENCHMARKS["NanoBEIR"].tasks:
        return task
    if metadata.type not in SEARCH_TYPES:
        raise ValueError(
            f"{metadata.name} is of the type {metadata.type}; the tier {NANO} has small sets of "
            f"{' and '.join(SEARCH_TYPES)} only: leave the task or the tier out"
        )
    # Task objects are shared, so a copy is marked.
    small_task: Any = copy.copy(task)
    small_task.is_nano = True
    return small_task


def check_types(types: Iterable[str], tasks: Iterable[AbsTask]) -> list[str]:
    """Return the ``types`` that none of the tasks has; refuse one that MTEB does not know."""
    present = {task.metadata.type for task in tasks}
    absent_types = [name for name in types if name not in present]
    for name in absent_types:
        _check_known("type", name, (metadata.type for metadata in _metadata()))
    return absent_types


def choose_tasks(
    *,
    tier: str = "",
    tasks: str | Sequence[str] = (),
    types: str | Sequence[str] = (),
    languages: str | Sequence[str] = (),
    benchmark: str = "",
    splits: str | Sequence[str] = (),
    subsets: str | Sequence[str] = (),
) -> list[AbsTask]:
    """Return the MTEB task objects that the arguments select, without loading data.

    Conditions are combined. A task without any of the languages, splits or subsets is left out, and
    others are restricted to these. Names are a list, or a comma-separated string.

    Args:
        tier: a tier, if no tasks and no benchmark are given; without it, all tasks of MTEB. The
            tier `nano` also cuts the tasks that are given.
        tasks: names of tasks of MTEB or of this package; ``all`` for those of MTEB. A name that
            ends in ``-nano`` is cut.
        types: MTEB task types, such as ``STS``.
        languages: three-letter codes, such as ``eng``.
        benchmark: an MTEB benchmark, such as ``MTEB(eng, v2)``.
        splits: splits to evaluate, such as ``validation``.
        subsets: subsets to evaluate, such as ``en``.

    Raises:
        ValueError: unknown name, type, benchmark, split or subset, or an empty selection.
    """
    tasks_found, origin = _candidates(tier, _as_list(tasks), benchmark)
    types = _as_list(types)
    check_types(types, tasks_found)
    languages, splits, subsets = _as_list(languages), _as_list(splits), _as_list(subsets)
    is_narrowed = bool(languages or splits or subsets)
    is_cut = tier == NANO and bool(tasks or benchmark)  # the tier's own tasks are small
    # A group has no splits of its own: its members are narrowed.
    if is_narrowed or is_cut:
        tasks_found = split_groups(tasks_found)
    if types:
        tasks_found = [task for task in tasks_found if task.metadata.type in types]
    if not tasks_found:
        message = f"no task in {origin}"
        if types:
            message += f" is of the type {', '.join(types)}"
        raise ValueError(message)
    if is_cut:
        tasks_found = [nano_task(task) for task in tasks_found]
    if not is_narrowed:
        return tasks_found
    tasks_found = _tasks_with("eval_splits", splits, tasks_found, origin)
    tasks_found = _tasks_with("hf_subsets", subsets, tasks_found, origin)
    tasks_found = _tasks_with("languages", languages, tasks_found, origin)
    return [_narrowed(task, languages, splits, subsets) for task in tasks_found]


def _as_list(names: str | Sequence[str]) -> list[str]:
    if isinstance(names, str):
        return split_names(names)
    return list(names)


def _candidates(tier: str, names: Sequence[str], benchmark: str) -> tuple[list[AbsTask], str]:
    """Return the tasks of a benchmark, of names, of a tier or of all of MTEB, and their origin."""
    mteb = load_library("mteb")
    # ``all`` is no name of a task.
    names_tasks = bool(names) and names != [ALL]
    if benchmark:
        _check_known("benchmark", benchmark, [entry.name for entry in mteb.get_benchmarks()])
        tasks = list(mteb.get_benchmark(benchmark).tasks)
        if names_tasks:
            tasks = [task for task in tasks if task.metadata.name in names]
        return tasks, benchmark
    if names_tasks:
        return [_find_task(name) for name in names], " ".join(names)
    if tier and not names:
        origin = f"the tier {tier} (tasks {ALL!r} selects from all of MTEB)"
        return tier_tasks(tier), origin
    return list(mteb.get_tasks()), " ".join(names) or "MTEB"


def _tasks_with(
    attribute: str, values: Sequence[str], tasks: list[AbsTask], origin: str
) -> list[AbsTask]:
    """Return the tasks with any of these splits, subsets or languages; all if none are given.

    Raises:
        ValueError: no task has one of them; lists the choices.
    """
    if not values:
        return tasks
    choices: set[str] = set()
    for task in tasks:
        choices.update(getattr(task, attribute))
    for value in values:
        check_choice(f"{_NOUNS[attribute]} of {origin}", value, sorted(choices))
    return [task for task in tasks if set(values) & set(getattr(task, attribute))]


def _narrowed(
    task: AbsTask, languages: Sequence[str], splits: Sequence[str], subsets: Sequence[str]
) -> AbsTask:
    """Return a new task object, restricted further than ``task``."""
    names = list(task.hf_subsets)
    if subsets:
        names = [name for name in names if name in subsets]
    if languages:
        names = [name for name in names if _languages_of(task, name) & set(languages)]
    if not names:
        raise ValueError(
            f"{task.metadata.name}: none of the subsets {', '.join(subsets)} is in "
            f"{', '.join(languages)}"
        )
    # Task objects are shared, so a copy is restricted.
    narrowed = copy.copy(task)
    narrowed.hf_subsets = names
    if splits:
        narrowed.filter_eval_splits([split for split in task.eval_splits if split in splits])
    return narrowed


def _languages_of(task: AbsTask, subset: str) -> set[str]:
    """Return the three-letter codes of a subset's languages."""
    return {code.split("-")[0] for code in task.metadata.hf_subsets_to_langscripts[subset]}


def _find_task(name: str) -> AbsTask:
    if name.endswith(_NANO_SUFFIX):
        return nano_task(_find_task(name.removesuffix(_NANO_SUFFIX)))
    if name.startswith(_BUILT_IN):
        from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task

        try:
            return embedded_task(name)
        except KeyError as error:
            raise ValueError(str(error.args[0])) from None
    try:
        return load_library("mteb").get_task(name)
    except KeyError:
        part = _find_part(name)
        if part is not None:
            return part
        # Raises a clearer error if the name is unknown.
        _check_known("task", name, (metadata.name for metadata in _metadata()))
        raise


def _find_part(key: str) -> AbsTask | None:
    """Return the task with the one subset, split or both that a key names, as on pages.

    >>> task_key(_find_part("STS17-en-en"))
    'STS17-en-en'
    """
    names = set(_all_names())
    for dash in re.finditer("-", key):  # names have dashes, too, such as SICK-R
        name, part = key[: dash.start()], key[dash.end() :]
        if name not in names:
            continue
        for subsets, splits in _parts(load_library("mteb").get_task(name)):
            if part == "-".join((*subsets, *splits)):
                return load_library("mteb").get_task(
                    name, hf_subsets=subsets or None, eval_splits=splits or None
                )
    return None


def _parts(task: AbsTask) -> Iterator[tuple[list[str], list[str]]]:
    """Yield each subset, each split, and each subset with a split; all of it is an empty list."""
    subsets: list[list[str]] = [[], *([subset] for subset in task.hf_subsets)]
    splits: list[list[str]] = [[], *([split] for split in task.eval_splits)]
    for chosen_subsets, chosen_splits in itertools.product(subsets, splits):
        if chosen_subsets or chosen_splits:
            yield chosen_subsets, chosen_splits


@cache
def _metadata() -> list[Any]:
    """Return the metadata of all MTEB tasks, which take seconds to list."""
    return [task.metadata for task in load_library("mteb").get_tasks()]


def check_task_names(names: Iterable[str]) -> None:
    """Check names of tasks; MTEB, which takes seconds to load, is loaded once for each version.

    Raises:
        ValueError: an unknown name; lists similar ones.
    """
    for name in names:
        name = name.removesuffix(_NANO_SUFFIX)
        if name.startswith(_BUILT_IN):
            _find_task(name)
        elif name not in _all_names() and _find_part(name) is None:
            _check_known("task", name, _all_names())


def _all_names() -> list[str]:
    """Return the names of all MTEB tasks, which are kept in the cache."""
    file = paths.cache() / "mteb" / f"tasks-{installed_version('mteb')}.json"
    with suppress(OSError, ValueError):  # not there yet, or damaged
        names: list[str] = read_json(file)
        return names
    with quiet():
        tasks = load_library("mteb").get_tasks(
            exclude_superseded=False, exclude_private=False, exclude_beta=False
        )
    names = sorted({task.metadata.name for task in tasks})
    with suppress(OSError):  # the disk is full, or may not be written to
        write_json(file, names)
    return names


def _check_known(what: str, name: str, names: Iterable[str]) -> None:
    choices = sorted(set(names))
    if name in choices:
        return
    # Such as ``SciFact`` for ``Scifact``.
    similar = difflib.get_close_matches(name, choices, n=3)
    hint = "."
    if similar:
        hint = f"; did you mean {' or '.join(similar)}?"
    raise ValueError(f"unknown {what} {name!r}{hint} `qwen3nb tasks` lists them") from None


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings and progress bars of MTEB's own code, scorers and loaders.

    Examples are superseded tasks, classes never predicted by a toy model, and deprecations in other
    libraries. MTEB warns and logs; pages would show its log above their first sentence.
    """
    import datasets

    had_progress_bars = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    log = logging.getLogger("mteb")
    earlier_level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), _no_bars_of_scorers():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(earlier_level)
        if had_progress_bars:
            datasets.enable_progress_bars()


@contextmanager
def _no_bars_of_scorers() -> Iterator[None]:
    """Hide the progress bars of MTEB's scorers, which no option turns off.

    One of bitext mining draws a bar for each pair of languages, hundreds in a task.
    """
    from tqdm.auto import tqdm

    scorers = []
    for name, module in list(sys.modules.items()):
        if name.startswith(_SCORERS) and vars(module).get("tqdm") is tqdm:
            scorers.append(module)
    for module in scorers:
        vars(module)["tqdm"] = partial(tqdm, disable=True)
    try:
        yield
    finally:
        for module in scorers:
            vars(module)["tqdm"] = tqdm


@contextmanager
def limited(task: AbsTask, limit: int) -> Iterator[None]:
    """Reduce a loaded MTEB task to at most ``limit`` items of each kind inside the block.

    For search tasks, these are queries and documents; documents judged for these queries, or listed
    as candidates, are always kept. For other tasks, they are rows of the evaluated splits. Every
    model gets the same data. A limited task is a different, usually easier task: its record has
    another name, and scores are comparable only under the same limit.
    """
    if not limit:
        yield
        return
    whole_data = task.dataset
    task.dataset = _sample(whole_data, limit, task=task)
    try:
        yield
    finally:
        task.dataset = whole_data


def _sample(data: Any, limit: int, *, task: AbsTask) -> Any:
    """Return ``data`` of a subset or split with the evaluated splits subsampled."""
    import datasets

    if isinstance(data, datasets.Dataset):
        rows = data.select(sample_positions(len(data), limit))
        if task.metadata.type in _TYPES_WITH_LISTS:
            return rows.map(partial(_sample_lists, limit=limit))
        return rows
    if "relevant_docs" in data:
        return _sample_collection(data, limit)
    evaluated = {*task.eval_splits, *task.hf_subsets}  # not, for example, training texts
    # A level of subsets or of splits: those below are sampled.
    samples = dict(data)
    for name in evaluated & samples.keys():
        samples[name] = _sample(data[name], limit, task=task)
    return samples


def _sample_lists(row: Mapping[str, Any], limit: int) -> dict[str, list[Any]]:
    """Sample the lists of a row at the same positions: a text keeps its label."""
    samples = {}
    for name, value in row.items():
        if isinstance(value, list):
            samples[name] = [value[position] for position in sample_positions(len(value), limit)]
    return samples


def sample_positions(count: int, limit: int) -> list[int]:
    """Return at most ``limit`` of the numbers below ``count``, ascending, by a fixed seed."""
    if count <= limit:
        return list(range(count))
    return sorted(np.random.default_rng(0).choice(count, size=limit, replace=False).tolist())


def _sample_collection(data: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Sample the judged queries; keep their documents and candidates, and sample the others."""
    judgements, candidates = data["relevant_docs"], data.get("top_ranked")
    judged_rows = [
        row for row, query in enumerate(ColumnValues(data["queries"], "id")) if query in judgements
    ]
    sampled_rows = [judged_rows[position] for position in sample_positions(len(judged_rows), limit)]
    queries = data["queries"].select(sampled_rows)
    sampled_names = set(ColumnValues(queries, "id"))
    judgements = {query: grades for query, grades in judgements.items() if query in sampled_names}
    # Judged documents and candidates are kept, as scores need them.
    needed_documents: set[str] = set()
    for grades in judgements.values():
        needed_documents.update(grades)
    if candidates:
        candidates = {query: candidates[query] for query in candidates if query in judgements}
        for documents in candidates.values():
            needed_documents.update(documents)
    kept_rows = _kept_rows(ColumnValues(data["corpus"], "id"), needed_documents, limit)
    return {
        **data,
        "queries": queries,
        "corpus": data["corpus"].select(kept_rows),
        "relevant_docs": judgements,
        "top_ranked": candidates,
    }


def _kept_rows(documents: Iterable[str], needed: Collection[str], limit: int) -> list[int]:
    """Return the rows of the needed documents, and of a sample of the others, ascending."""
    needed_rows = [row for row, document in enumerate(documents) if document in needed]
    other_rows = [row for row, document in enumerate(documents) if document not in needed]
    sampled_rows = [other_rows[position] for position in sample_positions(len(other_rows), limit)]
    return sorted([*needed_rows, *sampled_rows])

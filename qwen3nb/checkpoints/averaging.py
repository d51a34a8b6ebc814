"""Average checkpoints block by block; see `qwen3nb.checkpoints.writer`."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qwen3nb import paths
from qwen3nb.checkpoints import direction
from qwen3nb.checkpoints.direction import logged_name
from qwen3nb.checkpoints.folder import (
    SINGLE,
    TOKENIZER_FILES,
    MetricError,
    ModelFolder,
    copy_present,
    list_checkpoints,
    metric_of,
    open_checkpoint,
    step_of,
)
from qwen3nb.checkpoints.names import extra_copies
from qwen3nb.checkpoints.provenance import AVERAGING, check_checksums, with_checksums
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.checkpoints.writer import Piece, check_output, write_pieces
from qwen3nb.utils.atomic_files import new_folder, sha256_json, write_json
from qwen3nb.utils.strict_json import first_duplicate

log = logging.getLogger(__name__)

# Copied unchanged next to the mean; all other files belong to a single step.
_COPIED_FILES = ("config.json", "generation_config.json", *TOKENIZER_FILES)
# Tokenizer files, which must be equal in all checkpoints of a training.
_VOCABULARIES = ("added_tokens.json", "merges.txt", "tokenizer.json", "vocab.json")
# Settings that may differ between checkpoints of one training.
_INCIDENTAL = ("transformers_version", "_name_or_path", "torch_dtype", "dtype")


@dataclass(frozen=True)
class Selection:
    """The checkpoints to average, and why they were selected."""

    folders: tuple[Path, ...]  # the selected checkpoints
    rule: str  # the rule, such as ``best 2 by eval_loss (lower is better)``
    metrics: dict[str, float]  # metric per folder name, for a best-N selection
    note: str = ""  # how the selection deviates from the rule (fewer than N checkpoints), or empty

    @property
    def name(self) -> str:
        """Name of the mean: the rule, or the folder's name if there is only one."""
        if len(self.folders) == 1:
            return self.folders[0].name
        return re.sub(r"[^A-Za-z0-9]+", "-", self.rule.partition(" (")[0])


def select_checkpoints(
    folder: Path | str,
    *,
    last: int | None = None,
    best: int | None = None,
    metric: str = "eval_loss",
    lower_is_better: bool | None = None,
) -> Selection:
    """Select the ``last`` N checkpoints by step, or the ``best`` N by a metric, best last.

    If there are fewer than N, all are selected. Left out are folders without a step in their name,
    such as ``checkpoint-best``, and for the best N checkpoints whose metric is not logged at their
    step, or is NaN. `Selection.note` then says so.

    Args:
        folder: the training, a folder of ``checkpoint-N``.
        last: how many of the last checkpoints to select.
        best: how many of the best checkpoints to select.
        metric: a metric in ``trainer_state.json``, with or without the Trainer's ``eval_``.
        lower_is_better: by default, see `qwen3nb.checkpoints.direction.lower_is_better`.

    Raises:
        ValueError: not exactly one of ``last`` and ``best`` is given, or it is not positive.
        CheckpointError: there are no checkpoints, or none has the metric (best-N).
    """
    checkpoints = list_checkpoints(folder)
    # Exactly one of the two must be given.
    counts = [count for count in (last, best) if count is not None]
    if len(counts) != 1 or counts[0] < 1:
        raise ValueError(
            f"expected one of last=N or best=N (--last N, --best N), N > 0; got {last=}, {best=}"
        )
    count = counts[0]
    if best is None:
        ranking = _Ranking(checkpoints, rule=f"last {count}")
    else:
        ranking = _ranking_by_metric(checkpoints, count, metric, lower_is_better)
    notes = list(ranking.notes)
    for path in sorted(Path(folder).glob("checkpoint-*/")):
        if step_of(path) is None:
            notes.append(f"{path.name}: left out, as its name has no step")
    selected = ranking.checkpoints[-count:]  # the latest or best are at the end
    if len(selected) < count:
        notes.append(f"{count} checkpoints requested, {len(selected)} averaged: no others exist")
    return Selection(
        tuple(selected),
        rule=ranking.rule,
        metrics=ranking.metrics,
        note="; ".join(notes),
    )


@dataclass(frozen=True)
class _Ranking:
    """Checkpoints in the order of a rule, the one to select first at the end."""

    checkpoints: Sequence[Path]
    rule: str
    metrics: dict[str, float] = field(default_factory=dict)  # by name of the checkpoint
    notes: Sequence[str] = ()  # on checkpoints that are left out


def _ranking_by_metric(
    checkpoints: Sequence[Path],
    count: int,
    metric: str,
    lower_is_better: bool | None,
) -> _Ranking:
    """Rank checkpoints by their metric, best last; those without it are left out."""
    metric = logged_name(metric, checkpoints)
    if lower_is_better is None:
        lower_is_better = direction.lower_is_better(metric, checkpoints)
    direction_text = "higher is better"
    if lower_is_better:
        direction_text = "lower is better"
    metrics, reasons = _metrics(checkpoints, metric)
    ranked = [path for path in checkpoints if path.name in metrics]
    # The best comes last: of a loss, the lowest.
    ranked.sort(key=lambda path: metrics[path.name], reverse=lower_is_better)
    rule = f"best {count} by {metric} ({direction_text})"
    notes = [f"{name}: left out, as {reason}" for name, reason in reasons.items()]
    return _Ranking(ranked, rule, metrics, notes)


def _metrics(
    checkpoints: Sequence[Path],
    metric: str,
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the metric of each checkpoint by name, and the reasons why others have none."""
    metrics: dict[str, float] = {}
    reasons: dict[str, str] = {}
    errors: list[MetricError] = []
    for path in checkpoints:
        if not (path / "trainer_state.json").is_file():
            reasons[path.name] = "it has no trainer_state.json"
            continue
        try:
            metrics[path.name] = metric_of(path, metric)
        except MetricError as error:
            reasons[path.name] = error.reason
            errors.append(error)
    if metrics:
        return metrics, reasons
    # There are logs, but none has the metric; the first error lists what is logged.
    if errors:
        raise errors[0]
    raise CheckpointError(
        f"{checkpoints[0].parent}: no checkpoint has a trainer_state.json, so {metric} is unknown; "
        "average the last N instead: --last N, or last=N"
    )


def averaged(selection: Selection) -> Path:
    """Return the folder of the selection's mean, computed once and kept in the cache.

    For a single checkpoint, return its own folder.

    Raises:
        CheckpointError: see `average_checkpoints`.
    """
    if len(selection.folders) == 1:
        return selection.folders[0]
    digests = [open_checkpoint(folder).weights.digest for folder in selection.folders]
    folder = paths.cache() / "averages" / sha256_json(digests)[:16] / selection.name
    # A mean that is already there is used again, unless it is damaged.
    if folder.is_dir():
        try:
            check_checksums(open_checkpoint(folder))
            return folder
        except CheckpointError as error:
            log.warning("%s; averaged again", error)
    return average_checkpoints(selection, folder)


def average_checkpoints(selection: Selection | Sequence[Path], output: Path | str) -> Path:
    """Write the mean of the checkpoints to the folder ``output`` and return it.

    The folder also holds the configuration and tokenizer of the last checkpoint and
    ``averaging_metadata.json``: the sources with their digests, the rule and the metrics.
    A tensor stored under several names is written once. ``output`` is
    written completely or not at all.

    Raises:
        CheckpointError: the sources differ in configuration, tokenizer, tensor names,
            shapes or dtypes (the message names the first difference), or a value is not
            finite.
    """
    if not isinstance(selection, Selection):
        selection = Selection(tuple(map(Path, selection)), rule="as given", metrics={})
    output = Path(output)
    sources = [open_checkpoint(folder) for folder in selection.folders]
    _check_folders(sources, output)
    names = _common_names(sources)
    # The temporary folder `work` becomes `output` at the end, if nothing fails.
    with new_folder(output) as work:
        digest, warnings = write_pieces(sources, _pieces(sources, names), work / SINGLE)
        copy_present(_COPIED_FILES, sources[-1], work)
        fields = {
            "averaged_from": [source.path.name for source in sources],
            "num_checkpoints": len(sources),
            "rule": selection.rule,
            "note": selection.note,
            "metrics": selection.metrics,
            "digests": {source.path.name: source.weights.digest for source in sources},
            "warnings": warnings,
        }
        write_json(work / AVERAGING, with_checksums(fields, work, weights=digest))
        for source in sources:
            source.check_unchanged()
    return output


def _pieces(sources: Sequence[ModelFolder], names: Sequence[str]) -> list[Piece]:
    """Return the tensors to write: each the mean of those with its name."""
    pieces: list[Piece] = []
    for name in names:
        dtype = sources[0].weights.tensors[name].dtype
        pieces.append(Piece(name, dtype, sources=(name,) * len(sources)))
    return pieces


def _check_folders(sources: Sequence[ModelFolder], output: Path) -> None:
    if not sources:
        raise CheckpointError("no checkpoints to average; give at least one folder")
    duplicate = first_duplicate(str(source.path.resolve()) for source in sources)
    if duplicate is not None:
        raise CheckpointError(f"{duplicate}: given twice, so it would count twice")
    check_output(output, sources, mark=AVERAGING)


def _common_names(sources: Sequence[ModelFolder]) -> list[str]:
    """Return the names of the tensors to write, without copies; refuse incompatible sources."""
    reference, *other_sources = sources
    names = _names_without_copies(reference)
    for source in other_sources:
        place = f"{source} against {reference}"
        differing = sorted(names ^ _names_without_copies(source))  # those that only one has
        if differing:
            raise CheckpointError(
                f"{place}: {differing[0]} is in only one of them ({len(differing)} such tensors)"
            )
        _check_configs(reference, source, place)
        _check_tensors(reference, source, sorted(names), place)
        _check_vocabularies(reference, source, place)
    return sorted(names)


def _names_without_copies(source: ModelFolder) -> set[str]:
    """Return the names of tensors, without those that duplicate another."""
    return source.weights.tensors.keys() - extra_copies(source)


def _check_vocabularies(reference: ModelFolder, source: ModelFolder, place: str) -> None:
    """Refuse a tokenizer file that differs; it may be in only one of both."""
    for name in _VOCABULARIES:
        is_in_both = reference.has(name) and source.has(name)
        if is_in_both and reference.sha256(name) != source.sha256(name):
            raise CheckpointError(f"{place}: {name} differs; are they of one training?")


def _check_configs(reference: ModelFolder, source: ModelFolder, place: str) -> None:
    """Refuse a setting that differs, unless it may."""
    for key in sorted(reference.config.keys() | source.config.keys()):
        expected = reference.config.get(key)
        value = source.config.get(key)
        if key not in _INCIDENTAL and value != expected:
            raise CheckpointError(
                f"{place}: config {key!r:.60} is {value!r:.60}, expected {expected!r:.60}"
            )


def _check_tensors(
    reference: ModelFolder,
    source: ModelFolder,
    names: Sequence[str],
    place: str,
) -> None:
    """Refuse a tensor of another dtype or shape."""
    for name in names:
        expected = reference.weights.tensors[name]
        entry = source.weights.tensors[name]
        if (entry.dtype, entry.shape) != (expected.dtype, expected.shape):
            raise CheckpointError(
                f"{place}: {name} is {entry.dtype} {entry.shape}, "
                f"expected {expected.dtype} {expected.shape}"
            )

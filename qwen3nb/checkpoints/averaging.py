"""Average or merge checkpoints; see `qwen3nb.checkpoints.writer` and `.merging`."""

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
from qwen3nb.checkpoints.merging import Merge
from qwen3nb.checkpoints.names import extra_copies
from qwen3nb.checkpoints.provenance import AVERAGING, check_checksums, with_checksums
from qwen3nb.checkpoints.types import FLOATS, CheckpointError
from qwen3nb.checkpoints.writer import Piece, check_given_once, check_output, write_pieces
from qwen3nb.utils.atomic_files import new_folder, sha256_json, write_json
from qwen3nb.utils.format import short_names

log = logging.getLogger(__name__)

# Copied unchanged next to the mean; all other files belong to a single step.
_COPIED_FILES = ("config.json", "generation_config.json", *TOKENIZER_FILES)
# Tokenizer files, which must be equal in all checkpoints of a training.
_TOKENIZER = "tokenizer.json"
_VOCABULARIES = ("added_tokens.json", "merges.txt", _TOKENIZER, "vocab.json")
# Settings that may differ between checkpoints of one training: they change no number.
_INCIDENTAL = (
    *("transformers_version", "_name_or_path", "torch_dtype", "dtype"),
    *("architectures", "use_cache", "_attn_implementation"),
)


@dataclass(frozen=True)
class Selection:
    """The checkpoints to average, and why they were selected."""

    folders: tuple[Path, ...]  # the selected checkpoints
    rule: str  # the rule, such as ``best 2 by eval_loss (lower is better)``
    metrics: dict[str, float]  # metric per folder name, for a best-N selection
    note: str = ""  # how the selection deviates from the rule (fewer than N checkpoints), or empty
    lower_is_better: bool = False  # of the metric

    @property
    def name(self) -> str:
        """Name of the mean: the rule, or the folder's name if there is only one."""
        if len(self.folders) == 1:
            return self.folders[0].name
        return re.sub(r"[^A-Za-z0-9]+", "-", self.rule.partition(" (")[0])

    def weights_by_metric(self) -> tuple[float, ...]:
        """Return a weight per checkpoint: its metric, or 1 / metric if lower is better.

        Raises:
            ValueError: the selection is not by a metric, or a metric is not above 0.
        """
        if not self.metrics:
            raise ValueError(f"{self.rule}: not by a metric, so it gives no weights; use best=N")
        weights: list[float] = []
        for folder in self.folders:
            metric = self.metrics[folder.name]
            if metric <= 0:
                raise ValueError(
                    f"{folder}: its metric is {metric}; weights by a metric need one above 0. "
                    "Give the weights themselves"
                )
            weight = metric
            if self.lower_is_better:
                weight = 1 / metric
            weights.append(weight)
        return tuple(weights)


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
        lower_is_better=ranking.lower_is_better,
    )


@dataclass(frozen=True)
class _Ranking:
    """Checkpoints in the order of a rule, the one to select first at the end."""

    checkpoints: Sequence[Path]
    rule: str
    metrics: dict[str, float] = field(default_factory=dict)  # by name of the checkpoint
    notes: Sequence[str] = ()  # on checkpoints that are left out
    lower_is_better: bool = False  # of the metric


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
    return _Ranking(ranked, rule, metrics, notes, lower_is_better)


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


def average_checkpoints(
    selection: Selection | Sequence[Path],
    output: Path | str,
    *,
    method: str = "mean",
    weights: Sequence[float] | None = None,
    base: Path | str | None = None,
    density: float | None = None,
    scale: float = 1.0,
    seed: int = 0,
) -> Path:
    """Write the mean of the checkpoints, or another merge, to ``output`` and return it.

    The folder also holds the configuration and tokenizer of the last checkpoint and
    ``averaging_metadata.json``: the sources with their digests, the rule and the metrics.
    A tensor stored under several names is written once. ``output`` is
    written completely or not at all.

    Args:
        selection: the checkpoints, in their order; each is a folder.
        output: the folder to write.
        method: ``mean``, ``slerp``, ``ties`` or ``dare``; `qwen3nb.checkpoints.merging` has their
            formulas and sources.
        weights: one number above 0 per checkpoint; only their ratio counts. By default all equal.
        base: the model that the checkpoints were trained from, for ``ties`` and ``dare``.
        density: share of the changes against the base that stay; by default 0.2 for ``ties``, 0.5
            for ``dare``.
        scale: by what the merged change is multiplied, for ``ties`` and ``dare``.
        seed: of the changes that ``dare`` drops.

    Raises:
        CheckpointError: the sources differ in configuration, tokenizer, tensor names,
            shapes or dtypes (the message names the first difference), or a value is not
            finite.
        ValueError: a setting is outside its range, or does not belong to the method.
    """
    if not isinstance(selection, Selection):
        selection = Selection(tuple(map(Path, selection)), rule="as given", metrics={})
    weights_or_none = None
    if weights is not None:
        weights_or_none = tuple(weights)
    merge = Merge(method, weights_or_none, density=density, scale=scale, seed=seed)
    output = Path(output)
    models = [open_checkpoint(folder) for folder in selection.folders]
    bases = _base_of(merge, base)
    _check_folders(models, bases, output)
    sources = models + bases
    names = _common_names(models, bases)
    merge_of_models = None
    if not merge.is_plain_mean:
        merge_of_models = merge.for_models(len(models))
    # The temporary folder `work` becomes `output` at the end, if nothing fails.
    with new_folder(output) as work:
        digest, warnings = write_pieces(
            sources, _pieces(sources, names), work / SINGLE, method=merge_of_models
        )
        copy_present(_COPIED_FILES, models[-1], work)
        names_of_models = short_names([str(model.path) for model in models])
        digests = [model.weights.digest for model in models]
        fields: dict[str, object] = {
            "averaged_from": names_of_models,
            "num_checkpoints": len(models),
            "rule": selection.rule,
            "note": selection.note,
            "metrics": selection.metrics,
            "digests": dict(zip(names_of_models, digests, strict=True)),
            "warnings": warnings,
        }
        if not merge.is_plain_mean:
            fields["merge"] = _merge_fields(merge, models, sources)
        write_json(work / AVERAGING, with_checksums(fields, work, weights=digest))
        for source in sources:
            source.check_unchanged()
    return output


def _base_of(merge: Merge, base: Path | str | None) -> list[ModelFolder]:
    """Return the base in a list, or nothing if the method has none."""
    if base is None:
        if merge.needs_base:
            raise ValueError(
                f"{merge.method!r} merges changes against the model before the training; "
                "name it: --base FOLDER, or base=FOLDER"
            )
        return []
    if not merge.needs_base:
        raise ValueError(
            f"{merge.method!r} has no base; leave base out, or use method 'ties' or 'dare'"
        )
    return [open_checkpoint(Path(base))]


def _merge_fields(
    merge: Merge,
    models: Sequence[ModelFolder],
    sources: Sequence[ModelFolder],
) -> dict[str, object]:
    """Return how the models were merged, for the metadata."""
    fields = merge.as_dict(len(models))
    if merge.needs_base:
        base = sources[-1]
        fields["base"] = base.path.name
        fields["base_digest"] = base.weights.digest
    return fields


def _pieces(sources: Sequence[ModelFolder], names: Sequence[str]) -> list[Piece]:
    """Return the tensors to write: each merged from those with its name."""
    pieces: list[Piece] = []
    for name in names:
        dtype = sources[0].weights.tensors[name].dtype
        pieces.append(Piece(name, dtype, sources=(name,) * len(sources)))
    return pieces


def _check_folders(
    models: Sequence[ModelFolder],
    bases: Sequence[ModelFolder],
    output: Path,
) -> None:
    """Refuse folders given twice, and an output that is one of the sources, or contains it."""
    if not models:
        raise CheckpointError("no checkpoints to average; give at least one folder")
    check_given_once(model.path for model in models)
    folders = {model.path.resolve() for model in models}
    for base in bases:
        if base.path.resolve() in folders:
            raise CheckpointError(
                f"{base}: is the base and one of the models, so it changes nothing; name it as "
                "the base only"
            )
    check_output(output, [*models, *bases], mark=AVERAGING)


def _common_names(models: Sequence[ModelFolder], bases: Sequence[ModelFolder]) -> list[str]:
    """Return the names of the tensors to write, without copies; refuse incompatible sources."""
    reference = models[0]
    names = _names_without_copies(reference)
    for source in [*models[1:], *bases]:
        place = f"{source} against {reference}"
        _check_names(reference, source, names, place)
        is_base = source in bases
        _check_configs(reference, source, place, is_base=is_base)
        _check_tensors(reference, source, sorted(names), is_base=is_base)
        _check_vocabularies(reference, source, place)
    return sorted(names)


def _names_without_copies(source: ModelFolder) -> set[str]:
    """Return the names of tensors, without those that duplicate another."""
    return source.weights.tensors.keys() - extra_copies(source)


def _check_names(
    reference: ModelFolder,
    source: ModelFolder,
    names: set[str],
    place: str,
) -> None:
    """Refuse a tensor that only one of both has."""
    other_names = _names_without_copies(source)
    differing = sorted(names ^ other_names)
    if not differing:
        return
    name = differing[0]
    owner = source
    if name in names:
        owner = reference
    file = owner.weights.tensors[name].file
    raise CheckpointError(
        f"{place}: {name} is in only one of them, in {file} ({len(differing)} such tensors); "
        "save both from one class, such as AutoModel"
    )


def _check_vocabularies(reference: ModelFolder, source: ModelFolder, place: str) -> None:
    """Refuse a tokenizer file that differs; it may be in only one of both."""
    for name in _VOCABULARIES:
        is_in_both = reference.has(name) and source.has(name)
        if not is_in_both or reference.sha256(name) == source.sha256(name):
            continue
        if name == _TOKENIZER and _content_digest(reference) == _content_digest(source):
            continue
        raise CheckpointError(
            f"{place}: {name} differs; are they of one training? Only models of one vocabulary "
            "can be merged"
        )


def _content_digest(source: ModelFolder) -> str:
    """Return the digest of a tokenizer, without its layout and what a training sets in it."""
    content = dict(source.object(_TOKENIZER))  # the folder may keep its own
    for field_of_training in ("padding", "truncation"):
        content.pop(field_of_training, None)
    return sha256_json(content)


def _check_configs(
    reference: ModelFolder,
    source: ModelFolder,
    place: str,
    *,
    is_base: bool,
) -> None:
    """Refuse a setting that differs, unless it may."""
    expected_settings = _settings(reference)
    settings = _settings(source)
    for key in sorted(expected_settings.keys() | settings.keys()):
        # A training sets the ids of its tokenizer: they may be others than those of its base.
        may_differ = is_base and key.endswith("_token_id")
        expected = expected_settings.get(key)
        value = settings.get(key)
        if value != expected and not may_differ:
            raise CheckpointError(
                f"{place}: config {key!r:.60} is {value!r:.60}, expected {expected!r:.60}; "
                "models of one architecture can be merged"
            )


def _settings(source: ModelFolder) -> dict[str, object]:
    """Return the settings that count, written as transformers 4 does.

    Version 5 has ``rope_parameters`` in place of ``rope_theta`` and ``rope_scaling``, and writes
    ``layer_types`` also if all layers have full attention.
    """
    settings: dict[str, object] = {}
    for key, value in source.config.items():
        if key not in _INCIDENTAL:
            settings[key] = value
    rope = settings.get("rope_parameters")
    if isinstance(rope, dict) and "rope_theta" in rope:
        del settings["rope_parameters"]
        scaling = dict(rope)
        settings["rope_theta"] = scaling.pop("rope_theta")
        if scaling.get("rope_type", "default") != "default":
            settings["rope_scaling"] = scaling
    layers = settings.get("layer_types")
    if isinstance(layers, list) and all(layer == "full_attention" for layer in layers):
        del settings["layer_types"]
    return settings


def _check_tensors(
    reference: ModelFolder,
    source: ModelFolder,
    names: Sequence[str],
    *,
    is_base: bool,
) -> None:
    """Refuse a tensor of another shape or dtype; that of a base may be another float."""
    for name in names:
        expected = reference.weights.tensors[name]
        entry = source.weights.tensors[name]
        are_floats = {entry.dtype, expected.dtype} <= FLOATS.keys()
        has_dtype = entry.dtype == expected.dtype or (is_base and are_floats)
        if has_dtype and entry.shape == expected.shape:
            continue
        advice = "save both in one dtype"
        if entry.shape != expected.shape:
            advice = "models of one architecture and vocabulary can be merged"
        raise entry.error(
            f"is {entry.dtype} {entry.shape}, expected {expected.dtype} {expected.shape} as in "
            f"{expected.file}; {advice}"
        )

"""Changes between two sets of records: releases, or a release and the current records."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.analysis.comparison.differences import PairedDifference, corrected, verdict
from qwen3nb.records.record import Result
from qwen3nb.records.releases import NOW, released, software_and_data
from qwen3nb.records.store import latest, model_use
from qwen3nb.utils.atomic_files import sha256_json

MARGIN = 0.05  # smallest difference that matters


@dataclass(frozen=True)
class Changes:
    """Changes from one set of records to another.

    Records belong to the same model if label, settings and seed are equal: a model trained again
    under its label has changed.
    """

    first: str  # name of the release, or of the folder
    second: str
    added: tuple[str, ...]  # records of the second only: model and task
    removed: tuple[str, ...]  # records of the first only
    changed: tuple[str, ...]  # records of both, with another checksum
    same: int  # number of records that are equal
    # second - first where scores differ, with p-values Holm-corrected over all of them
    differences: tuple[PairedDifference, ...]
    unpaired: tuple[str, ...]  # changed records whose scores cannot be paired, with the reason
    # versions of libraries and revisions of data in both sets, where they differ
    versions: Mapping[str, tuple[list[str], list[str]]]
    data: Mapping[str, tuple[list[str], list[str]]]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def verdict(self, difference: PairedDifference) -> str:
        """Return the verdict on a difference; see `differences.verdict`."""
        each = difference
        return verdict(each.difference, each.corrected, each.interval, margin=MARGIN)

    def __repr__(self) -> str:
        counts = (
            f"{len(self.added)} added, {len(self.removed)} removed, {len(self.changed)} changed"
        )
        return "\n".join([f"<Changes from {self.first} to {self.second}: {counts}>", *self.lines()])

    def lines(self) -> Iterator[str]:
        """Yield a line per change, as `qwen3nb diff` prints them."""
        for sign, names in (("+", self.added), ("-", self.removed), ("~", self.changed)):
            yield from (f"{sign} {name}" for name in names)
        for each in self.differences:
            yield f"  {each.first} on {each.task}, {each.metric}: {each} ({self.verdict(each)})"
        yield from (f"  {why}" for why in self.unpaired)
        for name, (before, after) in {**self.versions, **self.data}.items():
            yield f"  {name}: {', '.join(before) or 'none'} -> {', '.join(after) or 'none'}"

    def to_json(self) -> dict[str, Any]:
        """Return all fields as one JSON document, with the verdict of each difference."""
        shown = [asdict(each) | {"verdict": self.verdict(each)} for each in self.differences]
        return asdict(self) | {"differences": shown}


def diff(first: str, second: str = NOW) -> Changes:
    """Return the changes from one release to another, or to the study's current records.

    Args:
        first: name of a release, path of a release or of a folder of records, or ``results``.
        second: likewise; by default the current records.

    Raises:
        ReleaseError: no such release, or a release was modified.
    """
    before, after = (released(name) for name in (first, second))
    old, new = (
        {(*model_use(each), each.task.key): each for each in latest(records)}
        for records in (before, after)
    )
    both = [key for key in new if key in old]
    changed = [key for key in both if old[key].checksum != new[key].checksum]
    differences, unpaired = [], []
    for model in dict.fromkeys(key[:-1] for key in changed):
        keys = [key for key in changed if key[:-1] == model]
        pairs = [(old[key], new[key]) for key in keys]
        own, reasons = _differences(pairs, first, second)
        differences += own
        unpaired += reasons
    of_old, of_new = (software_and_data(each) for each in (before, after))
    common = {key[-1] for key in both}
    return Changes(
        first,
        second,
        added=tuple(_title(new[key]) for key in new if key not in old),
        removed=tuple(_title(old[key]) for key in old if key not in new),
        changed=tuple(_title(new[key]) for key in changed),
        same=len(both) - len(changed),
        differences=tuple(corrected(differences)),
        unpaired=tuple(unpaired),
        versions=_unequal(of_old["versions"], of_new["versions"]),
        data={
            task: each
            for task, each in _unequal(of_old["data"], of_new["data"]).items()
            if task in common
        },
    )


def _title(result: Result) -> str:
    seed = f" (seed {result.seed})" if result.seed else ""
    return f"{result.model.label}{seed} on {result.task.key}"


def _differences(
    pairs: Iterable[tuple[Result, Result]], first: str, second: str
) -> tuple[list[PairedDifference], list[str]]:
    """Return the differences second − first of each pair of records, and notes on unpaired ones."""
    records = []
    for both in pairs:
        for side, each in zip((first, second), both, strict=True):
            label = f"{both[1].model.label} ({side})"
            model = replace(each.model, label=label, identity=sha256_json([side, label]))
            records.append(replace(each, model=model))
    compared = compare(records, baseline=records[0].model.label)
    every = [
        replace(each, first=each.first.removesuffix(f" ({second})"))
        for task in (*compared.tasks, *compared.correlations)
        for each in task.with_baseline
    ]
    return [each for each in every if each.won or each.lost], list(compared.notes)


def _unequal(
    one: Mapping[str, list[str]], other: Mapping[str, list[str]]
) -> dict[str, tuple[list[str], list[str]]]:
    return {
        name: (one.get(name, []), other.get(name, []))
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    }

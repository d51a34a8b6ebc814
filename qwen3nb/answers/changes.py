"""What changed between two sets of records: releases, or a release and the current records."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace

from qwen3nb.analysis.comparison.differences import PairedDifference, corrected, verdict
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.comparison import compare
from qwen3nb.records.record import Result
from qwen3nb.records.releases import NOW, released, software_and_data
from qwen3nb.records.store import latest, model_use
from qwen3nb.report.render.table import Conclusion, Table
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.imports import DataFrame

MARGIN = 0.05  # smallest difference that matters
Unequal = Mapping[str, tuple[list[str], list[str]]]  # values before and after, by name


@dataclass(frozen=True, repr=False)
class Changes(Answer):
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
    versions: Unequal
    data: Unequal

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def verdict(self, difference: PairedDifference) -> str:
        """Return the verdict on a difference; see `differences.verdict`."""
        return verdict(
            difference.difference, difference.corrected, difference.interval, margin=MARGIN
        )

    @property
    def counts(self) -> str:
        """How many records were added, removed and changed."""
        return f"{len(self.added)} added, {len(self.removed)} removed, {len(self.changed)} changed"

    @property
    def conclusion(self) -> Conclusion:
        """How many records changed, and how many of them have other scores."""
        if not self:
            return Conclusion(
                f"From {self.first} to {self.second}: {self.same} records, all the same."
            )
        return Conclusion(
            f"From {self.first} to {self.second}: {self.counts}; {self.same} are the same, and "
            f"{len(self.differences)} have other scores."
        )

    def table(self) -> Table:
        """A row per record that is not the same, with the difference of its scores."""
        rows: list[tuple[str, str]] = []
        for kind, names in (
            ("added", self.added),
            ("removed", self.removed),
            ("changed", self.changed),
        ):
            rows += [(kind, name) for name in names]
        for difference in self.differences:
            name = f"{difference.first} on {difference.task}, {difference.metric}"
            rows.append((self.verdict(difference), f"{name}: {difference}"))
        rows += [("not paired", reason) for reason in self.unpaired]
        for name, (before, after) in self._settings().items():
            rows.append((name, _change_text(before, after)))
        return Table.of(
            rows,
            ("change", "record"),
            empty="Nothing changed.",
            kind="words",
            name="changes",
            caption=f"Changes from {self.first} to {self.second}.",
        )

    def to_frame(self) -> DataFrame:
        """The differences second - first, a row each."""
        import pandas as pd

        columns = [field.name for field in fields(PairedDifference)]
        rows = [asdict(difference) for difference in self.differences]
        return pd.DataFrame(rows, columns=columns)

    def _settings(self) -> Unequal:
        return {**self.versions, **self.data}

    def __repr__(self) -> str:
        head = f"<Changes from {self.first} to {self.second}: {self.counts}>"
        return "\n".join([head, *self.lines()])

    def lines(self) -> Iterator[str]:
        """Yield a line per change, as `qwen3nb diff` prints them."""
        for sign, names in (("+", self.added), ("-", self.removed), ("~", self.changed)):
            for name in names:
                yield f"{sign} {name}"
        for difference in self.differences:
            name = f"{difference.first} on {difference.task}, {difference.metric}"
            yield f"  {name}: {difference} ({self.verdict(difference)})"
        for reason in self.unpaired:
            yield f"  {reason}"
        for name, (before, after) in self._settings().items():
            yield f"  {name}: {_change_text(before, after)}"

    def to_json(self) -> dict[str, object]:
        """Return all fields as one JSON document, with the verdict of each difference."""
        differences = [
            {**asdict(difference), "verdict": self.verdict(difference)}
            for difference in self.differences
        ]
        return {**asdict(self), "differences": differences}


def _change_text(before: list[str], after: list[str]) -> str:
    return f"{', '.join(before) or 'none'} -> {', '.join(after) or 'none'}"


def diff(first: str, second: str = NOW) -> Changes:
    """Return the changes from one release to another, or to the study's current records.

    Args:
        first: name of a release, path of a release or of a folder of records, or ``results``.
        second: likewise; by default the current records.

    Raises:
        ReleaseError: no such release, or a release was modified.
    """
    before, after = released(first), released(second)
    old, new = _by_use(before), _by_use(after)
    both = [use for use in new if use in old]
    changed = [use for use in both if old[use].checksum != new[use].checksum]
    by_model: dict[tuple[object, ...], list[tuple[Result, Result]]] = {}
    for use in changed:
        by_model.setdefault(use[:-1], []).append((old[use], new[use]))
    differences: list[PairedDifference] = []
    unpaired: list[str] = []
    for pairs in by_model.values():
        of_model, reasons = _differences(pairs, first, second)
        differences += of_model
        unpaired += reasons
    made_old, made_new = software_and_data(before), software_and_data(after)
    tasks_of_both = {use[-1] for use in both}
    data = _unequal(made_old["data"], made_new["data"])
    return Changes(
        first,
        second,
        added=tuple(_title(new[use]) for use in new if use not in old),
        removed=tuple(_title(old[use]) for use in old if use not in new),
        changed=tuple(_title(new[use]) for use in changed),
        same=len(both) - len(changed),
        differences=tuple(corrected(differences)),
        unpaired=tuple(unpaired),
        versions=_unequal(made_old["versions"], made_new["versions"]),
        data={task: revisions for task, revisions in data.items() if task in tasks_of_both},
    )


def _by_use(records: Iterable[Result]) -> dict[tuple[object, ...], Result]:
    """Return the newest records by label, settings and seed of the model, and by task."""
    return {(*model_use(record), record.task.key): record for record in latest(records)}


def _title(result: Result) -> str:
    seed = f" (seed {result.seed})" if result.seed else ""
    return f"{result.model.label}{seed} on {result.task.key}"


def _differences(
    pairs: Iterable[tuple[Result, Result]], first: str, second: str
) -> tuple[list[PairedDifference], list[str]]:
    """Return the differences second − first of each pair of records, and notes on unpaired ones."""
    records = []
    for old, new in pairs:
        label = new.model.label
        records += [_named(old, f"{label} ({first})", first)]
        records += [_named(new, f"{label} ({second})", second)]
    comparison = compare(records, baseline=records[0].model.label)
    differences = []
    for task in comparison.every_task:
        for difference in task.with_baseline:
            if not difference.identical:
                name = difference.first.removesuffix(f" ({second})")
                differences.append(replace(difference, first=name))
    return differences, list(comparison.notes)


def _named(record: Result, label: str, side: str) -> Result:
    """Return a record whose model has a name and an identity of its own in the comparison."""
    model = replace(record.model, label=label, identity=sha256_json([side, label]))
    return replace(record, model=model)


def _unequal(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> Unequal:
    """Return the values that are not the same, by name; none where a name is missing."""
    names = sorted({*before, *after})
    return {
        name: (before.get(name, []), after.get(name, []))
        for name in names
        if before.get(name) != after.get(name)
    }

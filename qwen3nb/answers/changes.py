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
    earlier: int = 0  # records of the second that a later one of their label and task replaces

    def __bool__(self) -> bool:
        return self.has_changes

    @property
    def has_changes(self) -> bool:
        """Whether any record was added, removed or changed."""
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
    def not_compared(self) -> str:
        """What is said of earlier records, which `freeze` counts, too; empty without any."""
        if not self.earlier:
            return ""
        return f"; not compared: {self.earlier} of models that a later one replaced"

    @property
    def conclusion(self) -> Conclusion:
        """How many records changed, and how many of them have other scores."""
        sets = f"From {self.first} to {self.second}"
        if not self.has_changes:
            return Conclusion(f"{sets}: {self.same} records, all the same.")
        return Conclusion(
            f"{sets}: {self.counts}; {self.same} are the same, and {len(self.differences)} have "
            "other scores."
        )

    def table(self) -> Table:
        """A row per record that is not the same, with the difference of its scores."""
        rows = [("added", record) for record in self.added]
        rows += [("removed", record) for record in self.removed]
        rows += [("changed", record) for record in self.changed]
        for difference in self.differences:
            rows.append((self.verdict(difference), f"{_measured(difference)}: {difference}"))
        rows += [("not paired", reason) for reason in self.unpaired]
        for name, (before, after) in self._versions_and_data().items():
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

    def _versions_and_data(self) -> Unequal:
        return {**self.versions, **self.data}

    def __repr__(self) -> str:
        head = f"<Changes from {self.first} to {self.second}: {self.counts}>"
        return "\n".join([head, *self.lines()])

    def lines(self) -> Iterator[str]:
        """Yield a line per change, as `qwen3nb freeze diff` prints them."""
        for record in self.added:
            yield f"+ {record}"
        for record in self.removed:
            yield f"- {record}"
        for record in self.changed:
            yield f"~ {record}"
        for difference in self.differences:
            yield f"  {_measured(difference)}: {difference} ({self.verdict(difference)})"
        for reason in self.unpaired:
            yield f"  {reason}"
        for name, (before, after) in self._versions_and_data().items():
            yield f"  {name}: {_change_text(before, after)}"

    def to_json(self) -> dict[str, object]:
        """Return all fields as one JSON document, with the verdict of each difference."""
        differences = [
            {**asdict(difference), "verdict": self.verdict(difference)}
            for difference in self.differences
        ]
        return {**asdict(self), "differences": differences}


def _measured(difference: PairedDifference) -> str:
    """Name the model, task and metric of a difference."""
    return f"{difference.first} on {difference.task}, {difference.metric}"


def _change_text(before: list[str], after: list[str]) -> str:
    return f"{', '.join(before) or 'none'} -> {', '.join(after) or 'none'}"


@dataclass(frozen=True)
class _Key:
    """What a record keeps when it is measured again, or its model is trained again."""

    model: tuple[object, ...]  # label, settings and seed
    task: str


def diff(first: str, second: str = NOW) -> Changes:
    """Return the changes from one release to another, or to the study's current records.

    Args:
        first: name of a release, path of a release or of a folder of records, or ``results``.
        second: likewise; by default the current records.

    Raises:
        ReleaseError: no such release, or a release was modified.
    """
    old_records, new_records = released(first), released(second)
    old = _by_key(old_records)
    new = _by_key(new_records)
    in_both = [key for key in new if key in old]
    changed = [key for key in in_both if old[key].checksum != new[key].checksum]
    pairs_by_model: dict[tuple[object, ...], list[tuple[Result, Result]]] = {}
    # A model is a label with settings and a seed; each is compared with its former self.
    for key in changed:
        pairs_by_model.setdefault(key.model, []).append((old[key], new[key]))
    differences: list[PairedDifference] = []
    unpaired: list[str] = []
    for pairs in pairs_by_model.values():
        differences_of_model, reasons = _differences(pairs, first, second)
        differences += differences_of_model
        unpaired += reasons
    return Changes(
        first,
        second,
        added=tuple(_title(record) for key, record in new.items() if key not in old),
        removed=tuple(_title(record) for key, record in old.items() if key not in new),
        changed=tuple(_title(new[key]) for key in changed),
        same=len(in_both) - len(changed),
        differences=tuple(corrected(differences)),
        unpaired=tuple(unpaired),
        versions=_changed_versions(old_records, new_records),
        data=_changed_data(old_records, new_records, tasks={key.task for key in in_both}),
        earlier=len(new_records) - len(new),
    )


def _changed_versions(old: Iterable[Result], new: Iterable[Result]) -> Unequal:
    """Return the versions of libraries that are not the same."""
    return _unequal(software_and_data(old)["versions"], software_and_data(new)["versions"])


def _changed_data(old: Iterable[Result], new: Iterable[Result], *, tasks: set[str]) -> Unequal:
    """Return the revisions of the data of some tasks that are not the same."""
    revisions = _unequal(software_and_data(old)["data"], software_and_data(new)["data"])
    return {task: before_and_after for task, before_and_after in revisions.items() if task in tasks}


def _by_key(records: Iterable[Result]) -> dict[_Key, Result]:
    """Return the newest records by label, settings and seed of the model, and by task."""
    return {_Key(model_use(record), record.task.key): record for record in latest(records)}


def _title(result: Result) -> str:
    seed = f" (seed {result.seed})" if result.seed else ""
    return f"{result.model.label}{seed} on {result.task.key}"


def _differences(
    pairs: Iterable[tuple[Result, Result]], first: str, second: str
) -> tuple[list[PairedDifference], list[str]]:
    """Return the differences second − first of each pair of records, and notes on unpaired ones."""
    # Compare the model with its former self, as if they were two models.
    records = []
    for old, new in pairs:
        label = new.model.label
        records.append(_renamed(old, f"{label} ({first})", first))
        records.append(_renamed(new, f"{label} ({second})", second))
    comparison = compare(records, baseline=records[0].model.label)
    differences = []
    for task in comparison.every_task:
        for difference in task.with_baseline:
            if not difference.identical:  # only another time or machine
                label = difference.first.removesuffix(f" ({second})")
                differences.append(replace(difference, first=label))
    return differences, list(comparison.notes)


def _renamed(record: Result, label: str, release: str) -> Result:
    """Return a record whose model has a name and an identity of its own in the comparison."""
    model = replace(record.model, label=label, identity=sha256_json([release, label]))
    return replace(record, model=model)


def _unequal(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> Unequal:
    """Return the values that are not the same, by name; none where a name is missing."""
    names = sorted({*before, *after})
    return {
        name: (before.get(name, []), after.get(name, []))
        for name in names
        if before.get(name) != after.get(name)
    }

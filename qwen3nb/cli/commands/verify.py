"""The command `qwen3nb verify`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import click

from qwen3nb.cli.errors import without_traceback
from qwen3nb.cli.options import FILE, JSON, print_json
from qwen3nb.cli.study_root import in_study

__all__ = ["verify"]


@click.command()
@click.argument("files", nargs=-1, type=FILE)
@click.option("--checksums", is_flag=True, help="Compare the records' checksums only.")
@JSON
@without_traceback
@in_study(unless=["files"])
def verify(files: tuple[Path, ...], checksums: bool, as_json: bool) -> None:
    """Check that the numbers of records follow from what they hold, and report what does not.

    FILES are records or folders of records; by default all records in results/. A record is
    compared with its checksum, with the list of all records ever written (checksums.jsonl), its
    aggregates and intervals with the scores of its queries, these with the run and the qrels if
    they are kept (--runs), all metrics, data, versions and times with MTEB's own result, and
    all_results.json with the records.

    Nothing is signed. Beyond it, if someone recomputes every checksum, in the list too: numbers
    of documents and queries, counts, group, categories, run id, texts encoded, versions but
    MTEB's, and cost and clock within MTEB's; scores exchanged between queries, without a run; the
    means in all_results.json; all of a record that MTEB did not make, or if MTEB's result is
    rewritten or removed as well. Nor is seen: scores that were wrong from the start, a record and
    its lines in the list removed together, and in records of the first versions, which have no
    checksum, a changed revision, size, time or cost.

    \b
    qwen3nb verify
    qwen3nb verify results/demo-average-1a2b3c4d/seed_0/AuthorSTS.json
    """
    from qwen3nb import paths
    from qwen3nb.records.store import check_files
    from qwen3nb.records.verification import folder_problems
    from qwen3nb.utils.progress import tqdm

    records = [file for path in files or (None,) for file in _records(path)]
    bar = tqdm(total=len(records), desc="verify", unit="record", leave=False, disable=None)
    problems: dict[Path, Sequence[str]] = {}
    unsigned = 0
    with bar, closing(check_files(records, checksums_only=checksums)) as checked:
        for file, check in checked:
            bar.update()
            unsigned += not check.has_checksum
            if check.problems:
                problems[file] = check.problems
    for folder in (path or paths.results() for path in files or (None,)):
        problems |= folder_problems(folder) if folder.is_dir() else {}
    if as_json:
        failed = {str(file): list(messages) for file, messages in problems.items()}
        print_json({"records": len(records), "without_checksum": unsigned, "problems": failed})
    else:
        _print_verified(records, problems, unsigned)
    if problems:
        sys.exit(1)


def _records(path: Path | None) -> list[Path]:
    """The record, or those in a folder; a folder that is named must have some."""
    from qwen3nb import paths
    from qwen3nb.records.store import result_files
    from qwen3nb.records.verification import removed_records

    if path is None or path.is_dir():
        files = [*result_files(path), *removed_records(path or paths.results())]
        if path is None or files:
            return files
        raise click.UsageError(
            f"{path} has no records; expected a folder such as results/, with "
            "MODEL/seed_N/TASK.json in it"
        )
    if not path.exists():
        raise click.UsageError(f"{path}: no such file or folder")
    return [path]


def _print_verified(
    records: Sequence[Path], problems: Mapping[Path, Sequence[str]], unsigned: int
) -> None:
    for file, messages in problems.items():
        for message in messages:
            click.echo(f"{file}: {message}", err=True)
    if not records:
        click.echo("no records yet; `qwen3nb eval` makes some")
        return
    hold = sum(file not in problems for file in records)
    click.echo(f"{hold} of {len(records)} records hold")
    if unsigned:
        click.echo(
            f"{unsigned} without checksum, as older versions wrote them: a changed revision, "
            "size, time or cost is not seen there"
        )

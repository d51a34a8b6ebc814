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

    FILES are records or folders of records; by default all records in results/. Checksums,
    aggregates, intervals, the model's identity, the files of runs and MTEB's own results are
    compared. Not seen: a record rewritten as a whole with a new checksum, scores that were wrong
    from the start, and, in a record without a checksum, a changed revision, size, time or cost.

    \b
    qwen3nb verify
    qwen3nb verify results/demo-average-1a2b3c4d/seed_0/AuthorSTS.json
    """
    from qwen3nb.records.store import check_files
    from qwen3nb.utils.progress import tqdm

    records = [file for path in files or (None,) for file in _records(path)]
    bar = tqdm(total=len(records), desc="verify", unit="record", leave=False, disable=None)
    problems, unsigned = {}, 0
    with bar, closing(check_files(records, checksums_only=checksums)) as checked:
        for file, check in checked:
            bar.update()
            unsigned += not check.has_checksum
            if check.problems:
                problems[file] = check.problems
    if as_json:
        failed = {str(file): list(messages) for file, messages in problems.items()}
        print_json({"records": len(records), "without_checksum": unsigned, "problems": failed})
    else:
        _print_verified(len(records), problems, unsigned)
    if problems:
        sys.exit(1)


def _records(path: Path | None) -> list[Path]:
    """The record, or those in a folder; a folder that is named must have some."""
    from qwen3nb.records.store import result_files

    if path is None or path.is_dir():
        files = result_files(path)
        if path is None or files:
            return files
        raise click.UsageError(
            f"{path} has no records; expected a folder such as results/, with "
            "MODEL/seed_N/TASK.json in it"
        )
    if not path.exists():
        raise click.UsageError(f"{path}: no such file or folder")
    return [path]


def _print_verified(count: int, problems: Mapping[Path, Sequence[str]], unsigned: int) -> None:
    for file, messages in problems.items():
        for message in messages:
            click.echo(f"{file}: {message}", err=True)
    if not count:
        click.echo("no records yet; `qwen3nb eval` makes some")
        return
    click.echo(f"{count - len(problems)} of {count} records hold")
    if unsigned:
        click.echo(
            f"{unsigned} without checksum, as older versions wrote them: a changed revision, "
            "size, time or cost is not seen there"
        )

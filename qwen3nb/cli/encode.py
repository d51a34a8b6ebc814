"""Commands for vectors: encode a file, inspect and prune the cache."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from qwen3nb.cli.errors import without_traceback
from qwen3nb.cli.options import CACHE_LIMIT, DEVICE, DTYPE, FILE, POOLING, SIZE

__all__ = ["VECTOR_COMMANDS"]


@click.group()
def cache() -> None:
    """Inspect, verify and prune the cached vectors.

    \b
    qwen3nb cache info
    qwen3nb cache verify
    qwen3nb cache prune --older-than 30 --dry-run
    qwen3nb cache prune --to 50GB
    """


@cache.command("info")
@without_traceback
def cache_info() -> None:
    """List the models whose vectors are cached, the most recently used first."""
    from qwen3nb.models.cache.cache_admin import cache_folder, list_caches

    caches = list_caches()
    click.echo(f"{cache_folder()}: {len(caches)} models, {_size(sum(c.bytes for c in caches))}")
    for each in caches:
        count = each.texts()
        used = datetime.fromtimestamp(each.used, tz=UTC).strftime("%Y-%m-%d")
        left = "damaged" if each.aside else "of an older release, moved when the model is used"
        texts = f"{count:,} texts" if count is not None else left
        click.echo(
            f"{each.label}  {texts}  {_size(each.bytes)}  last used {used}  {each.path.name}"
        )
        keys = ("pooling", "dtype", "max_length", "normalize", "prefix")
        known = [f"{key} {each.settings[key]}" for key in keys if each.settings.get(key)]
        if known:
            click.echo(f"  {', '.join(known)}")


@cache.command("verify")
@without_traceback
def cache_verify() -> None:
    """Check every cached vector; exits with 1 if one is damaged."""
    from qwen3nb.models.cache.cache_admin import list_caches, verify_cache

    total, damaged = 0, 0
    for each in list_caches():
        held, problems = verify_cache(each)
        total += held
        damaged += bool(problems)
        for problem in problems:
            click.echo(f"{each.path} ({each.label}): {problem}", err=True)
    click.echo(f"{total:,} vectors hold; those of {damaged} models are damaged")
    if damaged:
        sys.exit(1)


@cache.command("prune")
@click.option(
    "--older-than", type=click.FloatRange(min=0), metavar="DAYS", help="Unused for this long."
)
@click.option("--model", "label", metavar="LABEL", help="Of this model, as named by `cache info`.")
@click.option("--damaged", is_flag=True, help="Segments with damaged vectors, quarantined files.")
@click.option("--all", "everything", is_flag=True, help="All vectors.")
@click.option("--to", "size", type=SIZE, help="The least recently used, until SIZE is left.")
@click.option("--dry-run", is_flag=True, help="List what would go and remove nothing.")
@without_traceback
def cache_prune(dry_run: bool, size: int | None, **conditions: Any) -> None:
    """Remove what meets all given conditions, or what exceeds a size."""
    from qwen3nb.models.cache.cache_admin import list_caches, prune, prune_to, to_prune

    if size is not None:
        if dry_run or any(each not in (None, False) for each in conditions.values()):
            raise click.UsageError("--to removes by size alone; give no other option")
        click.echo(f"{_size(prune_to(size))} freed")
        return
    selected = to_prune(list_caches(), **conditions)
    for each in selected:
        click.echo(f"{each.label}  {_size(each.bytes)}  {each.path.name}")
    freed = sum(each.bytes for each in selected) if dry_run else prune(selected)
    what = "would be freed; nothing was removed" if dry_run else "freed"
    click.echo(f"{len(selected)} models, {_size(freed)} {what}")


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


@click.command("encode")
@click.option("--model", "spec", required=True, help="A folder, registry name, hub id or random.")
@click.option("--input", "source", required=True, type=FILE,
              help='A file with one {"text": ...} per line.')  # fmt: skip
@click.option("--output", required=True, type=FILE, help="The .npy file to write.")
@click.option("--role", type=click.Choice(("query", "passage")), help="Selects the prompt.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write cached vectors.")
@POOLING
@click.option("--max-length", type=click.IntRange(min=1), help="Tokens.  [default: the model's]")
@click.option("--batch-size", type=click.IntRange(min=1), default=32, show_default=True)
@DEVICE
@DTYPE
@CACHE_LIMIT
@without_traceback
def encode(
    spec: str, source: Path, output: Path, role: str | None, no_cache: bool, **options: Any
) -> None:
    """Encode the texts in a file to float32 vectors, one row per text.

    Memory use does not grow with the file, and cached vectors are not computed again.

    \b
    qwen3nb encode --model encoder --input texts.jsonl --output vectors.npy
    qwen3nb encode --model e5-base-v2 --role query --input q.jsonl --output q.npy
    """
    from qwen3nb.models.encoders.encode_file import (
        check_output,
        check_texts,
        encode_to_file,
        read_texts,
    )
    from qwen3nb.models.load import load_encoder

    check_output(output)
    count = check_texts(source)
    encoder = load_encoder(spec, cache=not no_cache, **options)
    done = encode_to_file(encoder, read_texts(source), output, role=role, total=count)
    click.echo(
        f"{output}: {done.rows:,} x {done.dimension} float32; {done.hits:,} distinct texts from "
        f"the cache, {done.misses:,} computed"
    )


VECTOR_COMMANDS = (cache, encode)

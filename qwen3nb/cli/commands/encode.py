"""Commands for vectors: encode a file, inspect and prune the cache."""

import os
import shutil
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Unpack

import click

from qwen3nb.cli import options as opt
from qwen3nb.cli.arguments import LoadedArguments
from qwen3nb.cli.program import Command, CommandGroup


@click.group(cls=CommandGroup)
def cache() -> None:
    """Inspect, verify and prune the cached vectors.

    \b
    qwen3nb cache info
    qwen3nb cache verify
    qwen3nb cache prune --all --dry-run
    qwen3nb cache prune --to 50GB
    """


@cache.command("info")
def cache_info() -> None:
    """List cached vectors by model, the last used first."""
    from rich.filesize import decimal

    from qwen3nb.models.search.bm25 import kept_indexes
    from qwen3nb.vectors.cache import LIMIT, cache_folder, cache_limit, list_caches

    caches = list_caches()
    total = decimal(sum(cache.bytes for cache in caches))
    # What decides the limit, unless the user has set it.
    origin = "half of the free disk; --cache-limit"
    if os.environ.get(LIMIT):
        origin = "--cache-limit"
    limit = f"{decimal(cache_limit(cache_folder()))} ({origin})"
    click.echo(f"{cache_folder()}: {len(caches)} models, {total} of at most {limit}")
    for cache in caches:
        last_use = datetime.fromtimestamp(cache.used, tz=UTC)
        details = [f"last used {last_use:%Y-%m-%d}"]
        for name in ("pooling", "dtype", "vectors", "max_length", "normalize", "prefix"):
            if cache.settings.get(name):
                details.append(f"{name} {cache.settings[name]}")
        click.echo(
            f"{cache.label}  {cache.texts():,} texts  {decimal(cache.bytes)}  {cache.path.name}\n"
            f"  {', '.join(details)}"
        )
    for folder, documents, size in kept_indexes():
        click.echo(f"index of BM25  {documents:,} documents  {decimal(size)}  {folder}")


@cache.command("verify")
@click.argument("folder", required=False, type=opt.FILE)
def cache_verify(folder: Path | None) -> None:
    """Check every cached vector, or those in FOLDER.

    Exits with 1 if one is damaged.

    FOLDER contains parts written by `qwen3nb encode --shards`, with their checksums in a manifest.
    """
    from qwen3nb.vectors.block_file import damaged_shards, read_manifest
    from qwen3nb.vectors.cache import list_caches, verify_cache

    lines = []
    if folder is not None:  # written by `encode --shards`
        total = read_manifest(folder).texts
        for file in damaged_shards(folder):
            lines.append(f"{folder / file}: checksum mismatch; delete it and encode again")
    else:
        total = 0
        for cache in list_caches():
            count, problems = verify_cache(cache)
            total += count
            lines += [f"{cache.path} ({cache.label}): {problem}" for problem in problems]
    for line in lines:
        click.echo(line, err=True)
    click.echo(f"{total:,} vectors; {len(lines)} problems")
    if lines:
        sys.exit(1)


@cache.command("prune")
@opt.model_option(
    "label", metavar="LABEL", help="Remove the vectors of this model, as named by `cache info`."
)
@opt.option("--to", "size", type=opt.SIZE, help="Remove the least recently used, down to SIZE.")
@opt.flag(
    "--all",
    "everything",
    help="Remove all vectors, except those being written.",
)
@opt.flag("--dry-run", help="Show how much would be removed; remove nothing.")
def cache_prune(label: str | None, size: int | None, everything: bool, dry_run: bool) -> None:
    """Remove cached vectors of one model, the oldest, or all."""
    from rich.filesize import decimal

    from qwen3nb.vectors.cache import list_caches, prune_to

    choices = [label is not None, size is not None, everything]
    if choices.count(True) != 1:
        raise click.UsageError("expected --model LABEL, --to SIZE or --all")
    caches = list_caches()
    if label is not None:
        caches = [cache for cache in caches if cache.label == label]
    total = sum(cache.bytes for cache in caches)
    # With --model or --all, nothing is kept.
    size_to_keep = size or 0
    if dry_run:
        freed = max(0, total - size_to_keep)
        click.echo(f"{decimal(freed)} would be freed; nothing was removed")
    elif label is None:
        freed = prune_to(size_to_keep)
        click.echo(f"{decimal(freed)} freed")
    else:
        for cache in caches:
            shutil.rmtree(cache.path, ignore_errors=True)  # processes that use it continue
        click.echo(f"{decimal(total)} freed")


@click.command(cls=Command)
@opt.model_option("spec", required=True, help="Folder, name or hub id, or random.")
@opt.option(
    "--input",
    "source",
    required=True,
    type=opt.FILE,
    help='JSON lines, such as {"text": "…"}; or CSV, Parquet, a database, a folder.',
)
@opt.out_option("output", required=True, help="The .npy file, or the folder of parts.")
@opt.option("--role", choices=("query", "passage"), help="Selects the prompt.")
@opt.NO_CACHE
@opt.option(
    "--shards",
    minimum=1,
    help="Write a folder of parts, of 4,096 texts or more each.",
)
@opt.RAY
@opt.option(
    "--threads",
    minimum=1,
    help="Threads of a worker with --ray.  [default: up to 4]",
)
@opt.LOADED
def encode(
    spec: str,
    source: Path,
    output: Path,
    shards: int | None,
    ray: str | None,
    threads: int | None,
    no_cache: bool,
    role: str | None,
    **options: Unpack[LoadedArguments],
) -> None:
    """Encode the texts in a file to float32 vectors, one row per text.

    \b
    qwen3nb encode --model encoder --input texts.jsonl --out vectors.npy
    qwen3nb encode --model e5-base-v2 --role query --input q.jsonl --out q.npy
    qwen3nb encode --model encoder --input texts.jsonl --out vectors --shards 8
    qwen3nb encode --model encoder --input texts.jsonl --out vectors --ray auto

    Memory use does not grow with the file, and cached vectors are not computed again.

    With --shards or --ray, --out is a folder of .npy files with a manifest. Running the command
    again resumes it: finished parts are kept (their vectors are not cached as well). Several
    processes with the same --shards command share the parts, such as the tasks of a Slurm array.
    With --ray,
    one worker per GPU, or per four cores if there is none, encodes parts, on a cluster or, without
    an address, on this machine; --input and --out must be on a disk that all nodes share. The
    vectors equal those written to a single file.
    """
    if threads is not None and ray is None:
        raise click.UsageError("--threads is for the workers of --ray; OMP_NUM_THREADS otherwise")
    if ray is not None:
        from qwen3nb.cluster.encode import encode_on_cluster

        encoded = encode_on_cluster(
            spec,
            source,
            output,
            shards=shards,
            address=ray,
            threads=threads,
            role=role,
            **options,
        )
        click.echo(encoded.summary())
        return
    from qwen3nb.models.load import load_encoder
    from qwen3nb.vectors.encode_file import check_output, encode_to_file
    from qwen3nb.vectors.encode_shards import check_folder, encode_shards
    from qwen3nb.vectors.text_files import check_texts, read_texts

    texts_of_documents = _texts_of_documents(source)
    if shards is not None:
        if texts_of_documents is not None:
            raise click.UsageError('--shards reads JSON lines, such as {"text": "…"}')
        check_folder(output)
        encoder = load_encoder(spec, cache=False, **options)
        encoded = encode_shards(encoder, source, output, shards=shards, role=role)
        click.echo(encoded.summary())
        return
    check_output(output)
    texts: Iterable[str]
    if texts_of_documents is not None:
        texts, count = texts_of_documents, len(texts_of_documents)
    else:
        count = check_texts(source)
        texts = read_texts(source)
    encoder = load_encoder(spec, cache=not no_cache, **options)
    encode_to_file(encoder, texts, output, role=role, total=count)
    click.echo(
        f"{output}: {count:,} x {encoder.dimension} float32; {encoder.stats.cached:,} distinct "
        f"texts from the cache, {encoder.stats.encoded:,} computed"
    )


def _texts_of_documents(source: Path) -> list[str] | None:
    """Return the texts of documents in another format than JSON lines, in their order; or None.

    Documents are read as `qwen3nb domain` reads them, with all their texts at once.
    """
    from qwen3nb.datasets.custom.documents import read_documents
    from qwen3nb.datasets.custom.formats import Json, JsonLines, find_format

    if not source.exists():
        return None
    if not source.is_dir():
        file_format = find_format(source)
        # A file of JSON lines may be called .json, too.
        if file_format is None or isinstance(file_format, Json | JsonLines):
            return None
    return list(read_documents(source).texts.values())

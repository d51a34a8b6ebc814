"""Commands for vectors: encode a file, inspect and prune the cache."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qwen3nb.cli import options as opt
from qwen3nb.cli.program import Command, CommandGroup

if TYPE_CHECKING:
    from qwen3nb.vectors.cache import ModelVectors
    from qwen3nb.vectors.encode_file import EncodedShards


@click.group(cls=CommandGroup)
def cache() -> None:
    """Inspect, verify and prune the cached vectors.

    \b
    qwen3nb cache info
    qwen3nb cache verify
    qwen3nb cache prune --older-than 30 --dry-run
    qwen3nb cache prune --to 50GB
    """


@cache.command("info")
@opt.JSON
def cache_info(as_json: bool) -> None:
    """List the models whose vectors are cached, the most recently used first."""
    from qwen3nb.vectors.cache import cache_folder, list_caches

    caches = list_caches()
    lines = [f"{cache_folder()}: {len(caches)} models, {_size(sum(c.bytes for c in caches))}"]
    for each in caches:
        used = datetime.fromtimestamp(each.used, tz=UTC).strftime("%Y-%m-%d")
        lines.append(
            f"{each.label}  {each.texts():,} texts  {_size(each.bytes)}  last used {used}  "
            f"{each.path.name}"
        )
        keys = ("pooling", "dtype", "max_length", "normalize", "prefix")
        if known := [f"{key} {each.settings[key]}" for key in keys if each.settings.get(key)]:
            lines.append(f"  {', '.join(known)}")
    models = _about(caches) if as_json else []
    opt.answer({"folder": str(cache_folder()), "models": models}, *lines, as_json=as_json)


def _about(caches: Sequence[ModelVectors]) -> list[dict[str, Any]]:
    """Return what is known of each model's vectors."""
    return [
        {
            "label": each.label,
            "identity": each.identity,
            "texts": each.texts(),
            "bytes": each.bytes,
            "used": datetime.fromtimestamp(each.used, tz=UTC).isoformat(timespec="seconds"),
            "path": str(each.path),
            "settings": each.settings,
        }
        for each in caches
    ]


@cache.command("verify")
@click.argument("folder", required=False, type=opt.FILE)
@opt.JSON
def cache_verify(folder: Path | None, as_json: bool) -> None:
    """Check every cached vector, or those in FOLDER; exits with 1 if one is damaged.

    FOLDER holds vectors in parts, as `qwen3nb encode --shards` writes them; their checksums
    are in its manifest.
    """
    from qwen3nb.vectors.cache import list_caches, verify_cache
    from qwen3nb.vectors.shards import damaged_shards, read_manifest

    damaged: dict[str, list[str]] = {}
    if folder is not None:
        vectors = read_manifest(folder)
        for file in damaged_shards(folder):
            damaged[str(folder / file)] = ["another checksum; delete it and encode again"]
        total = vectors.texts
        summary = f"{total:,} vectors; {len(damaged)} of {len(vectors.shards)} parts damaged"
    else:
        total = 0
        for each in list_caches():
            held, problems = verify_cache(each)
            total += held
            damaged |= {f"{each.path} ({each.label})": problems} if problems else {}
        summary = f"{total:,} vectors hold; those of {len(damaged)} models are damaged"
    if not as_json:
        for path, problems in damaged.items():
            for problem in problems:
                click.echo(f"{path}: {problem}", err=True)
    opt.answer({"vectors": total, "damaged": damaged}, summary, as_json=as_json)
    if damaged:
        sys.exit(1)


@cache.command("prune")
@opt.option(
    "--older-than", type=click.FloatRange(min=0), metavar="DAYS", help="Unused for this long."
)
@opt.model_option(
    "label",
    metavar="LABEL",
    help="Of this model, as named by `cache info`.",
)
@opt.flag("--damaged", help="Segments with damaged vectors, quarantined files.")
@opt.flag("--all", "everything", help="All vectors.")
@opt.option("--to", "size", type=opt.SIZE, help="The least recently used, until SIZE is left.")
@opt.flag("--dry-run", help="List what would go and remove nothing.")
@opt.JSON
def cache_prune(dry_run: bool, size: int | None, as_json: bool, **conditions: Any) -> None:
    """Remove what meets all given conditions, or what exceeds a size."""
    from qwen3nb.vectors.cache import list_caches, prune, prune_to, to_prune

    if size is not None:
        if dry_run or any(each not in (None, False) for each in conditions.values()):
            raise click.UsageError("--to removes by size alone; give no other option")
        freed = prune_to(size)
        opt.answer({"bytes": freed, "removed": True}, f"{_size(freed)} freed", as_json=as_json)
        return
    selected = to_prune(list_caches(), **conditions)
    models = _about(selected) if as_json else []
    freed = sum(each.bytes for each in selected) if dry_run else prune(selected)
    what = "would be freed; nothing was removed" if dry_run else "freed"
    opt.answer(
        {"bytes": freed, "removed": not dry_run, "models": models},
        *(f"{each.label}  {_size(each.bytes)}  {each.path.name}" for each in selected),
        f"{len(selected)} models, {_size(freed)} {what}",
        as_json=as_json,
    )


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


@click.command(cls=Command)
@opt.model_option("spec", required=True, help="A folder, registry name, hub id or random.")
@opt.option(
    "--input",
    "source",
    required=True,
    type=opt.FILE,
    help='A file with one {"text": ...} per line.',
)
@opt.out_option(
    "output", required=True, help="The .npy file to write, or with --shards or --ray, the folder."
)
@opt.option("--role", choices=("query", "passage"), help="Selects the prompt.")
@opt.NO_CACHE
@opt.option(
    "--shards",
    least=1,
    help="Write a folder of so many parts, at most one per 4,096 texts.  "
    "[default with --ray: one per 65,536 texts, at least four per worker]",
)
@opt.RAY
@opt.option(
    "--threads", least=1, help="Of a worker without a GPU, with --ray.  [default: at most 4]"
)
@opt.ENCODER
@opt.PROMPTS
@opt.BASE
def encode(
    spec: str,
    source: Path,
    output: Path,
    shards: int | None,
    ray: str | None,
    threads: int | None,
    no_cache: bool,
    **options: Any,
) -> None:
    """Encode the texts in a file to float32 vectors, one row per text.

    Memory use does not grow with the file, and cached vectors are not computed again.

    With --shards or --ray, --out is a folder of .npy files with a manifest. The same command
    resumes: finished parts are kept (and vectors not cached besides). With --ray, a worker per
    GPU, or per four cores without any, encodes parts: those of a cluster or, without an
    address, of this machine; --input and --out must be on a disk that all nodes share. The
    vectors are the same as those of one file.

    \b
    qwen3nb encode --model encoder --input texts.jsonl --out vectors.npy
    qwen3nb encode --model e5-base-v2 --role query --input q.jsonl --out q.npy
    qwen3nb encode --model encoder --input texts.jsonl --out vectors --shards 8
    qwen3nb encode --model encoder --input texts.jsonl --out vectors --ray auto
    """
    if threads is not None and ray is None:
        raise click.UsageError("--threads is for the workers of --ray; OMP_NUM_THREADS otherwise")
    if ray is not None:
        options |= {"address": ray, "threads": threads}
        encode_on_cluster(spec=spec, source=source, folder=output, shards=shards, **options)
        return
    from qwen3nb.models.load import load_encoder
    from qwen3nb.vectors import encode_file as files

    role = options.pop("role")
    if shards is not None:
        files.check_folder(output)
        _print_resumed(output)
        encoder = load_encoder(spec, cache=False, **options)
        _print_shards(
            files.encode_shards(encoder, source, output, shards=shards, role=role), shards
        )
        return
    files.check_output(output)
    count = files.check_texts(source)
    encoder = load_encoder(spec, cache=not no_cache, **options)
    texts = files.read_texts(source)
    written = files.encode_to_file(encoder, texts, output, role=role, total=count)
    click.echo(
        f"{output}: {written.rows:,} x {written.dimension} float32; {written.hits:,} distinct "
        f"texts from the cache, {written.misses:,} computed"
    )


def encode_on_cluster(*, spec: str, folder: Path, shards: int | None, **options: Any) -> None:
    """Encode parts with Ray and print what came of it."""
    from qwen3nb.cluster import encode as cluster

    _print_resumed(folder)
    done = cluster.encode_on_cluster(spec, folder=folder, shards=shards, **options)
    _print_shards(done, shards)


def _print_resumed(folder: Path) -> None:
    from qwen3nb.vectors.shards import PLAN, read_shard_plan

    if (folder / PLAN).is_file():
        shards = read_shard_plan(folder).shards
        there = sum((folder / each.file).is_file() for each in shards)
        click.echo(f"{folder}: resuming, {there} of {len(shards)} parts are there")


def _print_shards(done: EncodedShards, wanted: int | None) -> None:
    vectors = done.vectors
    count = len(vectors.shards)
    kept = f"; {done.kept} were there before" if done.kept else ""
    fewer = f", one per 4,096 texts, not {wanted}" if wanted and count < wanted else ""
    click.echo(
        f"{done.folder}: {vectors.texts:,} x {vectors.dimension} float32 in {count} "
        f"part{'s' if count > 1 else ''}{fewer}{kept}"
    )

"""What the program makes of generated files that nobody should have written.

    python -m benchmarks.hostile --cases 500
    python -m benchmarks.hostile --cases 40 --subjects weights notebook --seed 7

Each case takes valid files, changes some of their values, bytes or lengths, and gives them to a
command in a process of its own. It may take a minute and 1 GiB more than before. It must end by
itself, with status 0, or with an error that is no traceback: a line, or one for each of the first
wrong rows.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
import resource
import shutil
import signal
import sqlite3
import struct
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.options import command
from qwen3nb.bench.harness import machine, table

_SECONDS, _BYTES = 60, 1 << 30  # above what the process has
_MOST_LINES = 25  # of an error
_STATUSES = (0, 1, 2)  # done, refused, or not understood
_VALUES: tuple[object, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, -(10**40), 1e308, 0.5, "", " ", "0", "x" * 100_000),
    *("\x1b[31m\x07", "\ud800", "../../etc/passwd", "/dev/zero", "http://127.0.0.1:9/", "NaN"),
    *([], {}, [[]], {"": None}, [1, "a", None], "\u202eabc\u2066", "a\nb", "{{7*7}}", "${HOME}"),
)
_TEMPLATES = (
    *("{{ messages", "{% for %}", "", "{{ raise_exception('no') }}", "{{ messages[9].content }}"),
    *("{% for a in range(10 ** 9) %}a{% endfor %}", "{{ 'a' * 10 ** 10 }}", "{{ 9 ** 9 ** 9 }}"),
    *("{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ cycler.__init__.__globals__.os }}"),
    *("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{% include '/etc/passwd' %}"),
    *("{{ '%999999999s' % 'a' }}", "{{ messages }}" * 10_000, "{{" + "(" * 2_000 + ")" * 2_000),
    *("{% set x = namespace(a='a') %}" + "{% set x.a = x.a ~ x.a %}" * 40 + "{{ x.a }}", 7, ["a"]),
)
_BOMB = 1 << 29  # bytes of a member of an archive
_RECORD = "results/*/seed_*/AuthorSTS.json"
_COPY = "mirror/mteb/stsbenchmark-sts"
_CARD = "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: test\n    path: {}\n---\n"
Generator = np.random.Generator
Rows = list[dict[str, object]]


@dataclass(frozen=True)
class Subject:
    """Valid files, how they are changed, and the command that reads them."""

    write: Callable[[Path], object]  # valid files into a folder
    changed: str  # pattern of the file to change
    change: Callable[[bytes, Generator], bytes]
    arguments: Callable[[Path], list[str]]
    reason: str = "Error:"  # how the line of a refusal begins, or what it contains


@dataclass(frozen=True)
class Case:
    """One command on changed files."""

    subject: str
    number: int
    outcome: str  # accepted, refused, or what is wrong
    seconds: float
    text: str  # the end of what it printed


@dataclass(frozen=True)
class HostileBench:
    """All cases."""

    cases: tuple[Case, ...]

    def table(self) -> str:
        """Counts by subject as plain text, and each case that should not be."""
        rows = []
        for subject in sorted({case.subject for case in self.cases}):
            of_subject = [case for case in self.cases if case.subject == subject]
            counts = Counter(case.outcome for case in of_subject)
            wrong = len(of_subject) - counts["accepted"] - counts["refused"]
            rows.append(
                {
                    "file": subject,
                    "cases": str(len(of_subject)),
                    "accepted": str(counts["accepted"]),
                    "refused": str(counts["refused"]),
                    "wrong": str(wrong),
                    "longest": f"{max(case.seconds for case in of_subject):.1f} s",
                }
            )
        lines = [table(machine(), "hostile files", rows=rows)]
        for case in self.cases:
            if case.outcome not in ("accepted", "refused"):
                lines.append(f"{case.subject} {case.number}: {case.outcome}\n{case.text}")
        return "\n".join(lines)


def bench_hostile(
    *, cases: int = 500, seed: int = 1, subjects: tuple[str, ...] = ("all",)
) -> HostileBench:
    """Give generated files to commands, and see whether each ends as it should."""
    chosen = {name: subject for name, subject in SUBJECTS.items() if name in subjects}
    if subjects == ("all",):
        chosen = SUBJECTS
    if not chosen:
        raise ValueError(f"subjects: expected some of {', '.join(SUBJECTS)}; got {subjects}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _prepare(folder, chosen)
        names = [list(chosen)[number % len(chosen)] for number in range(cases)]
        done = [
            _tried(name, chosen[name], number, np.random.default_rng([seed, number]), folder)
            for number, name in enumerate(names)
        ]
    return HostileBench(tuple(done))


def _prepare(folder: Path, subjects: dict[str, Subject]) -> None:
    """Write a study and the valid files, and import what commands import."""
    from qwen3nb.cli import main  # noqa: F401 - loaded before the forks
    from qwen3nb.models import load  # noqa: F401
    from qwen3nb.study import create_study

    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ |= {"HOME": str(folder / "home"), "QWEN3NB_CACHE": str(folder / "cache")}
    if any(name.startswith("mirror") for name in subjects):
        import datasets  # noqa: F401
        import mteb  # noqa: F401
    create_study(folder / "study")
    os.environ["QWEN3NB_HOME"] = str(folder / "study")
    for name, subject in subjects.items():
        place = folder / "valid" / name
        place.mkdir(parents=True)
        subject.write(place)
        status, text = _run(subject.arguments(place), folder / "printed")
        if status:
            raise RuntimeError(f"{name}: the valid files are refused: {text}")


def _tried(name: str, subject: Subject, number: int, generator: Generator, folder: Path) -> Case:
    """Change the files of a subject, and run its command on them."""
    place = folder / "case"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / "valid" / name, place)
    (file,) = place.glob(subject.changed)
    file.write_bytes(subject.change(file.read_bytes(), generator))
    started = time.monotonic()
    status, text = _run(subject.arguments(place), folder / "printed")
    seconds = time.monotonic() - started
    outcome = _outcome(status, text, reason=subject.reason)
    return Case(name, number, outcome, seconds, text[-2000:])


def _run(arguments: Sequence[str], log: Path) -> tuple[int, str]:
    """Run a command in a fork; return its status, negative for a signal, and what it printed."""
    pid = os.fork()
    if pid == 0:
        _child(arguments, log)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), log.read_text(errors="replace")


def _child(arguments: Sequence[str], log: Path) -> None:
    """Run a command with limits of time and memory, and end this process."""
    from qwen3nb.cli.main import main

    output = log.open("w", errors="replace")
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    status = 99
    with contextlib.suppress(BaseException):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _BYTES, used + _BYTES))
        signal.alarm(_SECONDS)
        try:
            main.main(args=list(arguments))
            status = 0
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
        except BaseException:  # noqa: BLE001 - a traceback is what is looked for
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _outcome(status: int, text: str, *, reason: str) -> str:
    """Return ``accepted`` or ``refused``, or what is wrong with how a command ended."""
    if status == -signal.SIGALRM:
        return f"not done after {_SECONDS} s"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    if "Traceback (most recent call last)" in text or status not in _STATUSES:
        return "a traceback"
    if status == 0:
        return "accepted"
    if reason not in text:
        return "refused without a reason"
    error = text[text.rfind(reason) :]
    if len(error.strip().splitlines()) > _MOST_LINES:
        return "an error of many lines"
    if any(character in error for character in "\x1b\x07\u202e"):
        return "an error with control characters"
    return "refused"


# Changes.


def _change_value(value: Any, generator: Generator, depth: int = 0) -> Any:
    """Return a JSON value with one value in it replaced, removed, repeated or nested."""
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = list(value)
    elif isinstance(value, list):
        inner = list(range(len(value)))
    if inner and (depth == 0 or generator.random() < 0.8):
        key = inner[generator.integers(len(inner))]
        changed = value.copy()
        kind = generator.integers(10)
        if kind == 0:
            del changed[key]
        elif kind == 1 and isinstance(value, dict):
            changed[str(_VALUES[generator.integers(len(_VALUES))])[:50]] = changed.pop(key)
        elif kind == 2 and isinstance(value, list):
            changed += [value[key]] * 1_000
        else:
            changed[key] = _change_value(value[key], generator, depth + 1)
        return changed
    if generator.random() < 0.1:
        for _ in range(300):
            value = [value]
        return value
    return _VALUES[generator.integers(len(_VALUES))]


def change_json(content: bytes, generator: Generator) -> bytes:
    """Change one to three values of a JSON file, or its bytes."""
    if generator.random() < 0.15:
        return change_bytes(content, generator)
    value = json.loads(content)
    for _ in range(generator.integers(1, 4)):
        value = _change_value(value, generator)
    return json.dumps(value).encode()


def change_lines(content: bytes, generator: Generator) -> bytes:
    """Change one line of JSON among others."""
    lines = content.splitlines()
    row = generator.integers(len(lines))
    lines[row] = change_json(lines[row], generator)
    return b"\n".join(lines)


def change_bytes(content: bytes, generator: Generator) -> bytes:
    """Flip, cut, insert or repeat some bytes."""
    start, end = sorted(generator.integers(len(content) + 1, size=2).tolist())
    kind = generator.integers(4)
    if kind == 0:
        return content[:start]
    if kind == 1:
        return content[:start] + content[end:]
    if kind == 2:
        return content[:start] + generator.bytes(int(generator.integers(1, 40))) + content[start:]
    changed = bytearray(content)
    for _ in range(generator.integers(1, 8)):
        changed[generator.integers(len(changed))] ^= 1 << int(generator.integers(8))
    return bytes(changed)


def change_text(content: bytes, generator: Generator) -> bytes:
    """Put an unexpected value in the place of a word, or change bytes."""
    if generator.random() < 0.3:
        return change_bytes(content, generator)
    words = content.decode().split(" ")
    value = _VALUES[generator.integers(len(_VALUES))]
    words[generator.integers(len(words))] = str(value)[:1_000]
    return " ".join(words).encode(errors="surrogatepass")


def change_weights(content: bytes, generator: Generator) -> bytes:
    """Change the header of a safetensors file, its stated length, or its bytes."""
    (length,) = struct.unpack("<Q", content[:8])
    header, data = content[8 : 8 + length], content[8 + length :]
    kind = generator.integers(4)
    if kind == 0:
        return change_bytes(content, generator)
    if kind == 1:
        stated = int(generator.choice([0, 1, length - 1, length + 1, 2**32, 2**62]))
        return struct.pack("<Q", stated) + header + data
    header = change_json(header, generator)
    return struct.pack("<Q", len(header)) + header + data


def change_columns(content: bytes, generator: Generator) -> bytes:
    """Put an unexpected value in the place of a field of a table, or change bytes."""
    if generator.random() < 0.3:
        return change_bytes(content, generator)
    separator = b"\t" if b"\t" in content else b","
    rows = [line.split(separator) for line in content.splitlines()]
    row = rows[generator.integers(len(rows))]
    column = generator.integers(len(row))
    value = str(_VALUES[generator.integers(len(_VALUES))]).encode(errors="surrogatepass")
    kind = generator.integers(4)
    if kind == 0:
        row.pop(column)
    elif kind == 1:
        row.insert(column, value)
    else:
        row[column] = value
    return b"\n".join(map(separator.join, rows)) + b"\n"


def change_packed(content: bytes, generator: Generator) -> bytes:
    """Change what is packed by gzip or its bytes, or add 8 GiB that are packed to 8 MiB."""
    kind = generator.integers(8)
    if kind == 0:
        bomb = gzip.compress(bytes(1 << 28), compresslevel=6)
        return content + bomb * 32
    if kind < 4:
        return change_bytes(content, generator)
    return gzip.compress(change_lines(gzip.decompress(content), generator))


def change_archive(content: bytes, generator: Generator) -> bytes:
    """Change a member of a zip file, its name or bytes, or let it unpack to 512 MiB."""
    kind = generator.integers(6)
    if kind == 0:
        return change_bytes(content, generator)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    changed = list(members)[generator.integers(len(members))]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            if name != changed:
                archive.writestr(name, member)
            elif kind == 1:
                path = ("../../above.txt", "/proc/self/absolute.txt", name, "a\0b", "x" * 5_000)
                archive.writestr(path[generator.integers(len(path))], member)
            elif kind == 2:
                with archive.open(name, "w", force_zip64=True) as target:
                    for _ in range(_BOMB >> 26):
                        target.write(bytes(1 << 26))
            elif kind == 3:
                link = zipfile.ZipInfo(name)
                link.external_attr = 0o120777 << 16
                archive.writestr(link, "/etc/passwd")
            else:
                archive.writestr(name, change_text(member, generator))
    return stream.getvalue()


def change_template(content: bytes, generator: Generator) -> bytes:
    """Replace the chat template of a tokenizer's settings by one that means harm."""
    settings = json.loads(content)
    settings["chat_template"] = _TEMPLATES[generator.integers(len(_TEMPLATES))]
    return json.dumps(settings).encode()


# Valid files.


def _write_model(folder: Path) -> None:
    """Write a tiny encoder with its tokenizer, and texts."""
    import torch

    from qwen3nb.models.modeling.configuration import encoder_config
    from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel
    from qwen3nb.models.modeling.tiny_tokenizer import write_tokenizer

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 600}
    texts = ["sort the rows of a table", "a list of words"]
    write_tokenizer(texts, folder, vocabulary=300)
    others = {"max_position_embeddings": 64, "rope_theta": 1e4, "rms_norm_eps": 1e-6}
    config = encoder_config({**sizes, **heads, **others})
    torch.manual_seed(0)
    Qwen3EncoderModel(config).eval().save_pretrained(folder)
    (folder / "texts.jsonl").write_text('{"text": "sort the rows"}\n{"text": "a list"}\n')


def _write_domain(folder: Path) -> None:
    """Write queries and documents in several formats."""
    import pyarrow as pa
    from pyarrow import parquet

    documents = [
        {"id": f"d{n}", "text": f"document {n} about sorting", "title": f"title {n}", "stars": n}
        for n in range(20)
    ]
    queries = [
        {"query": f"question {n}", "relevance_grades": {f"d{n}": 3, f"d{n + 1}": 1}}
        for n in range(8)
    ]
    (folder / "documents.jsonl").write_text("\n".join(map(json.dumps, documents)) + "\n")
    parquet.write_table(pa.Table.from_pylist(documents), folder / "documents.parquet")
    (folder / "queries.json").write_text(json.dumps(queries))
    tables = [
        f'[[queries]]\nid = "q{n}"\nquery = "{entry["query"]}"\nrelevance_grades = {{ d{n} = 3 }}\n'
        for n, entry in enumerate(queries)
    ]
    (folder / "queries.toml").write_text("\n".join(tables))
    (folder / "queries.tsv").write_text("".join(f"q{n}\tquestion {n}\n" for n in range(8)))
    (folder / "qrels.txt").write_text("".join(f"q{n} 0 d{n} 1\n" for n in range(8)))


def _write_record(folder: Path) -> None:
    """Write the record of an evaluation."""
    from qwen3nb.evaluation.evaluate import evaluate

    with contextlib.redirect_stderr(io.StringIO()):
        evaluate("random:8", tasks="AuthorSTS", output=folder / "results")


def _write_notebook(folder: Path) -> None:
    source = Path(__file__).parent.parent / "notebooks" / "compare.ipynb"
    shutil.copy(source, folder / "mine.ipynb")


def _write_causal(folder: Path) -> None:
    """Write a tiny language model, which writes an answer, with a chat template; and documents."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    _write_model(folder)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 600}
    config = Qwen3Config(**sizes, **heads, max_position_embeddings=4096)
    Qwen3ForCausalLM(config).eval().save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    settings = json.loads(file.read_text()) | {"chat_template": template}
    file.write_text(json.dumps(settings))
    _write_domain(folder)


def _write_shards(folder: Path) -> None:
    """Write a tiny encoder whose weights are in several files."""
    from safetensors.numpy import load_file, save_file

    _write_model(folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    files = {
        name: f"model-0000{number % 2 + 1}-of-00002.safetensors"
        for number, name in enumerate(names)
    }
    for file in set(files.values()):
        held = {name: tensors[name] for name in names if files[name] == file}
        save_file(held, folder / file, metadata={"format": "pt"})
    size = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _write_sentence_model(folder: Path) -> None:
    """Write a tiny model of sentence-transformers."""
    _write_model(folder)
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {
            "idx": 1,
            "name": "1",
            "path": "1_Pooling",
            "type": "sentence_transformers.models.Pooling",
        },
        {
            "idx": 2,
            "name": "2",
            "path": "2_Normalize",
            "type": "sentence_transformers.models.Normalize",
        },
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(
        '{"max_seq_length": 32, "do_lower_case": false}'
    )
    settings = {"prompts": {"query": "q: "}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    pooling = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "2_Normalize").mkdir()


def _write_adapter(folder: Path) -> None:
    """Write a tiny encoder and a LoRA adapter of it."""
    from safetensors.numpy import save_file

    base = folder / "base"
    base.mkdir()
    _write_causal(base)
    (base / "texts.jsonl").rename(folder / "texts.jsonl")
    settings = {
        "peft_type": "LORA",
        "r": 2,
        "lora_alpha": 4,
        "target_modules": ["q_proj"],
        "base_model_name_or_path": str(base),
        "task_type": "FEATURE_EXTRACTION",
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    generator = np.random.default_rng(0)
    tensors = {}
    for layer in range(2):
        name = f"base_model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = generator.normal(size=(2, 16)).astype(np.float32)
        tensors[f"{name}.lora_B.weight"] = generator.normal(size=(16, 2)).astype(np.float32)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def _write_tables(folder: Path) -> None:
    """Write the documents of `_write_domain` in other formats, and a BEIR folder."""
    _write_domain(folder)
    lines = (folder / "documents.jsonl").read_text().splitlines()
    documents = [json.loads(line) for line in lines]
    with (folder / "documents.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, documents[0])
        writer.writeheader()
        writer.writerows(documents)
    (folder / "documents.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (folder / "documents.json").write_text(json.dumps(documents))
    with contextlib.closing(sqlite3.connect(folder / "documents.db")) as database:
        database.execute("CREATE TABLE documents (id TEXT, text TEXT, stars INTEGER)")
        rows = [(row["id"], row["text"], row["stars"]) for row in documents]
        database.executemany("INSERT INTO documents VALUES (?, ?, ?)", rows)
        database.commit()
    beir = folder / "beir"
    (beir / "qrels").mkdir(parents=True)
    corpus = [{"_id": row["id"], "title": row["title"], "text": row["text"]} for row in documents]
    queries = [{"_id": f"q{number}", "text": f"question {number}"} for number in range(8)]
    (beir / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)) + "\n")
    (beir / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)) + "\n")
    grades = "".join(f"q{number}\td{number}\t1\n" for number in range(8))
    (beir / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{grades}")


def _write_sheet(folder: Path) -> None:
    """Write queries, documents and a sheet of documents to grade, as CSV and XLSX."""
    _write_domain(folder)
    _run(_judge("--sheet", "sheet.csv")(folder), folder / "printed")


def _write_vectors(folder: Path) -> None:
    """Write the parts of encoded texts, with their manifest."""
    _write_model(folder)
    words = [*_encode(folder)[:-3], "--out", str(folder / "parts"), "--shards", "1"]
    _run(words, folder / "printed")


def _write_release(folder: Path) -> None:
    """Write a release of a study with one record."""
    from qwen3nb import paths
    from qwen3nb.evaluation.evaluate import evaluate
    from qwen3nb.records.releases import freeze

    if not (paths.releases() / "v1").is_dir():
        with contextlib.redirect_stderr(io.StringIO()):
            evaluate("random:8", tasks="AuthorSTS")
        freeze("v1")
    shutil.copytree(paths.releases() / "v1", folder / "v1")


def _write_archive(folder: Path) -> None:
    """Write training texts in a zip file."""
    with zipfile.ZipFile(folder / "train.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jsonl", '{"query": "sort a list", "pos": ["use sorted"]}\n' * 5)
        archive.writestr("b/c.csv", "query,pos\nsort a list,use sorted\n" * 5)


def _write_mirror(name: str) -> Callable[[Path], None]:
    """Return what writes a copy of a task's data, as one file of a format."""

    def write(folder: Path) -> None:
        rows = [
            {"sentence1": f"a text {number}", "sentence2": f"a word {number}", "score": number / 4}
            for number in range(20)
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "train.txt").write_text("sort a list\n")
        copy = folder / _COPY
        copy.mkdir(parents=True)
        (copy / "README.md").write_text(_CARD.format(name))
        _WRITERS[name](copy / name, rows, lines)

    return write


def _write_zip(file: Path, _: Rows, lines: str) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jsonl", lines)


def _write_arrow(file: Path, rows: Rows, _: str) -> None:
    import pyarrow as pa

    table = pa.Table.from_pylist(rows)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with (
        pa.OSFile(str(file), "wb") as stream,
        pa.ipc.new_stream(stream, table.schema, options=options) as writer,
    ):
        writer.write_table(table)


def _write_parquet(file: Path, rows: Rows, _: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), file)


_WRITERS: dict[str, Callable[[Path, Rows, str], object]] = {
    "test.jsonl": lambda file, _, lines: file.write_text(lines),
    "test.jsonl.gz": lambda file, _, lines: file.write_bytes(gzip.compress(lines.encode())),
    "test.zip": _write_zip,
    "test.parquet": _write_parquet,
    "test.arrow": _write_arrow,
}


def _mirrored(folder: Path) -> list[str]:
    train = ["--train", str(folder / "train.txt")]
    return ["contamination", *train, "--tasks", "STSBenchmark", "--mirror", str(folder / "mirror")]


def _encode(folder: Path) -> list[str]:
    files = ["--input", str(folder / "texts.jsonl"), "--out", str(folder / "vectors.npy")]
    return ["encode", "--model", str(folder), *files, "--no-cache"]


def _domain(queries: str, documents: str, *more: str) -> Callable[[Path], list[str]]:
    def arguments(folder: Path) -> list[str]:
        files = ["--queries", str(folder / queries), "--documents", str(folder / documents)]
        options = [str(folder / word) if word == "qrels.txt" else word for word in more]
        return ["domain", *files, *options, "--check"]

    return arguments


def _beir(folder: Path) -> list[str]:
    return ["domain", "--queries", str(folder / "beir"), "--check"]


def _notebook(folder: Path) -> list[str]:
    return ["run", str(folder / "mine.ipynb"), "--help"]


def _judge(option: str, name: str) -> Callable[[Path], list[str]]:
    def arguments(folder: Path) -> list[str]:
        files = ["--queries", str(folder / "queries.tsv"), "--documents"]
        files += [str(folder / "documents.jsonl"), "--grades", str(folder / "grades.jsonl")]
        models = ["--model", "bm25,random:8", "--grader", "me"]
        return ["judge", *files, *models, option, str(folder / name)]

    return arguments


def _written(folder: Path) -> list[str]:
    documents = ["--documents", str(folder / "documents.jsonl"), "--kind", "written"]
    writer = ["--writer", str(folder), "--number", "1", "--out", str(folder / "out.toml")]
    return ["queries", *documents, *writer]


def _adapted(folder: Path) -> list[str]:
    return [*_encode(folder), "--base", str(folder / "base")]


def _vectors(folder: Path) -> list[str]:
    return ["cache", "verify", str(folder / "parts")]


def _difference(folder: Path) -> list[str]:
    return ["freeze", "diff", str(folder / "v1"), "results"]


def _trained(folder: Path) -> list[str]:
    train = ["--train", str(folder / "train.zip")]
    return ["contamination", *train, "--tasks", "PyDocsSampleRetrieval"]


def _verify(folder: Path) -> list[str]:
    (record,) = folder.glob(_RECORD)
    return ["verify", str(record)]


def _of_mirror(
    name: str, change: Callable[[bytes, Generator], bytes], *, changed: str = ""
) -> Subject:
    """Return the subject of a mirrored file, of which it or another of the copy is changed."""
    return Subject(_write_mirror(name), f"{_COPY}/{changed or name}", change, _mirrored)


SUBJECTS = {
    "config": Subject(_write_model, "config.json", change_json, _encode),
    "tokenizer": Subject(_write_model, "tokenizer.json", change_json, _encode),
    "weights": Subject(_write_model, "model.safetensors", change_weights, _encode),
    "texts": Subject(_write_model, "texts.jsonl", change_lines, _encode),
    "golden set": Subject(
        _write_domain, "queries.json", change_json, _domain("queries.json", "documents.jsonl")
    ),
    "TOML": Subject(
        _write_domain, "queries.toml", change_text, _domain("queries.toml", "documents.jsonl")
    ),
    "documents": Subject(
        _write_domain, "documents.jsonl", change_lines, _domain("queries.json", "documents.jsonl")
    ),
    "Parquet": Subject(
        _write_domain,
        "documents.parquet",
        change_bytes,
        _domain("queries.json", "documents.parquet"),
    ),
    "qrels": Subject(
        _write_domain,
        "qrels.txt",
        change_text,
        _domain("queries.tsv", "documents.jsonl", "--judgements", "qrels.txt"),
    ),
    "record": Subject(_write_record, _RECORD, change_json, _verify, reason="AuthorSTS.json: "),
    "notebook": Subject(_write_notebook, "mine.ipynb", change_json, _notebook),
    "index": Subject(_write_shards, "model.safetensors.index.json", change_json, _encode),
    "tokenizer settings": Subject(_write_model, "tokenizer_config.json", change_json, _encode),
    "chat template": Subject(_write_causal, "tokenizer_config.json", change_template, _written),
    "modules": Subject(_write_sentence_model, "modules.json", change_json, _encode),
    "pooling": Subject(_write_sentence_model, "1_Pooling/config.json", change_json, _encode),
    "sentence settings": Subject(
        _write_sentence_model, "config_sentence_transformers.json", change_json, _encode
    ),
    "adapter": Subject(_write_adapter, "adapter_config.json", change_json, _adapted),
    "adapter weights": Subject(
        _write_adapter, "adapter_model.safetensors", change_weights, _adapted
    ),
    "CSV": Subject(
        _write_tables, "documents.csv", change_columns, _domain("queries.json", "documents.csv")
    ),
    "JSON": Subject(
        _write_tables, "documents.json", change_json, _domain("queries.json", "documents.json")
    ),
    "gzip": Subject(
        _write_tables,
        "documents.jsonl.gz",
        change_packed,
        _domain("queries.json", "documents.jsonl.gz"),
    ),
    "database": Subject(
        _write_tables, "documents.db", change_bytes, _domain("queries.json", "documents.db")
    ),
    "BEIR corpus": Subject(_write_tables, "beir/corpus.jsonl", change_lines, _beir),
    "BEIR queries": Subject(_write_tables, "beir/queries.jsonl", change_lines, _beir),
    "BEIR qrels": Subject(_write_tables, "beir/qrels/test.tsv", change_columns, _beir),
    "sheet": Subject(_write_sheet, "sheet.csv", change_columns, _judge("--read", "sheet.csv")),
    "vectors": Subject(_write_vectors, "parts/*.npy", change_bytes, _vectors),
    "manifest": Subject(_write_vectors, "parts/manifest.json", change_json, _vectors),
    "release": Subject(_write_release, "v1/release.json", change_json, _difference),
    "list of a release": Subject(
        _write_release, "v1/manifest-sha256.txt", change_text, _difference
    ),
    "side file": Subject(
        _write_release, "v1/data/results/*/seed_*/*.scores.parquet", change_bytes, _difference
    ),
    "training archive": Subject(_write_archive, "train.zip", change_archive, _trained),
    "mirror's card": _of_mirror("test.jsonl", change_text, changed="README.md"),
    "mirror's lines": _of_mirror("test.jsonl", change_lines),
    "mirror's gzip": _of_mirror("test.jsonl.gz", change_packed),
    "mirror's zip": _of_mirror("test.zip", change_archive),
    "mirror's Parquet": _of_mirror("test.parquet", change_bytes),
    "mirror's Arrow": _of_mirror("test.arrow", change_bytes),
}


def changed_files(subject: str, *, cases: int, seed: int = 1) -> Iterator[bytes]:
    """Yield the changed file of each case of a subject."""
    with tempfile.TemporaryDirectory() as folder:
        SUBJECTS[subject].write(Path(folder))
        (file,) = Path(folder).glob(SUBJECTS[subject].changed)
        content = file.read_bytes()
    for number in range(cases):
        yield SUBJECTS[subject].change(content, np.random.default_rng([seed, number]))


if __name__ == "__main__":
    command(bench_hostile, HostileBench.table)

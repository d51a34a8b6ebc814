"""Names of files, tensors, settings, models and queries cannot drive the terminal."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import termios

import pytest
from helpers.records import make, own
from safetensors.torch import load_file, save_file

from qwen3nb.records.record import checksum
from qwen3nb.utils.terminal import say

# Colours, title, clipboard, link, bell, carriage, backspace, C1, reordering, a lone surrogate.
HOSTILE = (
    "h\x1b[31mR\x1b]0;t\x07\x1b]52;c;YQ==\x07\x1b]8;;http://e\x1b\\l\r\b\x9b2J\u202eevil\u2066"
)
QUOTED = json.dumps(HOSTILE)
DANGEROUS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?![ \n])"
)


def unsafe(text):
    """The control characters in a text but for line breaks, and the carriage before a bar."""
    bars = re.sub(r"\r[^\r\n]*(?:\d%\||\[\d\d:\d\d|\dit/s)|\r *(?=\r)|\r$", "", text)
    return sorted(set(DANGEROUS.findall(bars.replace("\x1b[A", "").replace("\r\n", "\n"))))


def text_file(name, text):
    return lambda folder, _: (folder / name).write_text(text, encoding="utf-8")


def lines(name, *rows):
    return text_file(name, "".join(json.dumps(row) + "\n" for row in rows))


def with_model(change):
    """Write a copy of the encoder, changed by ``change(folder)``."""
    return lambda folder, encoder: change(shutil.copytree(encoder, folder / "model"))


def hostile_type(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": HOSTILE}))


def hostile_tensor(folder):
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {**tensors, HOSTILE: next(iter(tensors.values())).clone()}, folder / "model.safetensors"
    )


def with_records(folder, _):
    for mean, label in ((0.5, "now"), (0.6, "new")):
        for record in (own(label, mean), make(label, scores=[mean] * 9)):
            file = record.save()
            stored = json.loads(file.read_text())
            if label == "new":
                stored["model"].update(label=HOSTILE, spec=HOSTILE)
                stored["run"] = HOSTILE
            stored["task"].update(dataset=HOSTILE, unit=HOSTILE)
            file.write_text(json.dumps({**stored, "checksum": checksum(stored)}))


def with_damaged_record(folder, _):
    file = make("m").save()
    stored = json.loads(file.read_text())
    stored["metrics"][HOSTILE] = next(iter(stored["metrics"].values()))
    file.write_text(json.dumps(stored))


def documents(folder, _):
    lines("d.jsonl", {"id": HOSTILE, "text": "one"}, {"id": "b", "text": "two"})(folder, _)
    (folder / "q.toml").write_text(
        f'[[queries]]\nid = {QUOTED}\nquery = "q"\n'
        f"relevance_grades = {{ {QUOTED} = 2, {json.dumps('x' + HOSTILE)} = 1 }}\n"
    )


NOTHING = text_file("nothing", "")
DOMAIN = ["domain", "--queries", "q.toml", "--documents", "d.jsonl", "--model"]
# What is written first, and the arguments.
CASES = {
    "command": (NOTHING, [HOSTILE]),
    "model": (NOTHING, ["check", HOSTILE]),
    "sweep key": (text_file("s.toml", f"{QUOTED} = 1\n"), ["sweep", "s.toml"]),
    "config type": (with_model(hostile_type), ["check", "model"]),
    "tensor": (with_model(hostile_tensor), ["check", "model"]),
    "damaged record": (with_damaged_record, ["verify"]),
    "labels": (with_records, ["compare", "--baseline", "now", "--resamples", "100"]),
    "own data": (documents, [*DOMAIN, "random", "--check"]),
}


@pytest.mark.integration
@pytest.mark.parametrize("case", CASES)
def test_foreign_text_is_shown_as_text(cli, checkout, tmp_path, encoder_folder, monkeypatch, case):
    write, arguments = CASES[case]
    monkeypatch.chdir(tmp_path)
    write(tmp_path, encoder_folder)
    done = cli(*arguments)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.output.strip()
    assert unsafe(done.output) == [], done.output


def on_a_terminal(arguments, *, folder, **variables):
    """What a program writes to a terminal, errors and traceback included."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    environment = {**os.environ, "TERM": "xterm-256color", **variables}
    with subprocess.Popen(
        arguments, cwd=folder, env=environment, stdout=theirs, stderr=theirs, stdin=theirs
    ) as process:
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            parts.append(part)
    os.close(ours)
    return b"".join(parts).decode("utf-8", "replace").replace("\r\n", "\n"), process.returncode


PROGRAM = """
import sys, logging, warnings
import click
from qwen3nb.cli.main import main
from qwen3nb.report.render.console import print_table
from qwen3nb.report.render.table import Cell
from qwen3nb.report.render.table import Table
from qwen3nb.utils.progress import tqdm
from qwen3nb.records.record import checksum
from qwen3nb.utils.terminal import say

@main.command()
@click.argument("bad")
def hostile(bad):
    say(f"ours {bad}", fg="green")
    click.echo(f"plain {bad}")
    print_table(Table(("model",), ((Cell(f"x{bad}", strong=True),),)))
    warnings.warn(bad)
    logging.getLogger("a.library").warning("it says %s", bad)
    for _ in tqdm(range(2), desc="bar"):
        tqdm.write(bad)
    raise RuntimeError(f"{bad} at MY_TOKEN value-of-my-token hf_{'a1' * 17}")

main()
"""


@pytest.mark.integration
def test_on_a_terminal_our_colours_stay_and_a_traceback_is_harmless(tmp_path):
    arguments = [sys.executable, "-c", PROGRAM, "hostile", HOSTILE]
    text, status = on_a_terminal(arguments, folder=tmp_path, MY_TOKEN="value-of-my-token")  # noqa: S106
    assert status == 1
    assert "\x1b[32mours h\\x1b[31mR" in text
    assert text.count("Traceback") == 1
    for secret in ("value-of-my-token", "a1" * 17):
        assert secret not in text
    assert "bar: 100%" in text
    ours = re.sub(r"\x1b\[(?:0|1|2|4|32)(?:;\d+)*m", "", text)
    assert set(unsafe(ours)) <= {"\r"}  # before what replaces a bar
    assert "l\r" not in text
    assert text.count("\\x1b]52;c;YQ==\\x07") >= 7


def test_say_keeps_lines_and_words(capsys):
    say("one\ntwo\tthree – naïve 日本")
    assert capsys.readouterr().out == "one\ntwo\tthree – naïve 日本\n"

"""Generated files are as many as asked for, and what is wrong with a command is told apart."""

import contextlib
import io
import signal
import zipfile

import numpy as np
import pytest

from benchmarks import hostile

TRACEBACK = 'Traceback (most recent call last):\n  File "a.py"\nTypeError: x\n'


@pytest.mark.parametrize(
    ("status", "text", "outcome"),
    [
        (0, "done\n", "accepted"),
        (1, "Error: a.json: seed: expected a number; got []\n", "refused"),
        (2, "Error: No such option\n", "refused"),
        (1, "\n", "refused without a reason"),
        (1, "Error: 1" + "\n2" * 25, "an error of many lines"),
        (1, "Error: \x1b[31m\n", "an error with control characters"),
        (1, TRACEBACK, "a traceback"),
        (99, TRACEBACK, "a traceback"),
        (-signal.SIGALRM, "", "not done after 60 s"),
        (-signal.SIGSEGV, "", "killed by SIGSEGV"),
    ],
)
def test_only_an_end_with_a_reason_is_one(status, text, outcome):
    assert hostile._outcome(status, text, reason="Error:") == outcome


@pytest.mark.parametrize("subject", ["golden set", "qrels", "Parquet", "notebook", "CSV"])
def test_every_change_is_another_and_the_same_for_a_seed(subject):
    changed = list(hostile.changed_files(subject, cases=12))
    assert len(set(changed)) > 8
    assert changed == list(hostile.changed_files(subject, cases=12))
    assert changed != list(hostile.changed_files(subject, cases=12, seed=2))


def test_names_in_an_archive_lead_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(hostile, "_BOMB", 0)
    hostile._write_archive(tmp_path)
    content = (tmp_path / "train.zip").read_bytes()
    names = set()
    for number in range(12):
        archive = hostile.change_archive(content, np.random.default_rng([1, number]))
        with contextlib.suppress(zipfile.BadZipFile):
            names |= set(zipfile.ZipFile(io.BytesIO(archive)).namelist())
    assert names & {"../../above.txt", "/proc/self/absolute.txt"}

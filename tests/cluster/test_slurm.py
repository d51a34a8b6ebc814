"""The scripts of the how-to for Slurm, with ``srun`` on this machine."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from helpers import REPOSITORY
from helpers.beir import write_words

from qwen3nb.records.store import load_results, verify

pytestmark = pytest.mark.integration

PAGE = REPOSITORY / "book" / "guide" / "slurm.md"
SMALL = "--data words"  # neither MTEB, whose import takes seconds, nor many texts to encode
SWEEP = 'models = ["runs/ul2/*"]\nbook = false\n[parameters]\ndata = "words"\n'
# What Slurm has, for nodes that are all this machine.
TOOLS = {
    "srun": 'while [[ $1 == --* ]]; do shift; done\nexec "$@"\n',
    "scontrol": "echo 127.0.0.1\n",
}


@pytest.fixture
def batch(cli, tmp_path, monkeypatch, encoder_folder):
    """Run the n-th script of the page as the batch step of a job, in a study with two models."""
    study, tools = tmp_path / "study", tmp_path / "tools"
    assert cli("new", study).exit_code == 0
    for step in (1, 2):
        shutil.copytree(encoder_folder, study / "runs" / "ul2" / f"checkpoint-{step}")
    (study / "sweep.toml").write_text(SWEEP)
    write_words(study / "words")
    tools.mkdir()
    for name, text in TOOLS.items():
        (tools / name).write_text(f"#!/bin/bash\n{text}")
        (tools / name).chmod(0o755)
    job = {"JOB_ID": str(os.getpid()), "JOB_NODELIST": "n[1-2]", "JOB_NUM_NODES": "2"}
    job |= {"CPUS_PER_TASK": "1"}
    monkeypatch.setenv("QWEN3NB_HOME", str(study))
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    )

    def run(number, **more):
        script = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)[number]
        script = script.replace("/shared/study", str(study)).replace("--tier full", SMALL)
        variables = {f"SLURM_{name}": value for name, value in (job | more).items()}
        done = subprocess.run(
            ["bash", "-c", script],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    yield run
    mark = str(os.getpid())
    assert list(Path("/tmp").glob(f"[rq]*-{mark}")) == []  # noqa: S108 - named by the page
    left = (each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"]))
    assert not [words for words in left if f"ray-{mark}" in " ".join(words)]


def test_a_job_sweeps_on_its_nodes_and_leaves_nothing(batch):
    assert "2 runs: 2 done, 0 reused, 0 failed" in batch(0)
    assert len(load_results()) == 1  # of the same model, at two paths
    assert verify() == []


def test_a_task_of_an_array_evaluates_its_checkpoint(batch):
    batch(1, ARRAY_TASK_ID="1")  # of 0 and 1; 0 is also what an unknown variable would be
    (result,) = load_results()
    assert Path(result.model.spec).name == "checkpoint-2"

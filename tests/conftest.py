"""What the tests share: an isolated home, tiny models, real files where they are at hand."""

import gc
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from helpers import TEXTS
from helpers.checkout import write_checkout
from helpers.leftovers import pytest_configure, pytest_runtest_logreport  # noqa: F401 - hooks

# Before any library reads them, here and in the programs that the tests start.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# The models here are tiny, and the tests share the cores: more threads would only wait.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(name, "1")
# Ray starts its workers at low priority, and ends those that take longer than a minute. Beside the
# other tests they would never come to anything.
os.environ.setdefault("RAY_worker_niceness", "0")
os.environ.setdefault("RAY_worker_register_timeout_seconds", "600")
# As a terminal sets them; tests that need others set them. A shell ignores the first in a job in
# the background, nohup the second, and some servers the third.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGCHLD, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
if os.environ.get("QWEN3NB_TEST_ONEDNN") == "0":  # as on ARM and macOS; see .ci/hostile
    from helpers.without_onednn import remove_onednn

    remove_onednn()
IN_PARALLEL = "PYTEST_XDIST_WORKER" in os.environ


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Import what the tests import without the garbage collector, which takes as long again."""
    gc.disable()
    try:
        return (yield)
    finally:
        seed_no_missing_gpu()
        gc.freeze()
        gc.set_threshold(5000)  # the default, 700, means a pass for every few rows of a table
        gc.enable()


def seed_no_missing_gpu():
    """Let seeds of GPUs that are not there be forgotten.

    Else torch keeps each for later with the stack of its caller as text, which takes milliseconds
    below pytest; MTEB sets seeds for each of its tasks, of which there are a thousand.
    """
    torch = sys.modules.get("torch")
    if torch is None:  # only tests without it were collected
        return
    for devices in (torch.cuda, torch.xpu, torch.mtia):
        if not devices.is_available():
            devices.manual_seed_all = lambda seed: None


def pytest_xdist_auto_num_workers():
    """One more than cores: tests of programs, kernels and clusters mostly wait for these."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # xdist reads it
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (cores or 1) + 1


def pytest_collection_modifyitems(items):
    """Workers start with the files of integration tests, so that none is left alone with one."""
    if IN_PARALLEL:
        long = {item.path for item in items if item.get_closest_marker("integration")}
        items.sort(key=lambda item: item.path not in long)


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    """One cache for the session; PyDocs, which takes seconds to build, is for all workers."""
    cache = tmp_path_factory.mktemp("cache")
    if IN_PARALLEL:
        built = tmp_path_factory.getbasetemp().parent / "pydocs"
        built.mkdir(exist_ok=True)
        (cache / "pydocs").symlink_to(built)
    return cache


@pytest.fixture(autouse=True)
def home(tmp_path, shared_cache, monkeypatch):
    """Nothing a test writes lands in the checkout."""
    monkeypatch.setenv("QWEN3NB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("QWEN3NB_CACHE", str(shared_cache))
    for name in ("RESULTS", "RUNS", "BOOK"):
        monkeypatch.delenv(f"QWEN3NB_{name}", raising=False)
    # Records of tests may share their run and time: one test's are not known to the next.
    shutil.rmtree(shared_cache / "known", ignore_errors=True)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def own_cache(tmp_path, shared_cache, monkeypatch):
    """A cache of a test's own, in which nothing is kept yet but PyDocs."""
    cache, pydocs = tmp_path / "cache", shared_cache / "pydocs"
    cache.mkdir()
    pydocs.mkdir(exist_ok=True)
    (cache / "pydocs").symlink_to(pydocs)
    monkeypatch.setenv("QWEN3NB_CACHE", str(cache))
    return cache


@pytest.fixture
def checkout(home):
    """A home with the notebooks and the book of this repository."""
    return write_checkout(home)


@pytest.fixture(scope="session")
def fixtures():
    """Real files in the format of a real training; see README, "Tests on real files"."""
    folder = os.environ.get("QWEN3NB_FIXTURES")
    if not folder or not (Path(folder) / "checkpoints").is_dir():
        pytest.skip("set QWEN3NB_FIXTURES to a folder of real checkpoints to run this test")
    return Path(folder)


@pytest.fixture(scope="session")
def adapters(fixtures):
    """Real adapters with their base and stored outputs."""
    folder = fixtures / "adapters"
    if not folder.is_dir():
        pytest.skip("the folder of QWEN3NB_FIXTURES has no adapters/")
    return folder


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory):
    """A tiny byte-level tokenizer."""
    from qwen3nb.models.modeling.tiny_tokenizer import write_tokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(TEXTS, folder, vocabulary=300)
    return folder


@pytest.fixture(scope="session")
def make_checkpoint(tokenizer_folder):
    """Write an encoder-decoder checkpoint with random weights, as a training does."""
    from transformers import set_seed
    from transformers.utils import logging

    from qwen3nb.demo.train_ul2 import Ul2Settings, seq2seq_config
    from qwen3nb.models.modeling.qwen3_seq2seq import Qwen3ForSeq2SeqLM

    logging.disable_progress_bar()

    def make(folder, *, seed=0, eval_loss=None, dtype=None):
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
        set_seed(seed)
        config = seq2seq_config(tokenizer, Ul2Settings(hidden=32, layers=2, spread=0.2))
        model = Qwen3ForSeq2SeqLM(config)
        if dtype is not None:
            model = model.to(dtype)
        model.save_pretrained(folder)
        for file in tokenizer_folder.iterdir():
            shutil.copyfile(file, Path(folder) / file.name)
        if eval_loss is not None:
            step = int(Path(folder).name.rsplit("-", 1)[1])
            # The log is cumulative: an entry of an earlier step comes with it.
            log = [{"step": step - 1, "eval_loss": 0.0}, {"step": step, "eval_loss": eval_loss}]
            state = {"global_step": step, "log_history": log}
            (Path(folder) / "trainer_state.json").write_text(json.dumps(state))
        return Path(folder)

    return make


@pytest.fixture(scope="session")
def checkpoint(make_checkpoint, tmp_path_factory):
    """One checkpoint, not to be changed."""
    return make_checkpoint(tmp_path_factory.mktemp("run") / "checkpoint-10", eval_loss=2.0)


@pytest.fixture(scope="session")
def encoder_folder(checkpoint, tmp_path_factory):
    """An extracted encoder, not to be changed."""
    from qwen3nb.report.card import extract

    return extract(checkpoint, tmp_path_factory.mktemp("export") / "encoder", label="tiny").folder


@pytest.fixture
def cli():
    """Call the command line: ``cli("eval", "--help").output``."""
    from click.testing import CliRunner

    from qwen3nb.cli.main import main

    return lambda *arguments: CliRunner().invoke(main, list(map(str, arguments)))

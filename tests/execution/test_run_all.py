"""Every notebook of a new study runs from its first cell to its last, with its own defaults.

The study has what a newcomer has after README: a checkpoint, the encoder that was extracted from
it, and records of it and of BM25 on the tier smoke. The working directory is ``notebooks/``, as in
JupyterLab.
"""

import shutil

import pytest
from helpers import REPOSITORY
from helpers.notebooks import execute_here
from helpers.rerankers import write_reranker
from helpers.study import with_small_pydocs, write_adapters

from qwen3nb.models.kinds.newest import NothingMadeError
from qwen3nb.study import create_study

pytestmark = pytest.mark.integration

NOTEBOOKS = sorted(file.stem for file in (REPOSITORY / "notebooks").glob("*.ipynb"))
# What only measures for long is made short; models and trainings are the notebooks' own
# defaults, but that of `speed`, which takes minutes.
SHORTER = {
    "ablation": {"poolings": "mean,last", "prefix": ""},
    "ann": {"indexes": "flat,ivf", "nprobe": "1,4"},
    "choose": {"candidates": "encoder,bm25"},  # the training has one checkpoint
    "parity": {"queries": 8},
    "speed": {"models": "encoder", "texts": 4, "rounds": 1},
}


@pytest.fixture(scope="module")
def made(make_checkpoint, shared_cache, tmp_path_factory):
    """A study with a checkpoint, its encoder and records; not to be changed."""
    from qwen3nb.evaluation.evaluate import evaluate
    from qwen3nb.models.load import load_model
    from qwen3nb.report.card import extract

    study = create_study(tmp_path_factory.mktemp("study") / "mine")
    make_checkpoint(study / "runs" / "ul2" / "checkpoint-9000", eval_loss=2.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QWEN3NB_HOME", str(study))
        patch.setenv("QWEN3NB_CACHE", str(shared_cache))
        with_small_pydocs(patch)
        extract(study / "runs" / "ul2" / "checkpoint-9000", study / "encoder")
        for model in (str(study / "encoder"), "bm25"):
            evaluate(load_model(model, show_progress=False), tier="smoke", show_progress=False)
    return study


@pytest.fixture
def study(made, home, monkeypatch):
    """A copy of the study, in whose notebooks/ we are."""
    shutil.copytree(made, home, dirs_exist_ok=True)
    with_small_pydocs(monkeypatch)
    monkeypatch.chdir(home / "notebooks")
    return home


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name != "rerank"])
def test_a_notebook_runs_with_its_defaults(study, name, monkeypatch):
    monkeypatch.setattr("qwen3nb.models.search.faiss_index.BATCHES", 0)  # seconds of each index
    execute_here(study / "notebooks" / f"{name}.ipynb", None, SHORTER.get(name, {}))


def test_reranking_takes_the_newest_adapter_and_asks_for_one_without(study):
    notebook = study / "notebooks" / "rerank.ipynb"
    with pytest.raises(NothingMadeError, match="no adapter that ranks: name a reranker") as error:
        execute_here(notebook, None, {})
    assert error.value._render_traceback_() == [str(error.value)]
    write_reranker(study / "base")
    write_adapters(study)
    names = execute_here(notebook, None, {"depth": 2})
    assert {result.model.spec for result in names["results"]} == {"final"}

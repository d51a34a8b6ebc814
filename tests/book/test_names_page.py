"""The page "If you know it as …": every line on it runs, in a study with small stand-ins."""

import re
import shlex

import pytest
from helpers import REPOSITORY
from helpers.checkout import write_checkout
from helpers.notebooks import execute_here
from helpers.study import stand_in, write_mirror, write_study

PAGE = (REPOSITORY / "book" / "names.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`.+?`) \| `(.+)` \|$", PAGE, flags=re.MULTILINE)


def test_every_name_has_one_line():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(rows) == len(ROWS) > 30
    assert not any("`" in line for _, line in ROWS)


@pytest.fixture(scope="module")
def study(make_checkpoint, shared_cache, tmp_path_factory):
    """A home with models, data and records; the lines of the page run in it one after another."""
    folder = tmp_path_factory.mktemp("names")
    home = folder / "home"
    write_checkout(home)
    write_study(home, make_checkpoint=make_checkpoint)
    write_mirror(folder / "mirror", home=home)
    write_msmarco(home / "msmarco")
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch, home, folder / "mirror")
        patch.setenv("QWEN3NB_CACHE", str(shared_cache))
        from qwen3nb.evaluation.evaluate import evaluate

        for spec in ("encoder", "bm25"):
            evaluate(spec, tier="smoke", show_progress=False)
    return folder


def write_msmarco(folder):
    folder.mkdir()
    texts = ("how to sort rows", "a table of numbers", "the newest column")
    (folder / "queries.dev.small.tsv").write_text("1\tsort the rows\n")
    (folder / "qrels.dev.small.tsv").write_text("1\t0\t10\t1\n")
    lines = [f"1\t{10 + row}\tsort the rows\t{text}\n" for row, text in enumerate(texts)]
    (folder / "top1000.dev").write_text("".join(lines))


@pytest.fixture
def in_study(study, monkeypatch):
    stand_in(monkeypatch, study / "home", study / "mirror")
    monkeypatch.setattr("qwen3nb.execution.notebook._execute", execute_here)
    monkeypatch.setattr("qwen3nb.models.search.faiss_index.BATCHES", 0)  # seconds of each index


@pytest.fixture(scope="module")
def names():
    """What the page's Python lines see; filled by its first block."""
    return {}


def run(line, names, cli):
    if line.startswith("qwen3nb "):
        done = cli(*shlex.split(line)[1:])
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code in ((0, 1) if " quick " in line else (0,)), done.output
        return done.output
    if not names:
        (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
        exec(block, names)  # noqa: S102 - our own page
    return eval(line, names)  # noqa: S307


@pytest.mark.integration
@pytest.mark.parametrize("line", [line for _, line in ROWS])
def test_a_line_of_the_page_runs(in_study, names, cli, line):
    value = run(line, names, cli)
    assert value is not None
    assert " object at 0x" not in repr(value)

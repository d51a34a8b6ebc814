"""Commands that run a notebook take their options from its parameters cell."""

import re

import nbformat
import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest
from helpers import REPOSITORY
from helpers.notebooks import notebook_of, save
from helpers.records import make, noisy

from qwen3nb import paths
from qwen3nb.analysis.comparison.against_baseline import against_baseline
from qwen3nb.execution.parameters import read_parameters
from qwen3nb.report.evaluation.run_trace import RunTrace
from qwen3nb.report.render.conclusion import Conclusion

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
CELL = (
    'tier: str = "smoke"  # which tasks\nmax_length: int = 0  # tokens of a text\n'
    'half: float = 0.5  # a share\nverify: bool = True  # whether to verify\nnote: str = ""  # text'
)


@pytest.fixture
def runs(checkout, monkeypatch):
    """What would have run: name of the notebook, parameters, whether fresh, name of the page."""
    calls = []

    def run_notebook(notebook, parameters, *, fresh, name):
        calls.append((str(notebook).rpartition("/")[2], parameters, fresh, name))
        return checkout / "page.ipynb"

    monkeypatch.setattr("qwen3nb.execution.notebook.run_notebook", run_notebook)
    save(notebook_of("pass", parameters=CELL), "small")
    return calls


def options(text):
    """The options that a help text lists, without their common spellings."""
    lines = [line.split() for line in text.split("Options:")[1].splitlines()]
    return {word for words in lines if words for word in words[:3] if re.match("--[^,]+$", word)}


def spelled(name):
    return f"--{name.replace('_', '-')}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_options_are_the_parameters(cli, checkout, path):
    done = cli("run", path.stem, "--help")
    assert done.exit_code == 0, done.output
    declared = read_parameters(path)
    expected = {spelled(name) for name in declared}
    expected |= {f"--no-{spelled(n)[2:]}" for n, p in declared.items() if p.type == "bool"}
    own = {"--help", "--parameter", "--page", "--fresh", "--cache-limit", "--pass-env"}
    assert options(done.output) - own == expected - {"--fresh"}


def test_eval_has_options_of_its_own(cli, checkout):
    listed = options(cli("eval", "--help").output)
    own = {"--cache-limit", "--config", "--dry-run", "--fresh", "--mirror", "--rehearse"}
    assert {"--types", "--languages", "--benchmark", *own} <= listed


def test_help_shows_comment_default_and_choices(cli, checkout):
    save(notebook_of("pass", parameters=CELL), "small")
    text = " ".join(cli("run", "small", "--help").output.split())
    assert "--tier [smoke|pydocs|fast|full] which tasks [default: smoke]" in text
    assert "--max-length INTEGER RANGE tokens of a text [default: 0; x>=0]" in text
    assert "--verify / --no-verify whether to verify [default: verify]" in text
    assert "--half FLOAT a share [default: 0.5]" in text
    assert "--note TEXT text -p" in text


@pytest.mark.parametrize(
    ("line", "notebook", "given", "fresh", "page"),
    [
        (
            "run small --max-length 7 --no-verify --half 1 -p note x",
            "small.ipynb",
            {"max_length": 7, "verify": False, "half": 1.0, "note": "x"},
            False,
            "",
        ),
        ("run small --page short", "small.ipynb", {}, False, "short"),
        ("run -p note x --fresh small", "small.ipynb", {"note": "x"}, True, ""),
        ("run {small} --fresh -p note y", "small.ipynb", {"note": "y"}, True, ""),
        ("run calibration --fresh", "calibration.ipynb", {}, True, ""),
        (
            "eval --checkpoint bm25 --types STS --fresh --append-eos --batch-size 8",
            "eval",
            {"checkpoint": "bm25", "types": "STS", "append_eos": True, "batch_size": 8},
            True,
            "",
        ),
    ],
)
def test_only_given_parameters_are_passed_with_their_types(
    cli, checkout, runs, line, notebook, given, fresh, page
):
    small = checkout / "notebooks" / "small.ipynb"
    done = cli(*line.format(small=small).split())
    assert done.exit_code == 0, done.output
    assert runs == [(notebook, given, fresh, page)]


def test_a_rehearsal_limits_every_task_and_has_a_folder_of_its_own(cli, checkout, monkeypatch):
    calls = []

    def run_notebook(notebook, parameters, *, fresh, name):
        calls.append((parameters, paths.results(), paths.book_runs()))
        return checkout / "page.ipynb"

    monkeypatch.setattr("qwen3nb.execution.notebook.run_notebook", run_notebook)
    for options in ((), ("--limit", 5)):
        assert cli("eval", "--checkpoint", "bm25", "--rehearse", *options).exit_code == 0
    folder = checkout / "results" / "rehearsal"
    apart = (folder, folder / "book" / "runs")
    assert calls == [
        ({"checkpoint": "bm25", "limit": 16}, *apart),
        ({"checkpoint": "bm25", "limit": 5}, *apart),
    ]
    assert paths.results() == checkout / "results"  # and after the command, all is as before
    done = cli("eval", "--rehearse", "--output-dir", "x")
    assert done.exit_code == 2
    assert "give no --out" in done.output


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.toml", 'checkpoint = "bm25"\nlimit = 7\n'),
        ("c.yaml", "checkpoint: bm25\nlimit: 7\n"),
        ("c.json", '{"checkpoint": "bm25", "limit": 7}'),
    ],
)
def test_parameters_come_from_a_file_and_options_override_them(cli, checkout, runs, name, text):
    (checkout / name).write_text(text)
    assert cli("eval", "--config", checkout / name).exit_code == 0
    assert cli("eval", "--config", checkout / name, "--limit", 8).exit_code == 0
    assert [given for _, given, *_ in runs] == [
        {"checkpoint": "bm25", "limit": 7},
        {"checkpoint": "bm25", "limit": 8},
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run small --tier smok", "'smok' is not one of 'smoke'"),
        ("run small --max-length -1", "x>=0"),
        ("run small --teir smoke", "--tier"),
        ("run small -p x 1", "unknown parameter 'x'"),
        ("run small -p max_length one", "max_length is 'one'; expected int"),
        ("run small --page ../short", "--page: expected letters, digits"),
        ("run smal", "no notebook 'smal'"),
        ("run broken", "broken.ipynb"),
        ("eval --typse STS", "--types"),
        ("eval --config {home}/a.yaml", "a.yaml"),
        ("eval --config {home}/b.toml", "b.toml"),
        ("eval --config {home}/c.yaml", "c.yaml"),
    ],
)
def test_what_no_notebook_takes_is_refused(cli, checkout, line, message):
    save(notebook_of("pass", parameters=CELL), "small")
    (checkout / "notebooks" / "broken.ipynb").write_text("{")
    for name, text in (("a.yaml", "- 1"), ("b.toml", "x ="), ("c.yaml", "a: [")):
        (checkout / name).write_text(text)
    done = cli(*line.format(home=checkout).split())
    assert done.exit_code == 2
    assert message in done.output
    assert isinstance(done.exception, SystemExit)


def test_a_parameter_of_a_common_spelling_keeps_it(cli, checkout, runs):
    two = 'checkpoint: str = "a"  # one\nmodel: str = "b"  # another\nout: str = ""  # text\n'
    save(notebook_of("pass", parameters=f'{two}output_dir: str = ""  # text'), "two")
    done = cli("run", "two", "--model", "x", "--checkpoint", "y", "--out", "z")
    assert done.exit_code == 0, done.output
    assert runs == [("two.ipynb", {"checkpoint": "y", "model": "x", "out": "z"}, False, "")]


def test_without_notebooks_the_message_says_where_they_were_looked_for(cli, home):
    done = cli("eval", "--help")
    assert done.exit_code == 2
    assert str(home / "notebooks") in done.output


def test_the_group_lists_the_notebooks_with_their_titles(cli, checkout):
    done = cli("run", "--help")
    assert all(path.stem in done.output for path in NOTEBOOKS)
    assert "Evaluation of one model" in done.output


def test_a_sweep_takes_the_parameters_of_eval(cli, checkout):
    save(notebook_of("pass", parameters=f'checkpoint: str = "bm25"  # a model\n{CELL}'), "small")
    done = cli(
        "sweep", "--model", "e5-base-v2", "--notebook", "small", "--max-length", 7, "--dry-run"
    )
    assert done.stdout == "would run  small-e5-base-v2-smoke-max-length-7\n"
    done = cli("sweep", "--model", "bm25", "--notebook", "small", "--max-length", 7)
    assert "max_length is 7, which bm25 has no use for; leave it at 0" in done.output
    assert done.exit_code == 2
    done = cli("sweep", "--model", "bm25", "--notebook", "small", "--prefix", "x", "--dry-run")
    assert "unknown parameter 'prefix': none of small" in done.output


def page_of(checkout, *, finished, scores=(), conclusion="", reused=("PyDocsSampleRetrieval",)):
    """A page of `eval` with scores and a conclusion, finished at a time."""
    node = notebook_of("scores", "conclusion")
    trace = RunTrace(tuple(scores), reused, {})
    sentence = Conclusion(conclusion)
    for cell, data in (
        (node.cells[-2], trace._repr_mimebundle_() if scores else {}),
        (node.cells[-1], {"text/html": sentence._repr_html_(), "text/plain": repr(sentence)}),
    ):
        cell.outputs = [nbformat.v4.new_output("display_data", data)]
    node.metadata["qwen3nb"] = {"finished": finished}
    page = checkout / "page.ipynb"
    nbformat.write(node, page)
    return page


def test_eval_ends_with_scores_differences_a_sentence_and_the_page(cli, checkout, runs):
    scores = against_baseline(
        [make("m", scores=noisy(0.7))], [make("bm25", scores=noisy(0.5, seed=1))]
    )
    page = page_of(
        checkout, finished="2999-01-01T00:00:00+00:00", scores=scores, conclusion="m is better."
    )
    shown = cli("eval", "--checkpoint", "bm25").output
    order = [
        "Retrieval",
        "nDCG@10",
        "●",
        "difference from bm25",
        "m is better.",
        "reused: 1 of 1 records were there",
        str(page),
    ]
    positions = [shown.index(each) for each in order]
    assert positions == sorted(positions)
    assert f"{scores[0].difference:+.3f}" in shown


def test_every_score_of_a_reused_page_is_reused(cli, checkout, runs):
    scores = against_baseline([make("m", scores=noisy(0.7))], [])
    page_of(checkout, finished="2026-01-02T03:04:05+00:00", scores=scores, reused=())
    row = next(
        line
        for line in cli("eval", "--checkpoint", "bm25").output.splitlines()
        if line.lstrip().startswith("Retrieval")
    )
    assert row.split()[-1] == "reused"


def test_a_reused_page_says_since_when(cli, checkout, runs):
    page_of(checkout, finished="2026-01-02T03:04:05+00:00", conclusion="Something holds.")
    shown = cli("run", "probes", "--checkpoint", "random").output
    assert "Something holds." in shown
    assert "reused: nothing has changed since 2026-01-02 03:04 UTC" in shown

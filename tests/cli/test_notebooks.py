"""Commands that run a notebook take their options from its parameters cell."""

import re

import nbformat
import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest
from helpers import REPOSITORY
from helpers.notebooks import notebook_of, save
from helpers.records import make, noisy

from qwen3nb import paths
from qwen3nb.answers.against_baseline import against_baseline
from qwen3nb.answers.run_trace import RunTrace
from qwen3nb.execution.parameters import read_parameters
from qwen3nb.report.render.table import Conclusion

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
CELL = (
    'tier: str = "smoke"  # which tasks\nmax_length: int = 0  # tokens of a text\n'
    'half: float = 0.5  # a share\nverify: bool = True  # whether to verify\nnote: str = ""  # text'
)


@pytest.fixture
def runs(checkout, monkeypatch):
    """What would have run: notebook, parameters, whether fresh, name of the page, its folders."""
    calls = []

    def run_notebook(notebook, parameters, *, fresh, name):
        call = str(notebook).rpartition("/")[2], parameters, fresh, name
        calls.append((call, (paths.results(), paths.book_runs())))
        published = paths.book_runs() / "page.ipynb"  # before the command: it is reused
        return published if published.is_file() else checkout / "page.ipynb"

    monkeypatch.setattr("qwen3nb.execution.notebook.run_notebook", run_notebook)
    save(notebook_of("pass", parameters=CELL), "small")
    return calls


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_options_are_the_parameters(cli, checkout, path):
    done = cli("run", path.stem, "--help")
    assert done.exit_code == 0, done.output
    options = re.sub(r"--\[no-\](\S+)", r"--\1 --no-\1", done.output.split("Options:")[1])
    lines = [line.split() for line in options.splitlines()]
    listed = {word for words in lines for word in words[:3] if re.match("--[^,]+$", word)}
    declared = read_parameters(path)
    declared = {"prompt" if n == "prompts" else n: each for n, each in declared.items()}
    names = [*declared, *(f"no-{name}" for name, each in declared.items() if each.type == "bool")]
    own = {"--parameter", "--page", "--fresh", "--cache-limit", "--pass-env"}
    assert listed - own == {f"--{name.replace('_', '-')}" for name in names} - {"--fresh"}


def test_help_shows_comment_default_and_choices(cli, checkout):
    save(notebook_of("pass", parameters=CELL), "small")
    text = " ".join(cli("run", "small", "--help").output.split())
    tiers = "smoke, pydocs, fast, full, multilingual, nano"
    assert f"--tier TIER Which tasks: {tiers} [default: smoke]" in text
    assert "--max-length N Tokens of a text [default: 0]" in text
    assert "--[no-]verify Whether to verify [default: on]" in text
    assert "--half N A share [default: 0.5]" in text
    assert "--note TEXT Text" in text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "run small --max-length 7 --no-verify --half 1 -p note x",
            (
                "small.ipynb",
                {"max_length": 7, "verify": False, "half": 1.0, "note": "x"},
                False,
                "",
            ),
        ),
        ("run {small} --fresh -p note y", ("small.ipynb", {"note": "y"}, True, "")),
        ("run calibration --fresh", ("calibration.ipynb", {}, True, "")),
        (
            "run two --model x --checkpoint y --out z",
            ("two.ipynb", {"checkpoint": "y", "model": "x", "out": "z"}, False, ""),
        ),
    ],
)
def test_only_given_parameters_are_passed_with_their_types(cli, checkout, runs, line, expected):
    two = 'checkpoint: str = "a"  # one\nmodel: str = "b"  # another\nout: str = ""  # text\n'
    save(notebook_of("pass", parameters=f'{two}output_dir: str = ""  # text'), "two")
    small = checkout / "notebooks" / "small.ipynb"
    done = cli(*line.format(small=small).split())
    assert done.exit_code == 0, done.output
    assert [call for call, _ in runs] == [expected]


def test_parameters_come_from_a_file_and_options_override_them(cli, checkout, runs):
    (checkout / "c.yaml").write_text("checkpoint: bm25\nlimit: 7\n")
    (checkout / "c.toml").write_text('checkpoint = "bm25"\nlimit = 7\n')
    assert cli("eval", "--config", checkout / "c.yaml").exit_code == 0
    assert cli("eval", "--config", checkout / "c.toml", "--limit", 8).exit_code == 0
    assert [call[1] for call, _ in runs] == [
        {"checkpoint": "bm25", "limit": limit} for limit in (7, 8)
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
        ("sweep --model bm25 --notebook small --prefix x", "unknown parameter 'prefix': none of"),
    ],
)
def test_what_no_notebook_takes_is_refused(cli, checkout, line, message):
    save(notebook_of("pass", parameters=f'checkpoint: str = "bm25"  # a model\n{CELL}'), "small")
    (checkout / "notebooks" / "broken.ipynb").write_text("{")
    (checkout / "a.yaml").write_text("- 1")
    done = cli(*line.format(home=checkout).split())
    assert done.exit_code == 2
    assert message in done.output
    assert isinstance(done.exception, SystemExit)


def test_a_sweep_takes_the_parameters_of_eval(cli, checkout):
    save(notebook_of("pass", parameters=f'checkpoint: str = "bm25"  # a model\n{CELL}'), "small")
    given = ("--model", "e5-base-v2", "--notebook", "small", "--max-length", 7)
    planned = "would run  small-e5-base-v2-smoke-max-length-7\n0 of 1 runs would be reused\n"
    assert cli("sweep", *given, "--dry-run").stdout == planned


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("eval --model one --until-certain", "needs two models"),
        ("eval --model one --margin 0.1", "--margin goes with --until-certain"),
        ("eval --model random --baseline bm25 --until-certain --dry-run", "what it takes is not"),
        ("eval --model random --baseline bm25 --until-certain --limit 5", "leave out --limit"),
        ("eval --model random --baseline bm25 --until-certain --tier fast", "not tier fast"),
        ("sweep --model bm25 --model random --until-certain 1 --dry-run", "what it takes is not"),
        ("sweep --model bm25 --model random --until-certain 1 --limit 5", "leave out --limit"),
        ("sweep --model bm25 --until-certain 1 --baseline random", "a sweep finds the best"),
        ("sweep --until-certain 1 --notebook compare", "runs eval alone"),
    ],
)
def test_what_a_race_would_ignore_is_refused(cli, checkout, line, message):
    done = cli(*line.split())
    assert done.exit_code == 2
    assert message in done.output


@pytest.fixture
def page_of(checkout, runs):
    """Write the page of the run, with scores and a conclusion, finished at a time."""

    def write(page, finished, *, scores=(), conclusion="", reused=("PyDocsSampleRetrieval",)):
        node = notebook_of("scores", "conclusion")
        trace = RunTrace(tuple(scores), reused, {})
        sentence = Conclusion(conclusion)
        for cell, data in (
            (node.cells[-2], trace._repr_mimebundle_() if scores else {}),
            (node.cells[-1], {"text/html": sentence._repr_html_(), "text/plain": repr(sentence)}),
        ):
            cell.outputs = [nbformat.v4.new_output("display_data", data)]
        node.metadata["qwen3nb"] = {"finished": finished}
        page.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(node, page)
        return page

    return write


def test_eval_ends_with_scores_differences_a_sentence_and_the_page(cli, checkout, page_of):
    old, new = "2026-01-02T03:04:05+00:00", "2999-01-01T00:00:00+00:00"
    scores = against_baseline(
        [make("m", scores=noisy(0.7))], [make("bm25", scores=noisy(0.5, seed=1))]
    )
    page = page_of(checkout / "page.ipynb", new, scores=scores, conclusion="m is better.")
    shown = cli("eval", "--checkpoint", "bm25").output
    order = [
        "Retrieval",
        "nDCG@10",
        "m is better.",
        "reused: 1 of 1 records were stored",
        str(page),
    ]
    positions = [shown.index(each) for each in order]
    assert positions == sorted(positions)
    assert f"{scores[0].difference:+.3f}" in shown
    there = paths.book_runs() / "page.ipynb"
    # Finished in the future, as the clock was set back since.
    page_of(there, new, scores=scores, reused=())  # of a page that is reused, every score is
    lines = cli("eval", "--checkpoint", "bm25").output.splitlines()
    assert [line for line in lines if line.startswith("Retrieval ")]
    page_of(there, old, conclusion="Something holds.")
    shown = cli("run", "probes", "--checkpoint", "random").output
    assert "Something holds." in shown
    assert "reused: nothing has changed since 2026-01-02 03:04 UTC" in shown

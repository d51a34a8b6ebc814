"""Running a notebook: its page, what the page shows, reuse, and what a kernel is given."""

import errno
import os
import re
import shlex
import shutil
from pathlib import Path

import nbformat
import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest
from helpers import REPOSITORY
from helpers.beir import write_beir
from helpers.notebooks import notebook_of, save
from helpers.records import make, tier_records

from qwen3nb.cli.main import main
from qwen3nb.execution import notebook as notebooks
from qwen3nb.execution.notebook import NotebookError, _without_label, run_key, run_notebook
from qwen3nb.execution.page_names import page_command, page_name, page_title
from qwen3nb.execution.parameters import check_parameters, declared_parameters, read_parameters
from qwen3nb.execution.publish import NotebookRun, clean, without_empty_sections
from qwen3nb.hub import status_reason
from qwen3nb.records.record import Environment
from qwen3nb.report.render.table import Cell, Table
from qwen3nb.utils.secrets import known_secrets


@pytest.mark.integration
def test_a_finished_run_is_published_whole_and_reused(checkout, monkeypatch):
    path = save(notebook_of("print(x)", "import sys; print('warn', file=sys.stderr)"), "small")
    page = run_notebook(path, {"x": 5}, show_progress=False)
    assert page == checkout / "book" / "runs" / "small-x-5.ipynb"
    node = nbformat.read(page, as_version=4)
    assert any("5" in str(cell.outputs) for cell in node.cells if cell.cell_type == "code")
    assert node.metadata.qwen3nb.parameters == {"x": 5}
    stamp = page.stat().st_mtime_ns
    assert run_notebook(path, {"x": 5}, show_progress=False).stat().st_mtime_ns == stamp
    assert run_notebook(path, {"x": 5}, fresh=True, show_progress=False) == page
    assert page.stat().st_mtime_ns != stamp
    named = run_notebook(path, {"x": 6}, name="small", show_progress=False)
    assert named == page.with_name("small.ipynb")
    assert list((checkout / "results" / "partial").iterdir()) == []
    # On a disk without locks between machines, another one has finished the page, or has not.
    monkeypatch.setattr(notebooks, "_execute", removed_meanwhile)
    assert run_notebook(path, {"x": 5}, fresh=True, show_progress=False) == page
    with pytest.raises(FileNotFoundError, match=r"small-x-7\.ipynb"):
        run_notebook(path, {"x": 7}, show_progress=False)


def removed_meanwhile(_, partial, *args, **options):
    raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(partial))


@pytest.mark.integration
def test_a_fresh_run_measures_again_what_has_records(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    write_beir(checkout / "beir")
    evaluation = "import qwen3nb as q; run = q.evaluate('random', 'beir', show_progress=False)"
    path = save(notebook_of(evaluation, "print('reused', len(run.reused))"), "small")
    # A record is stored, reused by a run with another parameter, and measured again on demand.
    for x, fresh, reused in ((1, False, 0), (2, False, 1), (2, True, 0)):
        page = run_notebook(path, {"x": x}, fresh=fresh, show_progress=False)
        assert f"reused {reused}" in page.read_text()


@pytest.mark.integration
def test_tokens_do_not_reach_the_kernel_or_the_page(checkout, monkeypatch):
    """Not by print, in parts, by a table or an error's message; one is admitted by its name."""
    token, word = "hf_secretsecretsecret", 'cor"rect <horse>'
    for name, value in {"HF_TOKEN": token, "DB_PASS": word, "GH_PAT": "admitted-by-name"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("QWEN3NB_PASS_ENV", "GH_PAT")
    cells = (
        "import html, os, sys; word = 'cor\"rect' + ' <horse>'",
        "print(os.environ.get('HF_TOKEN'), os.environ.get('DB_PASS'), 'hf_' + 'secret' * 3)",
        "print(os.environ['GH_PAT'][:8], end='', flush=True); print(os.environ['GH_PAT'][8:])",
        "from IPython.display import HTML; HTML('<i>' + html.escape(word) + '</i>')",
        "print(word + '\\x1b]52;c;YQ==\\x07', file=sys.stderr)",
        "assert x, word + '\\x1b[31m'",
    )
    path = save(notebook_of(*cells), "s")
    page = run_notebook(path, {}, show_progress=False)
    text = page.read_text()
    assert "None None [removed]" in text
    assert "<i>[removed]</i>" in text
    assert "[removed]\\\\x1b]52;c;YQ==\\\\x07" in text
    with pytest.raises(NotebookError, match=r"AssertionError: \[removed\]\\x1b\[31m"):
        run_notebook(path, {"x": 0}, show_progress=False)
    partial = next((checkout / "results" / "partial").iterdir())
    for file in (page, partial, *(checkout / "results" / "failed").iterdir()):
        assert known_secrets().values.kinds(file.read_text()) == [], file
    assert (os.environ["HF_TOKEN"], os.environ["DB_PASS"]) == (token, word)


def test_a_changed_input_is_a_new_run(checkout, make_checkpoint):
    node = nbformat.read(REPOSITORY / "notebooks/eval.ipynb", as_version=4)
    declared = declared_parameters(node)

    def key(**given):
        return run_key(node, check_parameters(declared, given))

    assert key(checkpoint="random") == key(checkpoint="random")
    assert key(checkpoint="random") != key(checkpoint="random", seed=1)
    folder = make_checkpoint(checkout / "runs" / "checkpoint-4", seed=1)
    before = key(checkpoint=str(folder))
    shutil.rmtree(folder)
    make_checkpoint(folder, seed=2)
    assert key(checkpoint=str(folder)) != before
    reader = notebook_of("1", qwen3nb={"reads": "results"})
    first = run_key(reader, {})
    file = checkout / "results" / "m" / "seed_0" / "t.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert run_key(reader, {}) != first


def test_a_checkpoint_more_to_choose_from_is_a_new_run(checkout, make_checkpoint):
    node = nbformat.read(REPOSITORY / "notebooks/choose.ipynb", as_version=4)
    declared = declared_parameters(node)
    training = checkout / "runs" / "ul2"

    def key(candidates):
        return run_key(node, check_parameters(declared, {"candidates": candidates}))

    make_checkpoint(training / "checkpoint-4", seed=1)
    before = key(f"{training},bm25")
    assert key(f"{training},bm25") == before
    assert key(f"{training},random") != before
    make_checkpoint(training / "checkpoint-8", seed=2)
    assert key(f"{training},bm25") != before


def test_the_label_of_a_model_is_no_part_of_its_spec(checkout):
    assert _without_label("in-use=bm25") == "bm25"
    assert _without_label("api:http://host/v1?key=x#m") == "api:http://host/v1?key=x#m"


@pytest.mark.parametrize("parameter", ["questions", "documents", "words"])
def test_a_file_that_is_read_and_changes_is_a_new_run(checkout, parameter):
    node = notebook_of("1", parameters=f'{parameter}: str = ""  # a file')
    file = checkout / "mine.txt"
    file.write_text("one")
    before = run_key(node, {parameter: "mine.txt"})
    assert run_key(node, {parameter: "mine.txt"}) == before
    file.write_text("two")
    assert run_key(node, {parameter: "mine.txt"}) != before


def test_a_page_has_no_widgets_progress_styles_or_cursor_movements():
    node = notebook_of("a", "b")
    table = Table(("a",), ((Cell("x"),),), caption="c")
    glued = "application/papermill.record/text/html"
    widget = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "0%"}
    noise = ("3it/s\r", "\x1b[A\n\x1b[A", " 10%|#\r 100%|##\nreal warning\n")
    node.cells[2].outputs = [
        *(
            nbformat.v4.new_output("display_data", data)
            for data in (
                widget,
                {"text/html": table._repr_html_()},
                {glued: table._repr_html_()},
            )
        ),
        *(nbformat.v4.new_output("stream", name="stderr", text=text) for text in noise),
    ]
    cleaned = clean(node, title="m · smoke")
    assert cleaned.cells[0].source == "# m · smoke"
    *shown, warning = cleaned.cells[2].outputs
    bare = table.to_html()
    assert [output.data for output in shown] == [{"text/html": bare}, {glued: bare}]
    assert warning.text == "real warning"
    assert "remove-cell" in cleaned.cells[1].metadata.tags
    assert node.cells[0].source == "# A page"


def notebook(*cells):
    """Make a notebook: Markdown from strings, code from pairs of a source and an output."""
    node = nbformat.v4.new_notebook()
    for cell in cells:
        if isinstance(cell, str):
            node.cells.append(nbformat.v4.new_markdown_cell(cell))
        else:
            data = {"text/plain": cell[1]}
            outputs = [nbformat.v4.new_output("display_data", data)] if cell[1] else []
            node.cells.append(nbformat.v4.new_code_cell(cell[0], outputs=outputs))
    return node


TABLE, NOTHING, LOAD = ("table", "a table"), ("table", ""), ("rows = load()", "")


@pytest.mark.parametrize(
    ("cells", "kept"),
    [
        (["# T", LOAD, "## A", TABLE, "## B", NOTHING], 4),
        (["# T", "## A", LOAD, "## B", TABLE], 5),  # code that shows nothing by design
        (["# T", "## A", LOAD, NOTHING, "## B", TABLE], 3),
        (["# T", "## A", NOTHING, "What the table would say."], 1),
        (["# T", "## A", ("table", "None")], 1),
        (["# T", "## A", "### B", NOTHING, "## C", TABLE], 3),  # nothing is left below A
        (["# T", "## A", ("%time x", ""), "## B", TABLE], 5),
    ],
)
def test_a_section_that_shows_nothing_is_not_on_the_page(cells, kept):
    node = notebook(*cells)
    assert len(without_empty_sections(node).cells) == kept
    assert len(node.cells) == len(cells)


def test_a_page_says_what_it_was_made_with(home):
    NotebookRun("p", {}, home / "book" / "runs" / "p.ipynb").succeed(notebook_of("pass"), key="k")
    ours = nbformat.read(home / "book" / "runs" / "p.ipynb", as_version=4).metadata.qwen3nb
    assert ours.versions["torch"] == Environment.current().versions["torch"]
    assert set(ours.versions) >= {"qwen3nb", "transformers", "sentence-transformers", "mteb"}
    assert ours.commit == ""  # not a checkout


@pytest.mark.parametrize(
    ("notebook", "values", "downloads"),
    [
        ("eval", {"checkpoint": "bm25", "tier": "smoke"}, False),
        ("eval", {"checkpoint": "bm25", "tier": "fast"}, True),
        ("eval", {"checkpoint": "bm25", "tier": "smoke", "tasks": "SciFact"}, True),
        ("eval", {"checkpoint": "bm25+lab/model", "tier": "smoke"}, True),
        ("eval", {"checkpoint": "no such model", "tier": "smoke"}, False),
        ("rerank", {"checkpoint": "bm25", "data": "NFCorpus"}, True),
        ("leaderboard", {"tier": "full"}, False),  # reads records
    ],
)
def test_the_hubs_token_is_for_runs_that_name_something_of_the_hub(
    home, monkeypatch, notebook, values, downloads
):
    monkeypatch.setenv("HF_TOKEN", "made-up-token")
    monkeypatch.setenv("GH_PAT", "made-up-token")
    nb = nbformat.read(REPOSITORY / "notebooks" / f"{notebook}.ipynb", as_version=4)
    environment = NotebookRun(notebook, values, None).environment(nb)
    assert ("HF_TOKEN" in environment) is downloads
    assert environment["QWEN3NB_WITHHELD"] == ("" if downloads else "HF_TOKEN")
    assert "GH_PAT" not in environment
    assert environment["PATH"] == os.environ["PATH"]


def test_plain_figures_of_a_page_have_the_books_style(monkeypatch):
    """Without a background, a figure shows on light and on dark pages."""
    from matplotlib import rc_params_from_file

    nb = nbformat.read(REPOSITORY / "notebooks" / "leaderboard.ipynb", as_version=4)
    monkeypatch.delenv("MATPLOTLIBRC", raising=False)
    style = NotebookRun("leaderboard", {}, None).environment(nb)["MATPLOTLIBRC"]
    settings = rc_params_from_file(style, use_default_template=False)
    assert settings["figure.facecolor"] == settings["savefig.facecolor"] == "none"
    monkeypatch.setenv("MATPLOTLIBRC", "/etc/own")
    assert NotebookRun("leaderboard", {}, None).environment(nb)["MATPLOTLIBRC"] == "/etc/own"


def test_a_refused_request_names_the_token_that_the_notebook_does_not_see(monkeypatch):
    monkeypatch.setenv("QWEN3NB_WITHHELD", "HF_TOKEN")
    assert status_reason(401).endswith("run it with `--pass-env HF_TOKEN`")
    assert "--pass-env" not in status_reason(404)


def source(notebook):
    return REPOSITORY / "notebooks" / f"{notebook}.ipynb"


def values(notebook, given):
    declared = read_parameters(source(notebook))
    return {name: given.get(name, parameter.default) for name, parameter in declared.items()}


def name(notebook, **given):
    return page_name(notebook, values(notebook, given), read_parameters(source(notebook)))


def title(notebook, **given):
    return page_title(nbformat.read(source(notebook), as_version=4), values(notebook, given))


def test_pages_of_different_runs_have_different_names(home, encoder_folder):
    shutil.copytree(encoder_folder, home / "runs" / "a" / "encoder")
    names = [
        name("eval", checkpoint="random"),
        name("eval", checkpoint="random", seed=1),
        name("eval", checkpoint="random:64"),
        name("eval", checkpoint="random", tier="pydocs"),
        name("eval", checkpoint="runs/a/encoder"),
        name("eval", checkpoint="runs/a/encoder", pooling="last"),
        name("eval", checkpoint=str(encoder_folder)),
    ]
    assert len(set(names)) == len(names)
    assert names[0] == "eval-random-smoke"
    assert names[4] == "eval-a-encoder-smoke"
    assert all(re.fullmatch("[A-Za-z0-9.-]+", each) for each in names)
    many = [",".join(f"SomeTaskRetrieval{i}" for i in range(top)) for top in (40, 41)]
    first, second = (name("compare", task=tasks) for tasks in many)
    assert first != second
    assert max(map(len, (first, second))) <= 120
    assert name("compare", task="SciFact,STS12") == "compare-SciFact-STS12"
    given = {"metric": "MRR@10", "alpha": 0.1}
    assert name("compare", **given) == "compare-metric-MRR-10-alpha-0.1"
    assert name("status", verify=False) == "status"
    (home / "runs" / "mine").mkdir()
    mine = name("training", outputs=str(home / "runs" / "mine"))
    assert mine == "training-outputs-mine"


def test_only_the_tier_that_the_book_shows_has_the_plain_names(home):
    assert [name(page) for page in ("compare", "leaderboard")] == ["compare", "leaderboard"]
    assert name("compare", tier="fast") == "compare-fast"
    make("m").save()
    for record in tier_records("m", tier="fast"):
        record.save()
    assert name("compare") == "compare-smoke"
    assert name("compare", tier="fast") == "compare"
    assert name("data", tier="pydocs") == "data-pydocs"


@pytest.mark.parametrize(
    ("notebook", "given", "expected"),
    [
        ("compare", {}, None),
        ("compare", {"tier": "fast"}, "Comparison of models · fast"),
        ("eval", {"checkpoint": "bm25", "limit": 2}, "bm25 · smoke, limit 2"),
        (
            "eval",
            {"checkpoint": "bm25", "max_length": 256, "append_eos": True, "pooling": "cls"},
            "bm25 · smoke, cls pooling, at most 256 tokens, append EOS on",
        ),
        ("compare", {"task": "PyDocsSampleRetrieval"}, "Comparison of models · Retrieval"),
        ("compare", {"metric": "MRR@10"}, "Comparison of models · MRR@10"),
        ("eval", {"checkpoint": "bm25", "data": "/x/beir/scifact,/y/a_b"}, "bm25 · scifact, a\\_b"),
    ],
)
def test_a_title_says_what_is_not_as_usual(home, notebook, given, expected):
    heading = nbformat.read(source(notebook), as_version=4).cells[0].source.split("\n")[0]
    if expected:
        expected = expected.replace("Comparison of models", heading.removeprefix("# "))
    assert title(notebook, **given) == expected


@pytest.mark.parametrize(
    ("notebook", "given"),
    [
        ("compare", {"task": "SciFact,a b'c", "tier": "fast", "alpha": 0.01}),
        ("eval", {"checkpoint": "runs/a b/$(touch x)", "limit": 5, "cache": False}),
        ("eval", {"checkpoint": "x", "append_eos": True, "prefix": '[R] "'}),
        ("training", {"outputs": "--help"}),
    ],
)
def test_the_command_of_a_page_gives_its_parameters_back(notebook, given, monkeypatch):
    declared = read_parameters(source(notebook))
    line = page_command(notebook, {**values(notebook, given), "retired": 1}, declared)
    runs = []
    monkeypatch.setenv("QWEN3NB_HOME", str(REPOSITORY))
    monkeypatch.setattr(
        "qwen3nb.execution.notebook.run_notebook",
        lambda file, given, **_: runs.append((Path(file).stem, given)) or Path("page"),
    )
    program, *words = shlex.split(line)
    assert program == "qwen3nb"
    main(words, standalone_mode=False)
    assert runs == [(notebook, given)]
    assert len(words) < 4 * (len(given) + 1)  # defaults are left out

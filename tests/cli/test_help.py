"""Help is whole and light; mistakes are one line; commands say which study they work in."""

import re
import shlex
import subprocess
import sys

import click
import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest
from helpers import REPOSITORY
from helpers.command_tree import HEAVY, commands
from helpers.records import make

import qwen3nb as q
from qwen3nb import paths
from qwen3nb.cli import reference
from qwen3nb.cli.layout import MOST_FIRST, option_row
from qwen3nb.cli.main import main
from qwen3nb.cli.program import shown_options
from qwen3nb.execution.parameters import read_parameters
from qwen3nb.metrics.retrieval import METRICS
from qwen3nb.tiers import TIERS


@pytest.mark.parametrize("width", [80, 100])
def test_help_lists_commands_whole(cli, checkout, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for words, group in commands(groups=True).items():
        done = cli(*words, "--help")
        assert done.exit_code == 0, done.output
        assert cli(*words).output.startswith("Usage: qwen3nb")
        lines = done.output.partition("Options:")[2].splitlines()
        assert not [line for line in lines if "…" in line or line.rstrip().endswith("...")]
        assert max(map(len, lines)) <= width
        names = group.list_commands(click.Context(group))
        assert len(names) == len(set(names)) > 0


def listed_commands(text):
    """The names that a list of commands has, in lines of two blanks, a name and a summary."""
    headings = "|".join(main.contents)
    _, *sections = re.split(rf"^(?:{headings}):$", text, flags=re.MULTILINE)
    return re.findall(r"^  ([a-z]+(?: [a-z]+)?)  ", "".join(sections), flags=re.MULTILINE)


def test_the_first_help_lists_few_commands_and_help_all_the_rest(cli, checkout):
    first = listed_commands(cli("-h").stdout)
    assert 0 < len(first) <= 20
    everything = listed_commands(cli("help", "all").stdout)
    assert set(first) < set(everything)
    with_parts = [" ".join(words) for words in commands() if words[0] != "run"]
    assert {*everything} >= {*with_parts}
    assert len(everything) == len(set(everything))


def option_lines(text):
    """The lines of a help that begin with an option, by heading."""
    lines_by_heading = {}
    heading = ""
    for line in text.splitlines():
        title = re.fullmatch(r"(\w+):", line)
        if title:
            heading = title.group(1)
        elif line.startswith("  -"):
            lines_by_heading.setdefault(heading, []).append(line)
    return lines_by_heading


def test_the_options_that_one_needs_first_are_few_and_the_rest_has_headings(cli, checkout):
    for words, command in commands().items():
        shown = option_lines(cli(*words, "-h").stdout)
        options = shown_options(command, click.Context(command))
        names = " ".join(words)
        assert len(shown.get("Options", [])) <= MOST_FIRST == 7, names
        # Each option has exactly one place.
        assert sum(map(len, shown.values())) == len(options), names
        if len(options) > MOST_FIRST:
            assert shown.keys() <= {"Options", "Data", "Model", "Speed", "Statistics", "Files"}, (
                names
            )


def test_the_help_of_an_evaluation_by_heading(cli, checkout):
    shown = option_lines(cli("eval", "-h").stdout)
    first = [line.split()[0].strip(",") for line in shown["Options"]]
    assert first == ["--model", "--tier", "--tasks", "--data", "--limit", "--config", "--dry-run"]
    assert [*shown] == ["Options", "Data", "Model", "Speed", "Statistics", "Files"]


def test_a_description_says_choices_and_defaults_once():
    @click.command()
    @click.option("--kind", type=click.Choice(["a", "b"]), default="a", help="Of a row.")
    @click.option("--mode", type=click.Choice(["x", "auto"]), default="auto", help="x; auto: both.")
    @click.option("--least", type=click.IntRange(min=1), default=3, show_default=True)
    @click.option("--keep/--no-keep", default=True, help="Keep it.")
    def command():
        pass

    context = click.Context(command)
    rows = [option_row(option, context) for option in command.params]
    assert rows == [
        ("--kind KIND", "Of a row: a, b"),
        ("--mode MODE", "x; auto: both"),
        ("--least N", "[default: 3]"),
        ("--[no-]keep", "Keep it  [default: on]"),
    ]


def test_examples_stand_first(checkout):
    for words, command in {**commands(groups=True), **commands()}.items():
        paragraphs = (command.help or "").split("\n\n")
        has_example = ["\nqwen3nb " in paragraph for paragraph in paragraphs]
        assert True not in has_example or has_example[1], words


def test_every_line_of_a_help_fits(cli, checkout, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for words in [(), ("help", "all"), *commands(groups=True), *commands()]:
        arguments = words if words == ("help", "all") else (*words, "-h")
        for line in cli(*arguments).stdout.splitlines():
            assert len(line) <= 80, words


def test_help_explains_a_command(cli, checkout):
    assert cli("help").stdout == cli("--help").stdout
    assert cli("help", "eval").stdout == cli("eval", "--help").stdout
    assert cli("help", "card", "push").stdout == cli("card", "push", "--help").stdout
    wrong = cli("help", "evla")
    assert wrong.exit_code == 2
    assert "Did you mean 'eval'?" in wrong.stderr


def test_help_of_every_command_loads_nothing_heavy(checkout):
    """One process shows the help of all, and names the first that brings a library."""
    words = [(), ("run",), *commands()]
    code = (
        "import sys, click\nfrom qwen3nb.cli.main import main\n"
        f"for words in {words}:\n"
        "    try: main([*words, '-h'])\n"
        "    except SystemExit as end: assert not end.code, words\n"
        f"    print('LOADED', words, sorted({HEAVY} & set(sys.modules)))\n"
        "    if not words: print('LOADED', 'first', sorted(m for m in sys.modules if"
        " m.startswith(('qwen3nb.cli.commands.', 'qwen3nb.execution', 'qwen3nb.report'))))\n"
        "try: main(['fetch'])\nexcept SystemExit as end: assert end.code == 2\n"
        f"print('LOADED', 'a command', sorted({HEAVY} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    assert len(loaded) == len(words) + 2
    assert [line for line in loaded if not line.endswith(" []")] == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("evla", "No such command 'evla'. Did you mean 'eval'? See `qwen3nb -h`."),
        ("cache inof", "No such command 'inof'. Did you mean 'info'? See `qwen3nb cache -h`."),
        ("extract --output o a b", "unexpected extra argument (b)"),
        ("average a b", "give either --last N or --best N, or several models"),
        ("average a b c --last 2", "--last and --best select in one training"),
        ("average a b c --weights 1;2", "expected numbers separated by commas"),
        ("extract c", "Missing OUTPUT, or option --out."),
        ("extract --output o", "Missing CHECKPOINT, or option --model."),
        ("extract c o --prompt query find:", "prompts 'query': expected NAME=TEXT"),
        ("extract c o --prompt query=a --prompt query=b", "query is given twice"),
        ("encode --model m --input i --out o --prompt qeury=find:", "did you mean 'query'?"),
        ("verify resluts", "resluts: no such file or folder. See `qwen3nb verify -h`."),
        ("check", "Missing MODEL, or option --model. See `qwen3nb check -h`."),
        ("check x --pooling men", "'men' is not one of 'mean', 'cls', 'last', "),
        ("eval --tier smok", "'pydocs', 'fast', 'full'"),
        ("eval --pass-env NO_SUCH", "NO_SUCH is not set. See `qwen3nb eval -h`."),
        ("encode", "Missing option '--model'. See `qwen3nb encode -h`."),
        ("tasks x", "Got unexpected extra argument (x)"),
        ("fetch", "give --tier, --tasks or --model. See `qwen3nb fetch -h`."),
        ("sweep", "give a TOML file, --model or --notebook. See `qwen3nb sweep -h`."),
        ("rerank outputs", "expected either OUTPUTS or --adapter. See `qwen3nb rerank outputs"),
        ("rerank outputs o --tier fast --data x", "data sets or --tier; got both"),
        ("rerank suite --model m", "either data sets or --tier; got neither"),
        ("rerank suite --model m --tier fast x", "got both, x and fast"),
    ],
)
def test_a_mistake_is_one_line(cli, checkout, line, expected):
    done = cli(*shlex.split(line))
    lines = [
        line for line in done.stderr.splitlines() if not line.startswith(("study: ", "Write: "))
    ]
    assert done.exit_code == 2
    assert len(lines) == 1
    assert lines[0].startswith("Error: ")
    assert expected in lines[0]
    assert done.stdout == ""


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"
        ),
        RuntimeError("could not create a primitive"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee the documentation"),
    ],
)
def test_too_little_memory_is_one_line(cli, checkout, monkeypatch, error):
    monkeypatch.setattr("qwen3nb.records.store.load_results", raising(error))
    done = cli("results")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].startswith("Error: not enough memory: free some")


def raising(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("average {folder} {out} --last 2", "checkpoint-N"),
        ("card push {checkpoint} lab/model", "this is not an export"),
        ("run ablation -p training nowhere", "no folder 'nowhere' with the check"),
        ("eval --checkpoint randm", "Did you mean 'random'"),
        ("results --to {out}.xls", ".parquet"),
        ("results --model thre", "one, two"),
    ],
)
def test_errors_are_shown_without_a_traceback(cli, tmp_path, checkpoint, checkout, line, message):
    for label in ("one", "two"):
        make(label).save()
    paths = {"no": tmp_path / "no", "out": tmp_path / "o", "folder": tmp_path}
    done = cli(*line.format(checkpoint=checkpoint, **paths).split())
    assert done.exit_code in (1, 2)
    assert message in done.output
    assert "Traceback" not in done.output
    assert isinstance(done.exception, SystemExit)


# As REQUIREMENTS.md types them, and what they set.
REQUIRED = {
    "extract --checkpoint c --output o --pooling mean --no-normalize --verbose": {
        "checkpoint": "c",
        "output": "o",
    },
    "average --checkpoint-dir c --output=o --last-n 5": {"folder": "c", "output": "o", "last": 5},
    "check --encoder-path e --batch-size 8": {"model": "e", "batch_size": 8},
    "report --encoder-path e --output-dir o --retrieval-num-docs 9 --baselines b": {
        "model": "e",
        "output": "o",
        "limit": 9,
    },
    "card --model m --eval-results r --output o": {"results": "r", "output": "o"},
    "rerank outputs --checkpoint a --config c --eval-tier fast": {
        "checkpoint": "a",
        "tier": "fast",
    },
    "rerank suite --model m --eval-tier fast": {"tier": "fast"},
    "analyze --output-dir o": {"output_dir": "o"},
}


@pytest.mark.parametrize("line", REQUIRED)
def test_the_spellings_of_the_requirements_work_and_are_not_listed(checkout, cli, line):
    name, dash, options = line.partition(" --")
    words = f"{dash}{options}".split()
    params = commands()[tuple(name.split())].make_context(name, words).params
    assert {key: str(params[key]) for key in REQUIRED[line]} == {
        key: str(value) for key, value in REQUIRED[line].items()
    }
    listed = cli(*name.split(), "--help").output
    assert not re.search(r"--(output|checkpoint-dir|encoder-path|output-dir|eval-\w+)\b", listed)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("paper --model a,b --model c", ("a", "b", "c")),
        ("sweep --model runs/checkpoint-[1,2],bm25", ("runs/checkpoint-[1,2]", "bm25")),
        ("sweep --checkpoint a", ("a",)),
        ("run speed --model a,b --model c", "a,b,c"),
        ("run speed", "all-MiniLM-L6-v2"),
        ("run reproduce", ""),
        ("bench encode", ("all-MiniLM-L6-v2", "qwen3-60M-random")),
        ("domain --queries q --documents d --model a;b,c", ("a;b,c",)),
    ],
)
def test_several_models_are_repeated_or_separated_by_commas(
    checkout, tmp_path, monkeypatch, line, expected
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a;b,c").mkdir()  # a folder with a comma in its name is one model
    words, dash, arguments = line.partition(" --")
    given = [*(dash + arguments).split()]
    params = commands()[tuple(words.split())].make_context(words, given).params
    assert params["models"] == expected


# Outside a study, each of these ends before it reads or writes anything.
REFUSED = """
book
card --model m
compare --baseline m
demo
domain --queries q.toml --documents d.jsonl
eval --model bm25 --dry-run
freeze v1
reproduce
rerank suite --model m SciFact
run mine
sweep --model bm25
verify
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A working directory in no study."""
    for name in ("HOME", "CACHE", "RESULTS", "BOOK", "RUNS"):
        monkeypatch.delenv(f"QWEN3NB_{name}", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    (tmp_path / "outside").mkdir()
    monkeypatch.chdir(tmp_path / "outside")
    return tmp_path / "outside"


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_outside_a_study_a_command_refuses_with_the_way_out(cli, outside, line):
    done = cli(*line.split())
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {outside} is in no study")
    assert "create one with `qwen3nb new my-study`" in done.stderr
    assert (done.stdout, len(done.stderr.splitlines())) == ("", 1)
    assert list(outside.iterdir()) == []
    assert not (outside.parent / "user").exists()


def test_outside_a_study_the_help_of_notebooks_is_there(cli, outside, checkout):
    declared = read_parameters(checkout / "notebooks" / "probes.ipynb")
    shown = cli("run", "probes", "--help").stdout
    assert all(f"--{each.replace('_', '-')}" in shown for each in declared)
    assert "--tier" in cli("eval", "--help").stdout
    assert cli("run", "--help").exit_code == 0


def test_the_study_is_named_before_writing_and_where_one_reads_from_elsewhere(
    checkout, cli, monkeypatch
):
    line = f"study: {checkout}\n"
    assert cli("verify").stderr == line
    monkeypatch.chdir(checkout / "notebooks")
    assert cli("verify").stderr == ""
    monkeypatch.setenv("QWEN3NB_RESULTS", str(checkout.parent / "kept"))
    assert cli("verify").stderr == f"study: {checkout}, kept: {checkout.parent / 'kept'}\n"


def test_a_new_study_is_where_its_commands_work(cli, outside, monkeypatch):
    assert (paths.root(), paths.cache()) == (outside, outside.parent / "user" / "qwen3nb")
    with pytest.raises(paths.NoStudyError, match="QWEN3NB_HOME"):
        paths.results()
    done = cli("new", "my-study", "--title", "T")
    assert done.exit_code == 0, done.output
    assert "cd my-study" in done.output
    study = outside / "my-study"
    assert paths.is_study(study)
    monkeypatch.chdir(study / "notebooks")
    assert (paths.results(), paths.cache()) == (study / "results", study / ".cache")


PAGES = {
    file.stem: re.findall(r"```\{reference\} (.+)", file.read_text(encoding="utf-8"))
    for file in sorted((REPOSITORY / "book" / "reference").glob("*.md"))
}
BLOCKS = [each for blocks in PAGES.values() for each in blocks]


def text_of(block):
    kind, *about = block.split()
    return reference._PAGES[kind](*about)


def sections(text):
    return dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))


def test_every_command_is_on_a_page_with_all_its_options(checkout):
    headings = {each.split()[1] for each in BLOCKS if each.startswith("commands")}
    assert headings == {*main.contents}
    shown = sections("".join(text_of(f"commands {each}") for each in main.contents))
    for words, command in commands().items():
        if words[0] == "run":  # the notebooks: on the page of their parameters
            continue
        section = shown[f"qwen3nb {' '.join(words)}"]
        for each in command.get_params(click.Context(command)):
            if isinstance(each, click.Option) and "help" not in each.name:
                assert each.opts[0] in section, (words, each.name)


def test_every_parameter_metric_and_tier_is_on_a_page(checkout):
    shown = sections(reference.parameters_text())
    for name in paths.notebook_names():
        declared = read_parameters(paths.find_notebook(name))
        assert re.findall(r"^\| `(\w+)` \|", shown[name], re.MULTILINE) == [*declared]
    # Those without a depth, such as bpref, stand without ``@k``.
    assert re.findall(r"^\| `(\w+)(?:@k)?` \|", reference.metrics_text(), re.MULTILINE) == [
        *METRICS
    ]
    assert [*sections(reference.tiers_text())] == ["Which tier", *TIERS]
    assert {"parameters", "metrics", "tiers"} <= {*BLOCKS}


def test_every_public_name_is_on_one_page():
    shown = " ".join(each.removeprefix("python ") for each in BLOCKS if each.startswith("python"))
    listed = shown.split()
    assert sorted(listed) == sorted({*q.__all__} - {"__version__"})

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter

import pytest
import yaml
from helpers import REPOSITORY
from helpers.checkout import write_checkout

from qwen3nb import paths

HEAVY = {"torch", "transformers", "mteb"}
LIGHT = [
    ("import qwen3nb", HEAVY | {"numpy", "pandas", "papermill"}),
    # The plug-in, which every papermill command of the environment imports.
    ("import papermill.engines", HEAVY | {"pandas", "qwen3nb.execution.notebook"}),
    # A page that is there is shown without the libraries that take longer than all the rest.
    (
        "import qwen3nb.execution.notebook, qwen3nb.answers.run_trace\n"
        "from qwen3nb.execution.parameters import check_value\n"
        "check_value('tasks', 'SciFact,PyDocsRetrieval')",
        {"mteb", "nbformat", "scipy.stats", "torch"},
    ),
    # What reads results or starts notebooks.
    (
        "import qwen3nb.records.verification, qwen3nb.execution.notebook, qwen3nb.book.build\n"
        "import qwen3nb.analysis.stats.paired_tests, qwen3nb.analysis.inventory.collect\n"
        "import qwen3nb.analysis.training.interference, qwen3nb.answers.candidates\n"
        "import qwen3nb.answers.interference, qwen3nb.answers.leaderboard\n"
        "import qwen3nb.answers.evaluation\n"  # `qwen3nb eval` ends with its table of scores
        "import qwen3nb.report.render.table",
        HEAVY,
    ),
]


@pytest.mark.integration
@pytest.mark.parametrize(("statement", "heavy"), LIGHT)
def test_what_loads_no_heavy_library(statement, heavy):
    code = f"import sys\n{statement}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not heavy & loaded
    assert loaded & {"qwen3nb", "qwen3nb.execution.papermill_engine"}


# From the ground up: a module may import only what stands on its own floor or below it.
# The longest entry that names a module or a folder above it is the module's floor.
FLOORS = tuple(
    """
paths old_names tiers utils hub metrics records checkpoints
models.types models.gate.bounds models.gate.tokenizer
models.batching models.modeling models.options models.gate models.kinds.source
models.kinds.prompts
vectors
models.inference models.encoders models.search models.capabilities
models.kinds models.search.library models.search.sparse models.search.multi_vector
models.kinds.resolve models.classifier models.rerankers models.model models.load
models.generation
extraction
datasets.rows datasets.data_cards datasets.in_memory datasets.custom.formats datasets.pairs
datasets.training_texts datasets.training_files datasets.training_data
datasets.trec datasets.nano datasets.packed_data
datasets.mirror
datasets.pydocs
datasets.judgements datasets.equal_texts datasets.judgement_lists datasets.collection_files
datasets.custom datasets.generated datasets.collection
evaluation.run
evaluation.mteb.select evaluation.retrieval.first_stage evaluation.retrieval.nano
evaluation.mteb evaluation.embeddings evaluation.retrieval
evaluation.evaluate evaluation.studies evaluation.training evaluation.contamination
analysis.stats analysis.judging evaluation.grader_agreement evaluation.judging
analysis.migration evaluation.migration
evaluation.model_grader evaluation.judging_widget evaluation.judged
analysis.comparison analysis.inventory analysis.training analysis.calibration
analysis.forecasting
evaluation.parity evaluation.downstream
bench
cluster
report.render
answers.answer answers.unjudged answers.forecast answers.compared answers.comparison answers.board
answers.languages
answers.leaderboard answers.against_baseline
answers.decision answers.doubts answers.candidate_rules answers.explored_task
answers.explorer_page answers.explorer answers.how_sure answers.fusions
answers.long_documents
answers.candidates answers.own_data answers.pull_request
answers.preview
answers.changes answers.reproduction answers.checks answers.all_results answers.one_model
answers.one_query answers.run_trace answers.evaluation answers.prompts answers.planned
answers.training_forecasts
answers.trainings
report.evaluation
answers.reranking answers.interference answers.recommendation answers.findings
answers.landing
answers
report.card report.hub_results report.paper report.model_report
study execution answers.status book demo during_training cli
stats
""".split()  # noqa: SIM905 - a list of words reads better as lines
)


@cache
def modules():
    """Every module of the package with the modules of the package that it imports, anywhere."""
    root = REPOSITORY / "qwen3nb"
    files = {
        ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): file
        for file in root.rglob("*.py")
        if file.parent != root or file.name != "__init__.py"
    }
    files = {name: file for name, file in files.items() if name not in HALLS}
    return {
        name: {each for each in imported(file, files) if each in files and each != name}
        for name, file in files.items()
    }


# Parsing whole files would take seconds.
IMPORT = re.compile(
    r"^ *((?:from|import) qwen3nb\.[\w.]+(?: import (?:\([^)]*\)|.*))?)", re.MULTILINE
)


def imported(file, files):
    for statement in IMPORT.findall(file.read_text(encoding="utf-8")):
        node = ast.parse(statement).body[0]
        if isinstance(node, ast.ImportFrom):
            module = node.module.removeprefix("qwen3nb.")
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield inner if inner in files else module
        else:
            yield from (alias.name.removeprefix("qwen3nb.") for alias in node.names)


# Folders that only hold rooms; their __init__ is a docstring and imports nothing.
HALLS = {"analysis", "answers", "datasets", "evaluation", "models", "report"}


def floor(module):
    names = [name for name in FLOORS if module == name or module.startswith(f"{name}.")]
    assert names, f"{module} stands on no floor; add it to FLOORS"
    return FLOORS.index(max(names, key=len))


def test_imports_point_down():
    upward = [
        f"{module} imports {other}"
        for module, others in modules().items()
        for other in others
        if floor(other) > floor(module)
    ]
    assert upward == []


def test_no_circle_of_files():
    assert list(TopologicalSorter(modules()).static_order())  # refuses a circle


def test_conda_installs_what_make_installs():
    environment = yaml.safe_load((REPOSITORY / "environment.yml").read_text())
    pip = next(part["pip"] for part in environment["dependencies"] if isinstance(part, dict))
    makefile = (REPOSITORY / "Makefile").read_text()
    extras = next(line for line in makefile.splitlines() if line.startswith("EXTRAS"))
    assert f"--editable .[{extras.split()[-1]}]" in pip
    assert "--constraint constraints.txt" in pip


def test_paths_follow_the_environment(home, tmp_path, monkeypatch):
    assert paths.results() == home / "results"
    assert paths.book_runs() == home / "book" / "runs"
    monkeypatch.setenv("QWEN3NB_RESULTS", str(tmp_path / "elsewhere"))
    assert paths.results() == tmp_path / "elsewhere"


def test_the_root_is_found_from_inside_the_notebooks(checkout, monkeypatch):
    monkeypatch.delenv("QWEN3NB_HOME")
    monkeypatch.chdir(checkout / "notebooks")
    assert paths.root() == checkout
    assert paths.shown(checkout / "runs" / "x") == "runs/x"
    assert paths.shown(checkout.parent / "y") == str(checkout.parent / "y")


def test_a_notebook_in_a_folder_is_named_with_it(home):
    checkout = write_checkout(home, lessons=True)
    lesson = checkout / "notebooks" / "guide" / "interference.ipynb"
    assert paths.notebook_name(lesson) == "guide/interference"
    assert paths.notebook_name(lesson.parent.parent / "interference.ipynb") == "interference"
    for given in ("guide/interference", "guide/interference.ipynb", "notebooks/guide/interference"):
        assert paths.find_notebook(given) == lesson
    assert paths.find_notebook("interference") == lesson.parent.parent / "interference.ipynb"
    assert {"guide/interference", "interference"} <= set(paths.notebook_names())
    with pytest.raises(FileNotFoundError, match="no notebook 'caching'; .*guide/caching"):
        paths.find_notebook("caching")


def test_logs_and_notes_of_a_lesson_have_a_name_of_their_own(home):
    assert paths.page_key(paths.book_runs() / "interference.ipynb") == "interference"
    lesson = paths.book() / "guide" / "interference.ipynb"
    assert paths.page_key(lesson) == "guide-interference"

import ast
import subprocess
import sys
import tomllib

import yaml
from helpers import REPOSITORY
from packaging.requirements import Requirement


def loaded_by(statement):
    code = f"import sys\n{statement}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    loaded = loaded_by("import qwen3nb")
    assert not loaded & {"torch", "transformers", "numpy", "mteb", "pandas", "papermill"}


def test_the_papermill_plugin_is_light():
    """It is imported by every papermill command of the environment."""
    loaded = loaded_by("import papermill.engines")
    assert "qwen3nb.execution.papermill_engine" in loaded
    assert not loaded & {"torch", "transformers", "mteb", "pandas", "qwen3nb.execution.notebook"}


READERS = (
    "qwen3nb.records.verification",
    "qwen3nb.execution.notebook",
    "qwen3nb.book.build",
    "qwen3nb.analysis.stats.paired_tests",
    "qwen3nb.analysis.inventory.collect",
    "qwen3nb.analysis.training.interference",
    "qwen3nb.report.comparison.candidates",
    "qwen3nb.report.training.interference",
    "qwen3nb.report.leaderboard.board",
    "qwen3nb.report.render.table",
)


def test_what_reads_results_or_starts_notebooks_loads_no_model():
    """One process imports them in turn, and names the first that brings a model's library."""
    heavy = {"torch", "transformers", "mteb"}
    code = (
        "import importlib, sys\n"
        f"for name in {READERS}:\n"
        "    importlib.import_module(name)\n"
        f"    print(name, *{heavy} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(READERS)


def test_a_page_that_is_there_is_found_and_shown_without_heavy_libraries():
    """Each of them takes longer than the rest of such a command."""
    loaded = loaded_by(
        "import qwen3nb.execution.notebook, qwen3nb.report.evaluation.run_trace\n"
        "from qwen3nb.execution.parameters import check_value\n"
        "check_value('tasks', 'SciFact,PyDocsRetrieval')"
    )
    assert not loaded & {"mteb", "nbformat", "scipy.stats", "torch"}


# From the ground up: a module may import only what stands on its own floor or below it.
# The longest entry that names a module or a folder above it is the module's floor.
FLOORS = tuple(
    """
paths tiers utils hub metrics records checkpoints
models.types models.gate.bounds models.gate.tokenizer
models.batching models.counters models.modeling models.gate models.kinds.source models.mteb_meta
models.kinds.prompts
vectors.block_file vectors.cache vectors.shards
models.inference models.encoders vectors models.search
models.kinds models.rerankers models.load
extraction
datasets.rows datasets.training_files datasets.trec
datasets.mirror datasets.words
datasets.pydocs
datasets.collection datasets.custom
evaluation.known_models evaluation.run
evaluation.mteb evaluation.embeddings evaluation.retrieval
evaluation.evaluate evaluation.studies evaluation.training
analysis.stats analysis.comparison analysis.inventory analysis.training analysis.calibration
bench
cluster
report.render report.leaderboard report.evaluation report.comparison report.training report.studies
report.card report.headline report.paper report.model_report
execution book demo study cli
stats studies tables figures conclusions
""".split()  # noqa: SIM905 - a list of words reads better as lines
)


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


def imported(file, files):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("qwen3nb."):
            module = node.module.removeprefix("qwen3nb.")
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield inner if inner in files else module
        elif isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("qwen3nb.") for alias in node.names)


# Folders that only hold rooms; their __init__ is a docstring and imports nothing.
HALLS = {"analysis", "datasets", "evaluation", "models", "report"}


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
    graph = modules()
    while True:
        imported_ones = set().union(*graph.values())
        ends = [
            name for name in graph if not graph[name] & graph.keys() or name not in imported_ones
        ]
        if not ends:
            break
        for name in ends:
            del graph[name]
        graph = {name: others & graph.keys() for name, others in graph.items()}
    assert not graph, f"imports in a circle: {sorted(graph)}"


def test_conda_installs_what_make_installs():
    environment = yaml.safe_load((REPOSITORY / "environment.yml").read_text())
    pip = next(part["pip"] for part in environment["dependencies"] if isinstance(part, dict))
    makefile = (REPOSITORY / "Makefile").read_text()
    extras = next(line for line in makefile.splitlines() if line.startswith("EXTRAS"))
    assert f"--editable .[{extras.split()[-1]}]" in pip
    assert "--constraint constraints.txt" in pip


def test_one_faiss_wheel_at_most_and_torch_pinned_only_in_the_constraints():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert {"cpu", "gpu", "ray", "test", "dev", "demo"} <= set(extras)
    assert not any("faiss" in each for each in project["dependencies"])
    assert [e for e in extras["cpu"] + extras["gpu"] if "faiss" in e] == [
        "faiss-cpu>=1.12",
        "faiss-gpu>=1.14.3",
    ]
    everything = [*project["dependencies"], *(each for part in extras.values() for each in part)]
    assert not any("==" in each for each in everything)
    assert "torch==2.13.0" in (REPOSITORY / "constraints.txt").read_text()


def test_the_constraints_pin_what_changes_results_and_agree_with_the_requirements():
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pins = {
        each.name: each
        for each in map(Requirement, (each for each in lines if each[:1] not in "#"))
    }
    expected = "jsonschema mteb onnx onnxruntime plotly ray torch wordllama"
    assert " ".join(sorted(pins)) == expected
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for needed in map(Requirement, project["dependencies"]):
        if needed.name in pins:
            (pin,) = pins[needed.name].specifier
            assert pin.operator == "=="
            assert needed.specifier.contains(pin.version), needed


def test_tests_mirror_the_rooms_and_import_none_of_each_other():
    tests = REPOSITORY / "tests"
    for file in tests.rglob("test_*.py"):
        room = file.parent.relative_to(tests)
        assert (REPOSITORY / "qwen3nb" / room).is_dir(), f"{file}: the package has no room {room}"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                others = [n for n in names if n.split(".")[0] == "tests" or ".test_" in f".{n}"]
                assert not others, f"{file} imports {others}"

import ast
import subprocess
import sys
import tomllib

import pytest
import yaml
from conftest import REPOSITORY

import qwen3nb

PUBLIC = """
METRICS POOLINGS Qwen3EncoderConfig Qwen3EncoderModel Qwen3ForSeq2SeqLM Qwen3Seq2SeqConfig
CheckpointError Result SpecError TIERS ablate ablation_table author_sts average_checkpoints
averaged averaging_table by_task card_text checkpoints_table checks_table
comparison_figure comparison_table cosine_figure cost_table difference_table
difficulty_table distance_to drift_figure effects effects_figure effects_table
embedded_task evaluate extraction_table
examples_table extract failures_table find_source find_training headline_table holm list_checkpoints
load_encoder load_failures load_model load_pydocs load_results open_checkpoint page_links
paired_bootstrap pairs_table per_query_figure permutation_test pool provenance_table
pydocs_sample pydocs_table quick_look registry results_table run_notebook score_run
select_checkpoints similarity_figure spectrum_figure tier_table variants
vector_agreement verify weight_drift
Scores YesNoReranker evaluate_trained find_trained load_reranker rerank_suite
alignment analogies ann_figure ann_suite ann_table anisotropy build_index clusters
compression_figure compression_table exact_search load_analogies load_word_pairs measure_speed
probe probes_table recall_at_k transfer truncated uniformity word_similarity
prediction_table published_scores reproduce reproduction_table suite_table summarise plan plan_table
mirrored_words choose_tasks select_tasks
data_versions_table failed_runs_table machine_table runs_table software_table verification_table
"""


def test_public_names_are_these_and_all_resolve():
    assert set(qwen3nb.__all__) == set(PUBLIC.split())
    for name in qwen3nb.__all__:
        assert getattr(qwen3nb, name) is not None


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'extrac'"):
        _ = qwen3nb.extrac


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
    assert "qwen3nb.run.engine" in loaded
    assert not loaded & {"torch", "transformers", "mteb", "pandas", "qwen3nb.run.notebook"}


@pytest.mark.parametrize(
    "module",
    [
        "analysis.statistics",
        "analysis.collect",
        "analysis.interference",
        "report.views",
        "report.tables",
    ],
)
def test_what_reads_results_loads_no_model(module):
    assert not loaded_by(f"import qwen3nb.{module}") & {"torch", "transformers", "mteb"}


# A room may import from itself and from those listed for it; data flows one way.
ROOMS = {
    "extraction": {"models"},
    "models": {"extraction"},
    "tasks": {"models", "extraction"},
    "analysis": {"tasks"},
    "report": {"analysis", "tasks", "models", "extraction", "run"},
    "run": {"report", "analysis", "tasks", "models", "extraction", "demo", "bench"},
    "bench": {"analysis", "demo", "extraction", "models", "tasks"},
    "demo": {"run", "report", "tasks", "models", "extraction"},
}


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_one_way(room):
    for file in (REPOSITORY / "qwen3nb" / room).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            module = getattr(node, "module", None) if isinstance(node, ast.ImportFrom) else None
            if module and module.startswith("qwen3nb."):
                other = module.split(".")[1]
                allowed = ROOMS[room] | {room}
                assert other not in ROOMS or other in allowed, f"{file.name} imports {module}"


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
        "faiss-cpu>=1.9",
        "faiss-gpu>=1.9",
    ]
    everything = [*project["dependencies"], *(each for part in extras.values() for each in part)]
    assert not any("==" in each for each in everything)
    assert "torch==2.13.0" in (REPOSITORY / "constraints.txt").read_text()

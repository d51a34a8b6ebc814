"""Model specs: what they resolve to, and the errors of invalid ones."""

import os
import re
import shutil

import pytest

from qwen3nb.checkpoints.provenance import PROVENANCE
from qwen3nb.models.kinds.newest import NothingMadeError
from qwen3nb.models.kinds.resolve import default_model, find_source, find_training, newest_model
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.types import SpecError
from qwen3nb.utils.atomic_files import write_json

MINILM = "all-MiniLM-L6-v2"


@pytest.mark.parametrize(
    ("exports", "model", "why"),
    [
        ([], "bm25", "the study has no export"),
        (["runs/mine/encoder"], "runs/mine/encoder", "the study's only export"),
        (["encoder", "runs/b"], "bm25", "the study has 2 exports: name the one to take"),
    ],
)
def test_where_no_model_is_named_it_is_the_only_export(home, exports, model, why):
    for name in exports:
        (home / name).mkdir(parents=True)
        (home / name / PROVENANCE).write_text("{}")
    assert default_model() == (model, f"No model was named: this is {model} ({why}).")


@pytest.fixture
def study(checkout):
    """A study with two exports, two trainings and two adapters, of which b is the newer one."""
    for hour, name in enumerate(("b", "a"), start=1):
        files = {
            f"{name}/{PROVENANCE}": {},
            f"runs/{name}/checkpoint-10/config.json": {"model_type": "qwen3_encdec"},
            f"outputs/{name}/seed_1/checkpoints/final/adapter_config.json": {"task_type": None},
            # Nothing to extract, or to rank with.
            f"runs/sentence-{name}/checkpoint-10/config.json": {"model_type": "bert"},
            f"outputs/embed/{name}/adapter_config.json": {"task_type": "FEATURE_EXTRACTION"},
            f"results/{name}/{PROVENANCE}": {},
        }
        for path, content in files.items():
            write_json(checkout / path, content)
            for file in (checkout / path, (checkout / path).parent):
                os.utime(file, (2e9 - hour, 2e9 - hour))
    return checkout


def test_the_newest_of_a_study_is_found(study):
    assert newest_model("newest-export") == "b"
    assert newest_model("newest-adapter") == "outputs/b/seed_1/checkpoints/final"
    assert find_training("newest-training") == study / "runs" / "b"


def test_a_study_without_any_is_told_what_to_do(checkout, monkeypatch):
    assert newest_model("newest-export") == MINILM  # which comes with a package
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NothingMadeError, match="`qwen3nb extract CHECKPOINT encoder` makes one"):
        newest_model("newest-export")
    with pytest.raises(NothingMadeError, match="name a reranker as checkpoint"):
        find_source("newest-adapter")
    with pytest.raises(NothingMadeError, match="put a folder with checkpoint-N folders below"):
        find_training("newest-training")


def test_nothing_is_looked_for_outside_a_study(tmp_path, monkeypatch):
    monkeypatch.delenv("QWEN3NB_HOME")
    monkeypatch.chdir(tmp_path)
    write_json(tmp_path / "outputs" / "adapter_config.json", {})
    with pytest.raises(NothingMadeError):
        newest_model("newest-adapter")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("randm", "Did you mean 'random'"),
        ("e5-base", "Did you mean 'e5-base-v2'"),
        ("bge-base", "Did you mean 'bge-base-en-v1.5'"),
        ("", "one of bm25, random"),
        ("random:0", "no model"),
        ("demo", "`qwen3nb demo` trains and extracts it"),
        ("../nowhere/else", "no model"),
        ("en\x1b[31mc", r"'en\\x1b\[31mc' has a control character; rename the folder"),
    ],
)
def test_a_mistyped_spec_names_the_nearest(spec, message):
    with pytest.raises(SpecError, match=message):
        load_model(spec)


def test_a_folder_without_a_model_lists_its_checkpoints(tmp_path, checkpoint):
    shutil.copytree(checkpoint, tmp_path / "run" / "checkpoint-10")
    with pytest.raises(
        SpecError, match=r"no config\.json, so this is not a model\. Folders in it .*checkpoint-10"
    ):
        find_source(str(tmp_path / "run"))
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    with pytest.raises(SpecError, match="no adapter_model.safetensors"):
        find_source(str(tmp_path / "adapter"))


def test_a_hub_model_that_is_not_available_names_the_way_out():
    with pytest.raises(
        SpecError, match="organisation/model: no folder .* give the folder of a copy"
    ):
        load_encoder("organisation/model")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The registry of a study."""
    monkeypatch.setenv("QWEN3NB_HOME", str(tmp_path))
    return tmp_path / "models.toml"


def test_a_study_extends_the_registry(own, encoder_folder):
    entry = '[mine]\nfolder = "{}"\nmax_length = 9\nprompts = {{ query = "q: " }}\n'
    hub = '[e5-large-v2]\nid = "intfloat/e5-large-v2"\nprompts = { document = "passage: " }\n'
    own.write_text(entry.format(encoder_folder) + hub)
    for spec in ("mine", str(encoder_folder)):
        source = find_source(spec)
        assert (source.label, source.prompts, source.max_length) == ("mine", {"query": "q: "}, 9)
    for spec in ("e5-large-v2", "intfloat/E5-large-v2"):
        source = find_source(spec)
        assert (source.label, source.prompts) == ("e5-large-v2", {"passage": "passage: "})
    own.unlink()
    with pytest.raises(SpecError, match="no model 'mine'"):
        find_source("mine")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[a]\nid = 3", "a.id: expected a valid string; got 3"),
        ("[a]\nid = 'x/y'\nprompt = {}", "a.prompt: unknown key; did you mean 'prompts'?"),
        ("[a]\nid = 'x/y'\nprompts = { query = 1 }", "a.prompts.query: expected a valid string"),
        ("[a]\nid = 'x/y'\npooling = 'max'", "a.pooling: unknown value 'max'; choose one of: mean"),
        ("[a]\nid = 'x/y'\nmax_length = 0", "a.max_length: expected greater than or equal to 1"),
        ("[a]", "a: expected either id, of a model on the hub, or folder"),
        ("['a b']\nid = 'x/y'", "a b: String should match pattern"),
        ("[bm25]\nid = 'x/y'", "[bm25] is a built-in model; choose another name"),
        ("[a", "not TOML"),
    ],
)
def test_errors_in_a_study_s_registry_name_file_model_and_field(own, text, reason):
    own.write_text(text)
    with pytest.raises(SpecError, match=re.escape(f"{own}: {reason}")):
        find_source("a")

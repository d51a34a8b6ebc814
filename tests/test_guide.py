"""What the guide says in one place is true, and stands where a reader first needs it."""

import re
from pathlib import Path

import nbformat
import pytest
from helpers import REPOSITORY

from qwen3nb.models.kinds import resolve
from qwen3nb.report.card import extract

NDCG = "1 if the documents that answer a query come first among the ten best, 0 if none of them is"
LESSON = "notebooks/guide/getting-started.ipynb"
EVALUATE = (REPOSITORY / "book" / "guide" / "evaluate.md").read_text(encoding="utf-8")
SYMPTOMS = (REPOSITORY / "book" / "guide" / "symptoms.md").read_text(encoding="utf-8")


def text_of(page):
    file = REPOSITORY / page
    if file.suffix != ".ipynb":
        return file.read_text(encoding="utf-8")
    cells = nbformat.read(file, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


@pytest.mark.parametrize("page", ["README.md", "book/index.md", "book/guide/index.md", LESSON])
def test_ndcg_is_explained_where_it_first_stands(page):
    words = " ".join(text_of(page).split())
    assert words.index("nDCG@10") < words.index(NDCG) < words.index("nDCG@10") + 80


@pytest.fixture(scope="module")
def models(make_checkpoint, tmp_path_factory):
    """A folder with the checkpoint and the export that the table of names has."""
    folder = tmp_path_factory.mktemp("models")
    checkpoint = folder / "runs" / "ul2" / "checkpoint-9000"
    make_checkpoint(checkpoint)
    extract(checkpoint, folder / "runs" / "encoder")
    return folder


def test_a_model_has_the_label_that_the_guide_gives(models, monkeypatch):
    monkeypatch.chdir(models)
    section = EVALUATE.partition("(model-names)=")[2].partition("\n## On tasks")[0]
    # The second column is what one writes, the third the label.
    rows = re.findall(r"^\| .* \| `([^`]+)` \| [^|`]*`([^`]+)` \|$", section, flags=re.MULTILINE)
    given = {name.replace("URL", "http://localhost:8000/v1"): label for name, label in rows}
    adapter = "outputs/joint_r8/seed_42/checkpoints/final"
    assert resolve._adapter_label(Path(adapter)) == given.pop(adapter)
    found = {name: resolve.find_source(name).label for name in given}
    assert found == given
    assert len(found) == 6
    assert resolve.find_source("runs/encoder").label == "encoder"


def test_every_row_of_symptoms_has_a_cause_a_sign_and_what_to_do():
    sections = re.split(r"^## ", SYMPTOMS, flags=re.MULTILINE)[1:]
    assert len(sections) > 10
    for section in sections:
        tables = re.findall(r"^\|.*\|$", section, flags=re.MULTILINE)
        columns = {len(row.split(" | ")) for row in tables if not row.startswith("|---")}
        assert columns in ({3}, {2}, set())
        assert tables or "```sh" in section

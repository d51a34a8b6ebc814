"""A page is a notebook: its part, place and question stand in the notebook's metadata."""

import json
import sys
from types import ModuleType

import pytest
from helpers.checkout import write_checkout
from helpers.handbook import example
from helpers.notebooks import notebook_of, save
from helpers.records import make

from qwen3nb import paths
from qwen3nb.book import build
from qwen3nb.book.catalog import (
    CARD,
    LAST,
    OWN_PART,
    Needs,
    PageKind,
    page_kind,
    pages_of,
    read_catalog,
)
from qwen3nb.records.record import RunCost
from qwen3nb.records.results import Results

MINE = {"part": "Results", "question": "Which is cheapest?", "place": 15, "needs": "records"}


@pytest.fixture
def study(home):
    return write_checkout(home)


def write_notebook(name, metadata):
    notebook = {"cells": [], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    file = paths.notebooks() / f"{name}.ipynb"
    file.write_text(json.dumps(notebook))
    return file


def write_page(name, notebook=""):
    page = paths.book_runs() / f"{name}.ipynb"
    page.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"qwen3nb": {"notebook": notebook}} if notebook else {}
    page.write_text(json.dumps({"cells": [], "metadata": metadata}))
    return page


def test_every_notebook_of_the_book_has_a_part_and_a_question(study):
    kinds = read_catalog()
    assert [kind.notebook for kind in kinds if not (kind.question and kind.part != OWN_PART)] == []
    assert [kind.place for kind in kinds] == sorted(kind.place for kind in kinds)
    assert CARD in kinds
    made = {kind.notebook: kind.needs for kind in kinds if kind.needs is not Needs.RUN}
    assert made == {
        "leaderboard": "records",
        "compare": "two models",
        "explorer": "two models",
        "data": "records",
        "own": "own data",
        "sure": "two models",
        "training": "trainings",
        "interference": "adapters",
        "calibration": "lessons",
    }
    assert {kind.notebook for kind in kinds if kind.measures} == {"calibration", "speed"}
    tiered = {kind.notebook for kind in kinds if kind.takes_tier and kind.needs is not Needs.RUN}
    assert tiered == {"leaderboard", "compare", "explorer", "sure", "data", "training"}


def test_a_new_page_is_one_notebook(study):
    write_notebook("cheapest", {"qwen3nb": MINE})
    pages = [write_page("cheapest", "cheapest"), write_page("cheapest-full", "cheapest")]
    leaderboard = write_page("leaderboard", "leaderboard")
    (_, first), (kind, files) = pages_of(read_catalog(), paths.book_runs())
    assert (first, files) == ([leaderboard], sorted(pages))
    assert kind == PageKind("cheapest", "Results", "Which is cheapest?", 15, Needs.RECORDS)


@pytest.mark.parametrize(
    "metadata", [{}, {"qwen3nb": {}}, {"qwen3nb": []}, {"qwen3nb": {"part": "x", "needs": "tea"}}]
)
def test_an_owners_notebook_without_them_still_has_a_page(study, metadata):
    write_notebook("mine", metadata)
    page = write_page("mine-2")  # also without metadata: its name says whose it is
    assert page_kind("mine") == PageKind("mine", OWN_PART, "", LAST, Needs.RUN)
    assert pages_of(read_catalog(), paths.book_runs()) == [(PageKind("mine"), [page])]


def test_notebooks_of_an_earlier_release_are_described_by_those_of_this_one(study):
    write_notebook("leaderboard", {"qwen3nb": {"reads": "results"}})
    assert page_kind("leaderboard").needs is Needs.RECORDS
    assert page_kind("leaderboard").part == "Results"


def test_parts_stand_in_the_order_of_their_places():
    sphinx_ext = pytest.importorskip("qwen3nb.book.sphinx_ext", reason="extra book")
    parts = [{"caption": name, "chapters": []} for name in ("Learn", "How it was measured", "End")]
    places = {"Results": 10, "How it was measured": 500, "By question": 200}
    for name in ("By question", "Results", OWN_PART, "Results"):
        kind = PageKind("n", name, place=places.get(name, LAST))
        sphinx_ext._part_with_caption(kind, parts, places)["chapters"].append(name)
    assert [part["caption"] for part in parts] == [
        "Learn",
        "Results",
        "By question",
        "How it was measured",
        "End",
        OWN_PART,
    ]
    assert parts[1]["chapters"] == ["Results", "Results"]


def test_the_page_of_the_handbook_is_a_notebook_and_an_answer(study, monkeypatch):
    answers = ModuleType("qwen3nb.answers.throughput")
    monkeypatch.setitem(sys.modules, answers.__name__, answers)
    exec(example('"""Which model is fastest?'), vars(answers))  # noqa: S102 - our own text
    cells = example("import qwen3nb as q\nfrom qwen3nb.answers.throughput")
    parameters = example('tier: str = "smoke"')
    notebook = notebook_of(cells, parameters=parameters)
    notebook.metadata |= json.loads(f"{{{example(chr(34) + 'qwen3nb', 'json')}}}")
    save(notebook, "throughput")

    empty = answers.Throughput(Results([]))
    assert "No record" in empty._repr_html_()
    for label, speed in (("slow", 10.0), ("fast", 250.4), ("reused", None)):
        make(label, cost=RunCost(1.0, 3, 3, texts_per_second=speed)).save()
    values = {}
    *statements, shown = cells.strip().splitlines()
    text = "\n".join([parameters, *statements, f"answer = {shown}"])
    exec(text, values)  # noqa: S102 - our own text
    answer = values["answer"]
    assert answer.conclusion.text == "fast is fastest, with 250 texts per second."
    assert list(answer.to_frame()["model"]) == ["fast", "slow"]
    assert answer.conclusion.text in answer._repr_html_()

    kind = page_kind("throughput")
    assert kind in read_catalog()
    assert (kind.part, kind.place, kind.needs) == ("Results", 15, "records")
    assert kind.question == "Which model is fastest?"
    due = []
    monkeypatch.setattr(build, "sweep", lambda jobs, **_: due.extend(jobs) or [])
    monkeypatch.setattr(build, "run_notebook", lambda _: None)
    build.refresh_pages(tier="smoke")
    assert "throughput" in [job.name for job in due]


def test_a_single_checkpoint_is_no_training(study, monkeypatch):
    """Its page would ask how training went, and have nothing to say."""
    due = []
    monkeypatch.setattr(build, "sweep", lambda jobs, **_: due.extend(jobs) or [])
    monkeypatch.setattr(build, "run_notebook", lambda _: None)
    make("demo-checkpoint-100").save()
    make("demo-checkpoint-100", task="PyDocsSampleReranking").save()
    build.refresh_pages(tier="smoke")
    assert "training" not in [job.name for job in due]
    make("demo-checkpoint-200").save()
    build.refresh_pages(tier="smoke")
    assert "training" in [job.name for job in due]

"""Figures of papers on many tasks and models with long names: all texts are whole and apart."""

import re
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from helpers.records import tier_records
from matplotlib.backends.backend_pdf import RendererPdf

from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.report.paper import PaperContents, write_paper
from qwen3nb.report.render.figure import PAPER_STYLES, row_names
from qwen3nb.tiers import TIERS

LONG = "a-long-label-of-a-model-with-{}-words-and-an-equal-end-of-checkpoint-12000"
LABELS = ("bm25", LONG.format("many"), LONG.format("no"), "Qwen3-0.6B", "x" * 60 + "-run-42")
TASKS = TIERS["full"].task_keys
HEIGHT = 9.0  # inches of the text of a page; ACL has 9.7 in, NeurIPS 9 in
POINTS = 72
SLACK = 0.5  # points


@dataclass(frozen=True)
class Line:
    """A line of text as a PDF has it, in points from the lower left corner."""

    text: str
    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other):
        across = min(self.right, other.right) - max(self.left, other.left)
        along = min(self.top, other.top) - max(self.bottom, other.bottom)
        return across > SLACK and along > SLACK

    def is_inside(self, width, height):
        across = self.left > -SLACK and self.right < width + SLACK
        return across and self.bottom > -SLACK and self.top < height + SLACK

    def is_outside(self, height):
        return self.bottom > height - SLACK or self.top < SLACK


@pytest.fixture
def drawn(monkeypatch):
    """The lines of text that were drawn into PDFs."""
    lines, draw_text = [], RendererPdf.draw_text

    def record(self, gc, x, y, s, prop, angle, *args, **options):
        width, height, descent = self.get_text_width_height_descent(s, prop, ismath=False)
        if angle == 90:
            box = (x - height + descent, y, x + descent, y + width)
        else:
            box = (x, y - descent, x + width, y - descent + height)
        lines.append(Line(s, *box))
        draw_text(self, gc, x, y, s, prop, angle, *args, **options)

    monkeypatch.setattr(RendererPdf, "draw_text", record)
    return lines


def size_of(file):
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", file.read_bytes())
    return [float(end) for end in box.groups()]


def assert_texts_are_whole_and_apart(lines, width, height):
    """Check the lines of a file; those of the other parts of a figure are outside of it."""
    shown = [line for line in lines if not line.is_outside(height)]
    assert shown
    cut = [line for line in shown if not line.is_inside(width, height)]
    assert not cut
    assert not [pair for pair in combinations(shown, 2) if pair[0].overlaps(pair[1])]
    return shown


class Figures(PaperContents):
    """The figures of all models and of the first one, without tables, which take longer."""

    def figures(self):
        return super().figures()[:4]

    def tables(self):
        return []


@pytest.fixture(scope="module")
def contents():
    results = [
        record
        for seed, label in enumerate(LABELS)
        for record in tier_records(label, mean=0.4 + 0.05 * seed, seed=seed)
    ]
    assert len(results) == len(LABELS) * len(TASKS) >= 5 * 61
    return Figures(results, tier="full")


@pytest.mark.integration
@pytest.mark.parametrize("style", ["acl", "neurips"])
def test_texts_of_a_large_study_are_whole_and_apart_on_every_page(
    contents, style, tmp_path, drawn, monkeypatch
):
    saved = []

    def write(path, content):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        saved.append((path, tuple(drawn)))
        drawn.clear()
        return path

    monkeypatch.setattr("qwen3nb.report.render.figure.write_bytes", write)
    files = [file for file in write_paper(contents, tmp_path, style=style) if ".pdf" in file.name]
    assert files == [file for file, _ in saved]
    texts = {}
    for file, lines in saved:
        width, height = size_of(file)
        assert width / POINTS == pytest.approx(PAPER_STYLES[style][1])
        assert height / POINTS <= HEIGHT
        shown = assert_texts_are_whole_and_apart(lines, width, height)
        texts[file.stem] = " ".join(line.text for line in shown)
    assert {"comparison-full", "differences", "pairs", "per-query-bm25"} <= set(texts)

    comparison = contents._comparison
    expected = [each.with_baseline[0].n for each in comparison.means if each.with_baseline]
    counts = [int(n.replace(",", "")) for n in re.findall(r"n = ([\d,]+)", texts["differences"])]
    assert counts == expected  # in the order of the panels
    assert max(counts) > 1000
    for name in ("comparison-full", "differences", "pairs"):
        assert texts[name].count("…many-words") == texts[name].count("…no-words") > 0


@pytest.mark.integration
def test_a_figure_higher_than_a_page_is_divided_between_its_panels(tmp_path, drawn):
    without = TASKS[12:]
    results = [
        record
        for seed in range(12)
        for record in tier_records(f"model-{seed}", seed=seed, without=without)
    ]
    figure = leaderboard(results, tier="full", tasks=TASKS[:12]).figure()
    files = figure.save_pages(tmp_path / "scores.pdf", paper="acl")
    assert [file.name for file in files] == [f"scores-{n + 1}.pdf" for n in range(len(files))]
    assert len(files) > 1
    by_file = np.array_split(np.array(drawn, dtype=object), len(files))  # each draws all of them
    shown = []
    for file, lines in zip(files, by_file, strict=True):
        width, height = size_of(file)
        assert height / POINTS <= HEIGHT
        shown += assert_texts_are_whole_and_apart(list(lines), width, height)
    every = sorted(line.text for line in by_file[0])
    assert sorted(line.text for line in shown) == every  # each on exactly one page


def test_long_names_take_two_lines_and_stay_different():
    names = [LONG.format(word) for word in ("many", "no", "none", "no-more")]
    names += ["x" * 80 + end for end in "12"]
    names += [*LABELS, "a $name$ of 5 $", "", LABELS[1]]
    labels = row_names(names)
    assert len(set(labels)) == len(set(names))
    assert dict(zip(names, labels, strict=True))["bm25"] == "bm25"
    for label in labels:
        lines = label.replace(r"\$", "$").split("\n")
        assert len(lines) <= 2
        assert max(map(len, lines)) <= 28
    assert labels[-3] == r"a \$name\$ of 5 \$"


def test_names_on_one_line_stay_different():
    names = [LONG.format(n) for n in range(30)] + list(LABELS)
    labels = row_names(names, lines=1)
    assert len(set(labels)) == len(set(names))
    assert max(map(len, labels)) <= 28
    assert not [label for label in labels if "\n" in label]

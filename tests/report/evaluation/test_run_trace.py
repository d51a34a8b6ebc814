"""What a page carries for the end of the command that made it."""

import nbformat
from helpers.notebooks import notebook_of
from helpers.records import make, noisy

from qwen3nb.analysis.comparison.against_baseline import against_baseline
from qwen3nb.report.evaluation.run_trace import (
    RunTrace,
    read_conclusions,
    read_finished,
    read_trace,
)
from qwen3nb.report.render.conclusion import Conclusion


def test_scores_and_conclusions_come_back_from_a_page(tmp_path):
    scores = against_baseline(
        [make("m", scores=noisy(0.7))], [make("bm25", scores=noisy(0.5, seed=1))]
    )
    trace = RunTrace(tuple(scores), ("PyDocsSampleRetrieval",), {"X": "no vectors"})
    conclusion = Conclusion("a < b is shown.")
    node = notebook_of("trace", "conclusion")
    node.cells[-2].outputs = [nbformat.v4.new_output("display_data", trace._repr_mimebundle_())]
    data = {"text/html": conclusion._repr_html_(), "text/plain": repr(conclusion)}
    node.cells[-1].outputs = [nbformat.v4.new_output("display_data", data)]
    node.metadata["qwen3nb"] = {"finished": "2026-01-01T00:00:00+00:00"}
    page = tmp_path / "page.ipynb"
    nbformat.write(node, page)
    assert read_trace(page) == trace
    assert read_conclusions(page) == ["a < b is shown."]
    assert read_finished(page) == "2026-01-01T00:00:00+00:00"


def test_a_page_that_is_not_there_says_nothing(tmp_path):
    missing = tmp_path / "page.ipynb"
    assert read_trace(missing) is None
    assert not [*read_conclusions(missing), *read_finished(missing)]

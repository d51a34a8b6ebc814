import json
import re

import numpy as np
import pytest
from helpers.browser import used
from helpers.figures import TASK
from helpers.html import HOSTILE, Tags
from helpers.records import make

from qwen3nb.report.comparison.explorer import explore, query_texts


@pytest.mark.parametrize("text", HOSTILE)
def test_the_explorer_holds_texts_and_never_markup(text):
    results = [make(text, scores=(0.1, 0.5, 0.3)), make("m", scores=(0.2, 0.4, 0.9))]
    explorer = explore(results, task=TASK, texts=dict.fromkeys(("q0", "q1", "q2"), text))
    page = explorer._repr_html_()
    start = page.index('<script type="application/json">') + len('<script type="application/json">')
    data = json.loads(page[start : page.index("</script>", start)])
    assert data["texts"] == [text] * 3
    assert data["models"] == explorer.models
    assert "<" not in page[start : page.index("</script>", start)]
    assert set(Tags(page).tags) <= {"div", "label", "select", "option", "noscript", "p", "script"}
    hover = data["figure"]["data"][0]["customdata"][0][0]
    assert set(re.findall(r"<[^>]*>", hover)) <= {"<br>"}
    assert set(Tags(explorer.table().to_html()).tags) <= {
        "div", "table", "thead", "tbody", "tr", "th", "td", "span", "p",
    }  # fmt: skip


def test_the_explorer_orders_models_and_shows_true_numbers():
    results = [make("a", scores=(0.1, 0.5, 0.3)), make("b", scores=(0.2, 0.4, 0.9))]
    explorer = explore(results, task=TASK, texts={"q0": "find it"})
    assert explorer.models == ["b", "a"]
    points = explorer.figure().data[0]
    assert [list(point[1:]) for point in points.customdata] == [[0.2, 0.1], [0.4, 0.5], [0.9, 0.3]]
    assert points.customdata[0][0] == "find it"
    assert points.customdata[1][0] == "q1"
    assert np.abs(np.array(points.x) - (0.2, 0.4, 0.9)).max() <= 0.012
    assert explorer.table().rows[0][0].text == "q2"
    with pytest.raises(ValueError, match="no system 'x'"):
        explorer.figure("x")


@pytest.mark.integration
def test_without_two_models_or_the_texts_the_page_says_why():
    refused = explore([make("a")], task=TASK)
    assert "Two models with nDCG@10" in refused._repr_html_()
    assert refused.table().rows == ()
    results = [make("a", task="NoSuchTask"), make("b", task="NoSuchTask")]
    assert "unknown task" in explore(results, task="NoSuchTask")._repr_html_()


def test_the_texts_of_an_embedded_task_are_its_queries():
    texts = query_texts(TASK)
    assert len(texts) == 200
    assert all(isinstance(text, str) and text for text in texts.values())


@pytest.mark.integration
def test_a_click_shows_the_query_and_what_all_score(tmp_path):
    from importlib.resources import files

    from helpers import REPOSITORY

    hostile = "<img src=x onerror=alert(1)>"
    results = [make("a", scores=(0.1, 0.5, 0.3)), make(hostile, scores=(0.2, 0.4, 0.9))]
    explorer = explore(results, task=TASK, texts={"q0": "zero", "q1": hostile, "q2": "two"})
    scripts = [files("plotly") / "package_data" / "plotly.min.js",
               REPOSITORY / "book" / "_static" / "q-explorer.js"]  # fmt: skip
    tags = "".join(f'<script src="file://{script}"></script>' for script in scripts)
    page = tmp_path / "page.html"
    page.write_text(
        f"<!DOCTYPE html><html><head></head><body>{explorer._repr_html_()}{tags}</body>"
    )
    shown = used(page, """
        const plot = document.querySelector('.q-plot');
        plot.emit('plotly_click', {points: [{curveNumber: 0, pointIndex: 1}]});
        const panel = document.querySelector('.q-chosen');
        const list = document.querySelector('[data-axis=x]');
        list.value = 'a';
        list.dispatchEvent(new Event('change'));
        return [panel.querySelector('p').firstChild.textContent,
                [...panel.querySelectorAll('li')].map(e => e.textContent),
                document.querySelectorAll('img').length,
                plot.data[0].customdata[2].slice(1), plot.layout.xaxis.title.text];
        """, folder=tmp_path / "p")  # fmt: skip
    assert shown == [hostile, ["a0.500", f"{hostile}0.400"], 0, [0.3, 0.3], "nDCG@10, a"]

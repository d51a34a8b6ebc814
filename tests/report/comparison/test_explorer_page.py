"""The explorer's page in a real browser: what a reader picks is shown, tested and counted."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from urllib.parse import parse_qs, urlencode

import nbformat
import numpy as np
import pytest
from helpers.browser import used
from helpers.html import HOSTILE
from helpers.records import amend, make, state
from helpers.search_texts import search_part, search_texts
from nbconvert import HTMLExporter

from qwen3nb.answers.explorer import explore
from qwen3nb.evaluation.mteb.per_query import SearchTexts
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.records.record import Part

pytestmark = pytest.mark.integration

TASK = "mine-1a"
CATEGORIES = ("composite", "name", "symptom")
# Returns what the page shows for each address in turn.
VISIT = """
const shown = [];
for (const address of ADDRESSES) {
  location.hash = address;
  dispatchEvent(new HashChangeEvent('hashchange'));
  const line = document.querySelector('.q-tested');
  const notes = [...document.querySelectorAll('.q-lines .q-note')].map(each => each.textContent);
  shown.push({...line.dataset, text: line.textContent, notes,
              points: document.querySelectorAll('.q-point').length});
}
return shown;
"""


def page_of(explorer, folder):
    page = folder / "page.html"
    body = explorer.plot()._repr_html_()
    page.write_text(
        f'<!DOCTYPE html><html><head><meta charset="utf-8"></head><body>{body}</body></html>',
        encoding="utf-8",
    )
    return page


def visited(explorer, folder, picks):
    """What the page shows for each of ``picks``, the fields of an address."""
    addresses = [f"#{urlencode(pick)}" for pick in picks]
    script = VISIT.replace("ADDRESSES", json.dumps(addresses))
    return used(page_of(explorer, folder), script, folder=folder / "profile")


def judged_records(n=60, *, clusters=None, models=("a", "b", "c"), seed=0):
    """Records of models on own queries, with graded documents: scores follow from the rankings."""
    rng = np.random.default_rng(seed)
    queries = [f"q{i:03d}" for i in range(n)]
    documents = [f"d{i:02d}" for i in range(30)]
    qrels = {}
    for query in queries:
        chosen = rng.choice(documents, 6, replace=False)
        qrels[query] = dict(zip(chosen.tolist(), rng.integers(0, 4, 6).tolist(), strict=True))
        qrels[query][str(chosen[0])] = 1 + int(rng.integers(3))
    measures = ("nDCG@10", "MRR@10", "Recall@10", "P@5")
    records = []
    for place, model in enumerate(models):
        run = {}
        for query, grades in qrels.items():
            skill = 0.15 * (len(models) - place)
            scores = rng.uniform(0, 1, len(documents))
            run[query] = {
                name: float(scores[i] + skill * grades.get(name, 0))
                for i, name in enumerate(documents)
            }
        columns = score_run(qrels, run, measures)
        record = make(model, dict(columns["nDCG@10"]), task=TASK)
        for measure in measures:
            record.per_query[measure] = dict(columns[measure])
        top = {
            query: sorted(scores, key=scores.get, reverse=True)[:10]
            for query, scores in run.items()
        }
        judgements = {
            query: {
                "first": [qrels[query].get(name, -1) for name in top[query]],
                "ideal": sorted((g for g in qrels[query].values() if g > 0), reverse=True),
            }
            for query in queries
        }
        texts = {query: "word " * (1 + i % 7) for i, query in enumerate(queries)}
        state(record, top=top, queries=texts, judgements=judgements, relevance_threshold=1)
        categories = {query: CATEGORIES[i % 3] for i, query in enumerate(queries)}
        amend(record, "task", categories=categories, clusters=clusters or {})
        records.append(record)
    return records, qrels


def clusters_of(n):
    """Clusters of three, but for one that has every fourth query."""
    names = {}
    for i in range(n):
        names[f"q{i:03d}"] = "large" if i % 4 == 0 else f"é{i // 4}"
    return names


def same_test(shown, difference):
    """Whether a page shows a difference of Python: p to the last digit, the others to nine."""
    assert int(shown["n"]) == difference.n
    assert float(shown["p"]) == difference.p_value
    low, high = difference.interval or ("", "")
    numbers = [shown["difference"], shown["low"], shown["high"]]
    expected = [difference.difference, low, high]
    for text, number in zip(numbers, expected, strict=True):
        if number == "":
            assert text == ""
        else:
            assert float(text) == pytest.approx(number, abs=1e-9)
    return True


@pytest.mark.parametrize("clustered", [False, True])
def test_what_a_reader_picks_is_tested_as_python_tests_it(clustered, tmp_path):
    n = 75
    clusters = clusters_of(n) if clustered else None
    records, _ = judged_records(n, clusters=clusters)
    explorer = explore(records, task=TASK)
    subsets = [
        ({}, {}),
        ({"category": "name"}, {"category": "name"}),
        ({"from": 2, "to": 5}, {"words": (2, 5)}),
        ({"category": "symptom", "from": 3}, {"category": "symptom", "words": (3, 99)}),
        # So few that every flip of signs is counted, and one of each kind.
        ({"category": "composite", "to": 2}, {"category": "composite", "words": (1, 2)}),
        ({"category": "composite", "from": 7}, {"category": "composite", "words": (7, 7)}),
    ]
    pairs = [("a", "b"), ("c", "a")]
    cases = [(pair, pick, conditions) for pair in pairs for pick, conditions in subsets]
    shown = visited(explorer, tmp_path, [{"a": a, "b": b, **pick} for (a, b), pick, _ in cases])
    for page, ((first, second), _, conditions) in zip(shown, cases, strict=True):
        part = explorer.only(**conditions)
        assert same_test(page, part.difference(first=first, second=second))
        assert page["points"] == len(part.matrix.queries)
    assert len({page["p"] for page in shown}) > 5


def test_a_threshold_is_applied_to_the_stored_rankings(tmp_path):
    records, qrels = judged_records(40)
    explorer = explore(records, task=TASK)
    picks = [
        {"a": "a", "b": "b", "measure": measure, "threshold": threshold}
        for measure in ("MRR@10", "Recall@10", "P@5")
        for threshold in (1, 2, 3)
    ]
    shown = visited(explorer, tmp_path, picks)
    for pick, page in zip(picks, shown, strict=True):
        changed = explorer.with_threshold(pick["threshold"], metric=pick["measure"])
        assert same_test(page, changed.difference(first="a", second="b"))
        # The definition of the measure, from the whole judgements.
        run = {
            query: {name: -float(rank) for rank, name in enumerate(records[0].top[query])}
            for query in qrels
        }
        scores = score_run(qrels, run, [pick["measure"]], threshold=pick["threshold"])
        expected = scores[pick["measure"]]
        computed = dict(zip(changed.matrix.queries, changed.matrix.column("a"), strict=True))
        assert computed == pytest.approx(dict(expected))
        left_out = len(qrels) - len(expected)
        if left_out:
            assert (
                f"Left out, without a document of grade {pick['threshold']}: {left_out}."
                in (page["notes"])
            )
    assert len({page["difference"] for page in shown}) == len(picks)


def test_the_slider_says_why_it_does_not_move(tmp_path):
    records, _ = judged_records(20)
    slider = """
    const slider = document.querySelector('[data-pick=threshold]');
    const notes = [...document.querySelectorAll('.q-lines .q-note')].map(each => each.textContent);
    return [slider.disabled, notes.join(' ')];
    """
    explorer = explore(records, task=TASK)
    graded = used(page_of(explorer, tmp_path), slider, folder=tmp_path / "p")
    assert graded[0]
    assert "nDCG@10 reads the grades themselves; choose MRR@10" in graded[1]
    for record in records:
        state(record, judgements=None)
    with pytest.raises(ValueError, match="The grades are not available here"):
        explore(records, task=TASK).with_threshold(2)
    with pytest.raises(ValueError, match="no query has a document with a grade of 9 or above"):
        explorer.with_threshold(9)


def test_a_measure_that_the_rankings_do_not_give_has_no_threshold():
    records, _ = judged_records(20)
    records[0].per_query["P@5"]["q000"] += 0.2  # as of another ranking
    explorer = explore(records, task=TASK)
    assert explorer.graded_rankings.measures == ("MRR@10", "Recall@10")
    for record in records:
        record.top.update({query: record.top[query][:4] for query in record.top})
        for judged in record.data.judgements.values():
            judged["first"] = judged["first"][:4]
    assert "keep 4 documents of a ranking" in explore(records, task=TASK).graded_rankings


def test_languages_are_those_of_the_parts_of_a_task(tmp_path):
    records = []
    for label, shift in (("a", 0.2), ("b", 0.0)):
        rng = np.random.default_rng(1)
        values = {
            f"test/{language}/q{i}": float(rng.uniform(0.1, 0.7) + shift * (language == "de"))
            for language in ("de", "en")
            for i in range(20)
        }
        record = make(label, values, task="Two")
        score = aggregate(record.per_query, how="mean", columns=("nDCG@10",))
        parts = [
            Part("test", subset, (name,), score=score, mteb=0.5)
            for subset, name in (("de", "deu-Latn"), ("en", "eng-Latn"))
        ]
        amend(record, "task", splits=("test",), subsets=("de", "en"))
        records.append(replace(record, parts=tuple(parts)))
    parts = [
        search_part({f"q{i}": f"{name} {i}" for i in range(20)}, prefix=f"test/{name}/")
        for name in ("de", "en")
    ]
    explorer = explore(records, task="Two", texts=SearchTexts(parts))
    assert len(explorer.matrix.queries) == 40
    assert explorer.text("test/en/q3") == "en 3"
    german = explorer.only(language="deu-Latn")
    shown = visited(
        explorer, tmp_path, [{"a": "a", "b": "b", "language": "deu-Latn"}, {"a": "a", "b": "b"}]
    )
    assert same_test(shown[0], german.difference())
    assert german.difference().difference == pytest.approx(0.2)
    assert shown[1]["n"] == "40"
    with pytest.raises(ValueError, match="choose one of: deu-Latn, eng-Latn"):
        explorer.only(language="fra-Latn")


def test_the_page_counts_the_looks_and_corrects_for_them(tmp_path):
    records, _ = judged_records(75)
    explorer = explore(records, task=TASK)
    subset = {"a": "a", "b": "b", "category": "name"}
    picks = [
        {"a": "a", "b": "b"},
        subset,
        {"a": "b", "b": "a"},  # the same comparison, from the other side
        {**subset, "q": "q001"},
        {"a": "a", "b": ""},  # a single model is no comparison
        {**subset, "to": 3},
    ]
    shown = visited(explorer, tmp_path, picks)
    counts = [" ".join(page["notes"]) for page in shown]
    assert "You have looked at 1 comparison on this page." in counts[0]
    for text in (counts[1], counts[2], counts[3]):
        assert "You have looked at 2 comparisons on this page." in text
        assert "With 2, a p below 0.05 is expected by chance in up to 10\N{NO-BREAK SPACE}%" in text
    assert "You have looked at" not in counts[4]
    assert "You have looked at 3 comparisons" in counts[5]
    assert "expected by chance in up to 14" in counts[5]
    corrected = min(1.0, 3 * float(shown[5]["p"]))
    assert f"(Bonferroni), p = {corrected:.4f}." in counts[5]
    mean = explorer.matrix.column("a").mean()
    assert float(shown[4]["mean"]) == pytest.approx(mean)
    assert shown[4]["text"].startswith(f"a has nDCG@10 {mean:.3f} [")


def test_few_queries_cannot_tell(tmp_path):
    scores = {f"q{i}": 0.9 for i in range(10)}
    results = [make("a", scores), make("b", dict.fromkeys(scores, 0.1))]
    for result in results:
        categories = dict.fromkeys(scores, "many") | {"q0": "one"}
        amend(result, "task", categories=categories)
    explorer = explore(results, task="PyDocsSampleRetrieval", texts=search_texts({"q0": "x"}))
    picks = [{"a": "a", "b": "b", "category": name} for name in ("", "many", "one")]
    all_queries, nine, single = visited(explorer, tmp_path, picks)
    assert all_queries["text"].startswith("a is better on these queries.")
    assert nine["text"].startswith("9 queries are too few to tell.")
    assert float(nine["p"]) == 2 / 2**9
    assert single["text"].startswith("1 query is too few to tell.")
    assert single["text"].endswith("+0.800 (no interval), p = 1.0000.")


def test_lists_and_points_change_what_is_shown(tmp_path):
    records, qrels = judged_records(60)
    page = page_of(explore(records, task=TASK), tmp_path)
    shown = used(
        page,
        """
        const find = (what) => document.querySelector(what);
        const all = (what) => [...document.querySelectorAll(what)].map(each => each.textContent);
        const pick = (name, value, kind = 'change') => {
          const control = find(`[data-pick=${name}]`);
          control.value = value;
          control.dispatchEvent(new Event(kind));
        };
        const points = () => [...document.querySelectorAll('.q-point')]
          .map(each => each.getAttribute('cx') + ' ' + each.getAttribute('cy')).join();
        const look = () => ({points: points(), n: document.querySelectorAll('.q-point').length,
                             text: find('.q-tested').textContent});
        const out = {whole: look()};
        pick('category', 'symptom');
        out.category = look();
        pick('b', 'c');
        out.other = look();
        pick('measure', 'MRR@10');
        out.measure = look();
        out.disabled = find('[data-pick=threshold]').disabled;
        pick('threshold', 2, 'input');
        out.moving = find('output').textContent;
        pick('threshold', 2);
        out.threshold = look();
        const list = find('[data-query]');
        list.value = list.options[1].value;
        list.dispatchEvent(new Event('change'));
        out.listed = [find('.q-ring') !== null, list.value, all('.q-side').length];
        const point = document.querySelectorAll('.q-point')[3];
        point.dispatchEvent(new MouseEvent('click', {bubbles: true}));
        out.clicked = [all('.q-picked .q-detail')[0], all('.q-question')[0], location.hash];
        out.grades = all('.q-side .q-grade').length;
        out.head = all('.q-head')[0];
        pick('b', '');
        out.single = [look(), all('.q-side').length];
        pick('from', 99);
        out.none = look();
        return out;
        """,
        folder=tmp_path / "p",
    )
    assert (shown["whole"]["n"], shown["category"]["n"]) == (60, 20)
    steps = [shown[name] for name in ("whole", "category", "other", "measure", "threshold")]
    for before, after in pairwise(steps):
        assert before["points"] != after["points"]
        assert before["text"] != after["text"]
    assert not shown["disabled"]
    assert shown["moving"] == "2"
    ring, query, lists = shown["listed"]
    assert (ring, lists) == (True, 2)
    clicked, question, address = shown["clicked"]
    assert clicked != query
    assert question.strip() == records[0].data.queries[clicked].strip()
    assert parse_qs(address[1:])["q"] == [clicked]
    assert parse_qs(address[1:])["category"] == ["symptom"]
    assert shown["grades"] == 10
    relevant = sum(grade >= 2 for grade in qrels[clicked].values())  # by the threshold that is set
    assert shown["head"] == f"Relevant documents: {relevant}; the best that a model found"
    single, lists = shown["single"]
    assert lists == 1
    assert single["text"].startswith("a has MRR@10")
    assert (shown["none"]["n"], shown["none"]["text"]) == (
        0,
        "No query is left: choose fewer conditions.",
    )


def test_the_page_is_alive_after_nbconvert_and_says_so_without_its_script(tmp_path):
    records, _ = judged_records(20)
    plot = explore(records, task=TASK).plot()._repr_html_()
    cell = nbformat.v4.new_code_cell("explorer.plot()")
    cell.outputs = [nbformat.v4.new_output("display_data", {"text/html": plot})]
    notebook = nbformat.v4.new_notebook(cells=[cell])
    page, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    file = tmp_path / "notebook.html"
    file.write_text(f"<html><head></head><body>{page}</body></html>", encoding="utf-8")
    count = "return document.querySelectorAll('.q-point').length;"
    assert used(file, count, folder=tmp_path / "p") == 20
    safe = re.sub(r"<script.*?</script>", "", plot, flags=re.DOTALL)
    assert "run this cell again, or trust the notebook" in safe
    assert "The tables below need no script." in safe
    assert "<select" not in safe  # nothing that does not react


def offered_tasks(explorer):
    data = explorer.plot()._repr_html_().partition('"application/json">')[2]
    return [task["name"] for task in json.loads(data.partition("</script>")[0])["tasks"]]


def test_a_page_offers_several_tasks(tmp_path, monkeypatch):
    records, _ = judged_records(40)
    first, second = "PyDocsSampleRetrieval", "PyDocsSampleReranking"
    named = [replace(one, task=replace(one.task, name=first)) for one in records]
    # The last model has one task only.
    named += [replace(one, task=replace(one.task, name=second)) for one in records[:2]]
    explorer = explore(named, tier="smoke")
    assert [other.matrix.task for other in explorer.others] == [second]
    picks = [{"a": "a", "b": "c"}, {"a": "a", "b": "b", "task": second}]
    shown = visited(explorer, tmp_path, picks)
    assert same_test(shown[0], explorer.difference(first="a", second="c"))
    (other,) = explorer.others
    assert same_test(shown[1], other.difference(first="a", second="b"))
    assert explore(named, task=first).others == ()
    assert offered_tasks(explorer) == [first, second]
    monkeypatch.setattr("qwen3nb.answers.explorer_page._LARGEST_PAGE", 10_000)
    assert offered_tasks(explorer) == [first]  # as large as it may be


def test_foreign_text_stays_text(tmp_path):
    results = []
    for place, label in enumerate(HOSTILE):
        scores = {query: 0.05 * (place + row) for row, query in enumerate(HOSTILE)}
        result = make(label, scores)
        state(result, top={query: [query] for query in HOSTILE})
        amend(result, "task", categories={query: query for query in HOSTILE})
        results.append(result)
    texts = search_texts(
        {query: query for query in HOSTILE},
        {document: (document, document) for document in HOSTILE},
        {query: {query: 1} for query in HOSTILE},
    )
    explorer = explore(results, task="PyDocsSampleRetrieval", texts=texts)
    shown = used(
        page_of(explorer, tmp_path),
        """
        const all = (what) => [...document.querySelectorAll(what)].map(each => each.textContent);
        const questions = [], titles = [];
        for (const option of [...document.querySelector('[data-query]').options].slice(1)) {
          location.hash = '#' + new URLSearchParams({q: option.value});
          dispatchEvent(new HashChangeEvent('hashchange'));
          questions.push(...all('.q-question'));
          titles.push(all('.q-side li strong')[0]);
        }
        return {
          questions, titles, models: all('[data-pick=a] option'),
          categories: all('[data-pick=category] option'),
          scripts: document.querySelectorAll('.q-explorer script').length,
          foreign: document.querySelectorAll(
            '.q-explorer :is(img, iframe, details, base, meta, table)').length,
          pwned: typeof window.pwned,
        };
        """,
        folder=tmp_path / "p",
    )
    assert sorted(shown["questions"]) == sorted(HOSTILE)
    assert sorted(shown["titles"]) == sorted(" ".join(text.split()) for text in HOSTILE)
    assert sorted(shown["models"]) == sorted(HOSTILE)
    assert set(shown["categories"]) == {"all", *HOSTILE}
    assert (shown["scripts"], shown["foreign"], shown["pwned"]) == (2, 0, "undefined")

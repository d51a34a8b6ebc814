"""The script that looks for numbers of a book that disagree."""

import json
import re

import pytest
from helpers.records import make, noisy

from benchmarks.agreement import advice, disagreements, of_records, read_pages, statements
from qwen3nb.answers.against_baseline import against_baseline
from qwen3nb.answers.comparison import compare
from qwen3nb.answers.evaluation import evaluation_conclusion, intervals_table, scores_table
from qwen3nb.answers.landing import headline_lead
from qwen3nb.answers.leaderboard import leaderboard

TASK = "PyDocsSampleRetrieval"
RECORDS = [
    make(name, scores=noisy(mean, seed=i), task=TASK)
    for i, (name, mean) in enumerate((("bm25", 0.5), ("m", 0.6), ("random", 0.1)))
]


def page_of(*views):
    return [view._repr_html_() for view in views if view is not None]


def book(folder, **pages):
    """The pages of a study, each with a cell whose outputs are HTML."""
    runs = folder / "book" / "runs"
    runs.mkdir(parents=True)
    for name, texts in pages.items():
        outputs = [{"data": {"text/html": [text]}} for text in texts]
        content = {"cells": [{"outputs": outputs}]}
        (runs / f"{name}.ipynb").write_text(json.dumps(content), encoding="utf-8")
    return read_pages(folder)


def found(pages, others=()):
    stated = [each for name, page in pages.items() for each in statements(name, page)]
    stated += others
    return stated, [*disagreements(stated), *advice(pages, stated)]


def whole(comparison):
    return page_of(
        comparison.table(),
        comparison.differences_table(),
        comparison.figure(),
        leaderboard(RECORDS, tier="smoke", comparison=comparison).table(),
    )


def test_pages_of_the_same_records_agree(tmp_path):
    comparison = compare(RECORDS, tier="smoke", baseline="bm25")
    scores = against_baseline(RECORDS[1:2], [RECORDS[0], RECORDS[2]])
    model = page_of(scores_table(scores), intervals_table(scores), evaluation_conclusion(scores))
    stated, wrong = found(book(tmp_path, compare=whole(comparison), model=model))
    assert wrong == []
    kinds = {each.about[0] for each in stated}
    assert {"difference", "p-value", "corrected p-value", "score", "verdict"} <= kinds
    places = {each.where.partition(",")[0] for each in stated if each.about[0] == "difference"}
    assert places == {"runs/compare", "runs/model"}


@pytest.mark.parametrize(
    ("fault", "subject"),
    [
        (("m 0.60", "m 0.61"), "rounded score of m, Retrieval, nDCG@10"),
        (("0.13].", "0.13]. No difference shown between: m, bm25."), "models of bm25, m"),
    ],
)
def test_the_landing_page_says_what_the_records_say(tmp_path, monkeypatch, fault, subject):
    monkeypatch.setattr("qwen3nb.records.store.load_results", lambda **_: RECORDS)
    page = headline_lead(compare(RECORDS, tier="smoke"), task=TASK)
    stated, wrong = found(book(tmp_path, leaderboard=[page]), of_records())
    assert wrong == []
    pages = {each.about for each in stated if each.where != "records"}
    assert ("models", "bm25", "m", "Retrieval") in pages
    changed = page.replace(*fault)
    assert changed != page
    _, wrong = found(book(tmp_path / "wrong", leaderboard=[changed]), of_records())
    assert any(each.startswith(subject) for each in wrong), wrong


@pytest.mark.parametrize(
    ("fault", "subject"),
    [
        (lambda text: text.replace("[", "[−0.9", 1), "difference of bm25, m, Retrieval, nDCG@10"),
        (lambda text: text.replace(">0.600<", ">0.601<", 1), "score of m, Retrieval, nDCG@10"),
    ],
)
def test_a_second_number_for_one_thing_is_found(tmp_path, fault, subject):
    comparison = compare(RECORDS, tier="smoke", baseline="bm25")
    first = whole(comparison)
    scores = against_baseline(RECORDS[1:2], [RECORDS[0], RECORDS[2]])
    (table,) = page_of(intervals_table(scores))
    start = table.index("data-sort", table.index("<strong>") - 60) if "score" not in subject else 0
    changed = table[:start] + fault(table[start:])
    assert changed != table
    _, wrong = found(book(tmp_path, compare=first, model=[changed]))
    assert any(each.startswith(subject) for each in wrong), wrong


def test_other_draws_a_wrong_bold_and_stale_advice_are_found(tmp_path):
    comparison = compare(RECORDS, tier="smoke", baseline="bm25", seed=0, draws=500)
    near = [make("a", scores=noisy(0.5, spread=0.1), task=TASK), *RECORDS[:1]]
    two = [
        compare(near, baseline="bm25", seed=seed, draws=300).differences_table()._repr_html_()
        for seed in (0, 1)
    ]
    _, wrong = found(book(tmp_path, one=two[:1], two=two[1:]))
    assert any(each.startswith("p-value of a, bm25") for each in wrong)
    (table,) = page_of(comparison.differences_table())
    bold = re.search(r"<strong>([^<]+)</strong>", table)
    plain = table.replace(bold[0], bold[1], 1)
    _, wrong = found(book(tmp_path / "bold", one=[plain]))
    assert any("is not bold" in each for each in wrong)
    alone = against_baseline(RECORDS[1:2], [])
    stale = page_of(scores_table(alone), evaluation_conclusion(alone))
    _, wrong = found(book(tmp_path / "old", model=stale, compare=whole(comparison)))
    assert wrong == ["runs/model advises to run bm25, which has run on Retrieval"]


def test_a_verdict_that_the_scores_do_not_have_is_found(tmp_path):
    """In the table of one model, in its sentence, or both."""
    scores = against_baseline(RECORDS[1:2], [RECORDS[0], RECORDS[2]])
    (table, sentence) = page_of(scores_table(scores), evaluation_conclusion(scores))
    assert "better than bm25" in sentence
    worse = sentence.replace("better than bm25", "worse than bm25")
    _, wrong = found(book(tmp_path, model=[table, worse]))
    assert [each.partition("\n")[0] for each in wrong] == [
        "verdict of bm25, m, Retrieval, nDCG@10:"
    ]
    other = sentence.replace("with 0.4", "with 0.6")
    assert other != sentence
    _, wrong = found(book(tmp_path / "score", model=[table, other]))
    assert [each.partition("\n")[0] for each in wrong] == ["mean of bm25, Retrieval, nDCG@10:"]


def test_a_page_made_before_another_model_came_is_found(tmp_path):
    old = page_of(intervals_table(against_baseline(RECORDS[1:2], RECORDS[:1])))
    new = page_of(intervals_table(against_baseline(RECORDS[1:2], [RECORDS[0], RECORDS[2]])))
    _, wrong = found(book(tmp_path, old=old, new=new))
    assert [each.partition("\n")[0] for each in wrong] == [
        "number of pairs of bm25, m, Retrieval, nDCG@10:"
    ]


def study_page(
    *, conclusion="-0.015 [-0.050, +0.009]", p="<strong>0.0100</strong>", default="0.600"
):
    """A page with an ablation, a search and prompts, as the book writes them."""

    def table(name, heads, row, note=""):
        head = "".join(f"<th>{text}</th>" for text in heads)
        cells = "".join(f"<td>{text}</td>" for text in row)
        return (
            f'<div class="q-table" id="tab-{name}"><table><tr>{head}</tr><tr>{cells}</tr></table>'
            f'<p class="q-note">{note}</p></div>'
        )

    def small(text):
        return f'<span class="q-detail">{text}</span>'

    searched = "m on Retrieval: 9 documents, 8 queries, 4 dimensions, cosine."
    return [
        f'<p class="q-conclusion">It loses {conclusion} to exact search.</p>'
        + table(
            "pooling-Retrieval-tested",
            ["option", "setting", "difference", "p"],
            ["pooling", "cls", f"-0.0821{small('[-0.121, -0.050]')}", p],
        )
        + table(
            "ann", ["index", "nDCG"], ["ivf", f"0.6{small('-0.015 [-0.050, +0.009]')}"], searched
        )
        + table("compression", ["dimensions", "float32"], ["384", f"0.600{small('itself')}"])
        + table(
            "prompts-place",
            ["model", "task", "default"],
            ["m", f"Retrieval{small('nDCG@10')}", default],
        )
        + table(
            "prompts-pairs",
            ["A", "B", "task", "A - B"],
            ["m", "bm25", "Retrieval", "+0.101"],
        )
    ]


def board_page():
    board = leaderboard(RECORDS, tier="smoke", comparison=compare(RECORDS, tier="smoke"))
    return page_of(board.conclusion, board.overview())


def test_the_first_table_of_the_leaderboard_agrees_with_the_differences(tmp_path):
    comparison = compare(RECORDS, tier="smoke", baseline="bm25")
    stated, wrong = found(book(tmp_path, compare=whole(comparison), board=board_page()))
    assert wrong == []
    of_board = [each for each in stated if each.where.startswith("runs/board")]
    scores = [each.says.split()[0] for each in of_board if each.about[0] == "mean"]
    assert sorted(scores) == ["0.100", "0.499", "0.600"]
    pairs = {each.about[1:3]: each.says for each in of_board if each.about[0] == "models"}
    assert pairs == dict.fromkeys(
        [("bm25", "m"), ("m", "random"), ("bm25", "random")], "told apart"
    )
    assert [each.says for each in of_board if each.about[0] == "first place"] == ["m", "m"]


@pytest.mark.parametrize(
    ("old", "new", "subject"),
    [
        (">0.60<", ">0.61<", "two decimals of"),
        ("nDCG@10 0.600", "nDCG@10 0.601", "mean of m, Retrieval"),
        ("<strong>m</strong> is first", "<strong>bm25</strong> is first", "first place of"),
    ],
)
def test_a_fault_in_the_first_table_is_found(tmp_path, old, new, subject):
    comparison = compare(RECORDS, tier="smoke", baseline="bm25")
    changed = [text.replace(old, new) for text in board_page()]
    assert changed != board_page()
    _, wrong = found(book(tmp_path, compare=whole(comparison), board=changed))
    assert [each for each in wrong if each.startswith(subject)], wrong


def test_pages_of_studies_agree_with_the_board(tmp_path):
    comparison = compare(RECORDS, tier="smoke", baseline="bm25")
    stated, wrong = found(book(tmp_path, compare=whole(comparison), study=study_page()))
    assert wrong == []
    kinds = {each.about[0] for each in stated if each.where.startswith("runs/study")}
    assert kinds == {"bold", "effect in the conclusion", "mean", "effect"}


@pytest.mark.parametrize(
    ("fault", "subject"),
    [
        ({"conclusion": "-0.016 [-0.050, +0.009]"}, "effect in the conclusion of runs/study"),
        ({"conclusion": "nDCG@10 changes by -0.016."}, "effect in the conclusion of runs/study"),
        ({"p": "0.0100"}, "bold of runs/study, tab-pooling"),
        ({"p": "<strong>0.0600</strong>"}, "bold of runs/study, tab-pooling"),
        ({"default": "0.601"}, "mean of m, Retrieval, nDCG@10"),
    ],
)
def test_a_number_of_a_study_that_disagrees_is_found(tmp_path, fault, subject):
    comparison = compare(RECORDS, tier="smoke", baseline="bm25")
    _, wrong = found(book(tmp_path, compare=whole(comparison), study=study_page(**fault)))
    assert [each for each in wrong if each.startswith(subject)], wrong
    assert len(wrong) == 1

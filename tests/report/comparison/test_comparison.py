"""Models compared on pages and by `qwen3nb compare`: ranks, differences, recommendation, gate."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.html import HOSTILE
from helpers.records import amend, make

from qwen3nb.analysis.calibration.simulate import read_calibration
from qwen3nb.analysis.comparison.alignment import pair_against
from qwen3nb.analysis.comparison.compare import compare_results
from qwen3nb.analysis.comparison.history import trend
from qwen3nb.cli.analyze import REGRESSION
from qwen3nb.cli.main import main
from qwen3nb.report.comparison.candidates import compare_candidates
from qwen3nb.report.comparison.figures import differences_figure, pairs_figure
from qwen3nb.report.comparison.tables import (
    breakdown_table,
    changes_table,
    correlations_table,
    differences_table,
    power_table,
)
from qwen3nb.report.leaderboard.ranking import categories_table, rank_figure, rank_table, standings
from qwen3nb.report.studies.calibration import calibration_table

RNG = np.random.default_rng(3)
BASE = RNG.uniform(0.3, 0.6, 40)
RETRIEVAL, RERANKING = "PyDocsSampleRetrieval", "PyDocsSampleReranking"


class Active(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag in ("script", "img", "a"):
            self.found.append(tag)


def noisy(mean, *, spread=0.02, seed=0):
    return BASE - BASE.mean() + mean + np.random.default_rng(seed).normal(0, spread, len(BASE))


def own(label, mean, *, finished="2026-01-01", identity=None, seed=0):
    """A record as `qwen3nb domain` leaves it: two metrics, texts, the best documents."""
    scores = noisy(mean, seed=seed)
    result = make(
        label, task="mine-1a", scores=scores, finished=finished, metric="MRR@10",
        identity=identity,
    )  # fmt: skip
    amend(result, "task", dataset="mine")
    result.per_query["nDCG@10"] = {q: v / 2 for q, v in result.per_query["MRR@10"].items()}
    result.metrics["nDCG@10"] = result.metrics["MRR@10"]
    queries = list(result.per_query["MRR@10"])
    amend(result, "task", categories={q: "even" if i % 2 else "odd" for i, q in enumerate(queries)})
    result.config["queries"] = {q: f"text of {q}" for q in queries}
    result.config["top"] = {q: [f"{label}-{i}" for i in range(9)] for q in queries}
    return result


def test_ranks_have_intervals_and_ties_share_a_letter():
    results = [
        make(name, task=task, scores=noisy(mean, spread=0.05, seed=number))
        for number, (name, mean) in enumerate([("a", 0.8), ("b", 0.4), ("c", 0.4)])
        for task in (RETRIEVAL, RERANKING)
    ]
    for result in results:
        amend(result, "task", type="Reranking" if result.task.name == RERANKING else "Retrieval")
    boards = standings(results, tier="smoke")
    table = rank_table(boards)
    first, second, third = table.rows
    assert (first[0].text, first[1].text, first[1].detail) == ("a", "1", "1 to 1")
    assert (second[1].detail, third[1].detail) == ("2 to 3", "2 to 3")
    assert (first[4].text, second[4].text, third[4].text) == ("–", "a", "a")
    assert "1 of 2 neighbouring pairs differ" in table.note
    by_type = categories_table(boards)
    assert by_type.columns[2:4] == ("Reranking", "Retrieval")
    assert "turn round (Simpson's paradox): None." in by_type.note
    labels = [tick.get_text() for tick in rank_figure(boards).axes[0].get_yticklabels()]
    assert labels[0] == "a"
    assert set(labels) == {"a", "b", "c"}


def test_an_order_that_turns_round_in_a_type_is_flagged():
    means = {("a", RETRIEVAL): 0.9, ("b", RETRIEVAL): 0.3, ("a", RERANKING): 0.3,
             ("b", RERANKING): 0.5}  # fmt: skip
    results = []
    for (name, task), mean in means.items():
        result = make(name, task=task, scores=noisy(mean, seed=len(results)))
        amend(result, "task", type=task.removeprefix("PyDocsSample"))
        results.append(result)
    note = categories_table(standings(results, tier="smoke")).note
    assert "a is above b over all tasks" in note
    assert "separably below it in Reranking" in note


def test_a_model_without_a_task_is_named_and_not_ranked():
    results = [make(n, task=t) for n in "ab" for t in (RETRIEVAL, RERANKING)]
    note = rank_table(standings([*results, make("c", task=RETRIEVAL)], tier="smoke")).note
    assert "c is not ranked: no score on PyDocsSampleReranking" in note
    alone = standings([make("a")], tier="smoke")
    assert alone is None
    assert rank_figure(alone) is None
    assert "two or more models" in rank_table(alone).note == categories_table(alone).note


def test_pairs_with_a_reference_lose_no_query_to_a_third():
    reference, short = make("r", scores=(0.1, 0.2, 0.3)), make("s", scores=(0.5, 0.5))
    whole, other = make("w", scores=(0.2, 0.3, 0.4)), make("x")
    amend(other, "task", revision="another")
    found = pair_against([whole, short, reference, other], reference)
    assert [(m.systems, len(m.queries)) for m in found.matrices] == [
        (("w", "r"), 3), (("s", "r"), 2),
    ]  # fmt: skip
    assert found.left_out == (f"{RETRIEVAL}: x was run on revision another of the data, the "
                              f"others on {'r' * 12}",)  # fmt: skip
    short.per_query["nDCG@10"] = {"z": 0.1}
    assert "no query is shared" in pair_against([short], reference).left_out[0]


def compared(**more):
    results = [
        make("good", scores=noisy(0.7)),
        make("same", scores=noisy(0.5, seed=4)),
        make("now", scores=noisy(0.5, seed=5)),
    ]
    return compare_results(results, tier="smoke", baseline="now", **more)


def test_differences_with_what_the_queries_can_show():
    found = compared()
    good, same = differences_table(found).rows
    assert (good[0].text, good[2].strong, good[4].text) == ("good", True, "40 / 0 / 0")
    assert (same[0].text, same[2].strong) == ("same", False)
    assert "adjusted by Holm over all 2 comparisons" in differences_table(found).note
    assert len(found.pairs.pairs) == 3
    power = power_table(found).rows
    assert [row[3].text for row in power] == ["no worse", "equivalent"]
    assert not power[1][1].strong
    assert power_table(compared(minimum=0.001)).rows[1][1].strong
    assert "no categories" in breakdown_table(found).note
    changes = changes_table(found, most=2)
    assert len(changes.rows) == 4
    assert len(changes.columns) == 3  # no record keeps its documents


def test_the_baseline_is_the_best_of_those_with_most_tasks():
    results = [make("few", scores=noisy(0.9))] + [
        make(name, task=task, scores=noisy(mean))
        for name, mean in (("all", 0.6), ("worse", 0.5))
        for task in (RETRIEVAL, RERANKING)
    ]
    found = compare_results(results, tier="smoke")
    assert found.baseline == "all"
    assert found.tasks == (RETRIEVAL, RERANKING)
    with pytest.raises(ValueError, match="no result of 'nope'; there are: all, few, worse"):
        compare_results(results, tier="smoke", baseline="nope")


def test_correlations_are_compared_by_pairs_of_texts():
    gold = np.linspace(0, 5, 60)

    def scored(label, spread):
        cosine = gold + np.random.default_rng(1).normal(0, spread, 60)
        result = make(label, task="AuthorSTS", metric="cosine", scores=cosine)
        result.per_query["gold"] = {f"q{i}": float(v) for i, v in enumerate(gold)}
        amend(result, "task", main_metric="Spearman")
        return result

    (row,) = correlations_table(
        compare_results([scored("a", 5.0), scored("b", 0.1)], tier="smoke", baseline="b")
    ).rows
    assert row[0].text == "a"
    assert float(row[1].text) < -0.2
    assert row[2].strong


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_names_stay_text_in_figures(text):
    results = [make(n, task=t, scores=noisy(m)) for n, m in ((text, 0.4), ("now", 0.6))
               for t in (RETRIEVAL, RERANKING)]  # fmt: skip
    wide = compare_results(results, tier="smoke", baseline="now")
    figures = [
        differences_figure(wide), pairs_figure(wide), rank_figure(standings(results, tier="smoke")),
    ]  # fmt: skip
    for figure in figures:
        page = figure._repr_html_()
        assert Active(page).found == []
        assert "aria-label" in page
        assert figure.caption


def test_figures_of_compared_models():
    (axis,) = differences_figure(compared()).axes
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["same", "good"]
    faces = [line.get_markerfacecolor() for line in axis.lines if line.get_marker() == "o"]
    assert [face == "none" for face in faces] == [False, True]
    names, _ = pairs_figure(compared()).axes
    assert names.get_yticklabels()[0].get_text() == "good"
    nothing = compare_results([], tier="smoke")
    assert differences_figure(nothing) is pairs_figure(nothing) is None
    assert "No two models" in differences_table(nothing).note
    assert "Nothing" in power_table(nothing).note


def test_the_recommendation_and_everything_behind_it():
    found = compare_candidates(
        [own("now", 0.4), own("new", 0.6, seed=1), own("same", 0.41, seed=2)], current="now", most=2
    )
    tables = found.tables()
    verdicts = {row[0].text: row[1].text for row in tables["Recommendation"].rows}
    assert verdicts == {"new": "better", "same": "no significant difference"}
    assert {row[1].text for row in tables["By category"].rows} == {"even", "odd"}
    change = tables["Queries that changed most"].rows[0]
    assert change[1].text.startswith("text of q")
    assert change[3].text == "new-0, new-1, new-2, new-3, new-4"
    assert change[4].text == "now-0, now-1, now-2, now-3, now-4"
    assert "Earlier runs" not in tables
    assert found.regressions == ()
    value = json.loads(found.to_json())
    assert value["comparison"]["recommendations"][0]["verdict"] == "better"
    assert len(value["models"]["now"]["per_query"]["MRR@10"]) == len(BASE)
    assert "| new | **better** |" in found.to_markdown()


def test_both_numbers_of_the_rule_are_parameters():
    results = [own("now", 0.4), own("new", 0.43, seed=1)]
    assert compare_candidates(results, current="now").found.recommendations[0].verdict == (
        "no significant difference"
    )
    lower = compare_candidates(results, current="now", threshold=0.01)
    assert lower.found.recommendations[0].verdict == "better"
    strict = compare_candidates(results, current="now", threshold=0.01, alpha=1e-5)
    assert strict.found.recommendations[0].verdict == "no significant difference"


def test_few_queries_say_what_they_would_miss():
    few = [make(n, task="mine", metric="MRR@10", scores=s)
           for n, s in (("now", (1, 0, 0.5, 0.2)), ("new", (0, 1, 0.5, 0.1)))]  # fmt: skip
    for result in few:
        result.per_query["nDCG@10"] = result.per_query["MRR@10"]
        result.metrics["nDCG@10"] = result.metrics["MRR@10"]
    caution = compare_candidates(few, current="now").caution
    assert "more queries would help" in caution
    assert "of 30 queries or fewer are somewhat too narrow" in caution
    assert compare_candidates([own("now", 0.4), own("new", 0.4)], current="now").caution == ""


def test_runs_of_one_label_are_a_trend():
    runs = [
        own("now", 0.5, identity="1" * 64, finished="2026-01-01"),
        own("now", 0.3, identity="2" * 64, finished="2026-02-01", seed=1),
        own("now", 0.3, identity="3" * 64, finished="2026-03-01", seed=1),
        own("once", 0.3),
    ]
    amend(runs[2], "task", revision="another")
    first, second, third = trend(runs, metric="MRR@10", n_resamples=500, seed=0)
    assert (first.change, first.p_value) == (None, None)
    assert second.change == pytest.approx(-0.2, abs=0.02)
    assert second.p_value < 0.05
    assert (third.change, third.p_value) == (None, None)  # the data changed


def test_the_newest_run_worse_than_the_one_before_is_a_regression():
    runs = [
        own("now", 0.5, identity="1" * 64, finished="2026-01-01"),
        own("now", 0.3, identity="2" * 64, finished="2026-02-01", seed=1),
        own("new", 0.3, finished="2026-02-01", seed=1),
    ]
    found = compare_candidates(runs, current="now")
    (reason,) = found.regressions
    assert "now: its newest run is worse than the one before" in reason
    rows = found.tables()["Earlier runs"].rows
    assert [row[0].text for row in rows] == ["now", "now"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"current": "nope"}, "no record of 'nope' .* models that have: new, now, other"),
        ({"current": "now", "models": ["nope"]}, "no record of 'nope' on mine-1a"),
        ({"current": "now", "task": "yours"}, "on 'yours'; models that have: none"),
        ({"current": "other"}, "choose a task: "),
        ({"current": "now", "models": ["now"]}, "no other model than 'now'"),
    ],
)
def test_what_cannot_be_compared_is_refused(given, message):
    another = own("other", 0.2)
    amend(another, "task", name="theirs", dataset="theirs")
    with pytest.raises(ValueError, match=message):
        compare_candidates([own("now", 0.4), own("new", 0.5), own("other", 0.4), another], **given)


def test_ones_own_data_go_before_a_tiers_tasks_and_have_a_short_name():
    mine = [own("now", 0.4), own("new", 0.5)]
    for each in mine:
        amend(each, "task", name="domain-stars-1a2b3c4d", dataset="domain-stars")
    results = [*mine, own("now", 0.4), own("new", 0.5)]
    for task in ("", "stars", "domain-stars", "domain-stars-1a2b3c4d"):
        assert compare_candidates(results, current="now", task=task).task == mine[0].task.name
    assert compare_candidates(results, current="now", task="mine-1a").task == "mine-1a"


def test_a_record_of_other_data_is_left_out_and_named():
    stale = own("stale", 0.5)
    amend(stale, "task", revision="another")
    found = compare_candidates([own("now", 0.4), own("new", 0.5), stale], current="now")
    assert found.notes == ("stale was run on another revision of the data",)


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_texts_stay_texts(text):
    first, second = own("now", 0.4), own(text, 0.6, seed=1)
    for result in (first, second):
        result.config["queries"] = dict.fromkeys(result.config["queries"], text)
        result.config["top"] = {q: [text] for q in result.config["top"]}
        amend(result, "task", categories=dict.fromkeys(result.task.categories, text))
    found = compare_candidates([first, second], current="now")
    pages = [*found.tables().values()]
    wide = compare_results([first, second], tier="smoke", task="mine-1a", baseline="now")
    pages += [differences_table(wide), breakdown_table(wide), changes_table(wide)]
    assert [Active(table.to_html()).found for table in pages] == [[]] * len(pages)
    assert "<script>" not in found.to_markdown()
    assert "](java" not in found.to_markdown()


@pytest.fixture
def saved(home):
    for result in (own("now", 0.4), own("new", 0.6, seed=1)):
        result.save()
    return home


def invoke(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


def test_compare_from_the_command_line(saved, tmp_path):
    done = invoke(
        "compare", "--current", "now", "--json", tmp_path / "c.json", "--markdown",
        tmp_path / "c.md", "--gate",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "better" in done.output
    assert json.loads((tmp_path / "c.json").read_text())["task"] == "mine-1a"
    assert (tmp_path / "c.md").read_text().startswith("# mine-1a: models compared with now")
    done = invoke("compare", "--current", "now", "--json", "-")
    assert json.loads(done.stdout)["schema"] == "qwen3nb.comparison/1"


def test_the_gate_fails_on_a_regression_only(saved):
    done = invoke("compare", "--current", "new", "--gate")
    assert done.exit_code == REGRESSION
    assert "regression: now: worse: MRR@10 differs by -0.2" in done.stderr
    assert invoke("compare", "--current", "new").exit_code == 0
    assert invoke("compare", "--current", "new", "--gate", "--threshold", "0.5").exit_code == 0


def test_the_gate_never_passes_on_nothing(saved):
    done = invoke("compare", "--current", "gone", "--gate")
    assert done.exit_code == 1
    assert "no record of 'gone'" in done.output
    done = invoke("compare", "--current", "now", "--results", "nowhere", "--gate")
    assert done.exit_code == 1
    assert "no such folder" in done.output


def test_the_bench_of_statistics(saved):
    done = invoke(
        "bench", "statistics", "--systems", 3, "--tasks", 1, "--queries", 50,
        "--resamples", 200, "--loop-pairs", 3,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "all pairs from one set of draws" in done.output


def test_stored_simulations_as_tables():
    shares = read_calibration()
    table = calibration_table(shares, kind="coverage")
    heads = [head for head in table.columns if head.startswith("n = ")]
    assert heads == ["n = 10", "n = 30", "n = 100", "n = 300", "n = 1000"]
    # The page says that 30 queries or fewer are too few for an interval, and 300 are not.
    assert {cell.detail for row in table.rows for cell in row[1:3]} == {"too bold"}
    assert {cell.detail for row in table.rows for cell in row[4:]} == {"holds"}
    false = calibration_table(shares, kind="false positives")
    assert not any(cell.strong for row in false.rows for cell in row)
    seeds = calibration_table(shares, kind="coverage", over="seeds")
    assert seeds.columns[1].startswith("1 x 300")
    assert calibration_table([], kind="power").note == "Not simulated."

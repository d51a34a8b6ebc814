"""Candidates against the model in use: recommendation, report, gate."""

import json
import re

import pytest
import scipy.stats
from helpers.handbook import example
from helpers.records import BASE, amend, make, noisy, own, state

from qwen3nb.analysis.stats import paired_tests
from qwen3nb.answers import candidates
from qwen3nb.answers.candidates import compare_candidates
from qwen3nb.answers.comparison import compare
from qwen3nb.cli.commands.records import REGRESSION


def test_the_recommendation_and_everything_behind_it():
    records = [own("now", 0.4), own("new", 0.6, seed=1), own("same", 0.41, seed=2)]
    records[0].top["q0"] = []
    state(records[0], seconds_per_query=0.001)
    state(records[2], top=None)
    stale = own("stale", 0.5)
    amend(stale, "task", revision="another")
    report = compare_candidates([*records, stale], current="now", most=40, alpha=0.04, seed=3)
    assert report.left_out == ("stale was run on another revision of the data",)
    tables = report.tables()
    verdicts = {row[0].text: row[1].text for row in tables["Recommendation"].rows}
    assert verdicts == {"new": "better", "same": "not shown"}
    assert {row[1].text for row in tables["By category"].rows} == {"even", "odd"}
    times = [row[-1].text for row in tables["Models"].rows]
    assert ["1.0 ms per query" in each for each in times] == [True, False, False]
    changes = tables["Queries that changed most"].rows
    tops = {(row[0].text, row[1].text): tuple(cell.text for cell in row[3:]) for row in changes}
    lists = {name: ", ".join(f"{name}-{i}" for i in range(5)) for name in ("new", "now")}
    assert tops["new", "text of q1"] == (lists["new"], lists["now"])
    assert tops["same", "text of q0"] == ("not kept", "none")
    assert "Over time" not in tables
    assert report.regressions == ()
    assert "| new | **better** |" in report.to_markdown()
    value = json.loads(report.to_json(), parse_constant=pytest.fail)
    assert value["comparison"]["recommendations"][0]["verdict"] == "better"
    assert len(value["models"]["now"]["per_query"]["MRR@10"]) == len(BASE)
    how = {
        "alpha": 0.04,
        "minimum": 0.05,
        "draws": 10_000,
        "level": 0.95,
        "seed": 3,
        "clusters": True,
    }
    assert value["procedure"] == {**how, "correction": "max-t"}
    assert value["queries"]["q1"] == {"text": "text of q1", "category": "even"}
    assert not {"top", "queries"} & value["models"]["new"]["settings"].keys()


def test_what_is_taken_is_shown_to_be_better_and_where_it_is_worse_is_stated():
    """`wild` gains most in the mean, by a few queries; `solid` gains a little on every query."""
    now = own("now", 0.4)
    solid, wild = own("solid", 0.56, seed=1), own("wild", 0.4, seed=2)
    wild.per_query["MRR@10"] = {
        query: value + 1.5 * (number < 5)
        for number, (query, value) in enumerate(now.per_query["MRR@10"].items())
    }
    solid.per_query["nDCG@10"] = {q: v / 4 for q, v in now.per_query["nDCG@10"].items()}
    report = compare_candidates([now, solid, wild], current="now")
    gains = {each.first: each.difference for each in report.differences}
    assert gains["wild"] > gains["solid"] > 0.05
    assert [each.verdict for each in report.recommendations] == ["better", "no worse"]
    assert report.headline.startswith("Take solid instead of now: ")
    assert "The metrics disagree: it is worse by nDCG@10 0.050 against 0.199" in report.headline


def test_the_further_test_of_the_handbook_is_a_column_and_in_the_report(monkeypatch):
    text = example("def sign_test")
    tests = dict(paired_tests.FURTHER_TESTS)
    monkeypatch.setattr(candidates, "FURTHER_TESTS", tests)
    exec(text, {**vars(paired_tests), "FURTHER_TESTS": tests})  # noqa: S102 - our own text
    report = compare_candidates([own("now", 0.4), own("new", 0.41, seed=1)], current="now")
    (difference,) = report.differences
    p_value = scipy.stats.binomtest(difference.won, difference.won + difference.lost).pvalue
    table = report.tables()["Differences"]
    column = table.columns.index("sign test\np")
    assert table.rows[0][column].text == f"{p_value:.4f}"
    assert "t-test, sign test: paired, not corrected." in table.note
    written = json.loads(report.to_json())["comparison"]["differences"][0]
    assert written["further_p_values"]["sign test"] == pytest.approx(p_value)
    assert written["further_p_values"]["t-test"] == written["t_p_value"]


def test_few_queries_say_what_they_cannot_show():
    records = [make("now", (1, 0), task="mine"), make("new", (0, 0.5), task="mine")]
    report = compare_candidates(records, current="now", tested=["nDCG@10"])
    assert "9 queries or" in report.caution
    assert compare_candidates([own("now", 0.4), own("new", 0.6)], current="now").caution == ""


def test_the_newest_run_worse_than_the_one_before_is_a_regression():
    runs = [
        own("now", 0.5, identity="1" * 64, finished="2026-01-01"),
        own("now", 0.3, identity="2" * 64, finished="2026-02-01", seed=1),
        own("new", 0.3, finished="2026-02-01", seed=1),
    ]
    report = compare_candidates(runs, current="now")
    (reason,) = report.regressions
    assert "now: its newest run is worse" in reason
    rows = report.tables()["Over time"].rows
    assert [row[0].text for row in rows] == ["now", "now"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"current": "nope"}, "no record of 'nope'; available: new, now, other"),
        ({"current": "now", "models": ["nope"]}, "no record of 'nope' on mine-1a"),
        ({"current": "now", "task": "yours"}, "on 'yours'; available: no model"),
        ({"current": "other"}, "choose a task: "),
        ({"current": "now", "models": ["now"]}, "compare with 'now' on "),
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


@pytest.fixture
def saved(home):
    for result in (own("now", 0.4), own("new", 0.6, seed=1)):
        result.save()
    return home


def test_compare_from_the_command_line(cli, saved, tmp_path):
    files = ("--out", tmp_path / "c.json", "--out", tmp_path / "c.md")
    done = cli("compare", "--baseline", "now", *files, "--gate")
    assert done.exit_code == 0, done.output
    assert "better" in done.output
    assert json.loads((tmp_path / "c.json").read_text())["task"] == "mine-1a"
    assert (tmp_path / "c.md").read_text().startswith("# Take new instead of now\n")
    verdict, reason = done.stdout.splitlines()[:2]
    assert verdict.startswith("Take new instead of now. new has MRR@10 0.")
    assert reason.startswith("- MRR@10 0.")
    done = cli("compare", "--baseline", "now")
    assert done.stdout.endswith("writes every metric, category, query and earlier run\n")
    assert re.search(r"\[\+0\.\d{3}, \+0\.\d{3}\]", done.stdout)  # on one line
    done = cli("compare", "--baseline", "now", "--json")
    assert json.loads(done.stdout)["schema"] == "qwen3nb.comparison/1"


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("new", "--gate"), REGRESSION, "regression: now: worse: MRR@10 differs by -0.2"),
        (("new",), 0, ""),
        (("new", "--gate", "--threshold", "0.5"), 0, ""),
        (("gone", "--gate"), 1, "no record of 'gone'"),
        (("now", "--results", "nowhere", "--gate"), 1, "no such folder"),
    ],
)
def test_the_gate_fails_on_a_regression_and_never_passes_on_nothing(
    cli, saved, options, code, words
):
    done = cli("compare", "--baseline", *options)
    assert (done.exit_code, words in done.output) == (code, True)


def test_the_model_in_use_is_one_of_several_of_its_label():
    exact = own("now", 0.5, identity="1" * 64)
    fast = own("now", 0.4, identity="2" * 64, finished="2026-06-01")
    for record, dtype in ((exact, "float32"), (fast, "bfloat16")):
        amend(record, "model", settings={"dtype": dtype})
    for current, other in (("now (float32)", "bfloat16"), ("now (bfloat16)", "float32")):
        report = compare_candidates([exact, fast], current=current)
        assert report.current == current
        assert {each.first for each in report.comparison.differences} == {f"now ({other})"}
    assert compare_candidates([exact, fast], current="now").current == "now (bfloat16)"
    with pytest.raises(ValueError, match=r"'new'.*available: now \(bfloat16\), now \(float32\)"):
        compare_candidates([exact, fast], current="new")


FAMILY = (("now", 0.5), ("new", 0.6), ("random", 0.1))


def test_the_main_metric_of_the_task_decides_unless_another_is_named():
    """As on all pages; one metric may rise where the other falls."""
    records = [make(name, scores=noisy(mean)) for name, mean in (("now", 0.5), ("new", 0.6))]
    for result, mean in zip(records, (0.6, 0.5), strict=True):
        queries = list(result.per_query["nDCG@10"])
        result.per_query["MRR@10"] = dict(zip(queries, noisy(mean).tolist(), strict=True))
        result.metrics["MRR@10"] = result.metrics["nDCG@10"]
    by_main = compare_candidates(records, current="now")
    assert by_main.tested == ("nDCG@10", "MRR@10")
    assert by_main.decision.use == "new"
    assert compare_candidates(records, current="now", tested=["MRR@10"]).decision.use == "now"
    page = compare(records, baseline="now").differences[0]
    (difference,) = by_main.differences
    assert (difference.interval, difference.p_value) == (page.interval, page.p_value)


def test_a_corrected_p_value_is_given_with_its_family():
    records = [make(name, scores=noisy(mean, seed=i)) for i, (name, mean) in enumerate(FAMILY)]
    whole = compare_candidates(records, current="now")
    assert "corrected p <" in whole.headline
    assert "step-down MaxT over all 3 pairs of the models compared" in whole.table().method
    alone = compare_candidates(records, current="now", models=["new"])
    assert alone.differences[0].family == 1  # the pair that was asked for
    assert "corrected" not in alone.headline

"""A plan: the queries that it asks for show the margin, and a comparison says where it deviates."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from helpers.records import make
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.analysis.comparison.plan import (
    STATED,
    Plan,
    deviations,
    make_plan,
    plan_files,
    plan_words,
    read_plan,
    write_plan,
)
from qwen3nb.analysis.stats.paired_tests import power_of_rare_wins
from qwen3nb.analysis.stats.resampling import max_t_p_values
from qwen3nb.answers.comparison import compare
from qwen3nb.datasets.rows import DataError
from qwen3nb.metrics.intervals import difference_intervals
from qwen3nb.records.record import RunCost

PLAN = Plan(baseline="b", models=("a",), tasks=("T",), margin=0.02)


def test_the_number_of_queries_is_that_of_statsmodels():
    solve = pytest.importorskip("statsmodels.stats.power").TTestPower().solve_power
    needed = solve(effect_size=0.02 / 0.3, power=0.8, alpha=0.05)
    assert PLAN.needed(0.3) == int(np.ceil(needed)) == 1768
    family = Plan(baseline="b", models=("a", "c", "d"), tasks=("T",), margin=0.02)
    needed = solve(effect_size=0.02 / 0.3, power=0.8, alpha=0.05 / 6)
    assert family.needed(0.3) == int(np.ceil(needed))


def simulated_power(differences, *, alpha):
    """The share of samples (n, samples) that are significant, by the test and the interval."""
    columns = np.column_stack([differences, np.zeros(len(differences))])
    count = differences.shape[1]
    pairs = [(column, count) for column in range(count)]
    p_values, _ = max_t_p_values(columns, pairs, n_resamples=2000, seed=1)
    lower = np.array(difference_intervals(differences.T, level=0.95))[:, 0]
    return np.mean((np.array(p_values) < alpha) & (lower > 0))


@pytest.mark.integration  # 900 permutation tests
@pytest.mark.parametrize(
    ("largest", "chance", "by_t_test"),
    [("beta", 1 / 8, 89), ("equal", 1 / 12, 89), ("one", 0.05, 151)],
)
def test_the_planned_power_is_reached_where_few_queries_are_won(largest, chance, by_t_test):
    generator = np.random.default_rng(4)

    def draw(n, samples):
        sizes = {
            "beta": generator.beta(1, 2, (n, samples)),
            "equal": np.full((n, samples), 0.5),
            "one": np.ones((n, samples)),
        }[largest]
        return np.where(generator.random((n, samples)) < chance, sizes, 0.0)

    large = draw(2000, 100)
    margin, deviation = large.mean(), large.std()
    plan = replace(PLAN, margin=margin)
    needed = plan.needed(deviation)
    assert needed > by_t_test
    assert 0.74 < simulated_power(draw(needed, 300), alpha=0.05) < 0.93


def is_shown(rows):
    """Whether samples of wins and ties show a difference, by both tests at once."""
    lower = np.array(difference_intervals(rows, level=0.95))[:, 0]
    p_values = 2.0 / 2.0 ** (rows > 0).sum(axis=1)  # all wins, or all of them turned
    return (p_values < 0.05) & (lower > 0)


@pytest.mark.parametrize(
    ("effect", "deviation", "n"), [(0.5, 0.5, 10), (0.05, 0.2, 80), (0.02, 0.1, 100)]
)
def test_the_power_for_equal_wins_by_hand(effect, deviation, n):
    """In the first, ten queries of which k ~ B(10, 0.5) are won by 1: p < 0.05 from k = 6 on."""
    size = (deviation**2 + effect**2) / effect
    wins = np.arange(n + 1)
    rows = np.array([[size] * k + [0.0] * (n - k) for k in wins])
    by_hand = scipy.stats.binom.pmf(wins, n, effect / size)[is_shown(rows)].sum()
    assert power_of_rare_wins(effect, deviation=deviation, n=n) == pytest.approx(by_hand)
    assert 0 < by_hand < 0.4


@pytest.mark.parametrize(("effect", "deviation", "n"), [(0.05, 0.05, 20), (0.1, 0.05, 10)])
def test_the_power_for_unequal_wins_is_that_of_simulated_samples(effect, deviation, n):
    """Where wins of unequal sizes are shown less often than equal ones."""
    generator = np.random.default_rng(4)
    largest = 2 * (deviation**2 + effect**2) / effect
    is_won = generator.random((6000, n)) < 3 * effect / largest
    rows = np.where(is_won, generator.triangular(0, 0, largest, (6000, n)), 0.0)
    share = is_shown(rows[is_won.any(axis=1)]).sum() / 6000
    assert power_of_rare_wins(effect, deviation=deviation, n=n) == pytest.approx(share, abs=0.04)


@settings(max_examples=12, deadline=None)
@given(st.floats(0.05, 0.5), st.floats(0.01, 0.1))
def test_fewer_queries_are_too_few(deviation, margin):
    plan = replace(PLAN, margin=margin)
    needed = plan.needed(deviation)
    assert plan.power_with(margin, deviation, needed) >= 0.8
    assert needed == 2 or plan.power_with(margin, deviation, needed - 1) < 0.8
    detectable = plan.detectable(deviation, needed)
    assert plan.power_with(detectable, deviation, needed) >= 0.8
    # The power of rare wins has steps: the next thousandth may have less than the margin itself.
    assert detectable <= 1.1 * margin + 0.001


def test_the_deviation_is_that_of_the_planned_models_or_of_others_on_the_task():
    scores = np.random.default_rng(2).random((4, 50))
    records = [make(name, row, task="T") for name, row in zip("bacd", scores, strict=True)]
    plan, (task,) = make_plan(records, PLAN)
    assert task.deviation == pytest.approx((scores[1] - scores[0]).std(ddof=1))
    assert (task.there, task.enough) == (50, False)
    assert task.source == plan.sources["T"] == "records of a, b on 50 queries"
    assert task.measured == plan.measured["T"] == ("a", "b")
    assert plan.queries == {"T": PLAN.needed(task.deviation)}
    _, (others,) = make_plan(records[2:], replace(PLAN, baseline="bm25", models=("random",)))
    assert others.deviation == pytest.approx((scores[3] - scores[2]).std(ddof=1))
    assert others.source == "records of other models, c, d, on 50 queries"
    assert others.measured == ()
    _, (stated,) = make_plan(records, replace(PLAN, deviation=0.1))
    assert (stated.deviation, stated.source) == (0.1, STATED)
    unknown = replace(PLAN, baseline="bm25", models=("random",), tasks=("SciFact",))
    assert make_plan([], unknown)[1][0].deviation is None


def test_unknown_models_and_tasks_are_refused(tmp_path):
    records = [make(name, np.linspace(0, 1, 9), task="T") for name in "ab"]
    with pytest.raises(ValueError, match=r"no model 'encodr'.*Models with records: a, b"):
        make_plan(records, replace(PLAN, models=("a", "encodr")))
    with pytest.raises(ValueError, match="no model 'typo'"):
        make_plan(records, replace(PLAN, baseline="typo"))
    with pytest.raises(ValueError, match="b is the baseline"):
        make_plan(records, replace(PLAN, models=("b",)))
    with pytest.raises(ValueError, match="SciFacct"):
        make_plan(records, replace(PLAN, tasks=("T", "SciFacct")))
    # Models that can be evaluated have the labels that their records will have.
    made, _ = make_plan(records, replace(PLAN, models=("intfloat/e5-small-v2", "bm25")))
    assert made.models == ("e5-small-v2", "bm25")


def test_seeds_of_one_model_are_not_a_pair():
    first, second, other = np.random.default_rng(3).random((3, 50))
    seeds = [make("a", row, task="T", seed=n) for n, row in enumerate((first, second))]
    assert make_plan(seeds, replace(PLAN, baseline="bm25"))[1][0].deviation is None
    _, (task,) = make_plan([*seeds, make("b", other, task="T")], PLAN)
    assert task.deviation == max((row - other).std(ddof=1) for row in (first, second))


def test_a_plan_is_read_as_it_was_written_and_a_damaged_one_is_refused(tmp_path):
    plan = Plan(
        baseline='b "x"',
        models=("a\\b",),
        tasks=("T", "U"),
        margin=0.02,
        queries={"T": 7},
        sources={"T": 'records of "a"'},
        measured={"T": ("a",)},
        made="2026-01-02T09:43:00+00:00",
    )
    file = write_plan(plan, tmp_path / "plan-1.toml")
    assert read_plan(file) == plan
    text = file.read_text()
    for damage in ("margin = 0.02", "margni = 0.02"), ("0.02", "'x'"), ("= 0.02", "0.02"):
        file.write_text(text.replace(*damage))
        with pytest.raises(
            DataError,
            match=r"plan-1\.toml: (margin: is missing|margin: expected .*; got 'x'|not TOML)",
        ):
            read_plan(file)


def test_plans_are_numbered_and_never_replaced(home):
    first, second = (write_plan(replace(PLAN, margin=margin)) for margin in (0.02, 0.03))
    assert [first.name, second.name] == ["plan-1.toml", "plan-2.toml"]
    with pytest.raises(DataError, match="exists, and plans are never replaced"):
        write_plan(PLAN, first)
    assert read_plan(first).margin == 0.02
    (home / "plan.toml").write_text("of an earlier version")
    for number in (9, 10):
        write_plan(PLAN, home / f"plan-{number}.toml")
    assert write_plan(PLAN).name == "plan-11.toml"
    names = ["plan.toml", *(f"plan-{number}.toml" for number in (1, 2, 9, 10, 11))]
    assert [file.name for file in plan_files()] == names


def test_a_comparison_says_what_it_does_otherwise_than_planned():
    scores = {"T": np.linspace(0, 1, 30), "U": np.linspace(0, 0.5, 30)}
    records = [make(n, row, task=t) for n in "abc" for t, row in scores.items()]
    plan = Plan(
        baseline="b",
        models=("a", "z"),
        tasks=("T", "V"),
        margin=0.02,
        alpha=0.01,
        correction="holm",
        queries={"T": 40},
    )
    lines = deviations(plan, compare(records, baseline="c", margin=0.05, correction="none"))
    assert lines == [
        "alpha: 0.01 planned, 0.05 used",
        "margin: 0.02 planned, 0.05 used",
        "correction: holm planned, none used",
        "baseline: b planned, c used",
        "models missing: z",
        "models not planned, which widen the family: c",
        "tasks missing: V",
        "tasks not planned: U",
        "tasks with fewer queries than planned: T (30 instead of 40)",
    ]
    many = replace(plan, tasks=tuple("TUVWXYZ"), queries=dict.fromkeys("TUWXYZ", 10))
    lines = deviations(many, compare(records, baseline="b", margin=0.02, correction="none"))
    assert "tasks missing: V, W, X and 2 more" in lines


MADE = "2026-01-02T09:43:00+00:00"
AFTER, BEFORE = "2026-01-02T10:00:00+00:00", "2026-01-02T09:30:00+00:00"
SAME = Plan(baseline="b", models=("a",), tasks=("T",), margin=0.05, correction="holm", made=MADE)


def records_of(labels, *, finished=AFTER, task="T", **fields):
    return [make(n, np.linspace(0, 1, 30), task=task, finished=finished, **fields) for n in labels]


def words(records, folder, **options):
    options = {"baseline": "b", "correction": "holm", **options}
    return plan_words(compare(records, **options), folder)


@pytest.fixture
def planned(tmp_path):
    write_plan(replace(SAME, sources={"T": STATED}), tmp_path / "plan-1.toml")
    return tmp_path


def test_a_comparison_says_whether_it_is_as_planned(planned, tmp_path):
    assert words(records_of("ab"), planned) == (
        "As planned in plan-1.toml (made 2026-01-02 09:43 UTC, before the measurement). The plan's "
        "deviation: stated."
    )
    otherwise = words(records_of("abc"), planned, correction="none")
    assert otherwise.startswith("Not as planned in plan-1.toml (made 2026-01-02 09:43 UTC, before")
    assert " Correction: holm planned, none used. Models not planned" in otherwise
    assert all(len(sentence.split()) <= 25 for sentence in otherwise.split(". "))
    assert words(records_of("ab"), tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("records", "of"),
    [
        (records_of("ab", finished=BEFORE), "a on T, b on T"),
        (records_of("a", finished=BEFORE) + records_of("b"), "a on T"),
        (records_of("ab", finished=MADE), "a on T, b on T"),
        # Finished after the plan was made, but begun before.
        (records_of("ab", cost=RunCost(1200.0)), "a on T, b on T"),
        # In other time zones: 09:30 and 10:30 UTC; without one, UTC.
        (records_of("a", finished="2026-01-02T11:30:00+02:00") + records_of("b"), "a on T"),
        (records_of("ab", finished="2026-01-02T05:30:00-05:00"), ""),
        (records_of("ab", finished="2026-01-02"), "a on T, b on T"),
        (records_of("ab", finished=""), "a on T, b on T"),
    ],
)
def test_a_plan_counts_only_if_it_is_older_than_all_that_it_covers(records, of, planned):
    note = words(records, planned)
    if not of:
        assert note.startswith("As planned in plan-1.toml")
        return
    assert note == (
        "plan-1.toml does not count: it was made 2026-01-02 09:43 UTC, not before the "
        f"measurement of {of}."
    )


def test_a_plan_is_silent_about_other_models_and_tasks(planned):
    assert words(records_of("bc"), planned) == ""
    assert words(records_of("ac"), planned, baseline="c") == ""
    assert words(records_of("ab", task="U"), planned) == ""
    # The baseline was measured on another task only.
    apart = records_of("ac") + records_of("bc", task="U")
    assert words(apart, planned, baseline="c") == ""


@pytest.mark.parametrize(
    ("text", "changed", "why"),
    [
        ("2026-01-02T09:43", "2026-01-01T09:43", "was changed after it was made"),
        ("margin = 0.05", "margin = 0.01", "was changed after it was made"),
        ('T = "stated"', 'T = "other"', "was changed after it was made"),
        ('models = ["a"]', 'models = ["z"]', "was changed after it was made"),
        ('tasks = ["T"]', 'tasks = ["U"]', "was changed after it was made"),
        ('baseline = "b"', 'baseline = "z"', "was changed after it was made"),
        ("digest", "# digest", "has no digest"),
        ('made = "', 'seeds = 5\nprompts = 15\nmade = "', "average over 5 seeds and 15 prompts"),
    ],
)
def test_a_plan_that_was_edited_does_not_count(text, changed, why, planned):
    file = planned / "plan-1.toml"
    content = file.read_text().replace('"T" =', "T =")
    assert text in content
    file.write_text(content)
    assert words(records_of("ab"), planned).startswith("As planned")  # another layout
    file.write_text(content.replace(text, changed))
    note = words(records_of("ab"), planned)
    assert note.startswith("plan-1.toml does not count: it ")
    assert why in note


def test_a_plan_of_an_earlier_version_is_read_and_does_not_count(tmp_path):
    (tmp_path / "plan.toml").write_text(
        'baseline = "b"\nmodels = ["a"]\ntasks = ["T"]\nmargin = 0.05\nalpha = 0.05\n'
        'power = 0.8\ncorrection = "max-t"\nseeds = 1\nprompts = 1\nmade = "2026-01-01"\n'
        "[queries]\nT = 20\n"
    )
    note = words(records_of("ab"), tmp_path)
    assert note.startswith("plan.toml does not count: it has no digest")


def test_of_several_plans_the_last_before_the_measurement_applies(planned):
    later = [
        (2, "2026-01-02T09:50:00+00:00", SAME),
        (3, "2026-01-02T10:30:00+00:00", replace(SAME, margin=0.01)),
        (5, "2026-01-02T09:55:00+00:00", replace(SAME, models=("z",))),
    ]
    for number, made, plan in later:
        write_plan(replace(plan, made=made), planned / f"plan-{number}.toml")
    note = words(records_of("ab"), planned)
    assert note.startswith("As planned in plan-2.toml (made 2026-01-02 09:50 UTC")
    assert "Replaced by a later plan: plan-1.toml." in note
    assert "plan-3.toml does not count: it was made 2026-01-02 10:30 UTC" in note
    assert "plan-4.toml is missing." in note
    assert "plan-5" not in note


def test_what_was_measured_before_or_with_more_seeds_is_a_deviation(tmp_path):
    write_plan(replace(SAME, measured={"T": ("a",)}), tmp_path / "plan-1.toml")
    again = words(records_of("ab"), tmp_path)  # measured once more after the plan
    assert "Measured before the plan, on the same tasks: a on T" in again
    seeds = records_of("ab") + records_of("a", seed=1)
    assert "Pairs tested on T: 1 planned, 3 used" in words(seeds, tmp_path)


def test_another_metric_than_the_main_one_is_a_deviation(planned):
    records = records_of("ab")
    for record in records:
        record.per_query["MRR@10"] = dict(record.per_query["nDCG@10"])
    note = words(records, planned, metric="MRR@10")
    assert "Metric of T: nDCG@10 planned, MRR@10 used" in note

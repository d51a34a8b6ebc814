"""The stored simulations of tests and intervals, and the page that shows them."""

from pathlib import Path

from qwen3nb.analysis.calibration import read_calibration
from qwen3nb.metrics.intervals import INTERVALS

SHARES = read_calibration()
SHOWN = INTERVALS["widened"]
USUAL = ("search", "normal")
SYMMETRIC = (*USUAL, "rare wins", "accuracy", "PyDocs")  # under the null hypothesis of the test
ROWS = {  # of the methods page
    "search": "difference of nDCG@10, 40 % tied",
    "rare wins": "difference, one of eight queries won, none lost",
    "accuracy": "difference of accuracy, 15 % won, 5 % lost",
    "large wins": "difference, 5 % won by 1, the others tied",
    "noisy wins": "the same, with noise of 0.01",
}
SCORES = {
    "nDCG@10": "nDCG@10",
    "hard nDCG@10": "hard nDCG@10",
    "MRR@10": "MRR@10",
    "AP": "average precision",
    "accuracy .9": "accuracy 0.9",
    "tied": "0.5, but 5 % at 1",
    "nearly equal": "the same, with noise of 0.01",
    "two kinds": "0.9, but 10 % at 0.1",
    "skewed": "skewed, beta(0.5, 5)",
}


def of(method, *, process="search", n, shares=SHARES):
    (share,) = (s for s in shares if (s.method, s.process, s.n) == (method, process, n))
    return share


def test_the_intervals_that_are_shown_hold_their_level_from_ten_queries_on():
    """The percentile bootstrap does not."""
    shown = [
        share
        for share in SHARES
        if (share.kind == "coverage" and share.method == SHOWN)
        or (share.kind == "score coverage" and share.method in (SHOWN, "Fisher's z"))
    ]
    assert {*SCORES, "Spearman", *ROWS, "normal", "PyDocs"} == {share.process for share in shown}
    assert {"10", "20", "50", "200"} <= {share.n for share in shown}
    assert min(share.share for share in shown) >= 0.94
    covered = [s for s in shown if s.kind == "coverage" and s.process in USUAL]
    assert max(s.share for s in covered) <= 0.965  # no wider than they must be
    bold = [s for s in SHARES if s.method == "percentile bootstrap" and s.n == "20"]
    assert {s.process for s in bold if s.verdict != "anti-conservative"} == {"accuracy", "Spearman"}


def test_the_test_holds_its_level_and_equivalence_is_never_said_too_often():
    test = [s for s in SHARES if (s.kind, s.method) == ("false positives", "permutation test")]
    assert max(s.share for s in test if s.process in SYMMETRIC) <= 0.06
    assert (
        of("permutation test", process="large wins", n="10", shares=test).share > 0.5
    )  # published
    called = [s for s in SHARES if s.kind == "false equivalence"]
    assert {s.n for s in called} == {"3", "5", "10", "20", "50", "200"}
    assert {s.process for s in called} == {*ROWS, "normal"}
    assert max(s.share for s in called if s.method == SHOWN) <= 0.05
    assert max(s.share for s in called if s.method == "two one-sided t-tests") > 0.5


def test_the_table_of_the_methods_page_is_the_stored_one():
    """Each row, number by number, as the page prints them."""
    page = (Path(__file__).parents[2] / "book" / "methods.md").read_text()
    shares = [s for s in SHARES if "coverage" in s.kind]
    for process, title in (ROWS | SCORES).items():
        for method in (SHOWN, "Student's", "percentile bootstrap"):
            sizes = ("10", "20", "50", "200")
            held = [of(method, process=process, n=n, shares=shares).share for n in sizes]
            cells = " | ".join(f"{share:.3f}" for share in held)
            name = f"**{method}**" if method == SHOWN else method
            assert f"| {title} | {name} | {cells} |" in page


def test_a_few_seeds_hold_their_level_and_one_does_not():
    stored = [share for share in SHARES if " x " in share.n]
    several = [share for share in stored if not share.n.startswith("1 ")]
    assert {share.n for share in several} == {f"{seeds} x 300" for seeds in (2, 3, 5, 9)}
    assert {share.verdict for share in several} <= {"holds", "conservative"}
    assert [share.verdict for share in stored if share not in several] == ["anti-conservative"] * 2


def test_max_t_keeps_the_familywise_error_and_finds_more_than_holm():
    of = {(s.kind, s.process, s.n, s.method): s.share for s in SHARES}
    errors = {key: share for key, share in of.items() if key[0] == "family-wise error"}
    assert len(errors) == 7 * 3 * 2 * 3
    assert max(share for key, share in errors.items() if key[-1] == "MaxT") <= 0.06
    for process in ("normal", "correlated", "twins"):
        for n in ("50", "200"):
            assert errors["family-wise error", f"{process}, complete", n, "MaxT"] >= 0.04
    for (kind, process, n, method), share in of.items():
        if (kind, method) == ("family power", "MaxT"):
            holm = of[kind, process, n, "Holm"]
            assert share >= holm - 0.02
            assert share > holm or not process.startswith(("correlated", "twins"))


def test_wilcoxon_rejects_where_only_the_mean_difference_is_0():
    rejected = {
        (s.process, s.n): s.share
        for s in SHARES
        if (s.kind, s.method) == ("false positives", "Wilcoxon")
    }
    assert max(share for (process, _), share in rejected.items() if process in SYMMETRIC) <= 0.06
    assert rejected["large wins", "1000"] > 0.99


def condition(kind, method, process):
    """Shares by size."""
    found = [s for s in SHARES if (s.kind, s.method, s.process) == (kind, method, process)]
    return {int(share.n): share.share for share in found}


def test_where_assumptions_fail_the_methods_of_the_pages_hold_and_the_usual_ones_do_not():
    for process in ("a sixth in one cluster", "half in one cluster"):
        shown = condition("condition coverage", "Bell and McCaffrey (shown)", process)
        assert min(shown.values()) >= 0.94
        usual = condition("condition coverage", "usual cluster-robust", process)
        assert usual.keys() == shown.keys()
        assert all(usual[n] <= share for n, share in shown.items())
    assert min(usual.values()) < 0.75
    prompts = condition("condition coverage", "Newcombe (shown)", "P(A > B) = .983")
    assert min(prompts.values()) >= 0.94
    assert condition("condition coverage", "bootstrap", "P(A > B) = .983")[3] < 0.2
    tied = condition(
        "condition coverage", "Student's over tasks, where shown", "half of the tasks tie"
    )
    assert min(tied.values()) >= 0.93
    for method, process in (
        ("plan", "one in eight wins"),
        ("queries needed for equivalence", "like a sample of 40"),
    ):
        (power,) = condition("condition power", method, process).values()
        assert 0.76 <= power <= 0.86
    errors = condition("condition errors", "MaxT or Holm (shown)", "skewed scores")
    of_max_t = condition("condition errors", "MaxT", "skewed scores")
    assert all(errors[n] <= of_max_t[n] for n in errors)
    assert max(errors.values()) <= 0.12  # of Holm's method, where scores are as skewed as these


def test_the_methods_page_states_the_errors_of_skewed_families():
    page = (Path(__file__).parents[2] / "book" / "methods.md").read_text()
    for method, sizes in (("MaxT", (10, 20, 50)), ("Holm", (10, 20, 50))):
        shares = condition("condition errors", method, "skewed scores")
        first, second, third = (f"{100 * shares[n]:.0f}" for n in sizes)
        assert f"in {first}, {second} and {third} %" in page

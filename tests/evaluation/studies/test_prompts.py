"""Prompts as a factor: sets of them, their records, and what they change."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import REPOSITORY
from helpers.notebooks import execute_here
from helpers.records import make

from qwen3nb import paths
from qwen3nb.analysis.comparison.prompt_effects import (
    PromptScores,
    place,
    prompt_pairs,
    prompt_variance,
    read_prompt_scores,
    score_interval,
    superiority,
)
from qwen3nb.answers.prompts import Prompts
from qwen3nb.models.kinds.prompts import QueryPrompt, read_prompts
from qwen3nb.models.load import load_encoder
from qwen3nb.models.types import SpecError
from qwen3nb.records.store import load_results, verify
from qwen3nb.report.evaluation.checked_run import check_and_evaluate

TASK = "PyDocsSampleRetrieval"
SET = '[[prompts]]\nname = "a"\ntext = "find: "\n[[prompts]]\nname = "b"\ntext = "FIND "\n'


def test_a_set_has_prompts_for_each_type_of_task(tmp_path):
    for kind in ("Retrieval", "STS", "Clustering", "no such type"):
        prompts = read_prompts("15", kind)
        assert len({each.text for each in prompts}) == len({each.name for each in prompts}) == 15
        assert all(each.source for each in prompts)
    assert read_prompts("3", "STS") == read_prompts("15", "STS")[:3]
    assert {each.text for each in read_prompts("15")} & {"", "query: "} == {"", "query: "}
    file = tmp_path / "own.toml"
    file.write_text(SET)
    assert [(each.name, each.text) for each in read_prompts(str(file))] == [
        ("a", "find: "),
        ("b", "FIND "),
    ]
    file.write_text(SET.replace("FIND", "{unit} {x") + "[types.STS]\nunit = 'line'")
    assert [read_prompts(str(file), kind)[1].text for kind in ("STS", "Clustering")] == [
        "line {x ",
        "text {x ",
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (SET.replace("FIND", "find:"), "a unique name and text"),
        ('[[prompts]]\nname = "a"\n', "text"),
        ("prompts = 1", "prompts"),
        ("prompt = []", "prompt"),
        ("", "a unique name and text"),
        ("[[", "not TOML"),
        (SET + "[types.Retreival]", "unknown type 'Retreival'; choose one of: .*Retrieval"),
        (SET.replace("FIND", "{taks}"), "unknown word 'taks'; choose one of: task, kind"),
    ],
)
def test_what_is_not_a_set_is_refused(tmp_path, text, named):
    file = tmp_path / "own.toml"
    file.write_text(text.replace("find: :", "find: "))
    with pytest.raises(SpecError, match=f"own.toml.*{named}"):
        read_prompts(str(file))
    for given in ("16", "0", "none.toml"):
        with pytest.raises(SpecError, match=given):
            read_prompts(given)


def scored(label, default, values, scores=None, task=TASK):
    prompts = tuple(QueryPrompt(f"p{i}", f"{i} ") for i in range(len(values)))
    scores = np.zeros((0, len(values), 1)) if scores is None else np.asarray(scores, float)
    queries = tuple(f"q{i:03}" for i in range(len(scores)))
    records = tuple(
        tuple(make(label, dict(zip(queries, column, strict=True))) for column in own.T)
        for own in np.moveaxis(scores, 1, 0)
    )
    own = (prompts, default, np.array(values), queries, records)
    return PromptScores(label, task, "nDCG@10", *own)


def drawn(label, shift, seed, n=30, prompts=4):
    scores = shift + np.random.default_rng(seed).uniform(size=(n, prompts, 1))
    return scored(label, float(scores.mean()), scores.mean(axis=(0, 2)), scores)


def test_the_place_of_the_default():
    own = place(scored("m", 0.5, [0.4, 0.6, 0.5, 0.3]))
    assert own == (2, 0.625)  # 2 lower and half of 1, of 4


def test_pairs_that_a_prompt_reverses():
    first, second = scored("a", 0.5, [0.4, 0.6]), scored("b", 0.45, [0.44, 0.51])
    third, elsewhere = scored("c", 0.2, [0.1, 0.3]), scored("d", 0.9, [0.9, 0.9], task="T")
    pairs = prompt_pairs([second, first, third, elsewhere])
    shown = [
        (p.first.model, p.second.model, p.reversed_by, p.probability, p.interval) for p in pairs
    ]
    # a > b for 2 of 4: 0.6 > 0.44, 0.6 > 0.51.
    assert shown == [
        ("a", "b", "p1", 0.5, None),
        ("b", "c", "", 1.0, None),
        ("a", "c", "", 1.0, None),
    ]
    assert pairs[0].difference == pytest.approx(0.05)
    assert "1 of 3 pairs" in str(Prompts((first, second, third), tuple(pairs)).conclusion)
    assert Prompts((), tuple(pairs)).pairs_table().rows[0][4].text == "p1"


def test_of_many_pairs_the_least_certain_are_shown():
    many = [scored(f"m{n:02}", 1 - n / 100, [1 - n / 100] * 2) for n in range(45)]
    alike = scored("alike", 0.9, [0.9, 0.95])
    table = Prompts((), tuple(prompt_pairs([*many, alike]))).pairs_table()
    assert (len(table), table.rows[0][5].text) == (1000, "0.25")  # m10 has one tie and one defeat
    assert "Shown: 1,000 of 1,035" in table.note


def test_the_probability_by_hand_and_its_interval_by_properties():
    first, second = drawn("a", 0.05, 1), drawn("b", 0.0, 2, prompts=3)
    probability, (low, high) = superiority(first, second, seed=3)
    wins = [float(x > y) + 0.5 * (x == y) for x in first.values for y in second.values]
    assert probability == pytest.approx(np.mean(wins))
    assert 0 <= low < probability < high <= 1
    # No shorter than the part of the prompts; reversed for the other order.
    of_prompts = score_interval(probability, 4, 3)
    assert low <= of_prompts[0]
    assert high >= of_prompts[1]
    reversed_order = superiority(second, first, seed=3)
    assert reversed_order[0] == pytest.approx(1 - probability)
    assert reversed_order[1] == pytest.approx((1 - high, 1 - low), abs=0.03)
    assert superiority(first, second, seed=3) == (probability, (low, high))
    for other in (second, replace(second, queries=first.queries)):
        (pair,) = prompt_pairs([first, other], seed=3)
        assert (pair.probability, pair.interval) == (probability, (low, high))


@pytest.mark.parametrize(("won", "sizes"), [(0.98, (20, 20)), (1.0, (3, 3)), (0.5, (5, 8))])
def test_the_score_interval_by_its_equation(won, sizes):
    """Hanley and McNeil's variance, with exponential scores, at the ends."""
    mean = sum(sizes) / 2
    for end in score_interval(won, *sizes):
        if end in (0.0, 1.0):
            continue
        larger, smaller = end / (2 - end), 2 * end**2 / (1 + end)
        variance = end * (1 - end) + (mean - 1) * (larger - end**2 + smaller - end**2)
        assert abs(won - end) == pytest.approx(1.95996 * np.sqrt(variance / np.prod(sizes)), 1e-4)
    assert score_interval(1 - won, *sizes) == pytest.approx(
        tuple(1 - end for end in reversed(score_interval(won, *sizes)))
    )


@pytest.mark.integration  # bootstraps of 300 studies
@pytest.mark.parametrize("prompts", [3, 8])
def test_the_interval_holds_where_one_model_is_nearly_always_better(prompts, monkeypatch):
    """The difference is three standard deviations of the prompts: P = Φ(3 / √2) = 0.983."""
    # The number of studies counts here: 500 resamples of each give the same ends on average.
    monkeypatch.setattr("qwen3nb.analysis.comparison.prompt_effects.RESAMPLES", 500)
    covered = []
    for seed in range(150):
        generator = np.random.default_rng(seed)
        models = []
        for label, mean in (("a", 0.65), ("b", 0.5)):
            effects = generator.normal(mean, 0.05, prompts)
            scores = effects[None, :, None] + generator.normal(0, 0.2, (100, prompts, 1))
            values = scores.mean(axis=(0, 2))
            models.append(scored(label, mean, values, scores))
        low, high = superiority(*models, seed=seed)[1]
        covered.append(low <= 0.983 <= high)
    assert np.mean(covered) >= 0.91


def test_the_variance_is_split_by_query_prompt_and_seed():
    names = [part.name for part in prompt_variance(drawn("a", 0.0, 1))]
    assert names == ["query", "prompt", "query × prompt"]
    one = drawn("a", 0.0, 1)
    several = scored("a", 0.5, one.values, np.concatenate([one.scores, one.scores + 0.1], axis=2))
    assert "seed" in [part.name for part in prompt_variance(several)]
    assert prompt_variance(scored("a", 0.5, [0.4, 0.6])) == []  # a correlation
    table = Prompts((one, several), ()).variance_table()
    assert table.rows[0][-1].text == "–"  # one seed has no such share


def saved(scores, *, prompt="", of="", **fields):
    config = {"prompt": {"name": prompt, "text": prompt, "of": of}} if of else {}
    folder = paths.results() / ("prompts" if of else "")
    make("m", scores, identity=prompt or of or "own", config=config, **fields).save(folder)


def test_prompts_of_the_newest_content_and_of_every_seed_are_read(home):
    for seed in (0, 1):
        make("m", [0.5, 0.7], identity="own", seed=seed).save(paths.results())
        for prompt in ("a", "b", "c")[: 3 - seed]:
            saved([0.2 + seed / 10, 0.6], prompt=prompt, of="own", seed=seed)
    saved([0.9, 0.9], prompt="d", of="gone", finished="2026-02-01")  # its default is not there
    (read,) = read_prompt_scores()
    assert ([each.name for each in read.prompts], read.scores.shape) == (["a", "b"], (2, 2, 2))
    assert read.default == pytest.approx(0.6)
    assert read.values.tolist() == pytest.approx([0.425, 0.425])
    saved([0.3, 0.3], prompt="e", of="new", finished="2026-03-01")
    make("m", [0.1, 0.1], identity="new", finished="2026-03-01").save(paths.results())
    (newest,) = read_prompt_scores()
    assert ([each.name for each in newest.prompts], newest.default) == (["e"], 0.1)


@pytest.mark.integration
def test_a_set_is_evaluated_apart_and_encodes_passages_once(
    encoder_folder, home, tmp_path, cli, own_cache
):
    """And a page shows it, and ``verify`` verifies it; a second run evaluates nothing."""
    file = tmp_path / "own.toml"
    file.write_text(SET)
    given = {"tasks": f"{TASK},AuthorSTS", "prompts": str(file), "tier": "smoke", "limit": 20}
    run = check_and_evaluate(str(encoder_folder), **given)
    (default,) = (each for each in run.results if each.task.name == TASK)
    assert {each.model.settings["prompts"] == {} for each in load_results()} == {True}
    records = load_results(paths.results() / "prompts")
    assert len(records) == 4
    own = [each for each in records if each.task.name == TASK]
    assert default.cost.encoded > 0
    queries = default.task.size["queries"]
    assert [each.cost.encoded for each in own] == [queries, queries]
    assert {each.model.settings["prompts"]["query"] for each in own} == {"find: ", "FIND "}
    direct = load_encoder(encoder_folder, prompts=own[0].model.settings["prompts"])
    assert direct.identity == own[0].model.identity
    again = check_and_evaluate(str(encoder_folder), **given)
    assert set(again.evaluation.reused) == {each.task.key for each in run.results}
    assert [each.run for each in load_results(paths.results() / "prompts")] == [
        each.run for each in records
    ]
    names = execute_here(REPOSITORY / "notebooks" / "prompts.ipynb", None, {})
    assert {each.task for each in names["prompts"].scores} == {each.task.key for each in records}
    assert [row[0].text for row in names["prompts"].table().rows] == [default.model.label] * 2
    assert "to" in names["prompts"].figure().alt
    with pytest.raises(SpecError, match="takes no prompts"):
        check_and_evaluate("bm25", **given)
    assert "6 of 6 records are consistent" in cli("verify").output
    record = min(paths.results().glob("prompts/*/seed_*/*.json"))
    record.write_text(record.read_text().replace("0.", "1.", 1))
    assert cli("verify").exit_code == 1
    assert {line.split(": ")[0] for line in verify()} == {paths.shown(record)}


def test_a_model_with_other_prompts_shares_the_cache(encoder_folder, home):
    encoder = load_encoder(encoder_folder)
    encoder.encode(["find: a", "b"])
    other = encoder.prompted({"query": "find: "})
    other.encode(["a", "c"], role="query")
    assert (other.stats.cached, other.stats.encoded, encoder.stats.encoded) == (1, 1, 2)
    assert other.identity == load_encoder(encoder_folder, prompts={"query": "find: "}).identity
    assert other.identity != encoder.identity

"""The map of forgetting: which two models, on which task, and what its page says."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.records import amend, make, state

from qwen3nb.answers.forgetting import Forgetting, NoForgetting, forgetting
from qwen3nb.cli.main import main
from qwen3nb.records.results import Results

TOPICS = ("sort the list of numbers", "open a <b>file</b> for reading")
BASE = np.random.default_rng(0).uniform(0.4, 0.8, 60)


def record(label, scores, *, task="PyDocsSampleRetrieval", texts=True, **fields):
    made = make(label, scores.tolist(), task=task, **fields)
    if texts:
        queries = {f"q{row}": f"{TOPICS[row % 2]} {row}" for row in range(60)}
        state(made, queries=queries)
    return made


def pair(lost=0.3, **fields):
    """A model, and a later one that lost the second topic."""
    noise = np.random.default_rng(1).normal(0, 0.05, 60)
    later = BASE + noise - lost * (np.arange(60) % 2)
    return [record("base", BASE, **fields), record("tuned", later, **fields)]


def found(records=None, before="base", after="tuned", **options):
    return forgetting(records or pair(), before, after, n_resamples=300, topics=2, **options)


def test_a_dropped_topic_is_named_with_its_words_and_its_change():
    answer = found()
    text = answer.conclusion.text
    assert "tuned forgot the topic “" in text
    assert "(-0.307 [" in text
    assert "Over all 60 queries" in text
    (forgotten,) = answer.named()
    assert forgotten.change.n == 30
    assert {"file", "open", "reading"} >= set(forgotten.group.name.split(", "))
    assert len(answer.queries_table(4)) == 4
    frame = answer.to_frame()
    assert list(frame.columns) == ["text", "topic", "before", "after", "change"]
    assert frame["change"].is_monotonic_increasing
    of_topic = frame[frame["topic"] == forgotten.group.name]
    assert of_topic["text"].str.contains("file").all()


def test_a_dropped_word_is_named_without_a_topic_of_its_own():
    """Twelve queries of both topics share a word, and lost: the rest is not listed."""
    noise = np.random.default_rng(1).normal(0, 0.05, 60)
    with_word = np.arange(60) % 5 == 0
    records = [record("base", BASE), record("tuned", BASE + noise - 0.4 * with_word)]
    for one in records:
        queries = {}
        for row in range(60):
            queries[f"q{row}"] = f"{TOPICS[row % 2]} {'quickly' * int(with_word[row])}"
        state(one, queries=queries)
    answer = found(records)
    assert "tuned forgot the queries with “quickly” (-0." in answer.conclusion.text
    facets = {change.group.facet for change in answer.groups if not change.test.is_named}
    assert facets <= {"topic", "length"}
    assert answer.unlisted > 0
    assert f"Not listed: {answer.unlisted} group" in answer.table().method
    assert json.loads(answer.to_json())["groups_not_listed"] == answer.unlisted


def test_the_other_way_round_it_is_learned():
    answer = found(before="tuned", after="base")
    assert "No group of queries is shown to be forgotten; learned: the topic" in (
        answer.conclusion.text
    )


def test_an_overall_loss_is_no_loss_of_a_group():
    records = [record("base", BASE), record("tuned", BASE - 0.3 - 0.01 * BASE)]
    answer = found(records)
    assert answer.named() == []
    assert answer.conclusion.text.startswith("No group of queries changed unlike the others.")


def test_foreign_texts_are_escaped():
    html = found().queries_table()._repr_html_()
    assert "<b>file" not in html
    assert "&lt;b&gt;file" in html


def test_without_texts_the_page_says_so():
    answer = found(pair(texts=False, task="Unknown"))
    assert isinstance(answer, Forgetting)
    assert "large enough" in answer.conclusion.text
    assert "texts of these queries are not known here" in answer.table().note


def test_the_first_and_last_step_of_the_newest_training_are_the_default():
    records = [
        record(f"run-checkpoint-{step}", BASE - step / 1000, finished=f"2026-01-0{step // 100}")
        for step in (100, 200, 300)
    ]
    answer = forgetting(records, n_resamples=100)
    assert (answer.before, answer.after) == ("run-checkpoint-100", "run-checkpoint-300")
    none = forgetting(records[:1])
    assert isinstance(none, NoForgetting)
    assert "-p before A -p after B" in none.conclusion.text


def test_the_task_of_most_queries_is_the_default_and_own_data_go_by_their_name():
    small = [record(label, BASE[:30], task="Small") for label in ("base", "tuned")]
    for one in small:
        amend(one, "task", dataset="domain-stars")
    assert found([*small, *pair()]).overall.task == "PyDocsSampleRetrieval"
    assert found([*small, *pair()], task="stars").overall.task == "Small"


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"before": "nope"}, "unknown model 'nope'; choose one of: base, tuned"),
        ({"before": ""}, "got one of them"),
        ({"after": "base"}, "are the same model"),
        ({"task": "Nope"}, "unknown task 'Nope'"),
    ],
)
def test_what_is_no_pair_is_refused_with_the_reason(options, cause):
    with pytest.raises(ValueError, match=cause):
        found(**options)


def test_pairs_of_texts_have_no_score_of_their_own():
    records = pair(metric="Spearman")
    for one in records:
        amend(one, "task", type="STS")
    with pytest.raises(ValueError, match="is of type STS: its Spearman is not a mean over queries"):
        found(records, task="PyDocsSampleRetrieval")


def test_models_without_a_task_in_common_are_refused_with_what_they_have():
    records = [record("base", BASE), record("tuned", BASE, task="Other")]
    with pytest.raises(ValueError, match="base has PyDocsSampleRetrieval, tuned has Other"):
        found(records)


def test_a_name_of_two_models_asks_for_an_identity():
    records = [*pair(), record("base", BASE, seed=1)]
    with pytest.raises(ValueError, match="base is the name of 2 models"):
        found(records)


def test_the_command_prints_the_map_or_its_numbers(home):
    for one in pair():
        one.save()
    arguments = ["forgetting", "base", "tuned", "--topics", "2", "--resamples", "200"]
    printed = CliRunner().invoke(main, arguments)
    assert printed.exit_code == 0, printed.output
    assert "tuned forgot the topic" in printed.output
    document = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    verdicts = {group["verdict"] for group in document["groups"]}
    assert "forgotten" in verdicts
    assert CliRunner().invoke(main, ["forgetting"]).exit_code == 1


def test_results_open_the_question():
    answer = Results(pair()).forgetting("base", "tuned", topics=2, n_resamples=100)
    assert answer.overall.n == 60

import json
import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

import qwen3nb as q
from qwen3nb.cli.main import main
from qwen3nb.datasets.custom.documents import find_layout, read_documents
from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.datasets.custom.queries import ModelEntry, read_queries
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.retrieval.custom import evaluate_domain, search_domain
from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.metrics.retrieval import RECORDED
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.search.fusion import fuse
from qwen3nb.records.record import Result
from qwen3nb.records.store import verify_files
from qwen3nb.report.leaderboard.board import cost_table

QUERIES = """
[[queries]]
id = "a"
query = "alpha"
category = "first"
relevance_grades = { d1 = 3, d2 = 1, gone = 2 }
expected = ["d1", "d2"]

[[queries]]
id = "b"
query = "beta"
relevance_grades = { d3 = 1 }

[[queries]]
id = "c"
query = "gamma"
expected = ["d3", "d4"]
"""
DAY = date(2026, 1, 1)


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


@pytest.fixture
def data(write):
    rows = [{"id": f"d{n}", "text": f"text {n}"} for n in range(1, 31)]
    return (
        write("queries.toml", QUERIES),
        write("docs.jsonl", "".join(json.dumps(row) + "\n" for row in rows)),
    )


@pytest.fixture
def random_encoder():
    return load_encoder("random", show_progress=False)


# Queries, with lines.


def query(**changes):
    fields = {"id": '"q1"', "query": '"x"', "relevance_grades": "{ d = 3 }", **changes}
    lines = (f"{name} = {value}" for name, value in fields.items() if value is not None)
    return "[[queries]]\n" + "\n".join(lines) + "\n"


MALFORMED = [
    ("[[queries]\n", "not TOML.*line 1"),
    ("a = [" * 5000, "not TOML"),
    (query(numbers=f"[{'1.5, ' * 99}]"), r":5: queries\[0\].numbers: Unknown key"),
    ("", ":1: queries: Key required"),
    ("queries = [1]\n", r":1: queries\[0\]: .*table, got 1"),
    ("[query]\n" + query(), ":1: query: Unknown key; .*'queries'"),
    (query(catgory='"x"'), r":5: queries\[0\].catgory: Unknown key; .*'category'"),
    (query(id=None), r":1: queries\[0\].id: Key required"),
    (query(id='"../x"'), r":2: queries\[0\].id: .*a name.*, got '\.\./x'"),
    (query(id="3"), r":2: queries\[0\].id: .*string, got 3"),
    (query(relevance_grades="{ d = 4 }"), r":4: .*grades.d: .*equal to 3, got 4"),
    (query(relevance_grades="{ d = -2000 }"), ":4: .*grades.d: .*equal to -1000, got -2000"),
    (query(relevance_grades="{ d = 2.5 }"), ":4: .*grades.d: .*integer.*, got 2.5"),
    (query(relevance_grades="[1]"), r":4: queries\[0\].relevance_grades: .*table, got \[1\]"),
    (query(relevance_grades=None), ":1: .*'relevance_grades' or 'expected'"),
    (query(expected='["a", "a"]'), r":5: .*expected: .*duplicates, got \['a', 'a'\]"),
    (query(expected='["a"]', expected_repos='["a"]'), r":6: .*expected_repos: Unknown key"),
    (query() + query(), r":6: queries\[1\].id: .*'q1'.*line 1"),
    (query() + "[settings]\nstar_boost_coefficient = nan\n", ":6: .*coefficient: .*got nan"),
    (query() + "[settings]\nrecency_coefficient = 1\n", ":6: .*coefficient: .*than 1, got 1"),
    (query() + "[settings]\nrelevance_threshold = 0\n", ":6: .*threshold: .*equal to 1, got 0"),
    (query() + "[settings]\nstar_bost = 1\n", ":6: settings.star_bost: Unknown .*'star_boost"),
    (query() + "[models.x]\nname = '../x'\nmodel_id = 'a'\n", r":6: models.x.name: .*got '\.\./x'"),
    (
        query() + "[models.x]\ndimensions = 0\n",
        "x.model_id: Key required\n.*:6: .*dimensions: .*got 0",
    ),
    (query() + "[models.x]\nmodel_id = 'a'\nprompts = { q = 'x' }\n", ":7: .*'query' or 'passage'"),
]


@pytest.mark.parametrize(("text", "message"), MALFORMED)
def test_a_malformed_query_file_is_refused_with_the_line(write, text, message):
    with pytest.raises(DataError, match=message) as error:
        read_queries(write("q.toml", text))
    assert "q.toml" in str(error.value)


def test_a_query_file_that_is_no_text_no_file_or_too_large_is_refused(tmp_path, write, monkeypatch):
    (tmp_path / "q.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="cannot be read"):
        read_queries(tmp_path / "q.toml")
    with pytest.raises(DataError, match="no such file"):
        read_queries(tmp_path)
    with pytest.raises(DataError, match=r"(?s)queries\[19\].*\n... and 10 more$") as error:
        read_queries(write("many.toml", "".join(query(id="1") for _ in range(30))))
    assert len(str(error.value).splitlines()) == 21
    monkeypatch.setattr("qwen3nb.datasets.custom.queries.MOST", 1)
    with pytest.raises(DataError, match="2 bytes; expected at most 1"):
        read_queries(tmp_path / "q.toml")


def test_a_number_stays_as_it_is_written(write):
    """An integer and a float of one value are different identities."""
    text = query() + "[settings]\nstar_boost_coefficient = 1\nrecency_coefficient = 0.0\n"
    settings = read_queries(write("q.toml", text)).settings
    assert json.dumps(settings.star_boost_coefficient) == "1"
    assert json.dumps(settings.recency_coefficient) == "0.0"


def test_folders_begin_beside_the_file_also_in_a_fusion(write, tmp_path, monkeypatch):
    models = {"a": "./m", "b": "bm25+../m", "c": "lab/model", "d": "runs/m", "e": "./x+y"}
    text = "".join(f'[models.{name}]\nmodel_id = "{spec}"\n' for name, spec in models.items())
    specs = [each.spec for each in read_queries(write("q.toml", query() + text)).models]
    assert specs == [
        f"{tmp_path}/m",
        f"bm25+{tmp_path}/../m",
        "lab/model",
        "runs/m",
        f"{tmp_path}/x+y",
    ]
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    specs = [each.spec for each in read_queries(Path("../q.toml")).models]
    assert specs[:2] == ["../m", "bm25+../../m"]


def test_no_query_left_is_an_error(data, write):
    queries = write("other.toml", query(relevance_grades="{ nowhere = 3 }"))
    with pytest.raises(DataError, match="check the id column"):
        load_domain(queries, data[1])


# Search and records.


def test_search_ranks_all_documents_by_the_boosted_score(data, random_encoder):
    domain = load_domain(*data)
    factors = {name: 1 + 0.01 * n for n, name in enumerate(domain.texts)}
    run = search_domain(random_encoder, replace(domain, factors=factors), depth=5)
    passages = random_encoder.encode(list(domain.texts.values()), role="passage").astype(float)
    factor = np.array(list(factors.values()))
    for name, text in domain.queries.items():
        cosines = passages @ random_encoder.encode(text, role="query").astype(float)
        scores = np.where(cosines >= 0, cosines * factor, cosines / factor)
        best = sorted(zip(scores, domain.texts, strict=True), reverse=True)[:5]
        assert run[name] == pytest.approx({d: score for score, d in best}, rel=1e-6)


def test_records_hold_and_the_second_run_encodes_and_scores_nothing(data, tmp_path, monkeypatch):
    domain, options = load_domain(*data), {"output": tmp_path / "r", "show_progress": False}
    models = ["random", "random:32", "random"]
    first = evaluate_domain(models, domain, **options)
    assert (len(first), first.reused) == (2, ())
    assert len(cost_table(first.results).rows) == 2  # what the leaderboard's page shows of them
    files = [result.path(tmp_path / "r") for result in first]
    assert not verify_files(files)
    record = Result.load(files[0])
    assert tuple(record.per_query) == RECORDED["own data"]
    assert record.task.categories == domain.categories
    assert set(record.per_query["MRR@10"]) == {"a", "c"}
    assert all(len(top) == 10 for top in record.config["top"].values())
    assert record.config["dropped"] == ["b"]
    assert len(evaluate_domain(models, domain, **options).reused) == 2
    again = evaluate_domain(models, domain, fresh=True, **options)
    assert [result.cost.encoded for result in again] == [0, 0]
    assert [result.per_query for result in again] == [result.per_query for result in first]
    monkeypatch.setitem(RECORDED, "own data", (*RECORDED["own data"], "Hit@5"))
    made = evaluate_domain(models, domain, **options)  # a metric that is added is computed
    assert (made.reused, "Hit@5" in made.results[0].metrics) == ((), True)


def test_a_model_that_fails_is_reported_and_the_others_go_on(data, tmp_path):
    models = ["nowhere/at-all", ModelEntry("x", "random", 7), ModelEntry("y", "random", 128)]
    models += [ModelEntry("z", "bm25", 7), ModelEntry("p", "bm25", prompts={"query": "q: "})]
    run = evaluate_domain(models, load_domain(*data), output=tmp_path, show_progress=False)
    assert [result.model.label for result in run] == ["random"]
    assert list(run.failures) == ["nowhere/at-all", "x", "z", "p"]
    causes = "".join(run.failures.values())
    assert "x: expected vectors of 7 dimensions; random has 128" in causes
    assert "z: expected vectors of 7 dimensions; bm25 has no vectors" in causes
    assert "p: bm25 has no vectors, so it takes no prompts" in causes


def test_bm25_is_boosted_and_a_fusion_fuses_boosted_rankings(write):
    """By hand: `one` has the rarer words of the query, `two` the larger boost."""
    texts = {"one": "red green fox", "two": "red hat", "three": "blue sky"}
    rows = "".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items())
    queries = write("q.toml", query(query='"red fox"', relevance_grades="{ one = 3 }"))
    domain = load_domain(queries, write("d.jsonl", rows))
    bm25 = load_model("bm25")
    plain = search_domain(bm25, domain)["q1"]
    assert set(plain) == {"one", "two"}  # the third shares no word
    assert plain["one"] > plain["two"]
    factors = {"one": 1.0, "two": 100.0, "three": 1.0}
    boosted = replace(domain, factors=factors)
    run = search_domain(bm25, boosted)["q1"]
    assert run == {"one": plain["one"], "two": pytest.approx(100 * plain["two"])}
    assert list(search_domain(bm25, boosted, depth=1)["q1"]) == ["two"]
    fusion = load_model("bm25+random", show_progress=False)
    parts = [search_domain(part, boosted) for part in fusion.parts]
    assert search_domain(fusion, boosted) == fuse(parts)


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0])
def test_bm25_searches_as_deep_as_the_boosts_require(write, monkeypatch, spread):
    dice = np.random.default_rng(0)
    words = [" ".join(dice.choice(["red", "fox", "sky", "hat"], 6)) for _ in range(80)]
    texts = {f"d{n}": text for n, text in enumerate(words)}
    rows = "".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items())
    queries = write("q.toml", query(query='"red fox"', relevance_grades="{ d1 = 3 }"))
    domain = load_domain(queries, write("d.jsonl", rows))
    factors = {name: 1 + spread * dice.random() for name in texts}
    bm25 = load_model("bm25")
    whole = search_domain(bm25, replace(domain, factors=factors), depth=len(texts))["q1"]
    monkeypatch.setattr("qwen3nb.evaluation.retrieval.custom._FUSED", 1)
    for depth in (1, 2, 7, 30):
        best = search_domain(bm25, replace(domain, factors=factors), depth=depth)["q1"]
        least = sorted(whole.values(), reverse=True)[depth - 1]
        assert best == {name: score for name, score in whole.items() if score >= least}


def test_a_query_file_names_labels_and_prompts(data, write, tmp_path):
    models = (
        "[models.candidate]\nmodel_id = 'bm25'\n"
        "[models.current]\nmodel_id = 'random'\nname = 'in-use'\ndimensions = 128\n"
        "prompts = { query = 'query: ', passage = '' }\n"
    )
    file = write("named.toml", QUERIES + models)
    given = ("--documents", data[1], "--out", tmp_path, "--no-report")
    assert domain_command("--queries", file, *given).exit_code == 0
    current, candidate = sorted(
        q.load_results(tmp_path), key=lambda each: each.model.label, reverse=True
    )
    assert (current.model.label, candidate.model.label) == ("in-use", "bm25")
    assert current.model.settings["prompts"] == {"query": "query: "}
    assert (current.config["dimensions"], candidate.config["dimensions"]) == (128, None)
    assert domain_command("--queries", data[0], *given, "--model", "random").exit_code == 0
    assert len({each.model.identity for each in q.load_results(tmp_path)}) == 3


def test_the_same_model_twice_is_named_and_one_label_for_two_models_is_refused(data, tmp_path):
    domain = load_domain(*data)
    entries = [
        ModelEntry("a", "random", label="one"),
        ModelEntry("b", "random", label="two"),
        ModelEntry("c", "random:32", label="one"),
    ]
    run = evaluate_domain(entries, domain, output=tmp_path, show_progress=False)
    assert [each.model.label for each in run.results] == ["one"]
    assert run.skipped == {"two": "the same weights and settings as one"}
    assert "another model has the label one: give each its own, by `name`" in run.failures["one"]


def write_model(folder, weight):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    save_file({"w": np.full(2, weight, dtype=np.float32)}, folder / "model.safetensors")
    return folder


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_known_model_is_not_loaded_again_unless_something_changed(data, tmp_path, own_cache):
    """Loads are counted. What is loaded has another identity each time."""
    domain, loads = load_domain(*data), []

    def load(spec, *, label, show_progress, **_):
        loads.append(spec)
        return load_encoder("random", seed=len(loads), label=label, show_progress=False)

    def evaluate(entry, **options):
        run = evaluate_domain(
            [entry], domain, load=load, output=tmp_path / "r", show_progress=False, **options
        )
        assert not run.failures, run.failures
        return run.results[0].model.identity, len(loads)

    entry = ModelEntry("m", str(write_model(tmp_path / "model", 1.0)), label="mine")
    first = evaluate(entry, pooling="mean")
    assert evaluate(entry, pooling="mean") == first
    assert evaluate(entry, pooling="mean", batch_size=8, cache=False) == first
    known = {first}
    for changed, options in (
        (replace(entry, prompts={"query": "q: "}), {"pooling": "mean"}),
        (replace(entry, label="other"), {"pooling": "mean"}),
        (entry, {"pooling": "last"}),
        (entry, {"pooling": "mean", "fresh": True}),
    ):
        known.add(evaluate(changed, **options))
        assert len(known) == len(loads)
    for file in (own_cache / "identities").iterdir():
        file.write_text('{"label": "../x", "identity": "y"}')  # damaged: loaded and written again
    assert evaluate(entry, pooling="mean")[1] == evaluate(entry, pooling="mean")[1] == 6
    write_model(tmp_path / "model", 2.0)
    assert evaluate(entry, pooling="mean")[1] == 7


def test_the_time_of_a_query_is_measured_beside_the_costs_and_the_cache(data, tmp_path, own_cache):
    run = evaluate_domain(
        ["bm25", "random", "bm25+random"], load_domain(*data), output=tmp_path, show_progress=False
    )
    assert min(each.config["seconds_per_query"] for each in run.results) > 0
    costs = [(each.cost.encoded, each.cost.cached) for each in run.results]
    assert costs == [(32, 0), (32, 0), (32, 32)]
    encoder = load_encoder("random:8", show_progress=False)
    with encoder.uncached():
        vector = encoder.encode("alpha", role="query")
    assert (encoder.encode("alpha", role="query") == vector).all()
    assert (encoder.stats.encoded, encoder.stats.cached) == (2, 0)  # nothing was kept
    encoder.encode("alpha", role="query")
    assert (encoder.stats.encoded, encoder.stats.cached) == (2, 1)


def test_a_query_of_stop_words_finds_nothing_with_bm25(write):
    domain = load_domain(
        write("q.toml", query(query='"the"', relevance_grades="{ one = 3 }")),
        write("d.jsonl", '{"id": "one", "text": "red fox"}\n{"id": "two", "text": "the hat"}\n'),
    )
    assert search_domain(load_model("bm25"), domain) == {"q1": {}}
    assert set(search_domain(load_model("bm25+random", show_progress=False), domain)["q1"]) == {
        "one",
        "two",
    }


def test_the_python_call_makes_the_record_of_the_command(data, home):
    domain = load_domain(*data)
    records = [
        q.evaluate(each, domain, show_progress=False).results[0]
        for each in ("bm25", "random", "bm25+random")
    ]
    decision = q.conclusions.candidates_conclusion(records, current="bm25")
    assert str(decision.text).startswith(
        "Keep bm25: no candidate is shown to be better; the best, "
    )
    done = domain_command(
        "--queries", data[0], "--documents", data[1], "--model", "bm25", "--model", "random"
    )
    assert done.output.count("record reused, nothing encoded") == 2
    with pytest.raises(EvaluationError, match="1 of 1 models failed"):
        q.evaluate("rondom", domain)
    collection = q.datasets.load_domain(*data, boost=False).collection()
    other = q.evaluate("random", collection, show_progress=False).results[0]
    assert other.path() != records[1].path()


# The command.


def domain_command(*arguments):
    return CliRunner().invoke(main, ["domain", *map(str, arguments)])


def test_the_command_writes_a_report_and_ends_with_the_decision(data, home, own_cache):
    arguments = ("--queries", data[0], "--documents", data[1], "--model", "bm25")
    arguments += ("--model", "random")
    done = domain_command(*arguments)
    assert "30 documents, 2 queries (1 dropped)" in done.output
    assert all(metric in done.output for metric in RECORDED["own data"])
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("Keep bm25: ")
    markdown, value = sorted((home / "eval_results").iterdir(), reverse=True)
    assert re.fullmatch(r"evaluation_\d{8}_\d{6}", markdown.stem)
    assert (markdown.stem, value.suffix) == (value.stem, ".json")
    assert markdown.read_text().startswith("# Keep bm25\n\nKeep bm25: ")
    report = json.loads(value.read_text())
    assert report["headline"] == last
    model = report["models"]["random"]
    assert set(model["per_query"]["MRR@10"]) == {"a", "c"}
    assert [len(top) for top in model["top"].values()] == [5, 5]
    assert model["model"]["settings"]["model"]["kind"] == "random"
    assert model["cost"]["encoded"] + model["cost"]["cached"] == 32
    (tested,) = (d for d in report["comparison"]["differences"] if d["metric"] == "MRR@10")
    assert {"p_value", "t_p_value", "adjusted", "interval"} <= set(tested)
    assert report["environment"]["versions"]["bm25s"]
    assert report["queries"]["a"] == {"text": "alpha", "category": "first"}
    again = domain_command(*arguments, "--no-report")
    assert "random: record reused, nothing encoded; it took " in again.output
    assert re.search(r"32 texts encoded, 0 from the cache; \d.* per query", again.output)
    assert len(list((home / "eval_results").iterdir())) == 2
    domain_command(*arguments, "--reports", home / "elsewhere")
    assert len(list((home / "elsewhere").glob("evaluation_*"))) == 2


def test_models_are_labelled_on_the_command_line_or_named_as_in_the_file(data, write, home):
    models = (
        "[models.current]\nmodel_id = 'bm25'\nname = 'words'\n[models.other]\nmodel_id = 'random'\n"
    )
    file = write("named.toml", QUERIES + models)
    arguments = ("--queries", file, "--documents", data[1], "--check")
    for extra, line in (
        ((), "in use: words (bm25); candidates: random"),
        (("--model", "other", "--model", "words"), "in use: random; candidates: words (bm25)"),
        (("--model", "both=bm25+random"), "in use: both (bm25+random); candidates: none"),
    ):
        done = domain_command(*arguments, *extra)
        assert done.exit_code == 0, done.output
        assert line in done.output.splitlines()
    done = domain_command(*arguments, "--model", "rondom")
    assert "in use: rondom; candidates: none" in done.output
    assert "  rondom: no model 'rondom'" in done.stderr


def test_without_a_comparison_the_command_says_why(data, home):
    arguments = ("--queries", data[0], "--documents", data[1])
    alone = domain_command(*arguments, "--model", "bm25", "--model", "copy=bm25")
    assert "copy: not compared, the same weights and settings as bm25" in alone.output
    assert alone.output.splitlines()[-1] == (
        "No decision: there is no other model to compare with bm25."
    )
    failed = domain_command(
        *arguments, "--model", "no/model", "--model", "bm25", "--model", "random"
    )
    assert failed.exit_code == 1
    assert "No decision: no/model, the model in use, failed." in failed.output
    assert "Keep" not in failed.output
    assert not (home / "eval_results").exists()


def test_the_rule_is_set_on_the_command_line(data, home):
    arguments = ("--queries", data[0], "--documents", data[1], "--model", "bm25")
    arguments += ("--model", "random")
    done = domain_command(*arguments, "--metric", "Recall@10", "--threshold", 0.2, "--alpha", 0.1)
    assert "Keep bm25: no candidate is shown to be better; random: Recall@10 " in done.output
    (file,) = (home / "eval_results").glob("*.json")
    report = json.loads(file.read_text())
    assert (report["decides"], report["threshold"], report["alpha"]) == ("Recall@10", 0.2, 0.1)
    done = domain_command(*arguments, "--metric", "recall@10")
    assert (done.exit_code, "choose one of: MRR@10, nDCG@10" in done.output) == (1, True)


def test_the_command_checks_without_a_model_and_tells_errors_in_a_line(data, home):
    arguments = ("--queries", data[0], "--documents", data[1])
    assert domain_command(*arguments, "--check").exit_code == 0
    assert not (home / "results").exists()
    for extra, message in (
        ((), "no model given; use --model"),
        (("--text", "{text.__class__}", "--check"), "expected a field name in braces"),
        (("--preset", "x", "--check"), "unknown preset 'x'; choose one of: gh-star-search"),
        (("--id-column", "name", "--check"), "docs.jsonl:1: no field 'name'"),
        (("--model", "no/model"), "1 models failed"),
    ):
        done = domain_command(*arguments, *extra)
        assert (done.exit_code, message in done.output) == (1, True)
        assert "Traceback" not in done.output


# Real data.


@pytest.fixture(scope="session")
def stars(fixtures):
    if not (fixtures / "star_search" / "stars.db").is_file():
        pytest.skip("no star_search among the fixtures")
    return fixtures / "star_search"


def test_the_real_database_and_its_rows_as_jsonl_are_the_same_documents(stars):
    layout = find_layout("gh-star-search")
    base = read_documents(stars / "stars.db", layout)
    assert base == type(base)(
        **{**vars(read_documents(stars / "repositories.jsonl", layout)), "name": "stars.db"}
    )
    assert len(base.texts) == 20
    assert base.texts["acme-rust/file-finder"] == (
        "acme-rust/file-finder. A file finder written in rust.. rust file finder"
    )


def test_the_real_queries_have_one_truth(stars):
    domain = load_domain(
        stars / "eval_config.toml", stars / "stars.db", layout=find_layout("gh-star-search"), on=DAY
    )
    assert len(domain.queries) == 10
    assert sum(map(len, domain.grades.values())) == 22
    assert [note for note in domain.notes if "gone/deleted" not in note] == []
    assert domain.recipe["date"] == "2026-01-01"
    with pytest.raises(DataError, match="reference date.*--date YYYY-MM-DD"):
        load_domain(
            stars / "eval_config.toml", stars / "stars.db", layout=find_layout("gh-star-search")
        )

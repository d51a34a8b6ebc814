import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import pytrec_eval
from click.testing import CliRunner
from safetensors.numpy import save_file

import qwen3nb as q
from qwen3nb.answers.board.costs import cost_table
from qwen3nb.cli.main import main
from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.datasets.custom.queries import ModelEntry, read_queries
from qwen3nb.datasets.equal_texts import ITSELF, SAME_TEXT
from qwen3nb.datasets.judgements import nothing_found_by
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.retrieval.custom import evaluate_domain, search_domain
from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.metrics.retrieval import (
    NOTHING_FOUND,
    OF_JUDGED_DOCUMENTS,
    RECORDED,
    UNJUDGED,
)
from qwen3nb.models.encoders.base import RandomEncoder
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.model import Model
from qwen3nb.models.search.fusion import fuse
from qwen3nb.models.search.words import Words
from qwen3nb.records.record import Result
from qwen3nb.records.store import verify_files

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


def query(**changes):
    fields = {"id": '"q1"', "query": '"x"', "relevance_grades": "{ d = 3 }", **changes}
    lines = (f"{name} = {value}" for name, value in fields.items() if value is not None)
    return "[[queries]]\n" + "\n".join(lines) + "\n"


MALFORMED = [
    ("[[queries]\n", "not TOML.*line 1"),
    ("", "q.toml: queries: is missing"),
    (query(catgory='"x"'), r"queries\[0\].catgory: unknown key; .*'category'"),
    (query(id=None), r"queries\[0\].id: is missing"),
    (query(id='"../x"'), r"queries\[0\].id: .*a name.*; got '\.\./x'"),
    (query(relevance_grades="{ d = 4 }"), r".*grades.d: .*at most 3; got 4"),
    (query(relevance_grades=None), ".*'relevance_grades' or 'expected'"),
    (query(expected='["a", "a"]'), r".*expected: .*duplicates; got \['a', 'a'\]"),
    (query() + query(), "Duplicate id 'q1'"),
    (query() + "[settings]\nstar_boost_coefficient = nan\n", ".*coefficient: .*got nan"),
    (query() + "[models.x]\nname = '../x'\nmodel_id = 'a'\n", r"models.x.name: .*got '\.\./x'"),
    (query() + "[models.x]\nmodel_id = 'a'\nprompts = { q = 'x' }\n", ".*'query' or 'passage'"),
]


@pytest.mark.parametrize(("text", "message"), MALFORMED)
def test_a_malformed_query_file_is_refused_with_the_key(write, text, message):
    with pytest.raises(DataError, match=message) as error:
        read_queries(write("q.toml", text))
    assert "q.toml" in str(error.value)


def test_folders_begin_beside_the_file_also_in_a_fusion(write, tmp_path):
    models = {"a": "./m", "b": "bm25+../m", "c": "lab/model", "e": "./x+y"}
    text = "".join(f'[models.{name}]\nmodel_id = "{spec}"\n' for name, spec in models.items())
    specs = [each.spec for each in read_queries(write("q.toml", query() + text)).models]
    assert specs == [f"{tmp_path}/m", f"bm25+{tmp_path}/../m", "lab/model", f"{tmp_path}/x+y"]


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
    assert all(len(top) == 10 for top in record.top.values())
    assert record.data.dropped == ["b"]
    assert len(evaluate_domain(models, domain, **options).reused) == 2
    again = evaluate_domain(models, domain, fresh=True, **options)
    assert [result.cost.encoded for result in again] == [0, 0]
    assert [result.per_query for result in again] == [result.per_query for result in first]
    named = replace(domain, clusters={"a": "one", "c": "one"})
    (clustered,) = evaluate_domain(["random"], named, **options).results
    assert clustered.task.clusters == named.clusters


def test_a_model_that_fails_is_reported_and_the_others_go_on(data, tmp_path):
    models = ["nowhere/at-all", ModelEntry("x", "random", 7), ModelEntry("y", "random", 128)]
    models += [ModelEntry("z", "bm25", 7), ModelEntry("p", "bm25", prompts={"query": "q: "})]
    run = evaluate_domain(models, load_domain(*data), output=tmp_path, show_progress=False)
    assert [result.model.label for result in run] == ["random"]
    assert list(run.failures) == ["nowhere/at-all", "x", "z", "p"]
    causes = "".join(run.failures.values())
    assert "x: expected vectors of 7 dimensions; random has 128" in causes
    assert "z: expected vectors of 7 dimensions; bm25 has no vectors" in causes
    assert "bm25 has no vectors, so it takes no prompts" in run.failures["p"]


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
    even = replace(domain, factors=dict.fromkeys(texts, 2.0))
    assert list(search_domain(bm25, even, depth=1)["q1"]) == ["one"]
    fusion = load_model("bm25+random", show_progress=False)
    parts = [search_domain(part, boosted) for part in fusion.parts]
    assert search_domain(fusion, boosted) == fuse(parts)
    stop_word = replace(domain, queries={"q1": "the"})
    assert search_domain(bm25, stop_word) == {"q1": {}}
    assert set(search_domain(fusion, stop_word)["q1"]) == set(texts)


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
    assert (current.dimensions, candidate.dimensions) == (128, None)


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
    assert "another model has the label one: set unique labels by `name`" in run.failures["one"]


def test_a_known_model_is_loaded_again_only_to_evaluate_it(data, tmp_path, own_cache, monkeypatch):
    domain, loads, folder = load_domain(*data), [], tmp_path / "model"

    def load(model):  # a model of another identity each time
        loads.append(model.spec)
        source = replace(find_source("random"), label=model.name)
        return RandomEncoder(source, replace(model, pooling=None, seed=len(loads)))

    def evaluate(prompts=None, **options):
        entry = ModelEntry("m", str(folder), label="mine", prompts=prompts)
        options |= {"output": tmp_path / "r", "show_progress": False}
        run = evaluate_domain([entry], domain, **options)
        assert not run.failures, run.failures
        return run.results[0].model.identity, len(loads)

    def write_weights(value):
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text('{"model_type": "bert"}')
        save_file({"w": np.full(2, value, dtype=np.float32)}, folder / "model.safetensors")

    monkeypatch.setattr(Model, "_load_checked", load)
    write_weights(1.0)
    first = evaluate()
    assert evaluate() == evaluate(batch_size=8, cache=False) == first
    assert evaluate(pooling="mean")[1] == 2
    assert evaluate({"query": "q: "})[1] == 3
    assert evaluate(fresh=True)[1] == 4
    for file in (own_cache / "identities").iterdir():
        file.write_text('{"label": "mine"}')  # damaged
    assert evaluate()[1] == evaluate()[1] == 5
    write_weights(2.0)
    assert evaluate()[1] == 6


def test_the_python_call_makes_the_record_of_the_command(data, home):
    domain = load_domain(*data)
    for each in ("bm25", "random"):
        q.evaluate(each, domain, show_progress=False)
    done = domain_command(
        "--queries", data[0], "--documents", data[1], "--model", "bm25", "--model", "random"
    )
    assert done.output.count("record reused, nothing encoded") == 2
    with pytest.raises(EvaluationError, match="1 of 1 models failed"):
        q.evaluate("rondom", domain)


WORDS_OF = {  # a word per document, by language; each stands in one document only
    "zh": ["我们在公园里看见松鼠", "这家餐馆的豆腐好吃"],
    "th": ["เขาขี่จักรยานไปโรงเรียน", "ห้องสมุดปิดวันอาทิตย์"],
    "hi": ["बच्चे समुद्र के किनारे", "रसोई में पानी"],
    "wide": ["Ｒｕｓｔ　ｇｒｅｐ", "Ｐｙｔｈｏｎ　ｓｏｒｔ"],
}
QUERIES_OF = {
    "zh": ["松鼠", "豆腐"],
    "th": ["จักรยาน", "ห้องสมุด"],
    "hi": ["बच्चे", "पानी"],
    "wide": ["rust", "PYTHON"],
}


def found_by(spec, texts, queries):
    """The record of a model on queries of which the n-th asks for the n-th document."""
    rows = [{"id": f"d{n}", "text": text} for n, text in enumerate(texts)]
    query_rows = [
        {"id": f"q{n}", "query": text, "expected": [f"d{n}"]} for n, text in enumerate(queries)
    ]
    return evaluate_domain([spec], load_domain(query_rows, rows), strict=True).results[0]


@pytest.mark.parametrize("language", WORDS_OF)
def test_bm25_reads_every_script_and_its_record_says_so(home, language):
    record = found_by("bm25", WORDS_OF[language], QUERIES_OF[language])
    assert record.metrics["MRR@10"].value == 1.0
    assert record.search.words == Words(english=True, accents=False).name
    again = found_by("bm25", WORDS_OF[language], QUERIES_OF[language])
    assert again.finished == record.finished
    assert again.run == record.run  # reused


def test_queries_that_found_nothing_are_counted_also_by_part_of_a_fusion(home):
    texts, queries = ["sort a list", "read a file"], ["sort", "nowhere"]
    record = found_by("bm25", texts, queries)
    assert record.task.counts[NOTHING_FOUND] == 1
    assert record.search.words == ""  # read as English, as records from before
    assert record.data.judgements["q1"] == {"first": [], "ideal": [3]}
    fused = found_by("bm25+random:16", texts, queries)
    assert NOTHING_FOUND not in fused.task.counts
    assert fused.task.counts[nothing_found_by("bm25")] == 1


def test_the_query_itself_is_not_ranked_and_copies_are_one_cluster(home):
    """By hand: the document of the query would be first; without it, the right one is."""
    texts = {"x": "taxes are too high", "c": "high taxes pay for schools", "d": "schools"}
    rows = [{"id": name, "text": text} for name, text in texts.items()]
    query_rows = [
        {"id": name, "query": text, "expected": ["c"]}
        for name, text in {"x": "taxes are too high", "y": "Taxes are  TOO high"}.items()
    ]
    domain = load_domain(query_rows, rows)
    assert domain.clusters == {"x": "x", "y": "x"}
    assert domain.itself == {"x": ["x"]}
    assert domain.counts[SAME_TEXT] == 1
    assert "query 'x': is itself a document, left out of its ranking: x" in domain.notes
    for spec in ("bm25", "random:16", "bm25+random:16"):
        record = evaluate_domain([spec], domain, strict=True).results[0]
        assert "x" not in record.top["x"]
        assert "x" in record.top["y"]
        assert record.task.counts[ITSELF] == 1
        assert record.task.clusters == domain.clusters
    scores = evaluate_domain(["bm25"], domain, strict=True).results[0].per_query["MRR@10"]
    assert scores == {"x": 1.0, "y": 0.5}


def test_judged_documents_are_counted_as_by_hand(home):
    """BM25 finds "b" and "a", which tie and rank by id; "b" is judged, with grade 0."""
    rows = [
        {"id": name, "text": text}
        for name, text in {"a": "sort", "b": "sort it", "c": "x y"}.items()
    ]
    query_rows = [{"id": "q", "query": "sort", "relevance_grades": {"b": 0, "c": 3}}]
    record = evaluate_domain(["bm25"], load_domain(query_rows, rows), strict=True).results[0]
    assert record.metrics["Judged@10"].value == 0.5
    assert record.data.judgements["q"] == {"first": [0, UNJUDGED], "ideal": [3]}


def test_complete_judgements_leave_nothing_unjudged(home):
    """With ``complete = true`` "a", without a grade, is judged: not relevant. No score changes."""
    rows = [{"id": "a", "text": "sort"}, {"id": "b", "text": "sort it"}]
    query_rows = [{"id": "q", "query": "sort", "relevance_grades": {"b": 3}}]
    before = evaluate_domain(["bm25"], load_domain(query_rows, rows), strict=True).results[0]
    file = home / "queries.toml"
    text = '[[queries]]\nid = "q"\nquery = "sort"\nrelevance_grades = { b = 3 }\n'
    file.write_text(f"{text}[settings]\ncomplete = true\n")
    run = evaluate_domain(["bm25"], load_domain(file, rows), strict=True)
    record = run.results[0]
    assert not run.reused
    assert (before.metrics["Judged@10"].value, record.metrics["Judged@10"].value) == (0.5, 1.0)
    assert record.data.judgements is None
    assert record.per_query["MRR@10"] == before.per_query["MRR@10"] == {"q": 1.0}


def domain_command(*arguments):
    return CliRunner().invoke(main, ["domain", *map(str, arguments)])


def test_the_command_writes_a_report_and_ends_with_the_decision(data, home, own_cache):
    arguments = ("--queries", data[0], "--documents", data[1], "--model", "random:16")
    arguments += ("--model", "random")
    done = domain_command(*arguments)
    assert "30 documents, 2 queries (1 dropped)" in done.output
    verdict = next(line for line in done.stdout.splitlines() if line.startswith("Keep random-16. "))
    markdown, value = sorted((home / "eval_results").iterdir(), reverse=True)
    assert re.fullmatch(r"evaluation_\d{8}_\d{6}", markdown.stem)
    assert markdown.read_text().startswith(f"# Keep random-16\n\n{verdict}\n")
    report = json.loads(value.read_text())
    assert report["headline"].startswith("Keep random-16: ")
    assert report["decides"] == "nDCG@10"
    assert set(report["models"]["random"]["per_query"]["MRR@10"]) == {"a", "c"}
    assert set(report["models"]["random"]["per_query"]) == set(RECORDED["own data"])
    assert report["queries"]["a"] == {"text": "alpha", "category": "first"}
    again = domain_command(*arguments, "--no-report", "--metric", "Recall@10")
    assert "random: record reused, nothing encoded; it took " in again.output
    assert "no candidate is shown to be better; random: Recall@10 " in again.output
    assert len(list((home / "eval_results").iterdir())) == 2
    domain_command(*arguments, "--reports", home / "elsewhere", "--threshold", 0.2)
    (file,) = (home / "elsewhere").glob("*.json")
    assert json.loads(file.read_text())["threshold"] == 0.2


def test_a_model_that_found_nothing_at_all_gets_no_verdict(data, home, own_cache):
    """BM25 has no word of the queries "alpha" and "gamma", whichever of the two it is."""
    files = ("--queries", data[0], "--documents", data[1])
    done = domain_command(*files, "--model", "bm25", "--model", "random")
    assert done.exit_code == 0
    assert "No decision: bm25, the model in use, found nothing for any query" in done.output
    done = domain_command(*files, "--model", "random", "--model", "bm25")
    assert "No decision: no model to compare with 'random'" in done.output
    assert "no verdict on bm25, which found nothing for any query" in done.output
    done = domain_command(*files, "--model", "random", "--model", "random:16", "--model", "bm25")
    assert "Keep random" in done.output
    report = json.loads(next((home / "eval_results").glob("*.json")).read_text())
    assert report["notes"] == ["no verdict on bm25, which found nothing for any query"]
    assert [each["model"] for each in report["comparison"]["recommendations"]] == ["random-16"]
    assert report["models"].keys() == {"random", "random-16"}


def test_a_label_with_a_secret_makes_no_folder(data, home, monkeypatch):
    token = "hf_" + "aB3" * 11
    monkeypatch.setenv("HF_TOKEN", token)
    named = ("--queries", data[0], "--documents", data[1], "--model", f"x{token}=bm25")
    done = domain_command(*named)
    assert done.exit_code == 1
    assert "Error: the label of a model: holds the value of HF_TOKEN" in done.output
    assert token not in done.output
    assert not [each for each in home.rglob("*") if token in each.name]


NAMED = "[models.current]\nmodel_id = 'bm25'\nname = 'words'\n[models.other]\nmodel_id = 'random'\n"


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        ("--check", 0, "in use: words (bm25); candidates: random"),
        ("--check --model other --model words", 0, "in use: random; candidates: words (bm25)"),
        ("--check --model both=bm25+random", 0, "in use: both (bm25+random); candidates: none"),
        ("--check --preset x", 1, "unknown preset 'x'; choose one of: gh-star-search"),
        ("--metric recall@10", 1, "choose one of: MRR@10, nDCG@10"),
        ("--model bm25 --model copy=bm25", 0, "copy: not compared, the same weights and settings"),
        ("--model bm25", 0, "No decision: there is no other model to compare with bm25."),
        ("--model no/model --model bm25 --model random", 1, "the model in use, failed."),
    ],
)
def test_the_command_says_what_it_uses_or_why_nothing_is_decided(
    data, write, home, options, code, line
):
    queries = write("named.toml", QUERIES + NAMED)
    done = domain_command("--queries", queries, "--documents", data[1], *options.split())
    assert (done.exit_code, line in done.output) == (code, True), done.output
    assert not ({"Traceback", "Keep"} & {*done.output.split()})
    assert not (home / "eval_results").exists()
    if "--check" in options:
        assert not (home / "results").exists()


def graded_domain():
    """Queries that all documents match, of which every third is judged, with grades 0 to 3."""
    rows = [{"id": f"d{n}", "text": f"alpha {'beta ' * (n % 9)}gamma {n % 4}"} for n in range(150)]
    query_rows = []
    for number, text in enumerate(("alpha beta", "gamma beta", "beta 3")):
        grades = {f"d{n}": (n + number) % 4 for n in range(number, 150, 3)}
        query_rows.append({"id": f"q{number}", "query": text, "relevance_grades": grades})
    return load_domain(query_rows, rows)


@pytest.mark.parametrize("model", ["bm25", "random:16", "bm25+random:16"])
def test_metrics_of_judged_documents_are_recorded_on_request_and_change_no_other(home, model):
    domain = graded_domain()
    before = evaluate_domain([model], domain, strict=True).results[0]
    assert not set(before.metrics) & set(OF_JUDGED_DOCUMENTS)
    run = evaluate_domain([model], domain, metrics=["bpref", "nDCG@3"], runs=True, strict=True)
    (record,) = run.results
    assert set(record.metrics) == {*RECORDED["own data"], *OF_JUDGED_DOCUMENTS, "nDCG@3"}
    for metric in RECORDED["own data"]:
        assert record.per_query[metric] == before.per_query[metric]
    assert record.data.judgements == before.data.judgements
    assert verify_files([record.path()]) == {}
    (run_file,) = record.path().parent.glob("*.trec")
    with run_file.open() as lines:
        found = pytrec_eval.parse_run(lines)
    evaluator = pytrec_eval.RelevanceEvaluator(domain.grades, {"bpref"}, relevance_level=2)
    theirs = {query: value["bpref"] for query, value in evaluator.evaluate(found).items()}
    assert dict(record.per_query["bpref"]) == pytest.approx(theirs)
    assert 0 < record.metrics["bpref"].value < 1
    again = evaluate_domain([model], domain, metrics=["condensed_MRR@10"], strict=True)
    assert again.reused


def test_metrics_of_judged_documents_need_one_that_is_not_relevant(data):
    with pytest.raises(DataError, match=r"bpref compares .* no query has one. Grade some with 0"):
        evaluate_domain(
            ["random"], replace(load_domain(*data), grades={"c": {"d3": 3}}), metrics=["bpref"]
        )


def test_what_is_unjudged_is_stated_and_the_commands_judge_it(write, home, own_cache):
    """One answer per query; the other document is the first of the one model or of the other."""
    rows, lines = [], []
    for number, word in enumerate(("apple", "pear", "plum", "fig", "lime", "kiwi", "date", "nut")):
        rows += [
            {"id": f"short{number}", "text": word},
            {"id": f"long{number}", "text": f"{word} {word} and much else of another kind"},
        ]
        expected = f'expected = ["long{number}"]'
        lines.append(f'[[queries]]\nid = "q{number}"\nquery = "{word}"\n{expected}\n')
    documents = write("docs.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    queries = write("queries.toml", "".join(lines))
    given = ("--documents", documents, "--model", "bm25", "--model", "tiny=random:16")
    done = domain_command("--queries", queries, *given)
    assert "what has no grade is unjudged" in done.output
    assert "only relevant documents have grades" in done.output
    assert re.search(r"No decision\. \d+ of \d+ results are unjudged, and", done.output)
    command = f"--documents {documents} --model bm25 --model tiny=random:16"
    assert f"qwen3nb judge --queries {queries} {command}" in done.output
    assert f"qwen3nb domain --queries {queries} --judgements grades.jsonl {command}" in done.output
    done = domain_command("--queries", queries, *given, "--complete", "--no-report")
    assert "what has no grade is not relevant" in done.output
    assert not {"unjudged", "judge"} & {*re.findall(r"\w+", done.output)}
    grades = "".join(
        json.dumps({"query": word, "document": f"short{number}", "grade": 0, "grader": "ann"})
        + "\n"
        for number, word in enumerate(("apple", "pear", "plum", "fig"))
    )
    file = write("grades.jsonl", grades)
    done = domain_command("--queries", queries, "--judgements", file, *given, "--check")
    assert "12 grades from 0 to 3" in done.output
    assert "8 more grades of queries.toml" in done.output
    assert "only relevant documents have grades" not in done.output


def test_judge_asks_for_no_document_that_the_queries_have_graded(data, home, own_cache):
    """Each model ranks ten of thirty documents; fractions are no grades of `judge`."""
    text = '[[queries]]\nid = "a"\nquery = "alpha"\n'
    grades = ", ".join(f"d{n} = {n % 3}" for n in range(1, 30))
    queries = home / "q.toml"
    queries.write_text(f"{text}relevance_grades = {{ {grades}, d30 = 0.5 }}\n")
    given = ("judge", "--queries", queries, "--documents", data[1])
    given += ("--model", "random", "--model", "random:16", "--sheet", home / "s.csv")
    given += ("--grades", home / "grades.jsonl")
    done = CliRunner().invoke(main, [*map(str, given)])
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in (home / "grades.jsonl").read_text().split("\n") if line]
    graded = {line["document"]: line["grade"] for line in lines}
    assert 10 <= len(graded) <= 20
    assert graded == {name: int(name[1:]) % 3 for name in graded}
    assert {line["grader"] for line in lines} == {"q.toml"}
    assert f"{len(lines)} grades are known" in done.output
    rows = list(csv.DictReader((home / "s.csv").read_text().splitlines()))
    assert {row["document"] for row in rows} <= {"d30"}
    again = CliRunner().invoke(main, [*map(str, given)])
    assert "grades are known" not in again.output

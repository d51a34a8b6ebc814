"""The loop over items, what it returns, and when a record is reused."""

import errno
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from types import SimpleNamespace

import pytest
import pytrec_eval
from helpers.beir import write_beir
from helpers.mteb_tasks import loaded, search_data
from helpers.records import make
from helpers.rerankers import write_reranker

from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.availability import task_statuses
from qwen3nb.evaluation.retrieval.custom import evaluate_domain
from qwen3nb.evaluation.run import (
    EvaluationError,
    EvaluationRun,
    Run,
    UnsupportedError,
    Work,
    evaluate_each,
    stored,
)
from qwen3nb.metrics.retrieval import RECORDED
from qwen3nb.models.load import load_model
from qwen3nb.models.rerankers import load_reranker
from qwen3nb.models.types import Stats
from qwen3nb.records.record import Environment, Result, TaskInfo
from qwen3nb.records.results import Results
from qwen3nb.records.store import load_failures, load_results, verify_files

MODEL = make("one").model


@dataclass(frozen=True)
class Item:
    """An item that makes a record, or raises an error."""

    key: str
    error: BaseException | None = None
    measures: tuple[str, ...] = ("nDCG@10",)
    revision: str = "r"

    @property
    def name(self):
        return self.key

    def same(self, record, folder):
        return record.task.revision == self.revision

    def evaluate(self, model, run):
        if self.error is not None:
            raise self.error
        versions = Environment.current().versions
        each = make("one", task=self.key, scores=(0.5, 0.7), revision=self.revision, run=run.id)
        metrics = dict.fromkeys(self.measures, each.metrics["nDCG@10"])
        scores = dict.fromkeys(self.measures, each.per_query["nDCG@10"])
        environment = Environment(versions=versions)
        return replace(each, metrics=metrics, per_query=scores, environment=environment)


def run(*items, **options):
    def find(item):
        if isinstance(item, str):
            raise UnsupportedError("one has no vectors")
        return [(MODEL, item)]

    jobs = [(getattr(item, "key", item), lambda item=item: find(item)) for item in items]
    options = Run(show_progress=False, **options)
    return evaluate_each(jobs, options, label="one", kind="tasks")


def fail(error):
    raise error


FAILING = Item("V", EvaluationError("no such data"))


def test_records_skips_and_failures_are_kept_and_the_others_go_on(home):
    run(Item("T"))
    done = run(FAILING, "U", Item("T"), strict=False)
    assert isinstance(done.results, Results)
    assert ([result.task.name for result in done], len(done)) == (["T"], 1)
    assert (done.reused, done.skipped) == (("T",), {"U": "one has no vectors"})
    assert done.failures["V"].startswith("Traceback")
    assert done.failures["V"].endswith("EvaluationError: no such data\n")
    text = repr(done)
    assert text.startswith("<EvaluationRun: 1 record, 1 reused, 1 skipped, 1 failed>")
    for line in ("one on T: nDCG@10 0.600", "U: skipped, one has", "V: EvaluationError: no such"):
        assert line in text
    assert repr(EvaluationRun()) == "<EvaluationRun: 0 records>"
    assert list(load_failures().values()) == [done.failures["V"].strip().splitlines()[-1]]
    run(Item("V"))
    assert load_failures() == {}  # forgotten once it works


def test_processes_that_evaluate_the_same_share_the_items(home):
    """The first is at A until the second has done the others, and then takes A from its record."""
    evaluated, others_done = [], threading.Event()

    class Shared(Item):
        def evaluate(self, model, run):
            evaluated.append(self.key)
            if self.key == "A":
                assert others_done.wait(60)
            if self.key == "C":
                others_done.set()
            return super().evaluate(model, run)

    items = [Shared(key) for key in "ABC"]
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(run, *items) for _ in range(2)]
        done = [future.result() for future in runs]
    assert sorted(evaluated) == ["A", "B", "C"]
    assert [[record.task.name for record in run_done] for run_done in done] == [["A", "B", "C"]] * 2
    assert sorted(name for run_done in done for name in run_done.reused) == ["A", "B", "C"]


def test_what_another_process_is_at_or_has_failed_at_can_be_left_to_it(home):
    """While this one is at A, the other fails at V, and is at B until this one has ended."""
    others_begun, end = threading.Event(), threading.Event()

    class Other(Item):
        def evaluate(self, model, run):
            others_begun.set()
            assert end.wait(60)
            return super().evaluate(model, run)

    class First(Item):
        def evaluate(self, model, run_of_first):
            futures.append(pool.submit(run, FAILING, Other("B"), strict=False))
            assert others_begun.wait(60)
            return super().evaluate(model, run_of_first)

    open_names, futures = [], []
    with ThreadPoolExecutor(1) as pool:
        items = [First("A"), FAILING, Item("B")]
        done = run(*items, wait_for=open_names.append)
        end.set()
        (other,) = futures
    assert [record.task.name for record in done] == ["A"]
    assert (open_names, done.left, dict(done.failures)) == ([["B"]], ("V", "B"), {})
    assert list(other.result().failures) == ["V"]
    assert repr(done).startswith("<EvaluationRun: 1 record, 2 left to other processes>")
    with pytest.raises(EvaluationError, match="no such data"):
        run(FAILING, wait_for=open_names.append)  # an earlier failure is tried again


def test_a_run_has_its_scores_as_frames_and_shows_itself():
    done = EvaluationRun(
        Results([make("one", (0.1, 0.3))]), skipped={"<U>": "no vectors"}, failures={"V": "E: no"}
    )
    assert done.to_frame()["value"].tolist() == pytest.approx([0.2])
    assert done.to_frame(per_query=True)["value"].tolist() == [0.1, 0.3]
    assert done.summary()[["model", "n"]].to_numpy().tolist() == [["one", 2]]
    assert done.worst(1)["query"].tolist() == ["q0"]
    shown = done._repr_html_()
    assert "<table" in shown
    for line in ("<p>&lt;U&gt;: skipped, no vectors</p>", "<p>V: E: no</p>"):
        assert line in shown
    with pytest.raises(AttributeError, match=r"write run.results\[0\].scores"):
        done.scores  # noqa: B018 - as one types it


@pytest.mark.parametrize("saved", [0, 2])
def test_failures_are_raised_at_the_end_and_say_what_is_saved(home, saved):
    with pytest.raises(EvaluationError) as error:
        run(FAILING, *(Item(f"T{number}") for number in range(saved)))
    assert f"one: 1 of {1 + saved} tasks failed; records in {home}" in str(error.value)
    assert str(error.value).endswith(f": {saved}\n  V: EvaluationError: no such data")
    assert len(error.value.run) == len(load_results()) == saved


def test_a_full_disk_stops_all_and_is_named_by_its_own_file(home, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device", str(home / "V.json"))
    monkeypatch.setattr("qwen3nb.evaluation.run.write_text", lambda *_: fail(OSError("the note")))
    with pytest.raises(OSError, match="No space left") as error:
        run(Item("V", full), Item("T"))
    assert error.value is full
    assert load_results() == []


def test_names_that_differ_in_case_do_not_share_a_record(home):
    (record,) = run(Item("SciFact"))
    file = record.path(home / "results")
    file.rename(file.with_name("scifact.json"))  # the name that a disk without case would open
    with pytest.raises(EvaluationError, match="is the record of 'SciFact'.*ignores case"):
        run(Item("scifact"))


def test_an_interrupt_is_no_failure(home):
    with pytest.raises(KeyboardInterrupt):
        run(Item("T", KeyboardInterrupt()))


def test_an_item_is_evaluated_again_for_another_measure_or_seed_or_if_asked(home, caplog):
    first = run(Item("T"), config={"a": 1}).results[0]
    assert run(Item("T")).results[0] == first
    more = Item("T", measures=("nDCG@10", "Hit@5"))
    again = run(more)
    assert (again.reused, set(again.results[0].metrics)) == ((), {"nDCG@10", "Hit@5"})
    assert "recorded without Hit@5" in caplog.text
    assert run(more).reused == run(Item("T")).reused == ("T",)  # fewer are wanted: it has them
    assert run(more, fresh=True).reused == run(more, seed=1).reused == ()


@pytest.mark.parametrize(
    ("identity", "versions", "item", "reused"),
    [
        (MODEL.identity, {}, Item("T"), True),
        ("0" * 64, {}, Item("T"), False),
        (MODEL.identity, {}, Item("T", revision="s"), False),
        (MODEL.identity, {"torch": "1.0.0"}, Item("T"), False),
    ],
)
def test_a_record_is_reused_only_if_all_is_as_wanted(home, identity, versions, item, reused):
    installed = Environment.current().versions | versions
    result = make("one", task="T", revision="r", environment=Environment(versions=installed))
    file = result.save()
    model = SimpleNamespace(label="one", identity=identity)
    if identity != MODEL.identity:  # whose records have the same folder
        model.identity = identity = MODEL.identity[:8] + identity[8:]
    assert (stored(model, item, Run()) == result) is reused
    file.write_text(file.read_text().replace('"seed": 0', '"seed": 1'))
    assert stored(model, item, Run()) is None


@pytest.mark.parametrize(("device", "linear"), [("cpu", "mkl"), ("cuda:0", "H100, without TF32")])
def test_a_record_names_the_library_that_multiplied(tmp_path, monkeypatch, device, linear):
    monkeypatch.setenv("QWEN3NB_LINEAR", "mkl")
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "H100")
    model = SimpleNamespace(
        label="a",
        identity="f" * 64,
        stats=Stats(),
        source=SimpleNamespace(spec="a"),
        parameters=10,
        device=device,
        settings={"dtype": "float32"},
    )
    work, task = Work(model), TaskInfo("x", "Retrieval", "m")
    result = work.record(task, {"m": {"q1": 1.0, "q2": 0.0}}, Run())
    assert Result.load(result.save(tmp_path)).environment.linear == linear


# Runs and qrels of searches: other programs get the record's score of every query from them.


def written(record):
    """The files of the run and of the qrels that a record names."""
    files = Result.load(record).files
    (run,), (qrels,) = files.runs, files.qrels
    return record.with_name(run), record.with_name(qrels)


def lines(file):
    return [line.split(" ") for line in file.read_text(encoding="utf-8").splitlines()]


def by_trec_eval(record, *, level=1):
    """Scores per metric and query by trec_eval's own code, from the files that were written."""
    run, qrels = {}, {}
    for query, _, document, _, score, _ in lines(written(record)[0]):
        run.setdefault(query, {})[document] = float(score)
    for query, _, document, grade in lines(written(record)[1]):
        qrels.setdefault(query, {})[document] = int(grade)
    measures = {"ndcg_cut.10", "recall.10,20,100", "recip_rank", "map_cut.100"}
    graded = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    binary = pytrec_eval.RelevanceEvaluator(qrels, measures, relevance_level=level).evaluate(run)
    assert all(len(set(map(float, scores.values()))) == len(scores) for scores in run.values())

    def column(measure):
        judged = graded if "ndcg" in measure else binary
        return {query: judged.get(query, {}).get(measure, 0.0) for query in qrels}

    ranks = column("recip_rank")  # which trec_eval does not cut off at 10
    return {
        "nDCG@10": column("ndcg_cut_10"),
        "MAP@100": column("map_cut_100"),
        "MRR@10": {query: rank if rank >= 0.1 else 0.0 for query, rank in ranks.items()},
        **{f"Recall@{k}": column(f"recall_{k}") for k in (10, 20, 100)},
    }


COMPARED = ("nDCG@10", "MRR@10", "Recall@10", "Recall@20", "Recall@100", "MAP@100")


def with_runs(model, data=None, **options):
    return evaluate(model, data, runs=True, show_progress=False, **options)


def agree(record, *, level=1):
    """The record's scores are those of trec_eval from its files; the names of what was compared."""
    result, theirs = Result.load(record), by_trec_eval(record, level=level)
    compared = [name for name in COMPARED if name in result.per_query]
    for name in compared:
        assert dict(result.per_query[name]) == pytest.approx(theirs[name], abs=1e-9)
    assert verify_files([record]) == {}
    return compared


@pytest.fixture
def tied(tmp_path):
    """A BEIR folder in which every text occurs five times, under ids in no order."""
    folder = write_beir(tmp_path / "tied", documents=30)
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    copies = [row | {"_id": f"{'cab'[n % 3]}{n}{row['_id']}"} for row in rows for n in range(4)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(r) + "\n" for r in (*rows, *copies)))
    return folder


@pytest.mark.parametrize("model", ["bm25", "random", "bm25+random"])
def test_a_collection_with_ties_and_grades_below_zero(tied, model):
    collection = TestCollection.from_beir(tied)
    first = next(iter(collection.qrels))
    collection.qrels[first]["d20"] = -3
    (result,) = with_runs(model, collection)
    assert len(agree(result.path())) == 5
    assert result.task.size["documents"] == 150
    grades = {tuple(line[:3:2]): line[3] for line in lines(written(result.path())[1])}
    assert grades[first, "d20"] == "0"


@pytest.mark.parametrize("name", ["PyDocsSampleRetrieval", "PyDocsSampleReranking"])
def test_a_task_of_mteb(name):
    (result,) = with_runs("bm25", tasks=name, limit=30)
    assert result.task.clusters == {q: q.rpartition(".")[0] for q in result.per_query["nDCG@10"]}
    assert len(agree(result.path())) == 5


def test_the_splits_and_subsets_of_a_task_are_in_one_run():
    texts = {"d1": "rain and wind", "d2": "snow and frost", "d3": "rain and frost", "d4": "hail"}

    def part(qrels):
        queries = {name: texts[next(iter(grades))] for name, grades in qrels.items()}
        return {"validation": search_data(texts, queries, qrels)}

    data = {
        "ara-ara": part({"q1": {"d1": 1, "d3": 2}, "q2": {"d2": 0, "d4": -1}}),
        "ara-deu": part({"q1": {"d2": 1}, "d4": {"d4": 1, "d2": 1}}),
    }
    task = loaded("MLQARetrieval", data, hf_subsets=list(data), eval_splits=["validation"])
    (result,) = with_runs("random", tasks=[task])
    queries = {line[0] for line in lines(written(result.path())[1])}
    assert queries == set(result.per_query["nDCG@10"])
    assert "validation/ara-deu/q1" in queries
    assert agree(result.path())


def own_data(folder):
    """Queries and documents of one's own, in files."""
    queries = "".join(
        f'[[queries]]\nid = "q{n}"\nquery = "alpha {n} beta"\n'
        f"relevance_grades = {{ d{n} = 3, d{n + 1} = 1, d{n + 9} = 2 }}\n"
        for n in range(5)
    )
    (folder / "queries.toml").write_text(f"[settings]\nrelevance_threshold = 2\n{queries}")
    rows = [{"id": f"d{n}", "text": f"alpha {n % 7} beta {n % 2}"} for n in range(40)]
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "queries.toml", folder / "docs.jsonl"


def test_own_data_with_a_threshold(tmp_path):
    domain = load_domain(*own_data(tmp_path), on=date(2026, 1, 1))
    assert domain.threshold == 2
    for done in evaluate_domain(["bm25", "random"], domain, runs=True, show_progress=False):
        assert len(agree(done.path(), level=2)) == 4


@pytest.mark.integration
@pytest.mark.parametrize("kind", RECORDED)
def test_every_kind_of_item_is_made_again_for_other_data_or_measures(
    tmp_path, monkeypatch, caplog, kind
):
    files, corpus = own_data(tmp_path), write_beir(tmp_path / "words") / "corpus.jsonl"
    reranking = kind == "reranking"
    model = load_reranker(write_reranker(tmp_path / "m"), device="cpu") if reranking else "bm25"

    def made(**options):
        data = {"task": None, "own data": load_domain(*files)}.get(kind, corpus.parent)
        options |= {"tasks": "PyDocsSampleReranking"} if kind == "task" else {}
        return evaluate(model, data, show_progress=False, **options)

    first, again = made(), made()
    assert (len(first.reused), len(again.reused)) == (0, 1)
    assert again.results[0].scores == first.results[0].scores
    assert verify_files([first.results[0].path()]) == {}
    assert made(fresh=True).reused == ()
    assert "evaluated again" not in caplog.text
    monkeypatch.setitem(RECORDED, kind, (*RECORDED[kind], "Hit@5"))
    (more,) = made()
    assert "recorded without Hit@5" in caplog.text
    assert {*first.results[0].metrics, "Hit@5"} <= {*more.metrics}
    assert made().reused == again.reused
    for file, name in ((corpus, "_id"), (files[1], "id")):
        with file.open("a") as lines:
            lines.write(json.dumps({name: "new", "title": "", "text": "alpha row"}) + "\n")
    assert len(made().reused) == (kind == "task")


@pytest.mark.integration
def test_a_record_without_its_run_is_made_again_and_nothing_is_encoded_again(tied, monkeypatch):
    model = load_model("random", show_progress=False)
    task = {"tasks": [embedded_task("PyDocsSampleReranking")], "limit": 20}
    for data, options in ((tied, {}), (None, task)):
        (before,) = evaluate(model, data, show_progress=False, **options)
        assert not list(before.path().parent.glob(f"{before.task.key}*.trec"))
        with monkeypatch.context() as patch:
            patch.setattr(model, "_embed", lambda texts: pytest.fail("encoded again"))
            (after,) = with_runs(model, data, **options)
        assert after.per_query == before.per_query
        assert agree(after.path())
        assert with_runs(model, data, **options).results[0] == after
        assert evaluate(model, data, show_progress=False, **options).results[0] == after
    written(after.path())[0].unlink()
    assert task_statuses(model, **task, run=Run(runs=True)) == ["to run"]
    assert task_statuses(model, **task, run=Run()) == ["there"]


def test_a_lost_or_changed_file_is_noticed_and_written_again(tied):
    (result,) = with_runs("bm25", tied)
    for file in written(result.path()):
        content = file.read_bytes()
        for damage in (file.unlink, lambda file=file: file.write_text("q0 0 d0 1\n")):
            damage()
            assert file.name in str(verify_files([result.path()]))
            assert with_runs("bm25", tied).reused == ()
            assert file.read_bytes() == content
    fresh = evaluate("bm25", tied, fresh=True, show_progress=False)
    assert fresh.results[0].files.runs == {}
    assert not list(result.path().parent.glob("tied.*.trec"))
    assert not list(result.path().parent.glob("tied.*.qrels"))

"""What is planned before a run, and the tables that show it."""

import json
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
from helpers.study import TEXTS, write_retrieval

from qwen3nb import paths
from qwen3nb.answers.data import Data
from qwen3nb.answers.one_model import PlannedRun, preflight_table, sweep_table
from qwen3nb.datasets.mirror import MirrorError, data_revision
from qwen3nb.datasets.pydocs.mteb_tasks import author_sts
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb import availability, resources, sizes, speed
from qwen3nb.evaluation.mteb import plan as whole_plan
from qwen3nb.evaluation.mteb.availability import (
    TO_RUN,
    PreflightError,
    load_checked,
    task_statuses,
    weight_bytes,
)
from qwen3nb.evaluation.mteb.costs import Planned, costs
from qwen3nb.evaluation.mteb.plan import Preflight
from qwen3nb.evaluation.mteb.resources import ResourceCheck
from qwen3nb.evaluation.mteb.select import choose_tasks, suite_tasks, tier_tasks
from qwen3nb.evaluation.mteb.speed import EncodingSpeed
from qwen3nb.evaluation.run import Run
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.model import Model as NamedModel
from qwen3nb.vectors.cache import bytes_per_vector
from qwen3nb.vectors.encode_file import block_size

# A text of 100 characters takes 1 s, one of 1,100 characters or more 11 s.
SPEED = EncodingSpeed((100, 1100), (1.0, 11.0))


def plan(model, *, tier="smoke", tasks=None, output, limit=0, speeds=()):
    selected, run = suite_tasks(tier=tier, tasks=tasks), Run(output=output)
    statuses = task_statuses(model, selected, run, limit=limit)
    return costs(selected, statuses, limit=limit, speeds=speeds)


@pytest.fixture
def encoder(encoder_folder):  # not shared, as its methods are replaced
    return load_encoder(encoder_folder, cache=False, show_progress=False)


@pytest.mark.integration
def test_a_plan_says_what_will_be_run_and_what_is_there(encoder, tmp_path):
    names = "PyDocsSampleRetrieval,AuthorSTS"
    first, second = plan(encoder, tasks=names, output=tmp_path, speeds=[SPEED])
    assert [first.status, second.status] == ["to run", "to run"]
    texts = {(i, text) for *pair, _ in author_sts() for i, text in enumerate(pair)}
    assert second.texts == len(texts)
    mean = sum(len(text) for _, text in texts) / len(texts)
    assert mean < 100  # each takes a second
    assert second.minutes - second.beside == pytest.approx(len(texts) / 60)
    evaluate(encoder, tasks="AuthorSTS", output=tmp_path, show_progress=False)
    ready = preflight(encoder, tasks=names, output=tmp_path)
    ready.require()
    assert [each.status for each in ready.planned] == ["to run", "there"]
    assert ready.planned[1].minutes is None
    assert ready.minutes > 0
    assert set(verdicts(ready).values()) == {"PASSED"}
    assert preflight(encoder, tasks="AuthorSTS", output=tmp_path).minutes is None  # all is there
    (short,) = plan(encoder, tasks="AuthorSTS", limit=7, output=tmp_path)
    assert short.task == "AuthorSTS-limit7"
    assert short.texts <= 14


def test_a_plan_names_what_a_model_cannot_do_and_needs_no_data(tmp_path):
    planned = plan(load_model("bm25"), tier="fast", output=tmp_path)
    states = {each.task: each.status for each in planned}
    assert states["SciFact"] == "to run"
    assert states["SICK-R"] == "bm25 has no vectors"
    assert all(each.minutes is None for each in planned)
    assert {each.task: each.texts for each in planned}["SciFact"] == 5483  # MTEB's own count


def test_what_tasks_will_cost():
    estimates = {each.task: each for each in costs(tier_tasks("fast"), speeds=[SPEED])}
    # MTEB publishes: 5,183 documents of 1,499.4 characters and 300 queries of 90.3.
    scifact = estimates["SciFact"]
    assert (scifact.texts, scifact.documents, scifact.queries) == (5183 + 300, 5183, 300)
    assert scifact.minutes - scifact.beside == pytest.approx((5183 * 11 + 300) / 60)
    assert scifact.hits == 300 * 1000
    assert costs(choose_tasks(tasks=["SciFact"]))[0].minutes is None
    assert len(costs(choose_tasks(tasks=["CQADupstackRetrieval"]))) == 12
    # A pair and a query are compared in 1 and 2 s: all of the corpus, or the candidates listed.
    slow = EncodingSpeed((0,), (0,), pair=1.0, query=2.0)
    (one,) = costs(choose_tasks(tasks=["SciFact"]), speeds=[slow])
    assert 60 * (one.minutes - one.beside) == pytest.approx(5183 * 300)
    (news,) = costs(choose_tasks(tasks=["MindSmallReranking"]), speeds=[slow])
    assert (news.queries, news.candidates, news.hits) == (2_362_514, 97_008_807, 97_008_807)
    assert 60 * (news.minutes - news.beside) == pytest.approx(2 * 2_362_514)


def test_built_in_data_are_counted_once(own_cache, monkeypatch):
    counted = []
    count = sizes._statistics_of_loaded

    def noted(task):
        counted.append(task.metadata.name)
        return count(task)

    def numbers(limit):
        (task,) = choose_tasks(tasks=["AuthorSTS"])
        parts = sizes.task_parts(task, limit, read=True)
        return [(part.columns, part.queries, part.candidates, part.rows) for part in parts]

    monkeypatch.setattr(sizes, "_statistics_of_loaded", noted)
    first_numbers = numbers(limit=0)
    assert numbers(limit=0) == first_numbers
    assert counted == ["AuthorSTS"]
    assert numbers(limit=5) != first_numbers
    assert counted == ["AuthorSTS"] * 2
    for file in paths.cache().glob("sizes/*.json"):
        file.write_text("{")  # damaged
    assert numbers(limit=0) == first_numbers


def test_only_the_texts_that_mteb_encodes_count():
    names = ["Banking77Classification", "BiorxivClusteringP2P.v2"]
    banking, biorxiv = costs(choose_tasks(tasks=names))
    # 8 rows of each of 77 labels, ten times: (1 - 616/10003)^10 of 10,003 rows are never drawn.
    assert banking.texts == round(3080 + 10003 * (1 - (1 - 616 / 10003) ** 10)) == 7785
    assert biorxiv.texts == round(0.04 * 53784)
    # Of rows that repeat texts, 4 % have more than 4 % of the texts.
    (news,) = costs(choose_tasks(tasks=["TwentyNewsgroupsClustering.v2"]))
    stats = choose_tasks(tasks=["TwentyNewsgroupsClustering.v2"])[0].metadata.descriptive_stats
    distinct = stats["test"]["text_statistics"]["unique_texts"]
    assert news.texts == round(distinct * (1 - 0.96 ** (59545 / distinct)))
    assert 0.04 * distinct < news.texts <= 0.04 * 59545


def test_only_the_selected_subsets_and_splits_count():
    # 2,974 English utterances, of which 2,970 are distinct; all 51 languages have 148,972.
    # Of 11,514 rows to learn from, 8 of each of some 60 labels are drawn ten times.
    tasks = choose_tasks(tasks=["MassiveIntentClassification"], languages=["eng"], splits=["test"])
    (one,) = costs(tasks)
    assert 2970 + 480 < one.texts < 2970 + 4800


def test_a_small_local_copy_is_not_taken_for_the_published_data(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    write_retrieval(tmp_path / "mteb" / "scifact")
    (task,) = choose_tasks(tasks=["SciFact"])
    (small,) = costs([task], [TO_RUN])
    assert (small.documents, small.queries) == (len(set(TEXTS)), 6)
    assert small.characters == sum(map(len, set(TEXTS))) + 6 * 30  # six queries
    # The revision is that of what will be read, as in the record.
    assert small.revision == data_revision(task)[:12]
    assert small.revision.startswith("local-")
    (row,) = [row for row in Data("fast", {}, {}).table().rows if row[0].text == "SciFact"]
    assert row[3].text == small.revision
    (tmp_path / "mteb" / "scifact" / "more.jsonl").write_bytes(b"x" * 8_000_000)
    (real,) = costs(choose_tasks(tasks=["SciFact"]), [TO_RUN])
    assert real.texts == 5183 + 300


# What is looked at before a run: data, weights, memory, disk.


GB = 10**9


def preflight(model, *, tasks=(), output=None):
    selected = suite_tasks(tier="", tasks=tasks)
    return whole_plan.preflight(model, selected, Run(output=output))


@pytest.fixture
def big(monkeypatch):
    """Three retrieval tasks of a million texts; the data of one are part of another's."""
    sizes = {"FEVER": "x/a", "FEVERHardNegatives": "x/b", "NQ": "x/c"}
    planned = [
        Planned(name, "Retrieval", data, "1", 10**6, None, "to run", documents=10**6, queries=100)
        for name, data in sizes.items()
    ]
    monkeypatch.setattr(whole_plan, "costs", lambda *_, **__: planned)
    monkeypatch.setattr(whole_plan, "task_statuses", lambda *_, **__: [])
    return planned


def verdicts(ready):
    return {row[0].text: row[3].text for row in preflight_table(ready).rows}


def test_missing_data_and_weights_are_one_list_and_nothing_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    with pytest.raises(MirrorError) as caught:
        load_checked(NamedModel("bm25"), tier_tasks("fast"), Run(), tier="fast")
    message = str(caught.value)
    assert [name in message for name in ("SciFact", "NFCorpus", "FiQA2018")] == [True] * 3
    assert "STSBenchmark" not in message  # BM25 has no vectors to compare sentences with
    assert f"`qwen3nb fetch --tier fast --mirror {tmp_path}`" in message
    monkeypatch.setattr(NamedModel, "load", None)
    with pytest.raises(MirrorError, match="--tasks SciFact --model e5-base-v2"):
        load_checked(NamedModel("e5-base-v2"), choose_tasks(tasks=["SciFact"]), Run())


def test_weights_that_memory_cannot_hold_are_not_loaded(encoder_folder, monkeypatch):
    weights = weight_bytes(find_source(str(encoder_folder)))
    assert weights == (encoder_folder / "model.safetensors").stat().st_size
    monkeypatch.setattr(availability, "available_memory", lambda: weights - 1)
    with pytest.raises(PreflightError, match="the weights are"):
        load_checked(NamedModel(encoder_folder), [], Run())
    assert weight_bytes(find_source("bm25")) == 0


def test_vectors_that_do_not_fit_are_refused_with_the_way_out(encoder_folder, monkeypatch, big):
    encoder = load_encoder(encoder_folder, show_progress=False)
    size = bytes_per_vector(encoder.dimension)
    monkeypatch.setattr(whole_plan, "available_memory", lambda: 100 * GB)
    monkeypatch.setattr(resources, "free_disk", lambda folder: int(1.9e6 * size))
    ready = preflight(encoder)
    assert verdicts(ready)["disk"] == "FAILED"
    with pytest.raises(PreflightError, match="--no-cache, or set QWEN3NB_CACHE"):
        ready.require()
    # FEVERHardNegatives is part of FEVER, so that there are two millions of texts.
    monkeypatch.setattr(resources, "free_disk", lambda folder: int(2.1e6 * size))
    preflight(encoder).require()
    monkeypatch.setattr(resources, "free_disk", lambda folder: 0)
    with monkeypatch.context() as patch:  # stored before
        patch.setattr(type(encoder.cache), "__len__", lambda cache: 2 * 10**6)
        preflight(encoder).require()
    monkeypatch.setattr(resources, "free_disk", lambda folder: GB // 4)
    monkeypatch.setenv("QWEN3NB_CACHE_LIMIT", "200MB")
    limited = preflight(load_encoder(encoder_folder, show_progress=False))
    limited.require()
    assert {each.name: each.needed for each in limited.checks}["disk"] == (
        "0.2 GB: 0.3 of vectors; --cache-limit keeps 0.2 of vectors"
    )
    monkeypatch.setattr(resources, "free_disk", lambda folder: 0)
    preflight(load_encoder(encoder_folder, cache=False, show_progress=False)).require()


def test_a_search_that_memory_cannot_hold_is_refused(encoder_folder, monkeypatch, big):
    encoder = load_encoder(encoder_folder, cache=False, show_progress=False)
    # A block of vectors in four copies, those of 100 queries, and a thousand hits of each.
    # The queries' vectors are there three times; a query has 4,096 bytes, an id of a document 130.
    vectors = 4 * encoder.dimension * (4 * block_size(encoder.dimension) + 3 * 100)
    needed = vectors + 256 * 100 * 1000 + 4096 * 100 + 130 * 10**6
    monkeypatch.setattr(whole_plan, "peak_memory", lambda: 0)
    monkeypatch.setattr(whole_plan, "resident_memory", lambda: 0)
    monkeypatch.setattr(whole_plan, "available_memory", lambda: needed - 1)
    with pytest.raises(PreflightError, match="GB of memory"):
        preflight(encoder).require()
    # If others fit, only the task that does not is left out.
    big.append(replace(big[0], task="TRECCOVID", queries=50))
    ready = preflight(encoder)
    ready.require()
    assert [each.task for each in ready.planned if each.status == TO_RUN] == ["TRECCOVID"]
    assert list(ready.left_out) == ["FEVER", "FEVERHardNegatives", "NQ"]
    note = preflight_table(ready).note
    assert note.startswith("1 of 4 tasks to run. Left out: FEVER (it needs about 0.")
    assert "run it with --tasks on a larger machine)" in note
    table = sweep_table([PlannedRun("m", ready)])
    assert table.rows[0][-1].text.startswith("left out: FEVER, FEVERHardNegatives, NQ")
    monkeypatch.setattr(whole_plan, "available_memory", lambda: needed)
    assert not preflight(encoder).left_out


def test_a_stall_does_not_make_a_plan_of_hours(encoder, monkeypatch):
    """A text takes a millisecond, and the first of each length another hundred seconds."""
    clock, cpu_clock, seen = [0.0], [0.0], set()

    def encode(_, texts, __):
        clock[0] += 0.001 * len(texts) + 100 * (len(texts[0]) not in seen)
        cpu_clock[0] += 0.001 * len(texts)
        seen.add(len(texts[0]))

    monkeypatch.setattr(encoder, "_checked", encode)
    monkeypatch.setattr(speed, "_seconds_per_pair", lambda _: 0.0)
    clocks = {"perf_counter": lambda: clock[0], "process_time": lambda: cpu_clock[0]}
    monkeypatch.setattr(speed, "time", SimpleNamespace(**clocks))
    measured = speed.measure_encoding(encoder)
    assert len(seen) == len(measured.seconds) == 3
    assert measured.seconds == pytest.approx([0.001] * 3)


def test_a_busy_machine_is_planned_as_it_is(encoder, monkeypatch):
    """A text takes 2 ms of two threads, which get a fifth of a core; a single text gets more."""
    clock, cpu_clock = [0.0], [0.0]

    def encode(_, texts, __):
        cpu = 0.002 * len(texts)
        cpu_clock[0] += cpu
        clock[0] += cpu if len(texts) == 1 else 5 * cpu

    monkeypatch.setattr(encoder, "_checked", encode)
    monkeypatch.setattr(speed, "_seconds_per_pair", lambda _: 0.0)
    clocks = {"perf_counter": lambda: clock[0], "process_time": lambda: cpu_clock[0]}
    monkeypatch.setattr(speed, "time", SimpleNamespace(**clocks))
    measured = speed.measure_encoding(encoder)
    assert measured.seconds == pytest.approx([0.01] * 3)
    quiet, busy = (
        costs(choose_tasks(tasks=["SciFact"]), speeds=[replace(SPEED, slowdown=slowdown)])[0]
        for slowdown in (1, 10)
    )
    assert busy.beside == pytest.approx(10 * quiet.beside)


def test_bm25_is_planned_by_the_characters_of_a_corpus():
    tasks = choose_tasks(tasks=["MSMARCO"], splits=["dev"])
    (one,) = costs(tasks, [TO_RUN], speeds=[EncodingSpeed((0,), (0,), pair=3e-9)])
    assert one.documents > 8_800_000
    assert 300 < one.characters / one.documents < 400
    assert 60 * (one.minutes - one.beside) == pytest.approx(3e-9 * one.documents * one.queries)
    # The index, 6,980 queries with nearly 1,000 hits each, and the ids of the documents.
    index = 2e7 + 13 * 2**23 + 1.4 * one.characters
    hits = 1000 * (1 - 500 / one.documents)
    needed = index + 6980 * (4096 + 256 * hits) + 130 * one.documents
    assert resources.task_memory(one, 0, 0, [load_model("bm25")]) == pytest.approx(needed)
    disk = resources.disk_check([one], [], [load_model("bm25")])
    assert disk.parts["indexes of BM25"] == one.characters
    assert "3.0 of indexes of BM25, 4.5 of prepared data" in disk.needed
    seconds = speed.measure_indexing(load_model("bm25")).seconds
    assert 1e-6 < 1000 * seconds[1] / 10**6 < 1e-2


def test_few_candidates_of_many_queries_need_little_memory():
    few = Planned(
        "News", "Reranking", "x/n", "1", 10**5, None, "to run", 5000, 37_162, 10**6, 80_000
    )
    # BM25: an index, half of the candidates as hits, all candidates, 37,162 queries, 5,000 ids.
    index = 2e7 + (13 + 1.4) * 10**6
    needed = index + 256 * 40_000 + 320 * 80_000 + 4096 * 37_162 + 130 * 5000
    assert resources.task_memory(few, 0, 0, [load_model("bm25")]) == needed


@pytest.mark.parametrize(("documents", "share"), [(10, 0.5), (1000, 0.5), (2000, 0.75)])
def test_a_query_of_bm25_finds_fewer_than_all(documents, share):
    assert load_model("bm25").found_share(documents, 1000) == share


def test_sums_of_a_sweep(monkeypatch, encoder_folder, tmp_path):
    from qwen3nb.report.evaluation import checked_run

    planned = (Planned("A", "STS", "x/a", "1", 9, 90.0, "to run", beside=30.0),)
    memory = ResourceCheck("memory", "", "", parts={"loaded": 1e9, "needed": 2e9})
    disk = {"vectors": 4e9, "indexes of BM25": 1e9, "prepared data": 2e9}
    ready = Preflight(planned, (memory, ResourceCheck("disk", "", "", parts=disk)))
    monkeypatch.setattr(whole_plan, "cores", lambda: 4)
    assert ready.hours == (0.0, 4 * 1 + 0.5)  # an hour on all cores, half an hour on one
    assert replace(ready, gpu=True).hours == (1.0, 1.5)
    timed = []

    def check_needs(model, **_):
        timed.append(model.spec)
        return checked_run.CheckedRun(None, [], None, ready)

    monkeypatch.setattr(checked_run, "check_needs", check_needs)
    twin = shutil.copytree(encoder_folder, tmp_path / "twin")
    names = [str(encoder_folder), str(twin), "random", "nothing/at all"]
    runs = [{"checkpoint": name, "base": "", "tier": "smoke"} for name in names]
    table = sweep_table(checked_run.plan_runs(runs))
    assert timed == [names[0], "random"]  # the twin has the same shape
    *_, last, whole = [[cell.text for cell in row] for row in table.rows]
    assert "no model" in last[-1]
    # Three models' vectors; the data and the index of BM25 once.
    assert whole[1:5] == ["0.0", "13.5", "3.0", "15.0"]


def test_a_gpu_of_a_stated_speed_is_planned_without_one(cli, checkout):
    """At 0.45 tokens a second, and 4.5 characters each, about an hour."""
    given = ["--model", "random", "--dry-run", "--tokens-per-second", "0.45", "--no-book"]
    done = cli("sweep", *given, "-p", "tasks", "AuthorSTS")
    assert done.exit_code == 0, done.output
    (one,) = costs(choose_tasks(tasks=["AuthorSTS"]), [TO_RUN])
    hours = one.characters / 4.5 / 0.45 / 3600
    assert hours > 1
    assert re.search(rf"^ *all +{hours:.1f} ", done.output, re.MULTILINE), done.output


@pytest.mark.integration
def test_the_dry_run_prints_and_exits(cli, checkout, tmp_path, monkeypatch):
    done = cli("eval", "--checkpoint", "random", "--tasks", "AuthorSTS", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "1 of 1 tasks to run" in done.output
    assert not list(checkout.glob("results/*/seed_*"))
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    done = cli("eval", "--checkpoint", "bm25", "--tier", "fast", "--dry-run")
    assert done.exit_code == 1
    assert "prepared data" in done.output  # planned before anything is fetched
    assert "qwen3nb fetch --tier fast" in done.output


def broken_copy(mirror, how):
    """A small copy of SciFact of which a file is cut, empty or missing."""
    folder = mirror / "mteb" / "scifact"
    write_retrieval(folder)
    if how == "cut":
        file = folder / "corpus.jsonl"
        file.write_bytes(file.read_bytes()[:-20])
    elif how == "without judgements":
        (split,) = (folder / "qrels").iterdir()
        split.unlink()
    elif how == "nothing but a README":
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "README.md").write_text("SciFact\n")


@pytest.mark.parametrize("how", ["cut", "without judgements", "nothing but a README"])
def test_a_broken_copy_of_a_mirror_is_named_before_the_run(tmp_path, monkeypatch, how):
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    broken_copy(tmp_path, how)
    write_retrieval(tmp_path / "mteb" / "nfcorpus")
    tasks = choose_tasks(tasks=["SciFact", "NFCorpus"])
    broken, whole = costs(tasks, [TO_RUN] * 2, speeds=[SPEED])
    assert "scifact cannot be loaded" in broken.problem
    assert (whole.problem, broken.minutes, whole.queries) == ("", None, 6)
    ready = Preflight((broken, whole), ())
    assert [*ready.unreadable] == ["SciFact"]
    assert "1 of 2 tasks cannot be run: SciFact: the copy" in preflight_table(ready).note
    with pytest.raises(MirrorError, match="1 of 2 tasks cannot be run: SciFact"):
        ready.require_readable()
    assert Preflight((whole,), ()).require_readable() is None
    there, _ = costs(tasks, ["there", TO_RUN])  # a stored record needs no data
    assert there.problem == ""


def test_a_copy_is_not_loaded_again_for_a_task_with_a_record(tmp_path, monkeypatch):
    """A run that goes on would else load hundreds of subsets that it has done."""
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    write_retrieval(tmp_path / "mteb" / "nfcorpus")
    loaded = []
    monkeypatch.setattr(sizes, "load_task", lambda task, revision: loaded.append(revision))
    (recorded,) = costs(choose_tasks(tasks=["NFCorpus"]), ["there"])
    assert (recorded.texts, recorded.minutes, loaded) == (None, None, [])
    monkeypatch.setattr(sizes, "is_substitute", lambda revision: False)
    (fetched,) = costs(choose_tasks(tasks=["NFCorpus"]), ["there"])
    assert (fetched.documents, loaded) == (3593, [])


def test_a_dry_run_on_a_broken_mirror_fails(cli, checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    broken_copy(tmp_path, "cut")
    done = cli("eval", "--checkpoint", "bm25", "--tasks", "SciFact", "--dry-run")
    assert done.exit_code == 1
    assert "1 of 1 tasks cannot be run: SciFact" in done.output


@pytest.mark.parametrize(("subset", "pairs"), [("en-en", 5), ("de-de", 5), ("de-de", 1000)])
def test_a_subset_that_a_loader_does_not_miss_is_named(tmp_path, monkeypatch, subset, pairs):
    """STS17 is read as a whole, also where it is larger than the published subset."""
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    folder = tmp_path / "mteb" / "sts17-crosslingual-sts" / "data"
    folder.mkdir(parents=True)
    pair = {"sentence1": "a cat", "sentence2": "a dog", "score": 2.5, "lang": subset}
    (folder / "test.jsonl").write_text(f"{json.dumps(pair)}\n" * pairs)
    (task,) = choose_tasks(tasks=["STS17"], subsets=["en-en"])
    (planned,) = costs([task], [TO_RUN])
    if subset == "en-en":
        assert (planned.problem, planned.texts) == ("", 2)
    else:
        assert "lacks en-en/test (subset/split)" in planned.problem

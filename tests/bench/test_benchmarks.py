"""The scripts of benchmarks/, each with little to measure."""

import runpy
import time

import pytest
from helpers import REPOSITORY

from benchmarks import evaluation, extraction, gpu, search
from benchmarks.cache import bench_cache
from benchmarks.options import ChildTiming, in_child
from benchmarks.records import RecordSet, bench_records, shown, write_records
from qwen3nb import paths
from qwen3nb.answers.board.ranks import standings
from qwen3nb.answers.comparison import compare
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.bench.harness import timed
from qwen3nb.records.store import check_files, load_results, result_files
from qwen3nb.records.verification import folder_problems
from qwen3nb.utils.hardware import peak_memory

SCRIPTS = sorted(
    file.stem for file in (REPOSITORY / "benchmarks").glob("[a-z]*.py") if file.stem != "options"
)
TASK = "AuthorSTS"


@pytest.mark.filterwarnings("ignore:'benchmarks:RuntimeWarning")  # it is imported already
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_lists_its_options(name, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    assert ("--seed" if name == "chaos" else "--json") in capsys.readouterr().out
    assert f"`{name}.py`" in (REPOSITORY / "benchmarks" / "README.md").read_text()


def one_child(*apart):
    """`in_child` with one kind of call in a process of its own, as all are, the others in this."""

    def measure(prepare, *arguments):
        if apart == arguments[: len(apart)]:
            return in_child(prepare, *arguments)
        output, took = timed(prepare(*arguments))
        return ChildTiming(took.seconds, took.cpu, output, peak_memory(), 1, 1)

    return measure


def test_the_cache_is_measured_next_to_a_plain_file():
    done = bench_cache(vectors=600, dimension=16, rounds=1)
    assert set(done.seconds) == {"plain write", "cache write", "plain read", "cache read", "copy"}
    assert "600 x 16 float32" in done.table()


@pytest.mark.integration
def test_searches_agree_with_exact_scores(monkeypatch):
    monkeypatch.setattr(search, "in_child", one_child("numpy"))
    done = search.bench_search(documents=3000, dimension=32, queries=20, k=5)
    assert {each.method for each in done.timings} >= {"naive", "torch", "numpy", "encode_to_file"}
    for each in done.timings:
        assert each.method in ("naive", "encode_to_file") or each.agreement == 1
        if each.method != "encode_to_file":
            gflop = 2 * 20 * 32 * each.documents / 1e9
            assert each.peak_share == pytest.approx(gflop / each.seconds / done.peak_gflops)
    assert "ratios to the smaller corpus" in done.table()


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_bm25_is_measured_next_to_bm25s(home, monkeypatch):
    monkeypatch.setattr(search, "in_child", one_child("none"))
    monkeypatch.setattr(search, "_VOCABULARY", 3000)
    done = search.bench_search(passages=300, queries=20, k=50)
    optional = ("rank_bm25", "bm25s, numba")  # where they are installed
    same = [each.same for each in done.words if each.method not in optional]
    assert same == [1] * 6  # three ways, with short and with long queries
    assert "ratios to bm25s" in done.table()


@pytest.mark.integration
def test_reading_records_is_measured(home, tmp_path):
    folder = tmp_path / "records"
    size = {"models": 2, "tasks": 1, "prompts": 3, "queries": 20, "folder": str(folder)}
    timings = bench_records(**size, only="load_results")
    assert "10 s, 0.5 GB" in shown(timings)
    checked = [wrong for _, wrong in check_files(result_files(folder / "prompts"))]
    assert (checked, folder_problems(folder / "prompts")) == ([[]] * 4, {})
    with pytest.raises(ValueError, match="expected one of load_results, compare"):
        bench_records(**size, only="nothing")
    with pytest.raises(ValueError, match="expected an empty folder"):
        bench_records(**{**size, "queries": 9}, only="load_results")


@pytest.mark.integration
def test_many_records_are_verified_once_and_compared(home):
    many = RecordSet(models=12, queries=20)
    write_records(paths.results(), many, processes=1)
    results = load_results()
    assert (len(results), len(results.models), len(results.tasks)) == (len(many), 12, 61)
    time.sleep(0.05)  # files that have only just changed are not remembered
    for verified in (len(many), 0):
        assert [wrong for _, wrong in check_files(result_files(), fresh=False)] == [[]] * verified
    compared = compare(results, tier="full")
    # Without scores to pair: three of pair classification, one of summarisation, eight clusterings.
    assert len({each.task for each in compared.differences_on(*results.tasks)}) == 61 - 12
    assert len(compared.differences_on("BEIR")) == 11
    table = leaderboard(results, tier="full", comparison=compared).table()
    assert {row[0].text for row in table.rows} == set(results.models)
    short = leaderboard(results, tier="full", comparison=compared).headline_table(most=10)
    measured = tuple(row for row in short.rows if not any(cell.is_published for cell in row))
    shown = len(table.columns)  # the next one says that a row was measured here
    assert tuple(row[:shown] for row in measured) == table.rows[:10]
    assert "The best 10 of 12 models" in short.note
    assert len(short.to_html()) < 20_000
    ranked = standings(results, tier="full", comparison=compared)["BEIR"].standings
    assert [each.system for each in ranked] == [row[0].text for row in table.rows]


@pytest.mark.integration
def test_extractions_give_the_values_of_a_naive_script(monkeypatch, tmp_path):
    monkeypatch.setattr(extraction, "in_child", one_child("none"))
    rows = extraction.bench_extraction(size="tiny", repeats=1, folder=str(tmp_path))
    methods = {(row["task"], row["method"]) for row in rows}
    assert methods >= {("average", "qwen3nb"), ("extract", "naive"), ("extract", "unchecked")}
    assert all(row["peak"] > 0 for row in rows)
    assert [row["disk_share"] for row in rows if "copy" in row["method"]] == [1, 1]
    assert not list(tmp_path.glob("qwen3nb-bench-*"))
    assert "x naive" in extraction.shown(rows)
    with pytest.raises(ValueError, match="unknown size 'small'"):
        extraction.bench_extraction(size="small")


@pytest.mark.integration
# MTEB and sentence-transformers warn of each other's older names.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_both_evaluate_the_same_and_each_part_is_timed(encoder_folder, own_cache):
    clock = evaluation._Clock(started=time.time() - 1)
    done = evaluation._ours(evaluation._FIRST, str(encoder_folder), [TASK], clock)
    peer = evaluation._peer(evaluation._FIRST, str(encoder_folder), [TASK])
    assert done["scores"][TASK] == pytest.approx(peer["scores"][TASK], abs=1e-4)
    parts = done["parts"]
    assert parts[evaluation._LIBRARIES][0] > 1  # from the start of the process
    for part in ("loading the model", "scoring with intervals", evaluation.ENCODING):
        assert min(parts[part]) > 0, part
    again = evaluation._peer(evaluation._KEPT, str(encoder_folder), [TASK])
    assert again["scores"] == pytest.approx(peer["scores"], abs=1e-5)  # MTEB's file is rounded


@pytest.mark.integration
def test_a_rehearsal_on_the_cpu_measures_equality_then_speed():
    done = gpu.bench_gpu(device="cpu", shapes=("tiny",), lengths=(12,), minutes=0.02)
    assert [(each["what"], each["equal"]) for each in done.equality] == [
        ("vectors", True),
        ("scores", True),
        ("hits", True),
    ]
    assert [each["what"] for each in done.speed] == ["encode", "rerank", "search"]
    assert all(each["ours"] > 0 and each["peer"] > 0 for each in done.speed)
    assert "x" in done.table().splitlines()[-1]
    with pytest.raises(ValueError, match="unknown"):
        gpu.bench_gpu(device="cpu", shapes=("7B",))

"""The benchmark of whole evaluations."""

import itertools
import json
import tempfile
import time
from types import SimpleNamespace

import pytest

from benchmarks import evaluation
from benchmarks.evaluation import EvaluationTiming, bench_evaluation
from qwen3nb.utils.format import json_text

TASK = "AuthorSTS"


# MTEB and sentence-transformers warn of each other's older names.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_both_evaluate_the_same_and_each_part_is_timed(home, encoder_folder, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", str(home / "cache"))  # other tests keep the same vectors
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


def test_a_part_is_timed_without_the_parts_within_it():
    clock = evaluation._Clock(started=time.time())
    inner = clock.timed("writing records", lambda: time.sleep(0.02))
    outer = clock.timed("searching", lambda: clock.timed("searching", inner)())
    outer()
    wall = {part: seconds for part, (seconds, _) in clock.parts.items()}
    assert wall["writing records"] >= 0.02
    assert wall["searching"] < wall["writing records"]


def test_each_run_is_compared_with_the_peers(monkeypatch, encoder_folder):
    def answer(arguments, environment):
        assert environment["QWEN3NB_CACHE"].startswith(tempfile.gettempdir())
        assert ("QWEN3NB_HOME" in environment) == (arguments[3] != "new")
        if arguments[2] == evaluation._CLI:
            return ""
        ours = arguments[3] == evaluation.OURS
        parts = {"parts": {evaluation.ENCODING: [1.5, 3.0]}} if ours else {}
        return json.dumps({"scores": {TASK: 0.5 if ours else 0.50004}, **parts})

    clock = itertools.count(1.0)
    usage = lambda _: SimpleNamespace(ru_utime=next(clock), ru_stime=0.0)  # noqa: E731
    monkeypatch.setattr(evaluation.resource, "getrusage", usage)
    monkeypatch.setattr(evaluation, "finished", answer)
    shown = bench_evaluation(model=str(encoder_folder), tasks=(TASK,)).table()
    assert "equal, largest difference 4e-05" in shown
    assert "end of Python" in shown
    done = bench_evaluation(model=str(encoder_folder), tasks=(TASK,), page=False)
    timings = json.loads(json_text(done))["timings"]
    ways = [each["way"] for each in timings]
    assert (ways.count(evaluation.PEER), ways.count(evaluation.PAGE)) == (3, 0)


def test_ratios_are_to_the_peer_that_does_the_same():
    def timing(way, run, cpu):
        parts = {evaluation.ENCODING: (4.0, 8.0)} if way == evaluation.OURS else {}
        scores = {TASK: cpu / 1e4}
        return EvaluationTiming(way, run, seconds=cpu / 2, cpu=cpu, scores=scores, parts=parts)

    runs = [(evaluation._FIRST, 10.0, 20.0), (evaluation._SECOND, 1.0, 18.0)]
    timings = [
        timing(way, run, cpu)
        for run, *both in runs
        for way, cpu in zip((evaluation.OURS, evaluation.PEER), both, strict=True)
    ]
    bench = evaluation.EvaluationBench("tiny", (TASK,), tuple(timings))
    assert bench.timings[0].encoding_share == 0.8
    first, second = (bench.table().splitlines()[row] for row in (2, 4))
    assert first.split()[-5:] == ["5.0", "2.00x", "10.0", "2.00x", "20%"]
    assert second.split()[-3:-1] == ["1.0", "18.00x"]
    assert "NOT EQUAL" in bench.table()

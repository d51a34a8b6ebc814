from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from helpers import TEXTS
from helpers.bench_models import SHAPE

from qwen3nb.bench.encode import bench_encode, bench_texts
from qwen3nb.bench.harness import machine
from qwen3nb.bench.random_models import write_random_encoder
from qwen3nb.cli import main as cli
from qwen3nb.cli.commands.bench import LIMITS


@pytest.fixture
def entries(monkeypatch):
    """A small PyDocs."""
    import qwen3nb.datasets.pydocs.mteb_tasks  # noqa: F401 - first, or it would keep the fake

    entries = [
        SimpleNamespace(summary=f"Return {i}.", text=f"It is {i}. " * i) for i in range(1, 40)
    ]
    pydocs = SimpleNamespace(entries=[*entries, entries[0]])
    monkeypatch.setattr("qwen3nb.datasets.pydocs.build.load_pydocs", lambda: pydocs)


def test_every_way_gives_the_same_vectors(tmp_path):
    write_random_encoder(tmp_path, list(TEXTS), shape=SHAPE)
    (result,) = bench_encode(str(tmp_path), texts={"a few": list(TEXTS)}, rounds=1)
    assert all(way.equal for way in result.timings)
    assert result.timings[0].name == f"sentence-transformers, batch {result.batch_size}"
    assert result.timings[0].ratio == result.timings[0].cpu_ratio == 1
    assert [way.name for way in result.timings[-4:]] == [
        "padded, sorted, by tokens",
        "packed",
        "packed, oneDNN",
        "load_encoder(...).encode",
    ]
    title, limit, head, *rows = result.table().splitlines()
    rows, parts = rows[: len(result.timings)], rows[len(result.timings) :]
    assert limit.endswith(f"in attention; matrix peak {result.peak_gflops:.0f} GFLOP/s")
    assert parts[0] == "where the time of load_encoder(...).encode goes:"
    assert sum(result.time_shares.values()) == pytest.approx(1)
    shares = [way.peak_share * way.seconds for way in result.timings]
    assert shares == pytest.approx([result.work.gflop / result.peak_gflops] * len(shares))
    assert title.endswith(("a load chooses oneDNN", "a load chooses PyTorch"))
    assert f"4 texts, {result.tokens} tokens, medians of 1 rounds" in title
    assert len({len(line) for line in (head, *rows)}) == 1
    assert head.split()[:3] == ["method", "s", "texts/s"]


def test_texts_are_distinct_and_as_many_as_asked_for(entries):
    sets = bench_texts(20)
    long = sets.pop("long documents")
    assert 0 < len(long) == len(set(long)) <= 20 / 4
    assert {len(text) for text in long} == {1000}
    assert sets.keys() == {"short sentences", "mixed lengths"}
    for texts in sets.values():
        assert len(texts) == len(set(texts)) == 20
    assert max(map(len, sets["short sentences"])) < max(map(len, sets["mixed lengths"]))


def test_what_cannot_be_measured_is_said():
    with pytest.raises(ValueError, match="at least 1 round; got 0"):
        next(bench_encode("all-MiniLM-L6-v2", texts={}, rounds=0))
    with pytest.raises(ValueError, match="e5-base-v2: not on this machine"):
        next(bench_encode("e5-base-v2", texts={}))


def test_the_command_prints_a_table_per_model_and_set(tmp_path, entries):
    write_random_encoder(tmp_path, list(TEXTS), shape=SHAPE)
    command = ["bench", "encode", "--model", str(tmp_path), "--texts", "6", "--rounds", "1"]
    done = CliRunner().invoke(cli.main, command)
    assert done.exit_code == 0, done.output
    assert done.output.count("\nload_encoder(...).encode") == 3
    assert f"\nlimit: {LIMITS['encode']}\n" in done.output
    assert f"{machine().split(',')[0]}" in done.output

"""What a node made is published whole, in order, and over nothing of another run."""

import pytest

from qwen3nb import paths
from qwen3nb.cluster.nodes import ClusterError, Node
from qwen3nb.cluster.runs import Request
from qwen3nb.execution import executors
from qwen3nb.execution.executors import NodeShare, publish_files
from qwen3nb.records.verification import listed_records

PAGE = "runs/eval-x.ipynb"


def written(folder, **texts):
    files = {"log": "a log", "book/runs/eval-x.ipynb": "page", **texts}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def publish(folder, *, failed=False):
    log = paths.results() / "logs" / "eval-x.log"
    publish_files(folder, log=log, page=paths.book() / PAGE, failed=failed)
    return log


RUN = {
    "results/x-1a/seed_0/T.json": "{}",
    "results/x-1a/seed_0/T.0123456789ab.scores.parquet": "scores",
    "results/x-1a/seed_0/T.trec": "run",
    "results/mteb/results/x/1/T.json": "{}",
}


def test_records_come_after_their_files_and_the_page_comes_last(home, tmp_path, monkeypatch):
    order, real = [], executors._replace
    monkeypatch.setattr(
        executors, "_replace", lambda file, target: (order.append(target), real(file, target))
    )
    publish(written(tmp_path / "files", **RUN))
    names = [target.relative_to(home).as_posix() for target in order]
    assert set(names) == {*RUN, "results/logs/eval-x.log", f"book/{PAGE}"}
    assert names[-2:] == ["results/x-1a/seed_0/T.json", f"book/{PAGE}"]


def test_files_that_several_runs_share_keep_what_is_of_the_others(home, tmp_path):
    lines, own = "results/mteb/results/x/1/run_settings.jsonl", "results/all_results.json"
    paths.results().mkdir()
    (home / own).write_text("of all")
    for name, text in (("one", '{"a": 1}\n'), ("two", '{"a": 1}\n{"b": 2}\n')):
        files = {lines: text, own: "of the node's", "results/checksums.jsonl": "of the node's"}
        publish(written(tmp_path / name, **RUN, **files))
    assert (home / lines).read_text() == '{"a": 1}\n{"b": 2}\n'
    assert (home / own).read_text() == "of all"
    assert listed_records(paths.results()) == {"x-1a/seed_0/T.json": {"": True}}


def nodes(*sizes):
    return [Node(str(i), str(i), cpus, gpus, 10) for i, (cpus, gpus) in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "options", "expected"),
    [
        ([(1, 0), (1, 0)], {}, (1, 0)),
        ([(16, 0), (8, 0)], {}, (2, 0)),  # four on the smallest
        ([(16, 0), (8, 0)], {"at_once": 2}, (4, 0)),
        ([(2, 0)], {"at_once": 8}, (1, 0)),
        ([(64, 0), (16, 8)], {}, (2, 1)),  # where GPUs are, on their nodes only
    ],
)
def test_a_run_gets_the_same_share_on_all_nodes(sizes, options, expected):
    share = NodeShare.of(nodes(*sizes), **{"at_once": 0, **options})
    assert (share.cpus, share.gpus) == expected
    with pytest.raises(ClusterError, match="no node with a core"):
        NodeShare.of([], at_once=0)


def test_a_request_shows_no_token():
    request = Request(("run",), PAGE, {"HF_TOKEN": "hf_secret"}, "/", "/r", "/b", "m")
    assert "hf_secret" not in repr(request)

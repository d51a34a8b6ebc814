"""The hub's file of results, as its own library reads it."""

import shutil
from dataclasses import replace

import yaml
from helpers.records import make
from huggingface_hub import parse_eval_result_entries

from qwen3nb.extraction.push_to_hub import plan_push
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import fingerprint
from qwen3nb.records.record import Part
from qwen3nb.report.hub_results import FILE, hub_results_text

REVISION = "0228b52cf27578f30900b9e5271d331663a030d7"


def record(task, dataset, *, revision=REVISION, config=None, **fields):
    result = make("m", task=task, config=config or {})
    return replace(result, task=replace(result.task, dataset=dataset, revision=revision, **fields))


def test_the_hubs_library_reads_the_scores_of_data_sets_of_the_hub():
    whole = record("SciFact", "mteb/scifact")
    per_query = {"nDCG@10": {"q0": 0.25, "q1": 0.5}}
    score = aggregate(per_query, how="mean", columns=("nDCG@10",))
    parts = (Part(subset="de", split="test", score=score, languages=("deu-Latn",), mteb=0.375),)
    several = replace(record("STS17", "mteb/sts17"), parts=parts)
    others = [
        record("own", "data: odd"),
        record("PyDocsSampleRetrieval", "qwen3nb/pydocs"),
        record("FiQA2018", "mteb/fiqa", revision="local-0123456789abcdef"),
        record("NFCorpus", "mteb/nfcorpus", config={"limit": 5}),
    ]
    text = hub_results_text([whole, several, *others])
    entries = parse_eval_result_entries(yaml.safe_load(text))
    scores = [(each.dataset_id, each.task_id, each.value) for each in entries]
    assert scores == [("mteb/sts17", "de", 0.375), ("mteb/scifact", "default", 0.5)]
    assert {each.dataset_revision for each in entries} == {REVISION}
    assert "nDCG@10" in entries[0].notes
    for other in others:
        assert f"# Not on data of the hub: {other.task.key}" in text


def test_the_card_of_an_export_writes_it_and_push_uploads_it(
    cli, encoder_folder, tmp_path, home, monkeypatch
):
    folder = shutil.copytree(encoder_folder, tmp_path / "encoder")
    content = fingerprint(find_source(str(folder)))
    result = make("tiny", task="SciFact", settings={"model": content, "pooling": "mean"})
    result = replace(result, task=replace(result.task, dataset="mteb/scifact", revision=REVISION))
    result.save()
    done = cli("card", folder)
    assert done.exit_code == 0, done.output
    (entry,) = parse_eval_result_entries(yaml.safe_load((folder / FILE).read_text()))
    assert (entry.dataset_id, entry.value) == ("mteb/scifact", 0.5)
    assert FILE.as_posix() in plan_push(folder)
    assert fingerprint(find_source(str(folder))) == content
    other = cli("card", folder, "--out", tmp_path / "CARD.md")
    assert FILE.as_posix() not in other.output

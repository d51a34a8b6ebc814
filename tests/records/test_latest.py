"""Which of several records of one label tables show: by the order of writing, not by the clock."""

import json
import shutil
from dataclasses import replace

import pytest
from helpers.beir import write_words
from helpers.checkpoints import without_checksums
from helpers.records import make
from safetensors.torch import load_file, save_file

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import newest_clusters
from qwen3nb.analysis.inventory.collect import load_all_results
from qwen3nb.analysis.inventory.scores import from_oldest as scores_from_oldest
from qwen3nb.analysis.training.configuration_differences import configuration_differences
from qwen3nb.analysis.training.interference import clusters_of
from qwen3nb.answers.interference import configurations_table
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.records.details import Training
from qwen3nb.records.record import CHECKSUMS, used_again
from qwen3nb.records.results import from_oldest, newest
from qwen3nb.records.store import latest, load_results, verify

EARLY, LATE = "2026-11-01T00:00:00+00:00", "2026-11-30T00:00:00+00:00"


def record(content, *, finished, scores=(0.2, 0.4)):
    """A record of the model ``m``, with this content of its folder."""
    settings = {"model": {"kind": "encoder", "content": content}}
    return make("m", scores, settings=settings, finished=finished)


def content(result):
    return result.model.settings["model"]["content"]


def shown(records=None):
    (last,) = latest(load_results() if records is None else records)
    return content(last)


@pytest.mark.usefixtures("home")
def test_the_record_written_last_is_shown_although_the_clock_went_back():
    for name, finished in (("a", LATE), ("b", EARLY)):
        record(name, finished=finished).save()
    assert shown() == "b"
    record("a", finished=EARLY).save()  # the first content again, measured again
    assert shown() == "a"
    records = load_results()
    assert content(newest(records)) == "a"
    assert [content(each) for each in from_oldest(records)] == ["b", "a"]
    assert verify() == []


@pytest.mark.usefixtures("home")
def test_a_record_that_is_used_again_is_shown_and_noted_once():
    for name in "ab":
        record(name, finished=LATE).save()
    make("m-2", finished=LATE).save()  # another label that begins alike
    first, _, other = sorted(load_results(), key=lambda result: result.place)
    sizes = []
    for used in (first, first, other):
        used_again(used.path(), used.checksum)
        sizes.append((paths.results() / CHECKSUMS).stat().st_size)
    assert sizes == sizes[:1] * 3
    assert shown(load_results()["m"]) == content(first) == "a"
    assert verify() == []


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("listed", ["nothing", "not the older", "copied"])
def test_without_the_list_of_records_the_clock_decides(tmp_path, listed):
    new, old = record("a", finished=LATE), record("b", finished=EARLY)
    assert shown([new, old]) == shown([old, new]) == "a"  # as they are in memory
    for each in (new, old):
        each.save()
    assert shown() == "b"
    file = paths.results() / CHECKSUMS
    if listed == "nothing":
        file.unlink()
        assert shown() == "a"
    elif listed == "not the older":  # made by a version without a list
        name = new.path().parent.parent.name
        lines = [line for line in file.read_text().splitlines() if name not in line]
        file.write_text("\n".join(lines) + "\n")
        assert shown() == "a"
    else:
        paths.results().rename(tmp_path / "copy")
        assert shown(load_results(tmp_path / "copy")) == "b"


@pytest.mark.usefixtures("home")
def test_a_place_is_neither_stored_nor_read():
    file = record("a", finished=EARLY).save()
    assert "place" not in json.loads(file.read_text())
    (loaded,) = load_results()
    assert loaded.place == 1
    assert loaded == replace(loaded, place=7)


@pytest.mark.usefixtures("home")
def test_the_pivot_shows_the_record_written_last():
    for name, finished, score in (("a", LATE, 0.25), ("b", EARLY, 0.75)):
        record(name, finished=finished, scores=[score]).save()
    assert load_results().pivot().to_numpy().tolist() == [[0.75]]
    assert load_results().pivot("nDCG@10").to_numpy().tolist() == [[0.75]]


@pytest.mark.integration
def test_a_checkpoint_that_is_restored_is_shown_again(home, encoder_folder, tmp_path):
    """Its record is there, and is used again; that of the content in between is older by use."""
    folder = without_checksums(shutil.copytree(encoder_folder, tmp_path / "m"))
    data = write_words(home / "words")
    weights = folder / "model.safetensors"
    first = weights.read_bytes()

    def evaluated():
        (result,) = evaluate(str(folder), data=data, show_progress=False).results
        return result.model.identity

    def in_tables():
        (result,) = latest(load_results())
        return result.model.identity

    identities = [evaluated()]
    tensors = {name: tensor * 1.5 for name, tensor in load_file(weights).items()}
    save_file(tensors, weights, metadata={"format": "pt"})
    identities.append(evaluated())
    assert in_tables() == identities[1] != identities[0]
    weights.write_bytes(first)
    assert evaluated() == in_tables() == identities[0]
    size = (paths.results() / CHECKSUMS).stat().st_size
    assert evaluated() == identities[0]
    assert (paths.results() / CHECKSUMS).stat().st_size == size  # it is noted once
    assert verify() == []


def trained(finished, scores, *, clusters):
    """A record of a joint training with seed 1, as `lora_runs` writes it."""
    training = {"mode": "joint", "configuration": "joint_r8", "kind": "embedding"}
    result = make("joint-1", scores, seed=1, task="T", finished=finished)
    result = replace(result, training=Training(**training))
    return replace(result, task=replace(result.task, clusters=clusters))


@pytest.mark.usefixtures("home")
def test_the_run_of_an_adapter_written_last_counts_although_the_clock_went_back():
    first = trained(LATE, [0.2, 0.4], clusters={"q0": "old", "q1": "old"})
    second = trained(EARLY, [0.7, 0.9], clusters={"q0": "new", "q1": "new"})
    second = replace(second, model=replace(second.model, identity="2" * 64))
    other = make("other", [0.1, 0.2], seed=1, task="T")
    other = replace(other, training=Training(mode="emb", kind="embedding"))
    for result in (first, second, other):
        result.save()
    scores = load_all_results().scores
    (difference,) = configuration_differences(scores, resamples=100, seed=0)
    assert (difference.first, difference.difference) == ("emb", pytest.approx(0.15 - 0.8))
    table = configurations_table(scores)
    (row,) = [row for row in table.rows if row[0].text == "joint_r8"]
    assert row[1].text == "0.800"
    joint = [score for score in scores if score.system == "joint_r8"]
    assert [score.value for score in scores_from_oldest(joint)] == pytest.approx([0.3, 0.8])
    assert set(clusters_of(joint).values()) == {"new"}
    records = load_results()
    assert set(newest_clusters(records).values()) == {"new"}
    first.save()  # the first content again
    assert set(newest_clusters(load_results()).values()) == {"old"}
    again = [score for score in load_all_results().scores if score.system == "joint_r8"]
    assert set(clusters_of(again).values()) == {"old"}


@pytest.mark.usefixtures("home")
def test_places_in_different_folders_are_not_compared(tmp_path):
    late, early = trained(LATE, [0.2], clusters={}), trained(EARLY, [0.7], clusters={})
    make("z", [0.5]).save(tmp_path / "b")
    late.save(tmp_path / "a")
    early.save(tmp_path / "b")
    scores = load_all_results([tmp_path / "a", tmp_path / "b"]).scores
    joint = scores_from_oldest(score for score in scores if score.system == "joint_r8")
    assert [score.place for score in joint] == [2, 1]
    assert [score.finished for score in joint] == [EARLY, LATE]

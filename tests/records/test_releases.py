"""`freeze` keeps a study as it is; `diff` says what changed since, with intervals."""

import gzip
import json
import os
import shutil
import sys
from dataclasses import replace
from urllib.parse import unquote

import pytest
import yaml
from helpers.records import make, noisy

from qwen3nb import paths
from qwen3nb.answers.changes import diff
from qwen3nb.records.record import CHECKSUMS, Environment
from qwen3nb.records.releases import ReleaseError, digest_of_release, freeze, released
from qwen3nb.records.store import verify
from qwen3nb.utils.atomic_files import (
    append_durably,
    sha256_file,
    sha256_json,
    write_bytes,
    write_text,
)
from qwen3nb.utils.children import run_program

BEFORE = noisy(0.4)


@pytest.fixture
def study(checkout):
    """Two models with records, an executed page, a built book."""
    for label in ("kept", "changed"):
        make(label, BEFORE).save()
    make("removed", BEFORE, task="other").save()
    for name in ("results/failed/x.json", "results/partial/x.ipynb", "_build/html/index.html"):
        write_text(checkout / name, "{}")
    write_text(checkout / "book" / "runs" / "page.ipynb", "{}")
    return checkout


def test_a_release_has_all_that_stands_behind_the_numbers(study):
    folder = freeze("v1")
    assert folder == study / "releases" / "v1"
    assert verify(folder / "data" / "results") == []
    assert [each.model.label for each in released("v1")] == ["changed", "kept", "removed"]
    assert released("v1") == released(str(folder)) == released("results")
    top = {each.name for each in folder.iterdir()}
    lists = {"bagit.txt", "bag-info.txt", "manifest-sha256.txt", "tagmanifest-sha256.txt"}
    assert top == {"CITATION.cff", "data", "datacite.json", "release.json", "verify.py"} | lists
    assert {each.name for each in (folder / "data").iterdir()} == {"html", "pages", "results"}
    assert not (folder / "data" / "results" / "partial").exists()
    facts = json.loads((folder / "release.json").read_text())
    assert (facts["records"], facts["versions"]["mteb"]) == (3, ["2"])
    assert facts["data"] == {"PyDocsSampleRetrieval": ["r" * 12], "other": ["r" * 12]}
    cited = yaml.safe_load((folder / "CITATION.cff").read_text())
    assert cited["version"] == "v1"
    assert cited["authors"]
    assert "3 evaluation records" in cited["abstract"]
    registered = json.loads((folder / "datacite.json").read_text())
    assert registered["titles"] == [{"title": cited["title"]}]
    assert registered["publicationYear"] == str(cited["date-released"])[:4]
    # What DataCite's schema 4.5 requires.
    assert registered.keys() >= {"creators", "publisher", "types", "schemaVersion", "titles"}


def test_a_release_is_a_bag(study):
    """As RFC 8493 has it: `sha256sum` reads its lists, and the sum of sizes is stated."""
    write_text(study / "_build" / "html" / "100% sure.html", "<p>")
    folder = freeze("v1")
    assert (folder / "bagit.txt").read_text().splitlines()[0] == "BagIt-Version: 1.0"
    lines = (folder / "manifest-sha256.txt").read_text().splitlines()
    listed = {unquote(line[66:]): line[:64] for line in lines}
    files = [file for file in (folder / "data").rglob("*") if file.is_file()]
    assert listed == {file.relative_to(folder).as_posix(): sha256_file(file) for file in files}
    size = sum(file.stat().st_size for file in files)
    assert f"Payload-Oxum: {size}.{len(files)}\n" in (folder / "bag-info.txt").read_text()


def standalone(folder):
    """What `verify.py` of a release prints and exits with, where there is no other package."""
    command = [sys.executable, "-I", "-S", str(folder / "verify.py")]
    return run_program(command, environment={})


def test_a_release_is_verified_without_this_package(study, tmp_path):
    folder = shutil.copytree(freeze("v1"), tmp_path / "elsewhere")
    lines = (folder / "verify.py").read_text().split("\n")
    assert len([line for line in lines if line]) <= 50
    verified = standalone(folder)
    assert (verified.returncode, verified.stderr) == (0, "")
    assert digest_of_release(folder) in verified.stdout
    file = next((folder / "data" / "results").glob("kept*/*/*.json"))
    file.write_text(file.read_text().replace('"run-kept"', '"run-lost"'))
    verified = standalone(folder)
    assert verified.returncode == 1
    name = file.relative_to(folder)
    assert f"{name} was changed" in verified.stdout
    assert "its content is not that of its checksum" in verified.stdout


def without_lists(folder):
    """Write a release as version 0.1 did: all files at the top, their digests in the JSON."""
    for file in [*folder.glob("*.txt"), folder / "datacite.json", folder / "verify.py"]:
        file.unlink()
    for part in (folder / "data").iterdir():
        part.rename(folder / part.name)
    (folder / "data").rmdir()
    files = [file for file in folder.rglob("*") if file.is_file() and file.name != "release.json"]
    # Frozen by version 0.1, which had no list of releases, and unknown to the cache.
    (folder.parent / CHECKSUMS).unlink()
    of_then = {"schema": "qwen3nb.release/1", "frozen": "2026-11-22T09:00:00+00:00"}
    facts = json.loads((folder / "release.json").read_text()) | of_then
    facts["files"] = {file.relative_to(folder).as_posix(): sha256_file(file) for file in files}
    write_text(folder / "release.json", json.dumps(facts | {"checksum": sha256_json(facts)}))
    return folder


@pytest.mark.parametrize("file", ["book/runs/page.ipynb", "_build/html/index.html"])
def test_a_release_with_a_secret_is_not_frozen(study, monkeypatch, file):
    monkeypatch.setenv("MY_TOKEN", "a1B2c3D4e5F6g7")
    write_text(study / file, json.dumps("found a1B2c3D4e5F6g7"))
    with pytest.raises(ReleaseError, match="(page.ipynb|index.html): the value of MY_TOKEN"):
        freeze("v1")
    assert not (study / "releases" / "v1").exists()


@pytest.mark.parametrize("folder", ["results/notes", "_build/html", "_build/html/_static"])
def test_a_secret_in_a_packed_file_is_not_frozen(study, monkeypatch, folder):
    monkeypatch.setenv("MY_TOKEN", "a1B2c3D4e5F6g7")
    write_bytes(study / folder / "notes.bin", gzip.compress(b"it is a1B2c3D4e5F6g7"))
    with pytest.raises(ReleaseError, match="notes.bin: the value of MY_TOKEN"):
        freeze("v1")
    monkeypatch.setenv("MY_TOKEN", "another-one-1234")
    assert freeze("v1").is_dir()


def test_a_password_in_the_address_of_the_study_is_not_frozen(study):
    write_text(study / "_config.yml", "qwen3nb: {url: 'https://me:pa55word@host.org/x'}")
    with pytest.raises(ReleaseError, match="CITATION.cff: a password in an address"):
        freeze("v1")


def test_an_older_release_is_read(study, cli):
    folder = without_lists(freeze("v1"))
    assert [record.model.label for record in released("v1")] == ["changed", "kept", "removed"]
    assert cli("verify", folder).exit_code == 0
    write_text(folder / "pages" / "page.ipynb", "[]")
    with pytest.raises(ReleaseError, match="page.ipynb was changed"):
        released("v1")
    assert "page.ipynb was changed" in cli("verify").output


def test_a_release_stays_what_it_was_while_the_study_goes_on(study):
    freeze("v1")
    make("changed", noisy(0.5), finished="2026-02-01").save()
    assert verify(paths.releases() / "v1" / "data" / "results") == []
    assert released("v1")[0].scores.array("nDCG@10").tolist() == pytest.approx(list(BEFORE))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v1", "a release is never replaced"),
        ("results", "a release is never replaced"),
        ("../v2", "not safe as a file name"),
    ],
)
def test_a_name_that_cannot_be_given(study, name, message):
    freeze("v1")
    with pytest.raises(ValueError, match=message):
        freeze(name)


def test_what_does_not_hold_is_not_frozen(study):
    file = next(paths.results().glob("kept*/*/*.json"))
    file.write_text(file.read_text().replace('"run-kept"', '"run-lost"'))
    with pytest.raises(ReleaseError, match=f"(?s)`qwen3nb verify` fails.*{file}.*changed after"):
        freeze("v1")
    assert [each for each in paths.releases().iterdir() if not each.name.endswith(".lock")] == []


def test_there_is_nothing_to_freeze(checkout):
    with pytest.raises(ReleaseError, match="`qwen3nb eval` writes some"):
        freeze("v1")


def pipe(file):
    """Put a pipe in the place of a file; whoever reads it waits for ever."""
    file.unlink()
    os.mkfifo(file)


TAMPERING = {
    "is missing": lambda folder: (folder / "data" / "pages" / "page.ipynb").unlink(),
    "was added": lambda folder: write_text(folder / "data" / "results" / "more.json", "{}"),
    "html/index.html was changed": lambda folder: write_text(
        folder / "data" / "html" / "index.html", "[]"
    ),
    "release.json was changed": lambda folder: write_text(
        folder / "release.json", (folder / "release.json").read_text().replace("v1", "v0")
    ),
    "manifest-sha256.txt is missing": lambda folder: (folder / "manifest-sha256.txt").unlink(),
    "its release.json is missing": lambda folder: (folder / "release.json").unlink(),
    "is no file: copy it back": lambda folder: pipe(folder / "release.json"),
    "data/pages/page.ipynb was changed": lambda folder: pipe(folder / "data/pages/page.ipynb"),
    "manifest-sha256.txt was changed": lambda folder: append_durably(
        folder / "manifest-sha256.txt", b"\xff\n", if_cut=""
    ),
    "not that of a release": lambda folder: write_text(folder / "release.json", "[]"),
    "invalid JSON": lambda folder: write_text(folder / "release.json", "[" * 100_000),
    "expected 'qwen3nb.release/2'": lambda folder: write_text(
        folder / "release.json", '{"schema": "qwen3nb.release/9"}'
    ),
}


@pytest.mark.parametrize("message", TAMPERING)
def test_a_release_that_was_tampered_with_is_refused(study, cli, message):
    TAMPERING[message](freeze("v1"))
    with pytest.raises(ReleaseError, match=message):
        released("v1")
    assert cli("freeze", "diff", "v1").exit_code == 2
    assert message in cli("verify").output


def test_a_release_is_found_without_its_facts(study, cli):
    """Or its release.json could be removed, and nobody would miss it."""
    folder = freeze("v1")
    (folder / "release.json").rename(folder / "Release.json")
    write_text(folder / "data" / "pages" / "page.ipynb", "[]")
    for found in (cli("verify"), cli("verify", folder)):
        assert found.exit_code == 1
        assert "its release.json is missing" in found.output
        assert "page.ipynb was changed" in found.output


def test_what_a_killed_freeze_leaves_is_no_release(study, cli):
    folder = freeze("v1")
    left = folder.with_name(".v1.1a2b3c4d-4711-9f8e7d6c.tmp")
    (folder / "release.json").unlink()
    folder.rename(left)
    (left.parent / CHECKSUMS).unlink()  # it is listed at the end
    assert cli("verify").exit_code == 0


def test_the_folder_of_a_release_has_its_name(study, cli, tmp_path):
    first, second = freeze("v1"), freeze("v2")
    elsewhere = shutil.copytree(first, tmp_path / "downloaded")
    assert cli("verify", elsewhere).exit_code == 0
    first.rename(first.with_name("kept"))
    second.rename(first)
    first.with_name("kept").rename(second)
    found = cli("verify")
    assert "releases/v1: it was frozen as 'v2'" in found.output
    assert "releases/v2: it was frozen as 'v1'" in found.output


def test_a_damaged_release_is_named_without_this_package(study):
    """No pipe is waited for, no error ends the script, and no name looks like a line of it."""
    folder = freeze("v1")
    record = next((folder / "data" / "results").glob("kept*/*/*.json"))
    write_text(record, "[" * 100_000)
    pipe(folder / "data" / "pages" / "page.ipynb")
    write_text(folder / "data" / f"x\n{folder} is as it was frozen", "")
    verified = standalone(folder)
    assert (verified.returncode, verified.stderr) == (1, "")
    name = record.relative_to(folder)
    for problem in (f"{name} was changed", "page.ipynb was changed", "it is not a record"):
        assert problem in verified.stdout
    assert not any(line.startswith(f"{folder} is") for line in verified.stdout.splitlines())


def test_a_name_cannot_look_like_the_last_line(study, cli):
    folder = freeze("v1")
    write_text(folder / "data" / "x\n17 of 17 records are consistent", "")
    lines = cli("verify", folder).output.splitlines()
    assert "17 of 17 records are consistent" not in lines
    assert any(r"x\n17 of 17 records are consistent was added" in line for line in lines)


def test_an_archive_is_to_be_unpacked(study, cli, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "v1"), "zip", freeze("v1"))
    assert "unpack it" in cli("verify", archive).output


@pytest.fixture
def changes(study):
    """From a release to the records of now: one is gone, one new, one of other scores."""
    freeze("v1")
    next(paths.results().glob("removed*/*/*.json")).unlink()
    make("added", BEFORE).save()
    of_then = make("changed", noisy(0.5, seed=1), finished="2026-02-01")
    newer = Environment(versions={"mteb": "3"}, python="3")
    # Of the same label and settings, though of other content: the model was trained again.
    model = replace(of_then.model, identity="b" * 64)
    replace(of_then, model=model, environment=newer).save()
    return diff("v1")


def test_what_changed_is_listed_with_intervals(changes):
    task = "PyDocsSampleRetrieval"
    assert changes.added == (f"added on {task}",)
    assert changes.removed == ("removed on other",)
    assert changes.changed == (f"changed on {task}",)
    assert changes.same == 1
    (each,) = changes.differences
    assert (each.first, each.second, each.family) == ("changed", "changed (v1)", 1)
    assert each.difference == pytest.approx(0.1, abs=0.02)
    assert each.interval[0] < each.difference < each.interval[1]
    assert changes.verdict(each) == "better"
    assert changes.versions == {"mteb": (["2"], ["2", "3"])}
    assert changes.data == {}
    lines = list(changes.lines())
    assert [line[0] for line in lines[:3]] == ["+", "-", "~"]
    assert lines[3].startswith(f"  changed on {task}, nDCG@10: +0.")
    assert lines[3].endswith("(better)")
    assert "1 added, 1 removed, 1 changed" in repr(changes)


def test_all_differences_are_one_family(study):
    freeze("v1")
    for label in ("kept", "changed"):
        make(label, noisy(0.5, seed=2), finished="2026-02-01").save()
    shown = diff("v1").differences
    assert [each.family for each in shown] == [2, 2]
    assert all(each.corrected == pytest.approx(min(1, 2 * each.p_value)) for each in shown)


def test_data_of_another_revision_are_not_paired(study):
    freeze("v1")
    make("kept", noisy(0.5), revision="s" * 12, finished="2026-02-01").save()
    changes = diff("v1")
    assert changes.differences == ()
    assert "revision" in changes.unpaired[0]
    assert list(changes.data) == ["PyDocsSampleRetrieval"]


def test_the_record_of_a_replaced_model_is_frozen_and_not_compared(study, cli):
    trained_again = {"label": "kept", "weights": "new"}
    make("kept", BEFORE, settings=trained_again, finished="2026-02-01").save()
    assert "releases/v1: 4 records in" in cli("freeze", "v1").output
    (line,) = cli("freeze", "diff", "v1").stdout.splitlines()
    reason = "not compared: 1 of models that a later one replaced"
    assert line == f"3 records, all the same; {reason}"


def test_the_commands_exit_as_diff_does(study, cli):
    done = cli("freeze", "v1")
    assert "releases/v1: 3 records in" in done.output
    assert cli("freeze", "diff", "v1").stdout == "3 records, all the same\n"
    make("more", BEFORE).save()
    done = cli("freeze", "diff", "v1", "--json")
    assert (done.exit_code, json.loads(done.stdout)["added"]) == (
        1,
        ["more on PyDocsSampleRetrieval"],
    )
    unknown = cli("freeze", "diff", "v2")
    assert (unknown.exit_code, "expected one of: v1, results" in unknown.output) == (2, True)

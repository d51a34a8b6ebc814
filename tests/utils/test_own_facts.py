"""What a book's configuration states, and the commit of its checkout."""

import subprocess

import pytest
from helpers import REPOSITORY

from qwen3nb.utils import code_version
from qwen3nb.utils.book_settings import BookSettings, book_settings
from qwen3nb.utils.code_version import code_digest, git_commit


def test_the_book_states_its_own_facts_or_nothing(home):
    ours = book_settings(REPOSITORY / "_config.yml")
    assert (ours.title, ours.year, ours.license) == ("qwen3nb", "2026", "apache-2.0")
    assert book_settings() == BookSettings()
    (home / "_config.yml").write_text(
        "title: A\nqwen3nb:\n  license: MIT\n  baseline: b\nhtml:\n  baseurl: u\n"
    )
    assert book_settings() == BookSettings(title="A", url="u", license="MIT", baseline="b")
    (home / "_config.yml").write_text("qwen3nb: none\nhtml:\n")
    assert book_settings() == BookSettings()


@pytest.mark.parametrize("text", ["a: [", "- a"])
def test_what_is_no_configuration_is_refused_by_name(tmp_path, text):
    (tmp_path / "c.yml").write_text(text)
    with pytest.raises(ValueError, match=r"c\.yml: (not YAML|expected)"):
        book_settings(tmp_path / "c.yml")


def git(folder, *arguments):
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(folder), *arguments]
    subprocess.run(command, check=True, capture_output=True)


def test_the_commit_and_whether_anything_changed(tmp_path):
    assert git_commit(tmp_path) == ""
    git(tmp_path, "init")
    assert git_commit(tmp_path) == ""  # nothing committed yet
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-m", "a")
    commit = git_commit(tmp_path)
    assert len(commit) == 12
    (tmp_path / "new").write_text("1")
    assert git_commit(tmp_path) == commit
    (tmp_path / "a").write_text("2")
    assert git_commit(tmp_path) == f"{commit}-modified"


def test_no_program_of_a_copied_repository_is_run(tmp_path):
    study, ran = tmp_path / "study", tmp_path / "ran"
    study.mkdir()
    git(study, "init")
    (study / "a").write_text("1")
    (study / ".gitattributes").write_text("a filter=evil\n")
    git(study, "add", ".")
    git(study, "commit", "-m", "a")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    for setting in ("core.fsmonitor", "filter.evil.clean", "filter.evil.smudge"):
        git(study, "config", setting, str(program))
    git(study, "config", "filter.evil.required", "true")
    (study / "a").write_text("2")
    assert git_commit(study).endswith("-modified")
    assert not ran.exists()
    git(study, "status")  # the programs would have run
    assert ran.exists()


def test_the_digest_of_the_code_follows_its_files_and_reads_them_once(tmp_path, monkeypatch):
    package = tmp_path / "package"
    module = package / "utils" / "code_version.py"
    module.parent.mkdir(parents=True)
    module.write_text("a = 1\n")
    monkeypatch.setattr(code_version, "__file__", str(module))
    read = []
    digest_of = code_version.sha256_file
    monkeypatch.setattr(
        code_version, "sha256_file", lambda file: read.append(file.name) or digest_of(file)
    )
    first = code_digest()
    assert (code_digest(), read) == (first, ["code_version.py"])
    for change in (
        lambda: module.write_text("a = 2\n"),
        lambda: (package / "table.tsv").write_text("x\n"),
        lambda: module.rename(module.with_name("other.py")),
    ):
        change()
        second = code_digest()
        assert second != first
        first = second
    (package / "notes.txt").write_text("no code\n")
    (package / "study" / "template").mkdir(parents=True)
    (package / "study" / "template" / "cell.py").write_text("of a study\n")
    assert code_digest() == first

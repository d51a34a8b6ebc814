"""What a book's configuration states, and the commit of its checkout."""

import subprocess

import pytest
from helpers import REPOSITORY

from qwen3nb.utils.book_settings import BookSettings, book_settings
from qwen3nb.utils.code_version import git_commit


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

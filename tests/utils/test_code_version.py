"""The commit of a checkout."""

import subprocess

from qwen3nb.utils.code_version import git_commit


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
    (tmp_path / "inner").mkdir()
    assert git_commit(tmp_path / "inner") == ""

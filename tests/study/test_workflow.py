"""The workflow of a study: its steps are run as they stand, on a change that passes and one not."""

import os
import re
import shutil
import subprocess

import pytest
import yaml
from helpers import REPOSITORY

from qwen3nb.study import StudyError, create_study
from qwen3nb.study.update import plan_update
from qwen3nb.study.workflow import workflow, write_workflow

# Steps that need the network; the environment of the tests has the package.
NOT_RUN = {"Install"}
MODELS = """
[models.current]
model_id = "{current}"

[settings]
complete = true
"""
EXPRESSIONS = {
    "github.server_url": "https://github.com",
    "github.repository": "ada/search",
    "github.run_id": "42",
    "github.token": "a-token",
    "github.event.pull_request.number": "7",
}


def jobs(folder="."):
    return yaml.safe_load(workflow(folder))["jobs"]


def run_steps(job):
    return [step for step in job["steps"] if "run" in step and step.get("name") not in NOT_RUN]


def test_it_has_no_secrets_and_least_rights():
    text = workflow()
    content = yaml.safe_load(text)
    assert content["permissions"] == {}
    assert content["jobs"]["gate"]["permissions"] == {"contents": "read"}
    assert content["jobs"]["comment"]["permissions"] == {"pull-requests": "write"}
    assert content[True].keys() == {"pull_request", "push"}  # YAML reads `on` as true
    assert "secrets." not in text
    for job in content["jobs"].values():
        for step in job["steps"]:
            # An expression in a script could be a command of whoever names a branch.
            assert "${{" not in step.get("run", "")
            uses = step.get("uses", "actions/x@v1")
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", uses)
            if uses.startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False
    # The job that may write runs nothing of the pull request.
    assert not [step for step in content["jobs"]["comment"]["steps"] if "checkout" in str(step)]
    assert "head.repo.full_name == github.repository" in content["jobs"]["comment"]["if"]


def test_the_actions_are_those_of_our_own_workflows():
    ours = "".join(file.read_text() for file in (REPOSITORY / ".github/workflows").iterdir())
    for action in ("actions/checkout", "actions/setup-python", "actions/upload-artifact"):
        (version,) = set(re.findall(rf"{action}@(v\d+)", workflow()))
        assert f"{action}@{version}" in ours


def test_a_study_in_a_folder_of_a_repository(tmp_path):
    (tmp_path / ".git").mkdir()
    study = create_study(tmp_path / "lab" / "search")
    file = write_workflow(study)
    assert file == tmp_path / ".github" / "workflows" / "search-quality.yml"
    gate = yaml.safe_load(file.read_text())["jobs"]["gate"]
    assert gate["defaults"]["run"]["working-directory"] == "lab/search"
    cached = next(step for step in gate["steps"] if "cache@" in step.get("uses", ""))["with"]
    assert "lab/search/.cache\n" in cached["path"]
    assert "before/lab/search/queries.toml" in cached["key"]
    assert write_workflow(study) == file  # as it is
    file.write_text("name: mine\n")
    with pytest.raises(StudyError, match="exists and differs"):
        write_workflow(study)
    with pytest.raises(StudyError, match="a path of letters"):
        workflow("my $(study)")


def test_an_update_of_the_study_leaves_it_alone(tmp_path, cli, monkeypatch):
    monkeypatch.delenv("QWEN3NB_HOME", raising=False)
    assert "search-quality.yml" in cli("new", tmp_path / "s", "--ci").output
    file = tmp_path / "s" / ".github" / "workflows" / "search-quality.yml"
    file.write_text(f"{file.read_text()}# mine\n")
    plan = plan_update(tmp_path / "s")
    assert not [update for update in plan.files if "workflows" in update.path]
    plan.apply()
    assert file.read_text().endswith("# mine\n")
    monkeypatch.chdir(tmp_path)
    assert "is for a study" in cli("new", "--ci").output


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A checkout of a study, with what was before below ``before/``."""
    root = create_study(tmp_path_factory.mktemp("ci") / "search")
    write_workflow(root)
    text = (root / "queries.toml").read_text(encoding="utf-8")
    queries = text[text.index("[[queries]]") :]
    (root / "queries.toml").write_text(MODELS.format(current="bm25") + queries, encoding="utf-8")
    shutil.copytree(root, root.parent / "before")
    (root.parent / "before").rename(root / "before")
    return root


def run_job(root, name, *, environment):
    """Run the steps of a job as GitHub does; return the exit code and what was printed."""
    temporary = root.parent / "temp"
    home = root.parent / "home"
    for folder in (temporary, home):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    variables = {
        "PATH": f"{REPOSITORY / '.venv' / 'bin'}:{os.environ['PATH']}",
        "HOME": str(home),
        "GITHUB_WORKSPACE": str(root),
        "GITHUB_STEP_SUMMARY": str(temporary / "summary.md"),
        "RUNNER_TEMP": str(temporary),
        "OMP_NUM_THREADS": "1",
        **environment,
    }
    code, printed = 0, ""
    job = jobs()[name]
    for step in run_steps(job):
        if code and "cancelled()" not in str(step.get("if", "")):
            continue
        own = {key: expression(str(value)) for key, value in step.get("env", {}).items()}
        script = temporary / "script.sh"
        script.write_text(step["run"], encoding="utf-8")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            cwd=root,
            env={**variables, **own},
            capture_output=True,
            text=True,
            timeout=120,
        )
        code = code or done.returncode
        printed += done.stdout + done.stderr
    return code, printed


def expression(text):
    """Replace expressions of GitHub by their values."""
    return re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda match: EXPRESSIONS[match[1]], text)


def edit(file, old, new):
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.integration
def test_its_steps_pass_and_fail_pull_requests(workspace):
    """All in one: the second run finds the vectors and records of the first, as from the cache."""
    queries = workspace / "queries.toml"
    edit(queries, 'query = "jq"', 'query = "jq | `a` @ada <b> [l](http://x)"')
    code, printed = run_job(workspace, "gate", environment={})
    assert code == 0, printed
    summary = (workspace.parent / "temp" / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("**Passed: the model in use is bm25, as before.**\n\n| model in use")
    assert "Queries: 1 changed.\n" in summary
    edit(queries, '"bm25"', '"random"')
    code, printed = run_job(workspace, "gate", environment={})
    assert code == 3, printed
    assert (workspace.parent / "temp" / "summary.md").read_text() == (
        workspace.parent / "temp" / "comment.md"
    ).read_text()
    code, printed = run_job(workspace, "gate", environment={})  # the same again
    assert code == 3
    assert printed.count("record reused, nothing encoded") == 2
    comment = (workspace.parent / "temp" / "comment.md").read_text(encoding="utf-8")
    lines = comment.splitlines()
    assert len(lines) <= 10
    assert lines[0].startswith("**Failed: random is worse than bm25, which was in use.**")
    assert lines[4].startswith("| before: bm25 | 0.")
    assert lines[-1] == "[Report and log](https://github.com/ada/search/actions/runs/42)"
    queries.write_text("[[queries]\n", encoding="utf-8")
    code, printed = run_job(workspace, "gate", environment={})
    assert code == 1
    comment = (workspace.parent / "temp" / "comment.md").read_text(encoding="utf-8")
    assert comment.startswith("**No result.**")


def test_the_comment_is_edited_or_written(tmp_path):
    """By the program of GitHub, here a script that keeps what it is called with."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    script = '#!/bin/sh\necho "$GH_TOKEN $GH_REPO $@" >> "$GITHUB_WORKSPACE/called"\n'
    for edits in (True, False):
        (tmp_path / "called").write_text("")
        (binaries / "gh").write_text(script + ("" if edits else '[ "$4" != --edit-last ]\n'))
        (binaries / "gh").chmod(0o755)
        environment = {"PATH": f"{binaries}:{os.environ['PATH']}"}
        code, _ = run_job(tmp_path, "comment", environment=environment)
        assert code == 0
        first, *more = (tmp_path / "called").read_text().splitlines()
        assert first == "a-token ada/search pr comment 7 --edit-last --body-file comment.md"
        assert more == ([] if edits else ["a-token ada/search pr comment 7 --body-file comment.md"])

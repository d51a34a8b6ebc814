"""Files are written whole or not at all; JSON is strict."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.fault_injection import leftovers, tree

from qwen3nb.utils import atomic_files
from qwen3nb.utils.atomic_files import (
    _temporary_path,
    append_durably,
    explained,
    may_replace,
    new_folder,
    read_json,
    temporary_folder,
    write_json,
    write_text,
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('{"a": NaN}', "NaN is not JSON"),
        ("-Infinity", "is not JSON"),
        ("1" * 5000, "digits"),
        ('{"a": 1', "invalid JSON"),
    ],
)
def test_json_is_strict_both_ways(tmp_path, text, cause):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"score": float("nan")})
    assert not (tmp_path / "x.json").exists()
    (tmp_path / "y.json").write_text(text)
    with pytest.raises(ValueError, match=rf"y\.json: .*{cause}"):
        read_json(tmp_path / "y.json")


def test_a_new_folder_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "models" / "model"
    with new_folder(target) as work:
        (work / "a").write_text("1")
        assert not target.exists()
    with pytest.raises(FileNotFoundError), new_folder(target) as work:
        (work / "missing" / "file").write_text("2")
    assert (target / "a").read_text() == "1"
    with new_folder(target) as work:
        (work / "b").write_text("3")
    assert [path.name for path in target.iterdir()] == ["b"]
    assert [path.name for path in target.parent.iterdir()] == ["model"]


def replaced_twice(target):
    for number in "12":
        with new_folder(target) as work:
            (work / number).touch()


def test_a_folder_is_replaced_without_a_moment_in_which_there_is_none(tmp_path, monkeypatch):
    """Renaming the old one away, and then the new one, would leave such a moment."""
    renamed = []
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda *names: renamed.append(names[0]) or rename(*names))
    replaced_twice(tmp_path / "all" / "model")
    assert tmp_path / "all" / "model" not in renamed
    assert [path.name for path in (tmp_path / "all").rglob("*")] == ["model", "2"]


def test_where_folders_cannot_be_exchanged_the_old_one_comes_back_after_an_error(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(atomic_files, "_exchange", lambda *_: False)
    target = tmp_path / "all" / "model"
    replaced_twice(target)
    assert [path.name for path in (tmp_path / "all").rglob("*")] == ["model", "2"]
    rename = Path.rename

    def refused(source, name):
        if name == target and source.suffix == ".tmp":
            raise PermissionError(name)
        return rename(source, name)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(PermissionError):
        replaced_twice(target)
    assert [path.name for path in (tmp_path / "all").rglob("*")] == ["model", "2"]


def test_a_line_is_appended_whole_in_a_folder_that_is_made_for_it(tmp_path, monkeypatch):
    file = tmp_path / "a" / "b" / "list"
    for line in (b"one\n", b"two\n"):
        append_durably(file, line, if_cut="remove its last line")
    assert file.read_bytes() == b"one\ntwo\n"
    monkeypatch.setattr(os, "write", lambda handle, content: len(content) - 1)
    with pytest.raises(OSError, match="a/b/list: remove its last line"):
        append_durably(file, b"three\n", if_cut="remove its last line")


@pytest.mark.parametrize("has_links", [True, False])
def test_without_replace_the_first_to_write_wins(tmp_path, monkeypatch, has_links):
    """Also on a file system without hard links, such as exFAT."""
    if not has_links:
        monkeypatch.setattr(os, "link", lambda *_: os.close(-1))  # an OSError
    file = tmp_path / "all" / "x.json"
    for value in (1, 2):
        write_json(file, value, replace=False)
    assert read_json(file) == 1
    assert list(file.parent.iterdir()) == [file]


@pytest.fixture
def living_writer(tmp_path):
    """A process that is writing ``model`` (a file) and ``folder``, for as long as it may."""
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from qwen3nb.utils.atomic_files import new_file, new_folder\n"
        "here = Path(sys.argv[1])\n"
        "with new_file(here / 'model') as file, new_folder(here / 'folder') as work:\n"
        "    file.write(b'theirs')\n"
        "    (work / 'part').write_text('theirs')\n"
        "    print('writing', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout.readline() == b"writing\n"
        yield writer
        writer.kill()


def write_both(folder):
    write_text(folder / "model", "ours")
    with new_folder(folder / "folder") as work:
        (work / "part").write_text("ours")


def test_only_what_is_empty_or_marked_may_be_replaced(tmp_path):
    empty, marked, foreign = (tmp_path / name for name in ("empty", "marked", "foreign"))
    for folder in (empty, marked, foreign):
        folder.mkdir()
    (marked / "mark").touch()
    (foreign / "thesis.tex").touch()
    file = tmp_path / "file"
    file.touch()
    # What a link points to is another's, even if it is empty or gone.
    link, dangling = tmp_path / "link", tmp_path / "dangling"
    link.symlink_to(empty)
    dangling.symlink_to(tmp_path / "gone")
    targets = (empty, marked, foreign, file, link, dangling)
    allowed = {target.name for target in targets if may_replace(target, mark="mark")}
    assert allowed == {"empty", "marked"}
    assert may_replace(tmp_path / "new", mark="mark")


def test_what_a_living_process_writes_is_left_alone(tmp_path, living_writer):
    write_both(tmp_path)
    assert len(leftovers(tmp_path)) == 2
    living_writer.communicate()
    assert living_writer.returncode == 0
    assert (tmp_path / "model").read_text() == "theirs"
    assert (tmp_path / "folder" / "part").read_text() == "theirs"
    assert leftovers(tmp_path) == []


def test_what_a_killed_process_left_is_removed(tmp_path, living_writer):
    living_writer.kill()
    living_writer.wait()
    assert len(leftovers(tmp_path)) == 2
    write_both(tmp_path)
    assert sorted(tree(tmp_path, hidden=True)) == ["folder/part", "model"]


def test_a_folder_for_a_block_goes_with_it_or_with_the_next(tmp_path):
    code = (
        "import os, sys, pathlib; from qwen3nb.utils.atomic_files import temporary_folder\n"
        "with temporary_folder(pathlib.Path(sys.argv[1])) as new: (new / 'f').touch(), os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], check=False)
    assert len(leftovers(tmp_path)) == 1
    with temporary_folder(tmp_path / "run") as first, temporary_folder(tmp_path / "run") as second:
        assert sorted(leftovers(tmp_path)) == sorted([first.name, second.name])
    assert leftovers(tmp_path) == []


def test_what_another_machine_left_is_removed_after_a_week(tmp_path):
    (tmp_path / ".model.zzzz0000.tmp").write_text("x")
    (tmp_path / ".model.zzzz0001.tmp").mkdir()
    write_text(tmp_path / "model", "ours")
    assert len(leftovers(tmp_path)) == 2
    for file in tmp_path.glob(".model.*"):
        os.utime(file, (0, 0))
    write_text(tmp_path / "model", "ours")
    assert leftovers(tmp_path) == []


def test_a_writer_that_lives_loses_nothing_when_the_clock_jumps(tmp_path):
    work = _temporary_path(tmp_path / "model")  # of this process
    work.write_text("half a model")
    os.utime(work, (0, 0))  # as after a jump by decades
    write_text(tmp_path / "model", "of another thread")
    assert leftovers(tmp_path) == [work.name]


def test_what_another_container_writes_is_left_alone(tmp_path, monkeypatch):
    """Its machine may have our name, and its process a number that none of ours has."""
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        monkeypatch.setattr(os, "getpid", lambda: dead.pid)
    names = [_temporary_path(tmp_path / "model")]
    monkeypatch.setattr(Path, "readlink", lambda path: "pid:[1]")
    names.append(_temporary_path(tmp_path / "model"))
    for name in names:
        name.write_text("theirs")
    monkeypatch.undo()
    write_text(tmp_path / "model", "ours")
    assert leftovers(tmp_path) == [names[1].name]


def test_an_error_names_the_file_itself_not_the_temporary_one(tmp_path):
    with pytest.raises(OSError, match="No space") as raised, new_folder(tmp_path / "m") as work:
        raise OSError(errno.ENOSPC, "No space left on device", str(work / "a" / "b"))
    assert raised.value.filename == str(tmp_path / "m" / "a" / "b")
    assert explained(raised.value).startswith(f"{tmp_path}/m/a/b: No space left on device; free")
    copied = shutil.Error([("a", "b", "[Errno 28] No space left"), ("c", "d", "the same")])
    with pytest.raises(OSError, match="m: .Errno 28. No space left$"), new_folder(tmp_path / "m"):
        raise copied
    assert leftovers(tmp_path) == []

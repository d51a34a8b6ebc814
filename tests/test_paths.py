"""Where things live."""

from qwen3nb import paths


def test_paths_follow_the_environment(home, tmp_path, monkeypatch):
    assert paths.results() == home / "results"
    assert paths.book_runs() == home / "book" / "runs"
    monkeypatch.setenv("QWEN3NB_RESULTS", str(tmp_path / "elsewhere"))
    assert paths.results() == tmp_path / "elsewhere"


def test_the_root_is_found_from_inside_the_notebooks(checkout, monkeypatch):
    monkeypatch.delenv("QWEN3NB_HOME")
    monkeypatch.chdir(checkout / "notebooks")
    assert paths.root() == checkout
    assert paths.shown(checkout / "runs" / "x") == "runs/x"
    assert paths.shown(checkout.parent / "y") == str(checkout.parent / "y")

"""The training that lessons use."""

import pytest

from qwen3nb import paths
from qwen3nb.checkpoints.checkpoint import list_checkpoints
from qwen3nb.demo.lesson_training import lesson_training


def test_the_demo_is_used_if_it_has_been_run(home, checkpoint):
    folder = paths.runs() / "demo" / "train"
    folder.mkdir(parents=True)
    (folder / "checkpoint-10").symlink_to(checkpoint)
    assert lesson_training() == folder


@pytest.mark.integration
def test_without_the_demo_a_short_training_is_kept_in_the_cache(home):
    folder = lesson_training()
    assert folder.is_relative_to(paths.cache())
    assert [each.name for each in list_checkpoints(folder)] == ["checkpoint-10", "checkpoint-20"]
    stamp = folder.stat().st_mtime_ns
    assert lesson_training().stat().st_mtime_ns == stamp

"""The tasks of an evaluation are listed once."""

import dataclasses
import json

import pytest

from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task
from qwen3nb.evaluation.mteb import select as module
from qwen3nb.evaluation.mteb.select import KnownTask, known_tasks, suite_tasks
from qwen3nb.tiers import TIERS

NAMES = ["AuthorSTS", "STS17"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tasks"


@pytest.fixture
def listed(monkeypatch):
    """How often tasks were listed by MTEB."""
    calls = []
    monkeypatch.setattr(
        module, "suite_tasks", lambda **options: calls.append(options) or suite_tasks(**options)
    )
    return calls


def facts(tasks):
    return [{**vars(task), "load": None} for task in tasks]


def test_names_are_listed_once_and_a_task_object_is_made_when_it_runs(listed):
    first = known_tasks(tier="smoke", tasks=NAMES)
    again = known_tasks(tier="smoke", tasks=iter(NAMES))
    assert facts(again) == json.loads(json.dumps(facts(first)))
    assert [task.key for task in again] == NAMES
    assert len(listed) == 1
    assert [task.load().metadata.name for task in again] == NAMES
    assert len(listed) == 2  # both from one list
    assert again[0].load() is again[0].load()
    assert again[1].revision == again[1].pinned == again[1].load().metadata.dataset["revision"]


def test_a_tier_is_known_by_its_tasks(listed, monkeypatch):
    smoke = TIERS["smoke"]
    assert [task.key for task in known_tasks(tier="smoke", tasks=" ")] == list(smoke.task_keys)
    known_tasks(tier="smoke", tasks=None)
    assert len(listed) == 1
    monkeypatch.setitem(TIERS, "smoke", dataclasses.replace(smoke, tasks=("AuthorSTS",)))
    assert [task.key for task in known_tasks(tier="smoke", tasks=None)] == ["AuthorSTS"]
    assert known_tasks(tier="smoke", tasks=[]) == []
    with pytest.raises(ValueError, match="smoek"):
        known_tasks(tier="smoek", tasks=None)


def test_another_limit_or_release_is_another_list(listed, monkeypatch):
    assert known_tasks(tier="smoke", tasks="AuthorSTS", limit=5)[0].key == "AuthorSTS-limit5"
    assert known_tasks(tier="smoke", tasks="AuthorSTS")[0].key == "AuthorSTS"
    monkeypatch.setattr(module, "installed_version", lambda _: "0.1")
    known_tasks(tier="smoke", tasks="AuthorSTS")
    assert len(listed) == 3


@pytest.mark.parametrize("text", ["", "[", "{}", "[{}]", '[["key"]]', "null"])
def test_a_damaged_list_is_made_again(cache, listed, text):
    known_tasks(tier="smoke", tasks="AuthorSTS")
    (file,) = cache.iterdir()
    file.write_text(text)
    assert [task.key for task in known_tasks(tier="smoke", tasks="AuthorSTS")] == ["AuthorSTS"]
    assert len(listed) == 2
    assert json.loads(file.read_text())


def test_a_cache_that_cannot_be_written_costs_another_list(cache, listed, caplog):
    cache.parent.write_text("a file")
    for _ in range(2):
        assert [task.key for task in known_tasks(tier="smoke", tasks=NAMES)] == NAMES
    assert len(listed) == 2
    assert "not written" in caplog.text


def test_nothing_is_kept_of_task_objects(cache):
    task = embedded_task("AuthorSTS")
    (known,) = known_tasks(tier="smoke", tasks=[task])
    assert known.load() is task
    assert dataclasses.replace(known, load=None) == dataclasses.replace(
        KnownTask.of(task), load=None
    )
    assert not cache.exists()

"""Write the published scores of the registry's models again, from a clone of MTEB's results.

    git clone https://github.com/embeddings-benchmark/results
    python -m benchmarks.published_models --results results

Only scores of the registry's revision of a model are taken, over exactly the splits and subsets of
the tiers. Prints how many tasks each model has.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.options import command
from qwen3nb.analysis.forecasting.published_models import PublishedScore, write_published_models
from qwen3nb.evaluation.mteb.select import suite_tasks, task_key
from qwen3nb.models.kinds.prompts import named_prompts, prompt_for
from qwen3nb.models.kinds.source import registry
from qwen3nb.tiers import is_search
from qwen3nb.utils.format import markdown_table

_REPOSITORY = "https://github.com/embeddings-benchmark/results"
_LICENCE = "CC0-1.0"
_TIERS = ("fast", "full", "multilingual")
_ROLES_OF_SEARCH = ("query", "passage")


@dataclass(frozen=True)
class Clone:
    """A clone of MTEB's repository of results, at its newest commit."""

    folder: Path

    def git(self, *arguments: str) -> str:
        """Return what git prints."""
        process = ["git", "-C", str(self.folder), *arguments]
        return subprocess.run(process, capture_output=True, text=True, check=True).stdout

    def origin(self) -> dict[str, str]:
        """Return repository, commit, date and licence."""
        commit, date = self.git("log", "-1", "--format=%H %cs").split()
        return {"repository": _REPOSITORY, "commit": commit, "date": date, "licence": _LICENCE}

    def files(self) -> set[str]:
        """Return the paths of all files."""
        return set(self.git("ls-tree", "-r", "--name-only", "HEAD").splitlines())

    def result(self, path: str) -> Any:
        """Return the content of a file of results."""
        return json.loads(self.git("show", f"HEAD:{path}"))


def tasks_of_tiers() -> Mapping[str, Any]:
    """Return MTEB's tasks of the tiers with published scores, by key; NanoBEIR's, too."""
    import mteb

    tasks = {}
    for tier in _TIERS:
        for task in suite_tasks(tier=tier, tasks=None):
            tasks[task_key(task)] = task
    for task in mteb.get_benchmark("NanoBEIR").tasks:
        tasks.setdefault(task_key(task), task)
    return tasks


def scores_of(clone: Clone) -> Iterator[PublishedScore]:
    """Yield the scores of each model of the registry on the tasks of the tiers."""
    files = clone.files()
    tasks = tasks_of_tiers()
    for entry in registry().values():
        model, revision = entry["id"], entry["revision"]
        folder = f"results/{model.replace('/', '__')}/{revision}"
        for key, task in tasks.items():
            path = f"{folder}/{task.metadata.name}.json"
            if path not in files:
                continue
            result = clone.result(path)
            value = main_score(result, task)
            if value is not None:
                yield PublishedScore(
                    model=model,
                    revision=revision,
                    task=key,
                    data_revision=result["dataset_revision"],
                    value=value,
                    has_other_prompt=has_other_prompt(entry, task),
                )


def main_score(result: Mapping[str, Any], task: Any) -> float | None:
    """Return the mean main score over a task's splits and subsets; None if one is missing."""
    published = {}
    for split, of_subsets in result["scores"].items():
        for scores in of_subsets:
            published[split, scores["hf_subset"]] = scores["main_score"]
    wanted = [(split, subset) for split in task.eval_splits for subset in task.hf_subsets]
    if any(part not in published for part in wanted):
        return None
    value = fmean(published[part] for part in wanted)
    return None if math.isnan(value) else value


def has_other_prompt(entry: Mapping[str, Any], task: Any) -> bool:
    """Return whether the prompts of MTEB's own loader are not the registry's.

    Where MTEB takes those of the model's folder or writes them by a function, they count as equal.
    """
    import mteb

    prompts_of_mteb = mteb.get_model_meta(entry["id"]).loader_kwargs.get("model_prompts")
    if not prompts_of_mteb:
        return False
    roles: tuple[str | None, ...] = _ROLES_OF_SEARCH if is_search(task_key(task)) else (None,)
    for role in roles:
        here = prompt_for(named_prompts(entry.get("prompts", {})), role=role, task=task.metadata)
        there = prompt_for(named_prompts(prompts_of_mteb), role=role, task=task.metadata)
        if here != there:
            return True
    return False


def published_models(results: str = "results") -> list[tuple[str, int]]:
    """Write the package's files; return the number of tasks of each model."""
    clone = Clone(Path(results))
    scores = list(scores_of(clone))
    write_published_models(scores, clone.origin())
    return list(Counter(score.model for score in scores).items())


def shown(rows: list[tuple[str, int]]) -> str:
    """Return the table."""
    return markdown_table(("model", "published tasks"), [(name, str(n)) for name, n in rows])


if __name__ == "__main__":
    command(published_models, shown)

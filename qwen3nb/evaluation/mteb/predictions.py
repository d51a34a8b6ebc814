"""What a model predicted while MTEB evaluated it: rankings, similarities or labels.

Rankings are kept as they pass through the search model, because writing and reading them as JSON
takes longer than a search. Other predictions are read from the file that MTEB writes.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qwen3nb.metrics.retrieval import Run, rank_documents
from qwen3nb.metrics.run_arrays import RunArrays, RunBuilder

Predictions = dict[str, dict[str, Any]]  # by subset, then split


class KeptSearch:
    """A search model of MTEB whose rankings are kept.

    ``runs`` has at least ``depth`` documents per query, by subset and split; MTEB gets as many as
    it asks for. With ``as_arrays``, for a task of many parts, runs are kept in a tenth of the
    memory: 376 parts of BelebeleRetrieval have 165 million scores.
    """

    def __init__(self, search: Any, depth: int, *, as_arrays: bool = False) -> None:
        self._search = search
        self._depth = depth
        self._as_arrays = as_arrays
        self.runs: Predictions = {}

    @property
    def mteb_model_meta(self) -> Any:
        """MTEB's description of the model."""
        return self._search.mteb_model_meta

    def index(self, corpus: Any, **options: Any) -> None:
        """Index MTEB's corpus."""
        self._search.index(corpus, **options)

    def search(
        self, queries: Any, *, top_k: int, hf_split: str, hf_subset: str, **options: Any
    ) -> dict[str, dict[str, float]]:
        """Return the ``top_k`` best documents per query, and keep the whole ranking."""
        # Our measures may need more documents than MTEB's.
        depth = max(top_k, self._depth)
        run = self._search.search(
            queries, top_k=depth, hf_split=hf_split, hf_subset=hf_subset, **options
        )
        kept_run = run_arrays(run) if self._as_arrays else run
        self.runs.setdefault(hf_subset, {})[hf_split] = kept_run
        # A copy, because MTEB removes documents from a run while it scores.
        if depth == top_k:
            return {query: dict(scores) for query, scores in run.items()}
        return _best_documents(run, top_k)


def run_arrays(run: Run) -> RunArrays:
    """Return a run as arrays, with the queries and documents in their order."""
    builder = RunBuilder()
    for query, scores in run.items():
        builder.add(query, scores)
    return builder.run()


def _best_documents(run: Run, depth: int) -> dict[str, dict[str, float]]:
    """Return the ``depth`` best documents per query."""
    best = {}
    for query, scores in run.items():
        best[query] = {document: scores[document] for document in rank_documents(scores)[:depth]}
    return best


def read_predictions(file: Path) -> Predictions:
    """Return the predictions in MTEB's file; none if it has not written one."""
    if not file.is_file():
        return {}
    content: Mapping[str, Any] = json.loads(file.read_bytes())  # MTEB writes NaN
    return {subset: splits for subset, splits in content.items() if subset != "mteb_model_meta"}

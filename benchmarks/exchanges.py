"""How often interference by layer names a damaged layer, and how often one without damage.

The demo's adapters change its base by a twentieth: to damage them changes no score. So the base's
layers are made random, and an adapter holds all that the demo has trained in them, the base's own
training included. Layers are exchanged as `qwen3nb analyze --by layer` does, and the judged
documents of PyDocs' sample are searched. Two kinds of trials are counted:

    damage    the factors of one layer of the joint adapter are permuted
    noise     joint adapter and specialist are one adapter, each with a noise of its own

The second is without damage: joint adapter and specialist could change places.

    python -m benchmarks.exchanges --trials 20 --null-trials 200
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.options import command
from qwen3nb import paths
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.analysis.training.exchange_costs import (
    JOINT,
    SPECIALIST,
    ExchangedScores,
    TaskCosts,
    into,
    task_costs,
)
from qwen3nb.demo import train_lora
from qwen3nb.demo.train_lora import LORA, last_states
from qwen3nb.models.kinds.adapter_exchange import parts_of, read_changes
from qwen3nb.models.kinds.lora_change import AdapterChanges, ModuleChange
from qwen3nb.models.types import INSTRUCTION

TASK = "PyDocsSampleRetrieval"
_LENGTH = 48  # tokens of a text
_BATCH = 100
Changes = dict[str, ModuleChange]


@dataclass(frozen=True)
class Named:
    """How many trials of a kind named which layers."""

    kind: str
    trials: int
    right: int  # named the damaged layer
    costly: int  # named any other layer, or without damage any at all, as costing something
    either: int  # told such a layer's cost from 0, in either direction
    joint: float  # mean nDCG@10 of the joint adapters
    specialist: float


class Scorer:
    """Scores adapters of one base on PyDocs' sample."""

    def __init__(self, base: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from qwen3nb.datasets.collection import find_collections
        from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task

        self._model = AutoModelForCausalLM.from_pretrained(base).eval()
        # Weights of the layers: those of the demo's base, and random ones of the same spread.
        self.trained: dict[str, torch.Tensor] = {}
        self.random: dict[str, torch.Tensor] = {}
        generator = torch.Generator().manual_seed(0)
        for name, module in self._model.named_modules():
            if isinstance(module, torch.nn.Linear) and ".layers." in name:
                weight = module.weight.detach().clone()
                self.trained[name] = weight
                self.random[name] = torch.randn(weight.shape, generator=generator) * weight.std()
        (collection,) = find_collections(embedded_task(TASK))
        self.queries = sorted(collection.queries)
        documents = sorted({name for query in self.queries for name in collection.qrels[query]})
        self._relevant = np.zeros((len(self.queries), len(documents)), dtype=bool)
        for row, query in enumerate(self.queries):
            for column, document in enumerate(documents):
                self._relevant[row, column] = collection.qrels[query].get(document, 0) > 0
        tokenizer = AutoTokenizer.from_pretrained(base)
        texts = [
            f"Instruct: {INSTRUCTION}\nQuery:{collection.queries[query]}" for query in self.queries
        ]
        self._query_rows = train_lora._token_ids(tokenizer, texts, _LENGTH)
        texts = [collection.documents[document] for document in documents]
        self._document_rows = train_lora._token_ids(tokenizer, texts, _LENGTH)

    @torch.inference_mode()
    def scores(self, changes: Changes) -> dict[str, float]:
        """Return nDCG@10 by query, of the random base with these changes."""
        for name, module in self._model.named_modules():
            if name in self.random:
                change = changes[name]
                module.weight.copy_(self.random[name] + change.scale * change.b @ change.a)
        similarities = self._vectors(self._query_rows) @ self._vectors(self._document_rows).T
        order = np.argsort(-similarities.numpy(), axis=1, kind="stable")[:, :10]
        found = np.take_along_axis(self._relevant, order, axis=1)
        discounts = 1 / np.log2(np.arange(2, 12))
        relevant_counts = np.minimum(self._relevant.sum(axis=1), 10)
        best = np.array([discounts[:count].sum() for count in relevant_counts])
        values = (found * discounts).sum(axis=1) / best
        return dict(zip(self.queries, values.tolist(), strict=True))

    def _vectors(self, rows: list[list[int]]) -> torch.Tensor:
        """Return the vectors of rows, texts of similar length together."""
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        parts = []
        for start in range(0, len(order), _BATCH):
            batch = [rows[index] for index in order[start : start + _BATCH]]
            parts.append(last_states(self._model.model, batch))
        vectors = torch.empty(len(rows), parts[0].shape[1])
        vectors[order] = torch.cat(parts)
        return torch.nn.functional.normalize(vectors, dim=-1)


def costs(
    scorer: Callable[[Changes], dict[str, float]],
    joint: AdapterChanges,
    specialist: AdapterChanges,
) -> TaskCosts:
    """Exchange each layer, and return what it costs."""
    known: dict[tuple[int, ...], dict[str, float]] = {}

    def scored(changes: Changes) -> dict[str, float]:
        """Score each combination once: of two layers, half of all come twice."""
        # Ids tell changes apart only while these exist, so no trial reads another's scores.
        key = tuple(id(changes[name]) for name in sorted(changes))
        if key not in known:
            known[key] = scorer(changes)
        return known[key]

    first, second = dict(joint.by_module), dict(specialist.by_module)
    columns = {JOINT: scored(first), SPECIALIST: scored(second)}
    parts = parts_of(joint, specialist, by="layer")
    for part, modules in parts.items():
        of_first = {name: first[name] for name in modules}
        of_second = {name: second[name] for name in modules}
        columns[into(JOINT, part)] = scored({**first, **of_second})
        columns[into(SPECIALIST, part)] = scored({**second, **of_first})
    matrix = join(columns, task=TASK, metric="nDCG@10")
    return task_costs("embedding", [ExchangedScores(0, tuple(parts), (matrix,))], n_resamples=2000)


def permuted(adapter: AdapterChanges, layer: int, generator: np.random.Generator) -> AdapterChanges:
    """Return an adapter with the numbers of both factors of a layer's modules permuted."""

    def mixed(matrix: torch.Tensor) -> torch.Tensor:
        order = torch.from_numpy(generator.permutation(matrix.numel()))
        return matrix.flatten()[order].reshape(matrix.shape)

    changes = dict(adapter.by_module)
    for name, change in changes.items():
        if f".layers.{layer}." in name:
            changes[name] = replace(change, a=mixed(change.a), b=mixed(change.b))
    return replace(adapter, by_module=changes)


def noisy(adapter: AdapterChanges, share: float, generator: np.random.Generator) -> AdapterChanges:
    """Return an adapter with noise on all factors, of a share of their standard deviation."""

    def shaken(matrix: torch.Tensor) -> torch.Tensor:
        noise = torch.from_numpy(generator.normal(size=matrix.shape)).float()
        return matrix + share * matrix.std() * noise

    changes = {}
    for name, change in adapter.by_module.items():
        changes[name] = replace(change, a=shaken(change.a), b=shaken(change.b))
    return replace(adapter, by_module=changes)


def with_training(adapter: AdapterChanges, scorer: Scorer) -> AdapterChanges:
    """Return an adapter of the random base that also holds the training of the demo's base."""
    changes = {}
    for name, change in adapter.by_module.items():
        delta = scorer.trained[name] - scorer.random[name] + change.scale * change.b @ change.a
        left, values, right = torch.linalg.svd(delta, full_matrices=False)
        roots = values.sqrt()
        changes[name] = replace(change, a=roots[:, None] * right, b=left * roots, scale=1.0)
    return replace(adapter, by_module=changes)


def count(kind: str, found: Iterator[tuple[TaskCosts, str]]) -> Named:
    """Count what trials name; each has the damaged layer, or nothing."""
    rows = list(found)
    right, costly, either = 0, 0, 0
    for trial, damaged in rows:
        named = {part.part for part in trial.named}
        told_apart = {part.part for part in trial.parts if part.is_significant}
        right += damaged in named
        costly += bool(named - {damaged})
        either += bool(told_apart - {damaged})
    return Named(
        kind=kind,
        trials=len(rows),
        right=right,
        costly=costly,
        either=either,
        joint=float(np.mean([trial.joint for trial, _ in rows])),
        specialist=float(np.mean([trial.specialist for trial, _ in rows])),
    )


def bench(
    *, trials: int = 20, null_trials: int = 200, noise: tuple[float, ...] = (0.05, 0.2)
) -> list[Named]:
    """Count how often a damaged layer is named, and how often one without damage."""
    demo = paths.runs() / "demo" / "lora"
    scorer = Scorer(demo / "base")
    seeds = sorted(path.name for path in (demo / "outputs" / f"joint_r{LORA.rank}").iterdir())

    def adapter(mode: str, seed: str) -> AdapterChanges:
        folder = demo / "outputs" / f"{mode}_r{LORA.rank}" / seed / "checkpoints" / "final"
        return with_training(read_changes(folder), scorer)

    def damaged() -> Iterator[tuple[TaskCosts, str]]:
        for number in tqdm(range(trials), desc="damage", unit="trial"):
            seed = seeds[number % len(seeds)]
            layer = number // len(seeds) % 2
            joint = permuted(adapter("joint", seed), layer, np.random.default_rng(number))
            yield costs(scorer.scores, joint, adapter("emb_only", seed)), str(layer)

    def undamaged(share: float) -> Iterator[tuple[TaskCosts, str]]:
        specialist = adapter("emb_only", seeds[0])
        count_of_trials = null_trials // len(noise)
        for number in tqdm(range(count_of_trials), desc=f"noise {share:g}", unit="trial"):
            generator = np.random.default_rng([number, int(1000 * share)])
            pair = [noisy(specialist, share, generator) for _ in range(2)]
            yield costs(scorer.scores, *pair), ""

    rows = [count("damage", damaged())]
    rows += [count(f"noise {share:g}", undamaged(share)) for share in noise]
    return rows


def shown(rows: list[Named]) -> str:
    """Return a line per kind of trial."""
    lines = [
        "kind         trials  right layer  other, costs  other, either  nDCG: joint  specialist"
    ]
    for row in rows:
        counts = f"{row.trials:6d}  {row.right:11d}  {row.costly:12d}  {row.either:13d}"
        lines.append(f"{row.kind:11s}  {counts}  {row.joint:11.3f}  {row.specialist:10.3f}")
    return "\n".join(lines)


if __name__ == "__main__":
    command(bench, shown)

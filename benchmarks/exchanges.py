"""How often interference by layer names a damaged layer, and how often one without damage.

The adapters and their base are the demo's. Layers are exchanged as `qwen3nb analyze --by layer`
does, and the judged documents of PyDocs' sample are searched. Two kinds of trials are counted:

    layer 0   the weights of layer 0, the joint adapter's change included, are permuted
    layer 1   the same of layer 1
    noise     joint adapter and specialist are one adapter, each with a noise on all weights

The last is without damage: joint adapter and specialist could change places. The column `lost` says
what the damage took from the joint adapter. Where it took nothing, there is nothing to name.

Weights are changed by an adapter of full rank. The demo's adapters hardly change their base's
scores, so to permute their factors alone costs nothing that could be named.

    python -m benchmarks.exchanges --trials 20 --null-trials 200
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
Weights = dict[str, torch.Tensor]
ByMetric = dict[str, dict[str, float]]  # scores by metric, then by query
Means = dict[str, float]  # mean score by metric
NDCG = "nDCG@10"
LOG_SHARE = "log-softmax"  # the loss that the adapters were trained with, negated


@dataclass(frozen=True)
class Trial:
    """What the layers of a pair of adapters cost."""

    costs: dict[str, TaskCosts]  # by metric
    damaged: str = ""  # the layer; none without damage
    undamaged: Means | None = None  # the joint adapter's scores before the damage


@dataclass(frozen=True)
class Named:
    """How many trials of a kind named which layers, by a metric."""

    kind: str
    metric: str
    trials: int
    right: int  # named the damaged layer
    costly: int  # named any other layer, or without damage any at all, as costing something
    either: int  # told such a layer's cost from 0, in either direction
    lost: float  # mean of what the damage took from the joint adapters' score
    joint: float  # mean score of the joint adapters
    specialist: float


class Scorer:
    """Scores adapters of one base on PyDocs' sample."""

    def __init__(self, base: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from qwen3nb.datasets.collection import find_collections
        from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task

        self._model = AutoModelForCausalLM.from_pretrained(base).eval()
        self.weights: Weights = {}  # of the base's layers
        for name, module in self._model.named_modules():
            if isinstance(module, torch.nn.Linear) and ".layers." in name:
                self.weights[name] = module.weight.detach().clone()
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
    def scores(self, changes: Changes) -> ByMetric:
        """Return the scores of the base with these changes: by metric, then by query."""
        for name, module in self._model.named_modules():
            if name in self.weights:
                change = changes[name]
                module.weight.copy_(self.weights[name] + change.scale * change.b @ change.a)
        similarities = self._vectors(self._query_rows) @ self._vectors(self._document_rows).T
        by_metric = {
            NDCG: self._ndcg(similarities.numpy()),
            LOG_SHARE: self._log_share(similarities),
        }
        return {
            metric: dict(zip(self.queries, values.tolist(), strict=True))
            for metric, values in by_metric.items()
        }

    def _ndcg(self, similarities: np.ndarray) -> np.ndarray:
        """Return nDCG@10 of each query."""
        order = np.argsort(-similarities, axis=1, kind="stable")[:, :10]
        found = np.take_along_axis(self._relevant, order, axis=1)
        discounts = 1 / np.log2(np.arange(2, 12))
        relevant_counts = np.minimum(self._relevant.sum(axis=1), 10)
        best = np.array([discounts[:count].sum() for count in relevant_counts])
        ndcg: np.ndarray = (found * discounts).sum(axis=1) / best
        return ndcg

    def _log_share(self, similarities: torch.Tensor) -> np.ndarray:
        """Return the logarithm of the relevant documents' share in the softmax of each query."""
        logits = similarities / LORA.temperature
        relevant = logits.masked_fill(torch.from_numpy(~self._relevant), -torch.inf)
        log_share: np.ndarray = (relevant.logsumexp(dim=1) - logits.logsumexp(dim=1)).numpy()
        return log_share

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
    scorer: Callable[[Changes], ByMetric],
    joint: AdapterChanges,
    specialist: AdapterChanges,
) -> dict[str, TaskCosts]:
    """Exchange each layer, and return what it costs, by metric."""
    known: dict[tuple[int, ...], ByMetric] = {}

    def scored(changes: Changes) -> ByMetric:
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
    by_metric = {}
    for metric in columns[JOINT]:
        of_metric = {name: scores[metric] for name, scores in columns.items()}
        matrix = join(of_metric, task=TASK, metric=metric)
        scores = [ExchangedScores(0, tuple(parts), (matrix,))]
        by_metric[metric] = task_costs("embedding", scores, n_resamples=2000)
    return by_metric


def permuted(
    adapter: AdapterChanges, base: Weights, layer: int, generator: np.random.Generator
) -> AdapterChanges:
    """Return an adapter with which the weights of a layer's modules are permuted."""

    def mixed(name: str, weights: torch.Tensor) -> torch.Tensor:
        if f".layers.{layer}." not in name:
            return weights
        order = torch.from_numpy(generator.permutation(weights.numel()))
        return weights.flatten()[order].reshape(weights.shape)

    return _with_new_weights(adapter, base, mixed)


def noisy(
    adapter: AdapterChanges, base: Weights, share: float, generator: np.random.Generator
) -> AdapterChanges:
    """Return an adapter with noise on all weights, of a share of their standard deviation."""

    def shaken(name: str, weights: torch.Tensor) -> torch.Tensor:
        noise = torch.from_numpy(generator.normal(size=weights.shape)).float()
        return weights + share * weights.std() * noise

    return _with_new_weights(adapter, base, shaken)


def _with_new_weights(
    adapter: AdapterChanges,
    base: Weights,
    new_weights: Callable[[str, torch.Tensor], torch.Tensor],
) -> AdapterChanges:
    """Return the adapter of full rank that gives each module new weights.

    These are computed from a module's name and the weights that it has with the adapter.
    """
    changes = {}
    for name, change in adapter.by_module.items():
        weights = base[name] + change.scale * change.b @ change.a
        difference = new_weights(name, weights) - base[name]
        inputs = difference.shape[1]
        changes[name] = replace(change, a=torch.eye(inputs), b=difference, scale=1.0)
    return replace(adapter, by_module=changes)


def count(kind: str, metric: str, trials: Sequence[Trial]) -> Named:
    """Count what trials name by a metric."""
    right, costly, either = 0, 0, 0
    losses, joints, specialists = [], [], []
    for trial in trials:
        costs = trial.costs[metric]
        named = {part.part for part in costs.named}
        told_apart = {part.part for part in costs.parts if part.is_significant}
        right += trial.damaged in named
        costly += bool(named - {trial.damaged})
        either += bool(told_apart - {trial.damaged})
        joints.append(costs.joint)
        specialists.append(costs.specialist)
        if trial.undamaged is not None:
            losses.append(trial.undamaged[metric] - costs.joint)
    return Named(
        kind=kind,
        metric=metric,
        trials=len(trials),
        right=right,
        costly=costly,
        either=either,
        lost=float(np.mean(losses)) if losses else 0.0,
        joint=float(np.mean(joints)),
        specialist=float(np.mean(specialists)),
    )


def bench(
    *, trials: int = 20, null_trials: int = 200, noise: tuple[float, ...] = (0.05, 0.2)
) -> list[Named]:
    """Count how often a damaged layer is named, and how often one without damage.

    There are as many ``trials`` for each of the two layers. ``null_trials`` are shared among the
    shares of ``noise``.
    """
    demo = paths.runs() / "demo" / "lora"
    scorer = Scorer(demo / "base")
    seeds = sorted(path.name for path in (demo / "outputs" / f"joint_r{LORA.rank}").iterdir())

    def adapter(mode: str, seed: str) -> AdapterChanges:
        folder = demo / "outputs" / f"{mode}_r{LORA.rank}" / seed / "checkpoints" / "final"
        return read_changes(folder)

    def undamaged_means(seed: str) -> Means:
        scores = scorer.scores(dict(adapter("joint", seed).by_module))
        return {metric: float(np.mean([*values.values()])) for metric, values in scores.items()}

    undamaged = {seed: undamaged_means(seed) for seed in seeds}

    def damaged_trials(layer: int) -> Iterator[Trial]:
        for number in tqdm(range(trials), desc=f"layer {layer}", unit="trial"):
            seed = seeds[number % len(seeds)]
            generator = np.random.default_rng([number, layer])
            joint = permuted(adapter("joint", seed), scorer.weights, layer, generator)
            found = costs(scorer.scores, joint, adapter("emb_only", seed))
            yield Trial(found, damaged=str(layer), undamaged=undamaged[seed])

    def null_trials_of(share: float) -> Iterator[Trial]:
        specialist = adapter("emb_only", seeds[0])
        count_of_trials = null_trials // len(noise)
        for number in tqdm(range(count_of_trials), desc=f"noise {share:g}", unit="trial"):
            generator = np.random.default_rng([number, int(1000 * share)])
            pair = [noisy(specialist, scorer.weights, share, generator) for _ in range(2)]
            yield Trial(costs(scorer.scores, *pair))

    trials_by_kind = {}
    for layer in range(2):
        trials_by_kind[f"layer {layer}"] = list(damaged_trials(layer))
    for share in noise:
        trials_by_kind[f"noise {share:g}"] = list(null_trials_of(share))
    rows = []
    for metric in (NDCG, LOG_SHARE):
        for kind, of_kind in trials_by_kind.items():
            if of_kind:
                rows.append(count(kind, metric, of_kind))
    return rows


def shown(rows: list[Named]) -> str:
    """Return a line per metric and kind of trial."""
    lines = [
        "metric       kind        trials  right layer  other, costs  other, either"
        "    lost  score: joint  specialist"
    ]
    for row in rows:
        counts = f"{row.trials:6d}  {row.right:11d}  {row.costly:12d}  {row.either:13d}"
        scores = f"{row.lost:6.3f}  {row.joint:12.3f}  {row.specialist:10.3f}"
        lines.append(f"{row.metric:11s}  {row.kind:10s}  {counts}  {scores}")
    return "\n".join(lines)


if __name__ == "__main__":
    command(bench, shown)

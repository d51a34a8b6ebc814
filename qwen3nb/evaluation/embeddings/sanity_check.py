"""Sanity checks of a model as an encoder.

They take seconds and detect common errors: vectors of the wrong length, a causal or scrambled
model, uninformative dimensions, texts that all point in one direction, similarities and rankings at
chance level. The verdicts:

- ``FAILED``: broken for any use. A paraphrase is no closer than unrelated sentences; the
  95 % interval of a correlation or reciprocal rank reaches chance level; on STS-B itself, a
  correlation of `STS_NEEDED` or less.
- ``WARNING``: below a target, or unusual. The targets were set for STS-B and MS MARCO; missing one
  on substitute data is only a warning.
- ``PASSED``: neither. ``INFO``: a number without a threshold. ``NOT APPLICABLE``: the model
  has no vectors.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb.datasets.pydocs.build import PyDocs, load_pydocs
from qwen3nb.datasets.pydocs.mteb_tasks import author_sts
from qwen3nb.evaluation.embeddings.probes import COLLAPSED_VARIANCE, Geometry, vector_geometry
from qwen3nb.evaluation.embeddings.sts import STSPairs, STSScores, local_sts_benchmark
from qwen3nb.metrics.aggregate import Aggregate, means
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.capabilities import searches
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.load import loaded

STS_NEEDED, STS_TARGET = 0.70, 0.75  # Spearman on STS-B
MRR_TARGET = 0.30  # MRR@10 on MS MARCO
COLLAPSED_SHARE = 0.10  # warn from this share of collapsed dimensions
COSINE_LIMIT = 0.95  # warn from this mean cosine
NORM_TOLERANCE = 1e-3  # allows for the rounding of 16-bit models
DEPTH = 10
QUICK = {"documents": 300, "queries": 100}  # part of the smoke tier's sample; takes seconds
FOX = "The quick brown fox jumps over the lazy dog."
PARAPHRASE = "A fast, dark-coloured fox leaps above a sleepy hound."
UNRELATED = (
    "Interest rates rose for the third time this year.",
    "Preheat the oven and grease a baking tin.",
    "The committee published its report on water quality.",
)


@dataclass(frozen=True)
class Check:
    """A check and its result."""

    name: str  # what is checked
    verdict: str  # ``PASSED``, ``WARNING``, ``FAILED``, ``INFO`` or ``NOT APPLICABLE``
    observed: str  # the observation, as text, and ``expected`` the threshold
    expected: str = "–"
    # the observation as a number with its 95 % interval, if available
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: str = ""  # sample size, with its unit
    remark: str = ""  # what to consider when reading it


@dataclass(frozen=True, repr=False)
class SanityCheck:
    """All checks of one model, in display order; iterates over them.

    ``geometry`` is the geometry of its vectors; None for a model without vectors.
    """

    model: str
    identity: str
    checks: tuple[Check, ...]
    geometry: Geometry | None = None

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def __repr__(self) -> str:
        lines = [f"  {check.verdict:14} {check.name}: {check.observed}" for check in self.checks]
        return "\n".join([f"<SanityCheck of {self.model}: {self.verdict}>", *lines])

    @property
    def verdict(self) -> str:
        """The worst verdict of the checks: ``FAILED``, ``WARNING`` or ``PASSED``."""
        verdicts = {check.verdict for check in self.checks}
        return next((each for each in ("FAILED", "WARNING") if each in verdicts), "PASSED")

    def as_dict(self) -> dict[str, Any]:
        """Return verdict, checks and a summary of the geometry as JSON values."""
        geometry = self.geometry
        return {
            "model": self.model,
            "identity": self.identity,
            "verdict": self.verdict,
            "checks": [asdict(check) for check in self.checks],
            "geometry": geometry
            and {
                "texts": geometry.texts,
                "dimension": geometry.dimension,
                "low_variance_dimensions": geometry.collapsed,
                "mean_cosine": geometry.mean_cosine,
                "effective_rank": geometry.effective_rank,
                "singular_values": geometry.singular_values.tolist(),
            },
        }


def sanity_check(model: Any) -> SanityCheck:
    """Check ``model`` on a small sample of PyDocs and on sentence pairs.

    The sentence pairs are the test pairs of STS-B if available locally, otherwise author-written
    ones. The geometry is always measured on the sample's documents and the author-written
    sentences. For a search model, only the ranking is checked.

    Args:
        model: a `Model`, its spec, or a loaded model.

    Raises:
        EncoderError: a vector is zero or not finite.
    """
    model = loaded(model)
    pydocs = load_pydocs().sample(**QUICK)
    if searches(model):
        none = Check("vectors", "NOT APPLICABLE", f"{model.label} {model.only_searches}")
        model.index([{"id": name, "text": text} for name, text in pydocs.corpus.items()])
        rows = [{"id": query, "text": text} for query, text in pydocs.queries.items()]
        ranked = _retrieval(model.search(rows, top_k=DEPTH), pydocs)
        return SanityCheck(model.label, model.identity, (none, ranked))
    sentences = sorted({text for first, second, _ in author_sts() for text in (first, second)})
    spoken = model.encode(sentences)
    documents = model.encode(list(pydocs.corpus.values()), role="passage")
    queries = model.encode(list(pydocs.queries.values()), role="query")
    geometry = vector_geometry(np.concatenate([documents, spoken]))
    dimension, lengths, *spread = _geometry(geometry, model)
    names = list(pydocs.corpus)
    scores = model.similarity(queries, documents).tolist()
    run = {
        q: dict(zip(names, row, strict=True)) for q, row in zip(pydocs.queries, scores, strict=True)
    }
    checks = (
        dimension,
        lengths,
        _paraphrase(model),
        *_sts(model, dict(zip(sentences, spoken, strict=True))),
        _retrieval(run, pydocs),
        *spread,
    )
    return SanityCheck(model.label, model.identity, checks, geometry)


def verdict_of(
    score: Aggregate, *, chance: float, needed: float, target: float, stand_in: bool
) -> str:
    """Return the verdict on a score with an interval; thresholds must be exceeded.

    A score up to ``target`` gives a warning; up to ``needed`` it fails, unless the data are a
    ``stand_in``, a substitute for those of this threshold.
    """
    if score.value is None or (score.low if score.low is not None else score.value) <= chance:
        return "FAILED"
    if score.value > target:
        return "PASSED"
    return "WARNING" if stand_in or score.value > needed else "FAILED"


def _geometry(geometry: Geometry, model: Encoder) -> list[Check]:
    """Checks of dimensions, lengths, variances, cosines and rank."""

    def passed(good: bool) -> str:
        return "PASSED" if good else "WARNING"

    texts, lengths, spread = f"{geometry.texts} texts", geometry.lengths, geometry.variances
    off, unit = float(np.abs(lengths - 1).max()), model.normalize
    share, cosine = geometry.collapsed / geometry.dimension, geometry.mean_cosine
    return [
        Check(
            "dimensions of a vector",
            "INFO",
            f"{geometry.dimension}",
            value=float(geometry.dimension),
        ),
        Check(
            "vectors have length 1",
            passed(off <= NORM_TOLERANCE) if unit else "INFO",
            f"{lengths.min():.4f} to {lengths.max():.4f}",
            f"1 ± {NORM_TOLERANCE:g}" if unit else "–",
            value=off,
            n=texts,
            remark="" if unit else "the model does not normalise its vectors",
        ),
        Check(
            "collapsed dimensions",
            passed(share < COLLAPSED_SHARE),
            f"{share:.1%}: {geometry.collapsed} of {geometry.dimension} with a variance below "
            f"{COLLAPSED_VARIANCE:g}",
            f"< {COLLAPSED_SHARE:.0%}",
            value=share,
            n=texts,
            remark=f"variance {spread.min():.1e} to {spread.max():.1e}, mean {spread.mean():.1e}",
        ),
        Check(
            "different texts point in different directions",
            passed(cosine < COSINE_LIMIT),
            f"mean cosine {cosine:z.3f}",
            f"< {COSINE_LIMIT}",
            value=cosine,
            n=f"{len(geometry.cosines):,} pairs",
        ),
        Check(
            "directions in use (effective rank)",
            "INFO",
            f"{geometry.effective_rank:.1f} of at most {len(geometry.singular_values)}",
            value=geometry.effective_rank,
            n=texts,
        ),
    ]


def _paraphrase(encoder: Encoder) -> Check:
    fox, *others = encoder.encode([FOX, PARAPHRASE, *UNRELATED])
    near, *far = encoder.similarity(fox[None], np.stack(others))[0].tolist()
    return Check(
        "a paraphrase is closer than unrelated sentences",
        "PASSED" if near > max(far) else "FAILED",
        f"{near:.3f} against {', '.join(f'{each:.3f}' for each in far)}",
        "closer than each of three",
        value=near - max(far),
        n=f"{1 + len(far)} pairs",
    )


def _sts(encoder: Encoder, known: Mapping[str, NDArray[np.float32]]) -> list[Check]:
    """Spearman and Pearson correlation; ``known`` has vectors of the author-written sentences."""
    pairs = local_sts_benchmark()
    if pairs is None:
        one, other, gold = zip(*author_sts(), strict=True)
        pairs = STSPairs("AuthorSTS", one, other, gold)
        first, second = (np.stack([known[t] for t in side]) for side in (pairs.first, pairs.second))
    else:
        first, second = np.split(encoder.encode([*pairs.first, *pairs.second]), 2)
    scores = STSScores.of(pairs, encoder.similarity_pairwise(first, second).tolist())
    rank = scores.spearman
    verdict = verdict_of(
        rank, chance=0, needed=STS_NEEDED, target=STS_TARGET, stand_in=pairs.stand_in
    )
    expected = f"> {STS_NEEDED:.2f}, target > {STS_TARGET:.2f}"
    remark = "threshold set for STS-B; these data stand in for it" if pairs.stand_in else ""
    unit = f"{rank.n} pairs"
    return [
        _valued(f"{pairs.name}, Spearman", verdict, rank, expected, n=unit, remark=remark),
        _valued(f"{pairs.name}, Pearson", "INFO", scores.pearson, "–", n=unit),
    ]


def _valued(
    name: str, verdict: str, score: Aggregate, expected: str, *, n: str, remark: str = ""
) -> Check:
    words = f"{score.value:.3f}" if score.value is not None else f"undefined: {score.undefined}"
    return Check(
        name, verdict, words, expected, score.value, score.low, score.high, n=n, remark=remark
    )


def _retrieval(run: Mapping[str, Mapping[str, float]], pydocs: PyDocs) -> Check:
    """MRR@10 of a query's own document; chance level is the mean of 1/r for a random rank r."""
    metric = f"MRR@{DEPTH}"
    qrels = {query: {query: 1} for query in pydocs.query_names}
    score = means(score_run(qrels, run, [metric]))[metric]
    pool = len(pydocs.entries)
    chance = sum(1 / rank for rank in range(1, DEPTH + 1)) / pool
    return _valued(
        f"a description finds its function, {metric}",
        verdict_of(score, chance=chance, needed=MRR_TARGET, target=MRR_TARGET, stand_in=True),
        score,
        f"> {MRR_TARGET:.2f}",
        n=f"{score.n} queries, {pool} documents",
        remark=f"threshold set for MS MARCO; these data stand in for it; chance {chance:.4f}",
    )

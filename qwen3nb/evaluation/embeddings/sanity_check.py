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
from qwen3nb.evaluation.embeddings.probes import (
    COLLAPSED_VARIANCE,
    Geometry,
    author_sentences,
    vector_geometry,
)
from qwen3nb.evaluation.embeddings.sts import STSPairs, STSScores, local_sts_benchmark
from qwen3nb.metrics.aggregate import Aggregate, means
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.capabilities import searches
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.load import loaded
from qwen3nb.models.search.searcher import Searcher

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
        for worst in ("FAILED", "WARNING"):
            if worst in verdicts:
                return worst
        return "PASSED"

    def as_dict(self) -> dict[str, Any]:
        """Return verdict, checks and a summary of the geometry as JSON values."""
        geometry = None
        if self.geometry is not None:
            geometry = {
                "texts": self.geometry.texts,
                "dimension": self.geometry.dimension,
                "low_variance_dimensions": self.geometry.collapsed,
                "mean_cosine": self.geometry.mean_cosine,
                "effective_rank": self.geometry.effective_rank,
                "singular_values": self.geometry.singular_values.tolist(),
            }
        return {
            "model": self.model,
            "identity": self.identity,
            "verdict": self.verdict,
            "checks": [asdict(check) for check in self.checks],
            "geometry": geometry,
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
        return _check_searcher(model, pydocs)
    sentences = author_sentences()
    sentence_vectors = model.encode(sentences)
    documents = model.encode(list(pydocs.corpus.values()), role="passage")
    queries = model.encode(list(pydocs.queries.values()), role="query")
    geometry = vector_geometry(np.concatenate([documents, sentence_vectors]))
    # These two are shown first, the others last.
    dimension, lengths, *spread = _geometry(geometry, model)
    run = {}
    similarities = model.similarity(queries, documents).tolist()
    for query, scores in zip(pydocs.queries, similarities, strict=True):
        run[query] = dict(zip(pydocs.corpus, scores, strict=True))
    checks = (
        dimension,
        lengths,
        _paraphrase(model),
        *_sts(model, dict(zip(sentences, sentence_vectors, strict=True))),
        _retrieval(run, pydocs),
        *spread,
    )
    return SanityCheck(model.label, model.identity, checks, geometry)


def _check_searcher(model: Searcher, pydocs: PyDocs) -> SanityCheck:
    """Check the ranking of a model without vectors."""
    no_vectors = Check("vectors", "NOT APPLICABLE", f"{model.label} {model.only_searches}")
    documents = [{"id": name, "text": text} for name, text in pydocs.corpus.items()]
    queries = [{"id": query, "text": text} for query, text in pydocs.queries.items()]
    model.index(documents)
    ranking = _retrieval(model.search(queries, top_k=DEPTH), pydocs)
    return SanityCheck(model.label, model.identity, (no_vectors, ranking))


def verdict_of(
    score: Aggregate, *, chance: float, needed: float, target: float, stand_in: bool
) -> str:
    """Return the verdict on a score with an interval; thresholds must be exceeded.

    A score up to ``target`` gives a warning; up to ``needed`` it fails, unless the data are a
    ``stand_in``, a substitute for those of this threshold.
    """
    if score.value is None:
        return "FAILED"
    lowest = score.value
    if score.low is not None:
        lowest = score.low
    # The interval reaches down to chance.
    if lowest <= chance:
        return "FAILED"
    if score.value > target:
        return "PASSED"
    if stand_in or score.value > needed:
        return "WARNING"
    return "FAILED"


def _geometry(geometry: Geometry, model: Encoder) -> list[Check]:
    """Checks of dimensions, lengths, variances, cosines and rank."""
    texts = f"{geometry.texts} texts"
    cosine = geometry.mean_cosine
    return [
        Check(
            "dimensions of a vector",
            "INFO",
            observed=f"{geometry.dimension}",
            value=float(geometry.dimension),
        ),
        _lengths(geometry, model, texts),
        _collapsed_dimensions(geometry, texts),
        Check(
            "different texts point in different directions",
            _passed_if(cosine < COSINE_LIMIT),
            observed=f"mean cosine {cosine:z.3f}",  # z: no minus sign before 0.000
            expected=f"< {COSINE_LIMIT}",
            value=cosine,
            n=f"{len(geometry.cosines):,} pairs",
        ),
        Check(
            "directions in use (effective rank)",
            "INFO",
            observed=f"{geometry.effective_rank:.1f} of at most {len(geometry.singular_values)}",
            value=geometry.effective_rank,
            n=texts,
        ),
    ]


def _passed_if(is_good: bool) -> str:
    if is_good:
        return "PASSED"
    return "WARNING"


def _lengths(geometry: Geometry, model: Encoder, texts: str) -> Check:
    """Whether vectors have length 1, if the model scales them."""
    lengths = geometry.lengths
    deviation = float(np.abs(lengths - 1).max())
    verdict, expected = _passed_if(deviation <= NORM_TOLERANCE), f"1 ± {NORM_TOLERANCE:g}"
    remark = ""
    if not model.normalize:
        verdict, expected = "INFO", "–"
        remark = "the model does not normalise its vectors"
    return Check(
        "vectors have length 1",
        verdict,
        observed=f"{lengths.min():.4f} to {lengths.max():.4f}",
        expected=expected,
        value=deviation,
        n=texts,
        remark=remark,
    )


def _collapsed_dimensions(geometry: Geometry, texts: str) -> Check:
    """Whether many dimensions have almost no variance."""
    share = geometry.collapsed / geometry.dimension
    lowest, highest = geometry.variances.min(), geometry.variances.max()
    return Check(
        "collapsed dimensions",
        _passed_if(share < COLLAPSED_SHARE),
        observed=f"{share:.1%}: {geometry.collapsed} of {geometry.dimension} with a variance "
        f"below {COLLAPSED_VARIANCE:g}",
        expected=f"< {COLLAPSED_SHARE:.0%}",
        value=share,
        n=texts,
        remark=f"variance {lowest:.1e} to {highest:.1e}, mean {geometry.variances.mean():.1e}",
    )


def _paraphrase(encoder: Encoder) -> Check:
    fox, *other_vectors = encoder.encode([FOX, PARAPHRASE, *UNRELATED])
    # The only row: those of the fox with all others.
    similarities = encoder.similarity(fox, np.stack(other_vectors))[0].tolist()
    of_paraphrase, *of_unrelated = similarities
    margin = of_paraphrase - max(of_unrelated)
    verdict = "FAILED"
    if margin > 0:
        verdict = "PASSED"
    unrelated = ", ".join(f"{similarity:.3f}" for similarity in of_unrelated)
    return Check(
        "a paraphrase is closer than unrelated sentences",
        verdict,
        observed=f"{of_paraphrase:.3f} against {unrelated}",
        expected="closer than each of three",
        value=margin,
        n=f"{len(similarities)} pairs",
    )


def _sts(encoder: Encoder, vector_of_sentence: Mapping[str, NDArray[np.float32]]) -> list[Check]:
    """Spearman and Pearson correlation, by known vectors for the author-written sentences."""
    from qwen3nb.datasets.pydocs.mteb_tasks import author_sts  # loads MTEB

    pairs = local_sts_benchmark()
    if pairs is None:
        first_texts, second_texts, gold = zip(*author_sts(), strict=True)
        pairs = STSPairs("AuthorSTS", first_texts, second_texts, gold)
        # These sentences are encoded already.
        first_vectors = np.stack([vector_of_sentence[text] for text in first_texts])
        second_vectors = np.stack([vector_of_sentence[text] for text in second_texts])
    else:
        first_vectors, second_vectors = np.split(encoder.encode([*pairs.first, *pairs.second]), 2)
    scores = STSScores.of(
        pairs, encoder.similarity_pairwise(first_vectors, second_vectors).tolist()
    )
    verdict = verdict_of(
        scores.spearman, chance=0, needed=STS_NEEDED, target=STS_TARGET, stand_in=pairs.stand_in
    )
    expected = f"> {STS_NEEDED:.2f}, target > {STS_TARGET:.2f}"
    remark = ""
    if pairs.stand_in:
        remark = "threshold set for STS-B; these data stand in for it"
    size = f"{scores.spearman.n} pairs"
    rank_correlation = _valued(
        f"{pairs.name}, Spearman", verdict, scores.spearman, expected, n=size, remark=remark
    )
    return [
        rank_correlation,
        _valued(f"{pairs.name}, Pearson", "INFO", scores.pearson, "–", n=size),
    ]


def _valued(
    name: str, verdict: str, score: Aggregate, expected: str, *, n: str, remark: str = ""
) -> Check:
    observed = f"undefined: {score.undefined}"
    if score.value is not None:
        observed = f"{score.value:.3f}"
    return Check(
        name,
        verdict,
        observed,
        expected,
        value=score.value,
        low=score.low,
        high=score.high,
        n=n,
        remark=remark,
    )


def _retrieval(run: Mapping[str, Mapping[str, float]], pydocs: PyDocs) -> Check:
    """MRR@10 of a query's own document; chance level is the mean of 1/r for a random rank r."""
    metric = f"MRR@{DEPTH}"
    qrels = {query: {query: 1} for query in pydocs.query_names}
    score = means(score_run(qrels, run, [metric]))[metric]
    documents = len(pydocs.entries)
    # The mean of 1 / rank if the document is at a random rank; below `DEPTH`, it counts 0.
    chance = sum(1 / rank for rank in range(1, DEPTH + 1)) / documents
    return _valued(
        f"a description finds its function, {metric}",
        verdict_of(score, chance=chance, needed=MRR_TARGET, target=MRR_TARGET, stand_in=True),
        score,
        f"> {MRR_TARGET:.2f}",
        n=f"{score.n} queries, {documents} documents",
        remark=f"threshold set for MS MARCO; these data stand in for it; chance {chance:.4f}",
    )

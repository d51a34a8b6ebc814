"""The tiers: named sets of tasks.

`smoke` and `pydocs` run without downloads; `fast` and `full` need the hub, or data that was
downloaded before. Importing this module loads no library.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TIERS", "Tier"]


@dataclass(frozen=True)
class Tier:
    """A set of tasks that are run together.

    Attributes:
        name: its name, as given to ``--tier``.
        about: a one-line description.
        tasks: names of embedded tasks and of MTEB tasks.
        benchmarks: names of MTEB benchmarks, run in full.
    """

    name: str
    about: str
    tasks: tuple[str, ...]
    benchmarks: tuple[str, ...] = ()


_BEIR = (
    "ArguAna",
    "ClimateFEVER",
    "CQADupstackRetrieval",
    "DBPedia",
    "FEVER",
    "FiQA2018",
    "HotpotQA",
    "MSMARCO",
    "NFCorpus",
    "NQ",
    "QuoraRetrieval",
    "SCIDOCS",
    "SciFact",
    "Touche2020",
    "TRECCOVID",
)

TIERS: dict[str, Tier] = {
    tier.name: tier
    for tier in (
        Tier(
            "smoke",
            "a fixed sample of PyDocs and 120 sentence pairs; minutes on two cores, no download",
            (
                "PyDocsSampleRetrieval",
                "PyDocsSampleReranking",
                "PyDocsSampleClassification",
                "PyDocsSampleClustering",
                "AuthorSTS",
            ),
        ),
        Tier(
            "pydocs",
            "the whole of PyDocs, about 3,000 documents; no download",
            ("PyDocsRetrieval", "PyDocsReranking", "PyDocsClassification", "PyDocsClustering"),
        ),
        Tier(
            "fast",
            "three small BEIR sets and two STS sets; hub or downloaded before",
            ("SciFact", "NFCorpus", "FiQA2018", "STSBenchmark", "SICK-R"),
        ),
        Tier(
            "full",
            "the public BEIR sets with MS MARCO, and MTEB(eng, v2); hub, GPU",
            _BEIR,
            ("MTEB(eng, v2)",),
        ),
    )
}

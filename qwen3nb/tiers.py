"""What a tier measures, as data.

`smoke` and `pydocs` need nothing that is not installed; `fast` and `full` need the hub,
or data that was downloaded before. Reading this file loads no library.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TIERS", "Tier"]


@dataclass(frozen=True)
class Tier:
    """A set of tasks that are run together.

    Attributes:
        name: what to ask for it by.
        about: what it is, in a line.
        tasks: names of embedded tasks and of MTEB's.
        benchmarks: names of MTEB benchmarks, taken whole.
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

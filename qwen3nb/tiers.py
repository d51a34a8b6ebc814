"""Tiers and benchmarks: named sets of tasks, by their keys.

`smoke` and `pydocs` run without downloads; `fast`, `full`, `multilingual` and `nano` need the hub,
or data downloaded before. The key of a task is its name, followed by its subsets and splits if only
some of them are evaluated: ``STS17-en-en`` is the English subset of ``STS17``. A key that ends in
``-nano`` is of a small part of a task, see `qwen3nb.datasets.nano`. Importing this module loads no
library.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain


def _keys(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _keys_by_type(texts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {kind: _keys(text) for kind, text in texts.items()}


# Tasks that consist of other tasks; the score is the mean over the parts.
_FORUMS = _keys(
    "Android English Gaming Gis Mathematica Physics Programmers Stats Tex Unix Webmasters Wordpress"
)
GROUPS: dict[str, tuple[str, ...]] = {
    "CQADupstackRetrieval": tuple(f"CQADupstack{forum}Retrieval" for forum in _FORUMS),
}


def _group_of_parts() -> dict[str, str]:
    groups: dict[str, str] = {}
    for name, parts in GROUPS.items():
        groups |= dict.fromkeys(parts, name)
    return groups


GROUP_OF = _group_of_parts()


def _without_groups(tasks: Iterable[str]) -> tuple[str, ...]:
    """Replace each group by its parts; keep the first of equal tasks."""
    parts: dict[str, None] = {}
    for task in tasks:
        parts |= dict.fromkeys(GROUPS.get(task, (task,)))
    return tuple(parts)


@dataclass(frozen=True)
class Benchmark:
    """Tasks whose scores are averaged."""

    name: str  # its name
    # keys of its tasks by MTEB's task type; a group counts as one task
    types: Mapping[str, tuple[str, ...]]
    metric: str = ""  # the metric that is averaged; empty for MTEB's main score of each task
    part_of: str = ""  # MTEB's benchmark that has these tasks, and says which parts of them count

    @property
    def tasks(self) -> tuple[str, ...]:
        """Keys of its tasks; a group counts as one."""
        return tuple(chain.from_iterable(self.types.values()))

    @property
    def task_keys(self) -> tuple[str, ...]:
        """Keys of the tasks to run, with groups split into their parts."""
        return _without_groups(self.tasks)


@dataclass(frozen=True)
class Tier:
    """A set of tasks that are run together."""

    name: str  # its name, as given to ``--tier``
    about: str  # a one-line description
    tasks: tuple[str, ...] = ()  # names of embedded tasks and of MTEB tasks
    benchmarks: tuple[str, ...] = ()  # names in `BENCHMARKS`, run in full

    @property
    def task_keys(self) -> tuple[str, ...]:
        """Keys of all its tasks, each once, with groups split into their parts."""
        tasks = list(self.tasks)
        for name in self.benchmarks:
            tasks += BENCHMARKS[name].tasks
        return _without_groups(tasks)

    @property
    def reranking(self) -> tuple[str, ...]:
        """Names of the tasks that a reranker searches and reranks; a group counts as one.

        These are the tier's BEIR sets, with MS MARCO dev, and its retrieval tasks of PyDocs. All
        tasks of the tier `nano` are search.
        """
        keys = self.task_keys
        if self.name == NANO:
            return keys
        names = [key for key in keys if key.startswith("PyDocs") and key.endswith("Retrieval")]
        for name in BENCHMARKS["BEIR"].tasks:
            if set(_without_groups([name])) <= set(keys):
                names.append(name)
        return tuple(names)


_BEIR = _keys(
    "ArguAna ClimateFEVER CQADupstackRetrieval DBPedia FEVER FiQA2018 HotpotQA MSMARCO NFCorpus NQ "
    "QuoraRetrieval SCIDOCS SciFact Touche2020 TRECCOVID"
)
_MTEB_ENGLISH = _keys_by_type(
    {
        "Classification": "Banking77Classification ImdbClassification "
        "MTOPDomainClassification-en-test MassiveIntentClassification-en-test "
        "MassiveScenarioClassification-en-test ToxicConversationsClassification "
        "TweetSentimentExtractionClassification AmazonCounterfactualClassification-en-test",
        "Clustering": "ArXivHierarchicalClusteringP2P ArXivHierarchicalClusteringS2S "
        "BiorxivClusteringP2P.v2 MedrxivClusteringP2P.v2 MedrxivClusteringS2S.v2 "
        "StackExchangeClustering.v2 StackExchangeClusteringP2P.v2 TwentyNewsgroupsClustering.v2",
        "PairClassification": "SprintDuplicateQuestions TwitterSemEval2015 TwitterURLCorpus",
        "Reranking": "AskUbuntuDupQuestions MindSmallReranking",
        "Retrieval": "ArguAna CQADupstackGamingRetrieval CQADupstackUnixRetrieval "
        "ClimateFEVERHardNegatives FEVERHardNegatives FiQA2018 HotpotQAHardNegatives SCIDOCS "
        "TRECCOVID Touche2020Retrieval.v3",
        "STS": "BIOSSES SICK-R STS12 STS13 STS14 STS15 STSBenchmark STS17-en-en STS22.v2-en",
        "Summarization": "SummEvalSummarization.v2",
    }
)
# A rule chooses these, in `benchmarks/multilingual.py`, and a test compares it with MTEB. Models
# are ranked on the first type, search, which needs no vectors.
_OPEN_MULTILINGUAL = _keys_by_type(
    {
        "Retrieval": "BelebeleRetrieval MLQARetrieval TwitterHjerneRetrieval "
        "WikipediaRetrievalMultilingual",
        "Reranking": "RuBQReranking VoyageMMarcoReranking WikipediaRerankingMultilingual",
        "STS": "FaroeseSTS FinParaSTS GermanSTSBenchmark IndicCrosslingualSTS JSICK STSES",
        "Classification": "AfriSentiClassification AmazonCounterfactualClassification "
        "BulgarianStoreReviewSentimentClassfication "
        "CSFDSKMovieReviewSentimentClassification CataloniaTweetClassification "
        "DalajClassification EstonianValenceClassification "
        "FilipinoShopeeReviewsClassification GujaratiNewsClassification "
        "IndicLangClassification IndonesianIdClickbaitClassification "
        "IsiZuluNewsClassification ItaCaseholdClassification KorSarcasmClassification "
        "KurdishSentimentClassification MassiveIntentClassification "
        "MultiHateClassification NepaliNewsClassification NordicLangClassification "
        "NusaParagraphEmotionClassification NusaX-senti OdiaNewsClassification "
        "PolEmo2.0-OUT PunjabiNewsClassification ScalaClassification "
        "SinhalaNewsClassification SiswatiNewsClassification SwissJudgementClassification "
        "TswanaNewsClassification",
        "MultilabelClassification": "BrazilianToxicTweetsClassification CEDRClassification "
        "KorHateSpeechMLClassification",
        "PairClassification": "ArmenianParaphrasePC CTKFactsNLI PpcPC RTE3 TERRa indonli",
        "Clustering": "AlloProfClusteringS2S.v2 CLSClusteringP2P.v2 HALClusteringS2S.v2 "
        "MasakhaNEWSClusteringS2S PlscClusteringP2P.v2 RomaniBibleClustering "
        "SIB200ClusteringS2S SwednClusteringP2P WikiClusteringP2P.v2",
        "BitextMining": "BornholmBitextMining IndicGenBenchFloresBitextMining "
        "NollySentiBitextMining NorwegianCourtsBitextMining "
        "NusaTranslationBitextMining NusaXBitextMining Tatoeba",
    }
)
OPEN_MULTILINGUAL = "Multilingual (open part)"
NANO = "nano"  # the tier of small sets; the keys of those that a rule cuts end in ``-nano``
_NANO_BEIR = _keys(
    "NanoArguAnaRetrieval NanoClimateFeverRetrieval NanoDBPediaRetrieval NanoFEVERRetrieval "
    "NanoFiQA2018Retrieval NanoHotpotQARetrieval NanoMSMARCORetrieval NanoNFCorpusRetrieval "
    "NanoNQRetrieval NanoQuoraRetrieval NanoSCIDOCSRetrieval NanoSciFactRetrieval "
    "NanoTouche2020Retrieval"
)
BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("BEIR", {"Retrieval": _BEIR}, metric="nDCG@10"),
        Benchmark("MS MARCO dev", {"Retrieval": ("MSMARCO",)}, metric="MRR@10"),
        Benchmark("MTEB(eng, v2)", _MTEB_ENGLISH, part_of="MTEB(eng, v2)"),
        Benchmark(OPEN_MULTILINGUAL, _OPEN_MULTILINGUAL, part_of="MTEB(Multilingual, v2)"),
        Benchmark("NanoBEIR", {"Retrieval": _NANO_BEIR}, metric="nDCG@10"),
    )
}

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
            benchmarks=("BEIR", "MS MARCO dev", "MTEB(eng, v2)"),
        ),
        Tier(
            "multilingual",
            "openly licensed tasks of MTEB(Multilingual, v2) beyond English; hub, GPU",
            benchmarks=(OPEN_MULTILINGUAL,),
        ),
        Tier(
            NANO,
            "small sets for search: NanoBEIR and two forums; hub, minutes on two cores",
            ("CQADupstackGamingRetrieval-nano", "CQADupstackUnixRetrieval-nano"),
            benchmarks=("NanoBEIR",),
        ),
    )
}

_SEARCH_TYPES = ("Retrieval", "Reranking")


def _search_keys() -> frozenset[str]:
    """Return the keys of tasks of retrieval and reranking in all benchmarks."""
    keys: set[str] = set()
    for benchmark in BENCHMARKS.values():
        for kind in _SEARCH_TYPES:
            keys.update(_without_groups(benchmark.types.get(kind, ())))
    return frozenset(keys)


_SEARCHES = _search_keys()


def is_search(key: str) -> bool:
    """Return whether a task of a tier is retrieval or reranking, which work without vectors."""
    key = key.removesuffix(f"-{NANO}")
    return key in _SEARCHES or (key.startswith("PyDocs") and key.endswith(_SEARCH_TYPES))

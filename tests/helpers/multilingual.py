"""A mirror with a miniature task of each type of the tier `multilingual`."""

import json
from itertools import pairwise

from helpers.mteb_tasks import WORDS

# By task: its subsets, each with the languages of its two sides.
SUBSETS = {
    "NollySentiBitextMining": ("en-ha", "en-ig", "en-pcm", "en-yo"),
    "AmazonCounterfactualClassification": ("en-ext", "en", "de", "ja"),
    "RTE3": ("de", "en", "fr", "it"),
    "CEDRClassification": ("default",),
    "WikiClusteringP2P.v2": ("da", "eu"),
    "FinParaSTS": ("default",),
    "RuBQReranking": ("default",),
    "BelebeleRetrieval": ("deu_Latn-deu_Latn", "eng_Latn-deu_Latn"),
}
PATHS = {
    "NollySentiBitextMining": "mteb/NollySentiBitextMining",
    "AmazonCounterfactualClassification": "mteb/amazon_counterfactual",
    "RTE3": "mteb/RTE3",
    "CEDRClassification": "mteb/CEDRClassification",
    "WikiClusteringP2P.v2": "mteb/WikiClusteringP2P.v2",
    "FinParaSTS": "mteb/FinParaSTS",
    "RuBQReranking": "mteb/RuBQReranking",
    "BelebeleRetrieval": "mteb/belebele",
}


def sentence(place, shift=0):
    """Three words, which neighbours share two of."""
    return " ".join(WORDS[(place + step + shift) % len(WORDS)] for step in range(3))


def translations(shift):
    rows = [{"sentence1": sentence(place), "sentence2": sentence(place)} for place in range(10)]
    # Some are translated wrongly, in each subset as many more.
    for row, other in list(pairwise(rows))[: 2 * shift]:
        row["sentence2"] = other["sentence1"] + " cold"
    return {"train": rows}


def counterfactuals(shift):
    rows = [{"text": sentence(place, shift), "label": place % 2} for place in range(80)]
    return {"train": rows, "validation": rows[:9], "test": rows[5:20]}


def emotions(shift):
    rows = [
        {"text": sentence(place), "label": [place % 3, 3][: 1 + place % 2]} for place in range(60)
    ]
    return {"train": rows, "test": rows[:16]}


def entailments(shift):
    rows = [
        {
            "sentence1": sentence(place),
            "sentence2": sentence(place + place % 3 + shift),
            "labels": int(place % 3 == 0),
        }
        for place in range(12)
    ]
    return {"test": rows}


def articles(shift):
    rows = [
        {"sentences": sentence(place, shift), "labels": f"topic {place % 3}"} for place in range(24)
    ]
    return {"test": rows}


def paraphrases(shift):
    rows = [
        {"sentence1": sentence(place), "sentence2": sentence(place + gap), "score": 4.0 - gap / 2}
        for place in range(6)
        for gap in range(4)
    ]
    return {"validation": rows, "test": rows[3:]}


ROWS = {
    "NollySentiBitextMining": translations,
    "AmazonCounterfactualClassification": counterfactuals,
    "RTE3": entailments,
    "CEDRClassification": emotions,
    "WikiClusteringP2P.v2": articles,
    "FinParaSTS": paraphrases,
}


def candidates():
    """Queries of two words with three candidates each, of which one has both."""
    corpus, queries, qrels, ranked = [], [], [], []
    for place in range(6):
        names = [f"d{place}-{number}" for number in range(3)]
        corpus += [
            {"id": name, "title": "", "text": sentence(place + 2 * number)}
            for number, name in enumerate(names)
        ]
        queries.append({"id": f"q{place}", "text": sentence(place)})
        qrels.append({"query-id": f"q{place}", "corpus-id": names[place % 2], "score": 1})
        ranked.append({"query-id": f"q{place}", "corpus-ids": names})
    return {"corpus": corpus, "queries": queries, "default": qrels, "top_ranked": ranked}


def passages(language):
    """Six passages with a question each, in one language."""
    return [
        {
            "link": f"https://example.org/{place}",
            "flores_passage": f"{sentence(place)} {language}",
            "question": f"{WORDS[place]} {language}?",
        }
        for place in range(6)
    ]


def write_config(folder, config, splits):
    lines = [f"- config_name: {config}", "  data_files:"]
    for split, rows in splits.items():
        file = folder / config / f"{split}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        lines += [f"  - split: {split}", f"    path: {config}/{split}.jsonl"]
    return lines


def write_mirror(mirror):
    """Write the data set of each task; the names of the tasks."""
    for task, subsets in SUBSETS.items():
        folder = mirror / PATHS[task]
        configs = {}
        if task == "BelebeleRetrieval":
            configs = {name: {"test": passages(name)} for name in ("deu_Latn", "eng_Latn")}
        elif task == "RuBQReranking":
            configs = {name: {"test": rows} for name, rows in candidates().items()}
        else:
            configs = {name: ROWS[task](shift) for shift, name in enumerate(subsets)}
        card = ["---", "configs:"]
        for config, splits in configs.items():
            card += write_config(folder, config, splits)
        (folder / "README.md").write_text("\n".join([*card, "---", ""]), encoding="utf-8")
    return list(SUBSETS)

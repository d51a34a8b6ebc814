"""What other programs make of the run and the qrels beside a record."""

from __future__ import annotations

import pytrec_eval

from qwen3nb.records.record import Result


def written(record):
    """The files of the run and of the qrels that a record names."""
    config = Result.load(record).config
    (run,), (qrels,) = config["runs"], config["qrels"]
    return record.with_name(run), record.with_name(qrels)


def lines(file):
    return [line.split(" ") for line in file.read_text(encoding="utf-8").splitlines()]


def by_trec_eval(record, *, level=1):
    """Scores per metric and query by trec_eval's own code, from the files that were written."""
    run, qrels = {}, {}
    for query, _, document, _, score, _ in lines(written(record)[0]):
        run.setdefault(query, {})[document] = float(score)
    for query, _, document, grade in lines(written(record)[1]):
        qrels.setdefault(query, {})[document] = int(grade)
    measures = {"ndcg_cut.10", "recall.10,20,100", "recip_rank", "map_cut.100"}
    graded = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    binary = pytrec_eval.RelevanceEvaluator(qrels, measures, relevance_level=level).evaluate(run)
    assert all(len(set(map(float, scores.values()))) == len(scores) for scores in run.values())

    def value(query, measure):
        return (graded if "ndcg" in measure else binary).get(query, {}).get(measure, 0.0)

    scores = {
        "nDCG@10": {query: value(query, "ndcg_cut_10") for query in qrels},
        "MAP@100": {query: value(query, "map_cut_100") for query in qrels},
        # trec_eval's reciprocal rank is not cut off at 10.
        "MRR@10": {
            query: rank if (rank := value(query, "recip_rank")) >= 0.1 else 0.0 for query in qrels
        },
    }
    return scores | {
        f"Recall@{k}": {query: value(query, f"recall_{k}") for query in qrels}
        for k in (10, 20, 100)
    }

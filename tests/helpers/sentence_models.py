"""Small random models in the format of sentence-transformers, and that library's scores."""

import warnings

from helpers.archetypes import sentence


def write_sentence_bert(folder, tokenizer_folder, *, normalize=True, **options):
    """Save a tiny BERT with mean pooling in ``folder``; return it as sentence-transformers.

    ``options`` are those of `SentenceTransformer`, such as ``prompts``.
    """
    from sentence_transformers import SentenceTransformer

    more = [lambda m: m.Normalize()] * normalize
    sentence(*more, length=64, **options)(folder, tokenizer_folder)
    return SentenceTransformer(str(folder), device="cpu")


def mteb_scores(model, tasks):
    """The main score of each task, from ``mteb.evaluate`` alone."""
    import mteb

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = mteb.evaluate(model, tasks, cache=None, show_progress_bar=False, co2_tracker=False)
    return {each.task_name: each.get_score() for each in done.task_results}


def text_mock_tasks():
    """One of MTEB's own made-up tasks about text for each of their types.

    Without the one of a few points that k-means splits anew whenever a vector moves by 1e-7.
    """
    from mteb.mocks.mock_run import ALL_MOCK_TASK_TEST_GRID

    text = [
        task
        for task in ALL_MOCK_TASK_TEST_GRID
        if task.metadata.modalities == ["text"]
        and task.metadata.name != "LegacyMockClusteringFastTask"
    ]
    return list({(task.metadata.type, type(task).__bases__): task for task in text}.values())

"""A small pool of documents to grade."""

from qwen3nb.analysis.judging.pool import grading_pool
from qwen3nb.datasets.custom.grades import GradeFile
from qwen3nb.evaluation.judging import Grading, JudgingTask


def small_task(*, queries=12):
    """Two models that rank the same ten documents of each query in opposite orders."""
    names = [f"d{number * 'x'}" for number in range(10)]
    texts = {name: f"text of {name}" for name in names}
    rankings = {
        "old": {f"query {number}": names for number in range(queries)},
        "new": {f"query {number}": names[::-1] for number in range(queries)},
    }
    return JudgingTask(texts, grading_pool(rankings, current="old"))


def small_grading(file, *, grader="ann", **options):
    """A grader of `small_task` with a file of grades."""
    return Grading(small_task(), GradeFile(file), grader=grader, **options)

"""What the lessons use beside `import qwen3nb as q`."""

from qwen3nb.datasets.custom.grades import GradeFile
from qwen3nb.datasets.generated.queries import generate_queries
from qwen3nb.datasets.generated.query_file import query_file_of
from qwen3nb.datasets.pydocs.labelled import draw, library_texts, marked_code
from qwen3nb.evaluation.downstream import (
    Frozen,
    Tuned,
    f1_of,
    learning_curve,
)
from qwen3nb.evaluation.judging import Grading, judging_task
from qwen3nb.models.classifier import load_classifier

__all__ = [
    "Frozen",
    "GradeFile",
    "Grading",
    "Tuned",
    "draw",
    "f1_of",
    "generate_queries",
    "judging_task",
    "learning_curve",
    "library_texts",
    "load_classifier",
    "marked_code",
    "query_file_of",
]

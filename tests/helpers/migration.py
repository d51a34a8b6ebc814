"""Two small models of words, and documents on which one can replace the other."""

import zlib

import numpy as np
from scipy.stats import ortho_group

from qwen3nb.answers.migration import Migration
from qwen3nb.evaluation.migration.data import MigrationData
from qwen3nb.evaluation.migration.rehearse import rehearse
from qwen3nb.models.load import to_model

RANDOM = np.random.default_rng(0)
WIDTH = 12
TABLE = RANDOM.normal(size=(60, WIDTH))
OTHER_TABLE = RANDOM.normal(size=(60, WIDTH))
ROTATION = ortho_group.rvs(WIDTH, random_state=1)
DOCUMENTS = {
    f"d{number}": " ".join(f"w{word}" for word in RANDOM.choice(60, 5, replace=False))
    for number in range(150)
}


class WordModel:
    """A text's vector is the mean of its words' rows in a table, of length 1."""

    def __init__(self, table, *, unit=True):
        self.table = table
        self.unit = unit
        self.similarity_fn_name = "cosine" if unit else "dot"

    def encode(self, texts):
        vectors = np.stack([self.vector(text) for text in texts])
        return vectors.astype(np.float32)

    def vector(self, text):
        rows = [zlib.crc32(word.encode()) % len(self.table) for word in text.split()]
        mean = self.table[rows].mean(axis=0)
        return mean / np.linalg.norm(mean) if self.unit else mean


def model(table, label, **options):
    return to_model(WordModel(table, **options), label=label)


def migration_example():
    """The change to an unrelated model on queries without grades."""
    queries = {f"q{number}": " ".join(DOCUMENTS[f"d{number}"].split()[:3]) for number in range(9)}
    data = MigrationData("notes", DOCUMENTS, queries)
    rehearsal = rehearse(
        model(TABLE, "old"), model(OTHER_TABLE, "new"), data, draws=2, thresholds=[0.5]
    )
    return Migration(rehearsal, len(DOCUMENTS))

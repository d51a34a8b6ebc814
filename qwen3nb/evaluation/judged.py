"""The verdict of grading, kept for the page of own data.

`qwen3nb judge` writes it to ``judged/NAME.json`` in the folder of the records. It is a verdict of
its own, marked as such: it rests on the grades that were asked for, not on a record's scores.
"""

from pathlib import Path
from typing import Annotated

import pydantic

from qwen3nb import paths
from qwen3nb.datasets.custom.grades import now
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.judging import Grading
from qwen3nb.utils.atomic_files import sha256_file
from qwen3nb.utils.secrets import write_public

FOLDER = "judged"
_Count = Annotated[int, pydantic.Field(ge=0)]


class JudgedVerdict(pydantic.BaseModel):
    """Which model the grades preferred when they were last asked for."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True)

    collection: str  # name of the collection, as that of `qwen3nb domain`
    text: str  # the verdict, with how many documents are graded and by whom
    is_final: bool  # whether the other grades would turn it with a chance below 5 %
    current: str  # the model in use
    candidates: list[str]
    graders: list[str]  # a language model is marked as one
    graded: _Count  # documents
    pool: _Count  # documents that the models rank among the first
    grades: str  # name of the file of grades
    grades_sha256: str
    time: str  # ISO 8601

    @property
    def sentence(self) -> str:
        """The verdict, marked as one of grading, with its day."""
        return f"`qwen3nb judge`, {self.time[:10]}: {self.text}"


def judged_folder() -> Path | None:
    """Return the folder of the study's verdicts; None outside a study."""
    if paths.find_root() is None:
        return None
    return paths.results() / FOLDER


def save_verdict(grading: Grading, collection: str) -> Path | None:
    """Keep the verdict of a grading; None outside a study, or without a grade."""
    folder = judged_folder()
    verdict = grading.verdict()
    if folder is None or not verdict.graded:
        return None
    judged = JudgedVerdict(
        collection=collection,
        text=verdict.text,
        is_final=verdict.is_final,
        current=verdict.current,
        candidates=[standing.candidate for standing in verdict.standings],
        graders=list(verdict.graders),
        graded=verdict.graded,
        pool=verdict.pool,
        grades=grading.file.file.name,
        grades_sha256=sha256_file(grading.file.file),
        time=now(),
    )
    return write_public(folder / f"{collection}.json", f"{judged.model_dump_json(indent=1)}\n")


def only_judged() -> str:
    """Return the name of the only collection with a verdict; empty for none or several."""
    folder = judged_folder()
    if folder is None:
        return ""
    files = sorted(folder.glob("*.json"))
    if len(files) != 1:
        return ""
    return files[0].stem


def load_verdict(collection: str) -> JudgedVerdict | None:
    """Return the study's verdict of a collection; None if it was not graded.

    Raises:
        DataError: the file is no verdict; says what to do.
    """
    folder = judged_folder()
    if folder is None or not collection:
        return None
    file = folder / f"{collection}.json"
    if not file.is_file():
        return None
    try:
        return JudgedVerdict.model_validate_json(file.read_bytes())
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{file}: no verdict of `qwen3nb judge` ({reason:.200}); run it again, or remove the "
            "file"
        ) from None

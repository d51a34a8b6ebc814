"""Grading documents until the grades decide which model to use.

The models rank the documents of each query. `qwen3nb.analysis.judging` draws the pair to grade
next, and tells when the grades decide. All state is in the file of grades.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qwen3nb.analysis.judging.pool import DEPTH, GradingPool, grading_pool
from qwen3nb.analysis.judging.session import GradingSession, Standing
from qwen3nb.datasets.custom.grades import HIGHEST_GRADE, GradeFile, GradeLine, now
from qwen3nb.models.model import Model


@dataclass(frozen=True, eq=False)
class JudgingTask:
    """Documents of own queries to grade, as several models rank them."""

    documents: Mapping[str, str]  # text by id
    pool: GradingPool  # its queries are texts


@dataclass(frozen=True)
class Question:
    """A document to grade for a query."""

    query: str
    document: str  # its id
    text: str


class Grading:
    """A grader at work on a file of grades, to which others may write at the same time."""

    def __init__(self, task: JudgingTask, file: GradeFile, *, grader: str, seed: int = 0) -> None:
        self.task = task
        self.file = file
        self.grader = grader
        self.seed = seed
        self._pair_numbers = {pair: number for number, pair in enumerate(task.pool.pairs)}
        self._lines: list[GradeLine] = []  # that the session knows
        self._session = self._new_session()

    def _new_session(self) -> GradingSession:
        return GradingSession(self.task.pool, seed=self.seed, highest_grade=HIGHEST_GRADE)

    def session(self) -> GradingSession:
        """Return the session after all grades of the file."""
        lines = self.file.read()
        known = len(self._lines)
        if lines[:known] != self._lines:  # a grade was taken back: begin anew
            self._session = self._new_session()
            known = 0
        for line in lines[known:]:
            self._apply(line)
        self._lines = lines
        return self._session

    def _apply(self, line: GradeLine) -> None:
        """Take a line of the file; one on a document that no model ranks is left out."""
        pair = self._pair_numbers.get(line.pair)
        if pair is None:
            return
        if line.grade is None:
            self._session.skip(pair, grader=line.grader)
        else:
            self._session.grade(pair, line.grade, grader=line.grader)

    def question(self) -> Question | None:
        """Return what to grade next; None if the grades decide, or nothing is left."""
        return self.progress().question

    def grade(self, query: str, document: str, grade: int | None) -> None:
        """Write a grade to the file; None says that the grader cannot tell.

        Raises:
            ValueError: no model ranks the document for the query, or there is no such grade.
        """
        if (query, document) not in self._pair_numbers:
            raise ValueError(f"no model ranks {document!r:.60} for the query {query!r:.60}")
        if grade is not None and not 0 <= grade <= HIGHEST_GRADE:
            raise ValueError(f"expected a grade from 0 to {HIGHEST_GRADE}; got {grade}")
        self.file.add(GradeLine(query, document, grade, self.grader, now()))

    def undo(self) -> None:
        """Take back the last grade of this grader, if there is one."""
        self.file.undo(self.grader)

    def verdict(self) -> "JudgingVerdict":
        """Return which model the grades prefer."""
        return self.progress().verdict

    def progress(self) -> "Progress":
        """Return the next question and the verdict, after one reading of the file."""
        session = self.session()
        pair = session.next_pair(self.grader)
        question = None
        if pair is not None:
            query, document = self.task.pool.pairs[pair]
            question = Question(query, document, self.task.documents[document])
        return Progress(question, verdict_of(session), len(self._lines))


def judging_task(
    queries: Sequence[str], documents: Mapping[str, str], models: Sequence[Model]
) -> JudgingTask:
    """Search the documents with each model, and return what can be graded.

    Args:
        queries: texts; a repeated one counts once.
        documents: text by id.
        models: the one in use first.

    Raises:
        ValueError: fewer than two models, or two of one label.
    """
    unique_queries = list(dict.fromkeys(queries))
    names = list(documents)
    texts = list(documents.values())
    rankings = {}
    for model in models:
        if model.label in rankings:
            raise ValueError(f"two models are called {model.label!r}; name one: NAME=MODEL")
        found = model.search(unique_queries, texts, k=DEPTH)
        rankings[model.label] = {
            query: [names[position] for position in scores]
            for query, scores in zip(unique_queries, found, strict=True)
        }
    return JudgingTask(documents, grading_pool(rankings, current=models[0].label))


@dataclass(frozen=True)
class JudgingVerdict:
    """Which model the grades prefer, and how sure that is."""

    current: str  # the model in use
    standings: tuple[Standing, ...]  # of the candidates
    graded: int  # pairs
    pool: int  # pairs that the models rank among the first

    @property
    def is_final(self) -> bool:
        """Whether no further grade can change it, but with a chance below 5 %."""
        return all(standing.is_decided() for standing in self.standings)

    @property
    def best(self) -> Standing | None:
        """The better candidate of the largest gain; None if none is shown to be better."""
        better = [standing for standing in self.standings if standing.is_better()]
        if not better:
            return None
        return max(better, key=lambda standing: standing.total)

    @property
    def title(self) -> str:
        """``Take Y instead of X``, ``Keep X``, or ``Not decided yet``."""
        if self.best is not None:
            return f"Take {self.best.candidate} instead of {self.current}"
        if self.is_final:
            return f"Keep {self.current}"
        return "Not decided yet"

    @property
    def text(self) -> str:
        """The verdict and what it rests on, in two or three short sentences."""
        sentences = [f"{self.title}.", f"{self.graded:,} of {self.pool:,} documents are graded."]
        if self.is_final:
            sentences.append(self._reason())
        return " ".join(sentences)

    def _reason(self) -> str:
        """Say how sure a final verdict is."""
        tied = [
            standing
            for standing in self.standings
            if not standing.is_better() and not standing.is_worse()
        ]
        if self.best is not None or not tied:
            return "The other grades would turn this with a chance below 5 %."
        closest = max(tied, key=lambda standing: abs(standing.t))
        if closest.queries_needed is None:
            return f"{closest.candidate} gains exactly as much."
        return (
            f"These {closest.queries} queries do not tell it from {closest.candidate}; about "
            f"{closest.queries_needed:,} would."
        )


@dataclass(frozen=True)
class Progress:
    """How far a grader is."""

    question: Question | None  # what to grade next
    verdict: JudgingVerdict
    lines: int  # grades in the file, by any grader


def verdict_of(session: GradingSession) -> JudgingVerdict:
    """Return what the grades of a session show."""
    return JudgingVerdict(
        current=session.pool.current,
        standings=tuple(session.standings()),
        graded=len(session.grades),
        pool=len(session.pool),
    )

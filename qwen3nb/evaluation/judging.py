"""Grading documents until the grades decide which model to use.

The models rank the documents of each query. `qwen3nb.analysis.judging` draws the pair to grade
next, and tells when the grades decide. All state is in the file of grades.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qwen3nb.analysis.judging.differences import MARGIN
from qwen3nb.analysis.judging.pool import DEPTH, GradingPool, grading_pool
from qwen3nb.analysis.judging.session import GradingSession, Standing
from qwen3nb.datasets.custom.grades import (
    HIGHEST_GRADE,
    GradeFile,
    GradeLine,
    LanguageModel,
    counted_lines,
    graders_of,
    now,
)
from qwen3nb.evaluation.grader_agreement import Agreement, agreements
from qwen3nb.models.load import with_chunks_if_longer
from qwen3nb.models.model import Model
from qwen3nb.models.search.chunks import BEST
from qwen3nb.utils.format import names_in_words


@dataclass(frozen=True, eq=False)
class JudgingTask:
    """Documents of own queries to grade, as several models rank them."""

    documents: Mapping[str, str]  # text by id
    pool: GradingPool  # its queries are texts
    # How each generated query was made, by its text; empty if people asked all of them.
    generated: Mapping[str, str] = field(default_factory=dict)

    @property
    def generated_queries(self) -> int:
        """How many queries of the pool were generated from documents."""
        return sum(query in self.generated for query in set(self.pool.queries))


@dataclass(frozen=True)
class Question:
    """A document to grade for a query."""

    query: str
    document: str  # its id
    text: str


class Grading:
    """A grader at work on a file of grades, to which others may write at the same time.

    Attributes:
        task: what can be graded.
        file: the grades.
        grader: the name of who grades.
        seed: of what is asked.
        again: another grader whose documents are asked again, for the agreement; or empty.
        model: the language model that grades; None for a person.
    """

    def __init__(
        self,
        task: JudgingTask,
        file: GradeFile,
        *,
        grader: str,
        seed: int = 0,
        again: str = "",
        model: LanguageModel | None = None,
    ) -> None:
        self.task = task
        self.file = file
        self.grader = grader
        self.seed = seed
        self.again = again
        self.model = model
        self._pair_numbers = {pair: number for number, pair in enumerate(task.pool.pairs)}
        self._lines: list[GradeLine] = []  # that the session knows
        self._counted: dict[int, GradeLine] = {}  # by pair: the line that counts
        self._session = self._new_session()

    def _new_session(self) -> GradingSession:
        self._counted = {}
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
            # What a language model cannot grade is still asked of others.
            if line.model is None or line.grader == self.grader:
                self._session.skip(pair, grader=line.grader)
            return
        counted = self._counted.get(pair)
        if counted is not None and line.yields_to(counted):
            return
        self._counted[pair] = line
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
        line = GradeLine(
            query,
            document,
            grade=grade,
            grader=self.grader,
            time=now(),
            model=self.model,
            generated=self.task.generated.get(query, ""),
        )
        self.file.add(line)

    def undo(self) -> None:
        """Take back the last grade of this grader, if there is one."""
        self.file.undo(self.grader)

    def verdict(self) -> "JudgingVerdict":
        """Return which model the grades prefer."""
        return self.progress().verdict

    def progress(self) -> "Progress":
        """Return the next question and the verdict, after one reading of the file."""
        session = self.session()
        if self.again:
            pair = self._pair_to_repeat()
        else:
            pair = session.next_pair(self.grader)
        question = None
        if pair is not None:
            query, document = self.task.pool.pairs[pair]
            question = Question(query, document, self.task.documents[document])
        graders = graders_of(self._counted.values())
        return Progress(
            question=question,
            verdict=verdict_of(session, graders, generated=self.task.generated_queries),
            lines=len(self._lines),
            agreements=tuple(agreements(self._lines)),
        )

    def _pair_to_repeat(self) -> int | None:
        """Return the first pair that the other grader graded, and this one has not seen."""
        seen = {line.pair for line in self._lines if line.grader == self.grader}
        of_other = [line for line in self._lines if line.grader == self.again]
        for pair in counted_lines(of_other):
            if pair not in seen and pair in self._pair_numbers:
                return self._pair_numbers[pair]
        return None


def judging_task(
    queries: Sequence[str],
    documents: Mapping[str, str],
    models: Sequence[Model],
    *,
    generated: Mapping[str, str] | None = None,
    chunks: str = BEST,
) -> JudgingTask:
    """Search the documents with each model, and return what can be graded.

    Args:
        queries: texts; a repeated one counts once.
        documents: text by id.
        models: the one in use first.
        generated: how each generated query was made, by its text.
        chunks: what a model does with documents longer than it takes; see `evaluate_domain`.

    Raises:
        ValueError: fewer than two models, or two of one label.
    """
    unique_queries = list(dict.fromkeys(queries))
    names = list(documents)
    texts = list(documents.values())
    rankings = {}
    searchers = [with_chunks_if_longer(model, texts, chunks) for model in models]
    for model in searchers:
        if model.label in rankings:
            raise ValueError(f"two models are called {model.label!r}; name one: NAME=MODEL")
        found = model.search(unique_queries, texts, k=DEPTH)
        rankings[model.label] = {
            query: [names[position] for position in scores]
            for query, scores in zip(unique_queries, found, strict=True)
        }
    pool = grading_pool(rankings, current=searchers[0].label)
    return JudgingTask(documents, pool, generated or {})


@dataclass(frozen=True)
class JudgingVerdict:
    """Which model the grades prefer, and how sure that is."""

    current: str  # the model in use
    standings: tuple[Standing, ...]  # of the candidates
    graded: int  # pairs
    pool: int  # pairs that the models rank among the first
    graders: tuple[str, ...] = ()  # who gave the grades that count
    generated: int = 0  # queries that were generated from documents

    @property
    def is_final(self) -> bool:
        """Whether no further grade can change it, but with a chance below 5 %."""
        return not any(standing.is_open for standing in self.standings)

    @property
    def best(self) -> Standing | None:
        """The candidate of the largest gain, if one is shown to be better than the model in use.

        No other candidate is shown to be better than it.
        """
        if not any(standing.is_better for standing in self.standings):
            return None
        best = [standing for standing in self.standings if not standing.is_beaten]
        return max(best or self.standings, key=lambda standing: standing.estimate)

    @property
    def close(self) -> Standing | None:
        """The candidate that is ahead of the others which cannot be told from the model in use.

        None if one is better, or if none is left whose difference may matter.
        """
        if self.best is not None:
            return None
        close = [
            standing
            for standing in self.standings
            if standing.is_close and not standing.is_equal and not standing.is_beaten
        ]
        return max(close, key=lambda standing: standing.estimate, default=None)

    @property
    def title(self) -> str:
        """``Take Y instead of X``, ``Keep X``, ``No decision …``, or ``Not decided yet``."""
        if not self.is_final:
            return "Not decided yet"
        if self.best is not None:
            return f"Take {self.best.candidate} instead of {self.current}"
        if self.close is not None and self.close.t != 0:
            return f"No decision between {self.current} and {self.close.candidate}"
        return f"Keep {self.current}"

    @property
    def text(self) -> str:
        """The verdict and what it rests on, in two or three short sentences."""
        sentences = [f"{self.title}.", self._count()]
        if self.generated:
            sentences.append(f"{self._generated_words()} generated, not asked by people.")
        if self.is_final:
            sentences.append(self._reason())
        return " ".join(sentences)

    def _count(self) -> str:
        """Say how many documents are graded, and by whom."""
        count = f"{self.graded:,} of {self.pool:,} documents are graded"
        if not self.graders:
            return f"{count}."
        return f"{count}, by {names_in_words(self.graders)}."

    def _generated_words(self) -> str:
        """Say how many queries are generated, as the beginning of a sentence."""
        queries = max((standing.queries for standing in self.standings), default=0)
        if self.generated >= queries:
            return "The queries are"
        return f"{self.generated:,} of {queries:,} queries are"

    def _reason(self) -> str:
        """Say how sure a final verdict is."""
        if self.close is not None and self.close.t != 0:
            return self._queries_needed(self.close)
        equal = [standing for standing in self.standings if standing.is_close]
        if self.best is not None or not equal:
            return f"The other grades would turn this with a chance below 5 %.{self._caution()}"
        return f"{equal[0].candidate} gains as much, within {MARGIN} of the highest grade."

    def _caution(self) -> str:
        """Say that other queries may turn the verdict, if the grades do not exclude it."""
        standings = [self.best] if self.best is not None else self.standings
        if all(standing.is_general for standing in standings):
            return ""
        return " Other queries like these may turn it."

    def _queries_needed(self, close: Standing) -> str:
        """Say which model is ahead, and how many queries would tell."""
        ahead = self.current
        if close.estimate > 0:
            ahead = close.candidate
        more = max(0, (close.queries_needed or 0) - close.queries)
        fewest, _ = close.queries_range
        return (
            f"{ahead} is ahead, but these {close.queries} queries do not tell. About {more:,} more "
            f"would, at least {max(0, fewest - close.queries):,}."
        )


@dataclass(frozen=True)
class Progress:
    """How far a grader is."""

    question: Question | None  # what to grade next
    verdict: JudgingVerdict
    lines: int  # grades in the file, by any grader
    agreements: tuple[Agreement, ...] = ()  # of every two graders


def verdict_of(
    session: GradingSession, graders: Sequence[str], *, generated: int
) -> JudgingVerdict:
    """Return what the grades of a session show, some queries of which may be generated."""
    return JudgingVerdict(
        current=session.pool.current,
        standings=tuple(session.standings()),
        graded=len(session.grades),
        pool=len(session.pool),
        graders=tuple(graders),
        generated=generated,
    )

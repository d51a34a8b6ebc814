"""Grading in a notebook: the page of `qwen3nb judge` as a widget, for a JupyterLab far away.

It opens no port: keys become clicks on the widget's buttons, and these reach the kernel as every
widget's do. A script binds the keys, and only while the widget has the focus; without it, as in
some editors, the buttons work alone. Texts of queries and documents are shown as text.
"""

import getpass
import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3nb.datasets.custom.documents import find_layout, read_documents
from qwen3nb.datasets.custom.grades import GradeFile
from qwen3nb.datasets.custom.query_texts import read_entries
from qwen3nb.evaluation.judging import Grading, JudgingVerdict, Question, judging_task
from qwen3nb.models.model import Model

if TYPE_CHECKING:
    from ipywidgets import Button  # type: ignore[import-untyped]

# By the class of a button: its key with what it means, and the grade; None for "cannot tell".
_GRADES = {
    "3": ("3 answers it", 3),
    "2": ("2 useful", 2),
    "1": ("1 related", 1),
    "0": ("0 not relevant", 0),
    "s": ("s cannot tell", None),
}
_UNDO = "u"
_HINT = "The keys 0 to 3, s and u work while this box has the focus: click into it."
_QUERY = "font-size: 1.25em; font-weight: 700; overflow-wrap: anywhere;"
_DOCUMENT = (
    "white-space: pre-wrap; unicode-bidi: plaintext; overflow-wrap: anywhere; max-height: 24em; "
    "overflow-y: auto; padding: 0.8em; margin: 0.6em 0; border: 1px solid currentColor; "
    "border-radius: 0.5em; line-height: 1.5;"
)


class GradingWidget:
    """Documents to grade, one after the other, in a notebook.

    Attributes:
        grading: the grader at work, with the file of grades.
    """

    def __init__(self, grading: Grading) -> None:
        """Show the first question of a grader."""
        from ipywidgets import HTML, HBox, IntProgress, Layout, VBox

        self.grading = grading
        self._question: Question | None = None  # what is shown
        self._step = 0  # counts the questions, so that no key grades an unseen one
        self._question_box = HTML()
        self._verdict_box = HTML()
        self._bar = IntProgress(layout=Layout(width="auto"))
        self._buttons = {key: self._grade_button(key) for key in _GRADES}
        undo = self._button("u undo", _UNDO, lambda: self.grading.undo())
        row = HBox([*self._buttons.values(), undo], layout=Layout(flex_flow="row wrap"))
        self.box = VBox([self._question_box, row, self._bar, self._verdict_box])
        self.box.add_class("qwen3nb-judge")
        self._show()

    @property
    def verdict(self) -> JudgingVerdict:
        """Which model the grades prefer, and how sure that is."""
        return self.grading.verdict()

    def __repr__(self) -> str:
        return self.verdict.text

    def _ipython_display_(self) -> None:
        """Show the widget, and bind its keys."""
        from IPython.display import HTML, display

        script = files("qwen3nb.evaluation").joinpath("judging_widget.js")
        display(self.box)
        display(HTML(f"<script>{script.read_text(encoding='utf-8')}</script>"))

    def _grade_button(self, key: str) -> "Button":
        text, grade = _GRADES[key]
        return self._button(text, key, lambda: self._grade(grade))

    def _button(self, text: str, key: str, change: Callable[[], object]) -> "Button":
        """Return a button that makes a change and shows what is next."""
        from ipywidgets import Button, Layout

        button = Button(description=text, tooltip=f"key {key}", layout=Layout(width="auto"))
        button.add_class(f"qwen3nb-judge-{key}")
        button.on_click(lambda _: self._after(change))
        return button

    def _grade(self, grade: int | None) -> None:
        """Grade the document that is shown, also if others have graded since."""
        question = self._question
        if question is not None:
            self.grading.grade(question.query, question.document, grade)

    def _after(self, change: Callable[[], object]) -> None:
        """Make a change, and show what is next, or why it was not saved."""
        try:
            change()
            self._show()
        except (ValueError, OSError) as error:
            self._step += 1
            self._verdict_box.value = f"<b role='alert'>Not saved: {html.escape(str(error))}</b>"

    def _show(self) -> None:
        progress = self.grading.progress()
        question, verdict = progress.question, progress.verdict
        self._question = question
        self._step += 1
        query, text = "Nothing more to grade", "All grades are saved."
        if question is not None:
            query, text = question.query, question.text
        self._question_box.value = (
            f"<div data-step='{self._step}'>"
            f"<div dir='auto' role='heading' aria-level='3' aria-live='polite' style='{_QUERY}'>"
            f"{html.escape(query)}</div>"
            "<div dir='auto' role='region' aria-label='Document' tabindex='0' "
            f"class='qwen3nb-text' style='{_DOCUMENT}'>{html.escape(text)}</div></div>"
        )
        for button in self._buttons.values():
            button.disabled = question is None
        self._bar.max = max(1, verdict.pool)
        self._bar.value = verdict.graded
        lines = [verdict.text, *(agreement.text for agreement in progress.agreements), _HINT]
        shown_lines = "<br>".join(map(html.escape, lines))
        self._verdict_box.value = f"<div role='status' style='line-height: 1.5'>{shown_lines}</div>"


def judge(
    queries: Path | str | Iterable[str],
    documents: Path | str | Mapping[str, str],
    models: Sequence[Model | str],
    *,
    grades: Path | str = "grades.jsonl",
    grader: str = "",
    again: str = "",
    text: str | None = None,
    id_column: str | None = None,
    seed: int = 0,
) -> GradingWidget:
    """Grade documents in a notebook until the grades decide which model to use.

    The keys are those of `qwen3nb judge`: 0 to 3, ``s`` for "cannot tell", ``u`` for undo. They
    work once the widget has been clicked.

    Args:
        queries: texts, or a file with one per line, or a query file.
        documents: texts by id, or a file.
        models: two or more; the first is in use.
        grades: file of the grades, which only grows.
        grader: who grades; by default the login name.
        again: another grader, whose documents are graded again for the agreement.
        text: template of a document's text in a file, such as ``{title}. {body}``.
        id_column: column of the ids in a file.
        seed: of what is asked next.

    Raises:
        DataError: a file that cannot be read.
        ValueError: fewer than two models, or two of one label.
    """
    kinds: Mapping[str, str] = {}
    if isinstance(queries, Path | str):
        entries = read_entries(queries)
        query_texts, kinds = entries.texts, entries.generated
    else:
        query_texts = list(queries)
    if isinstance(documents, Path | str):
        layout = find_layout(id_column=id_column, text=text)
        document_texts = read_documents(Path(documents), layout).texts
    else:
        document_texts = dict(documents)
    named_models = [model if isinstance(model, Model) else Model(model) for model in models]
    task = judging_task(query_texts, document_texts, named_models, generated=kinds)
    file = GradeFile(Path(grades))
    name = grader or getpass.getuser()
    return GradingWidget(Grading(task, file, grader=name, again=again, seed=seed))

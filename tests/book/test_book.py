"""The built book: strict, safe with hostile names, and correct in a browser.

One book is built for all tests here, from records with hostile names, a run on a model in a folder
with a hostile name, and beside notebooks of other people.
"""

import json
import re
import shutil
from html.parser import HTMLParser
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest
from click.testing import CliRunner
from helpers.browser import AXE, CUT, OVERLAY, axe, used
from helpers.checkout import write_checkout
from helpers.foreign_notebooks import write_foreign
from helpers.html import HOSTILE
from helpers.records import make, signed

from qwen3nb.book import build
from qwen3nb.book.build import BookError
from qwen3nb.cli.main import main
from qwen3nb.execution.notebook import run_notebook
from qwen3nb.utils.secrets import known_secrets

pytestmark = pytest.mark.integration

PLANTED = {"HF_TOKEN": "hf_planted0123456789secret", "DB_PASS": "pl\"ant<e>d & 'w0rd' ~_x"}
# Scripts that the theme itself puts into buttons.
THEME = re.compile(r"^(toggle|window\.print|initThebe|document\.)")
NAMES = ("runs/leaderboard", "index", "runs/compare", "runs/card")
PHONE = 500  # the narrowest window that Chromium opens; styles are those of 390


@pytest.fixture(scope="module")
def book(tmp_path_factory, encoder_folder, shared_cache):
    """The folder of the pages, and everything else that was written."""
    home = tmp_path_factory.mktemp("book")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QWEN3NB_HOME", str(home))
        patch.setenv("QWEN3NB_CACHE", str(shared_cache))
        for name, value in PLANTED.items():
            patch.setenv(name, value)
        write_checkout(home)  # tests/cli/test_examples.py runs the lessons
        write_foreign(home)
        write_records()
        hostile = home / "runs" / "<img src=x onerror=alert(1)> [x](javascript:alert(1)) `$x$"
        shutil.copytree(encoder_folder, hostile)
        parameters = {"checkpoint": str(hostile), "tasks": "AuthorSTS"}
        run = run_notebook("eval", parameters, show_progress=False)
        done = CliRunner().invoke(main, ["book"])
        assert done.exit_code == 0, done.output
        html = home / "_build" / "html"
    # Without the templates among the theme's own files.
    files = sorted(file for file in html.rglob("*.html") if "_static" not in file.parts)
    pages = {file: Page(file.read_text(encoding="utf-8")) for file in files}
    return SimpleNamespace(home=home, html=html, pages=pages, run=run.stem)


def write_records():
    """Write records with hostile names only, and a failure with a hostile reason.

    The program refuses such names, but a folder of results from elsewhere may have them.
    """
    for index, text in enumerate(HOSTILE):
        for task in ("PyDocsSampleRetrieval", "other"):
            scores = [0.1 * index + 0.01 * query for query in range(20)]
            settings = {"model": {"kind": text}, "pooling": text, "prompts": text}
            record = make(f"m{index}", task=task, scores=scores, settings=settings)
            record.environment.versions[text] = text
            file = record.save()
            stored = json.loads(file.read_text())
            stored["model"].update(label=text, spec=text)
            stored["task"]["dataset"] = text
            if task == "other":
                stored["task"].update(name=text, unit=text)
            file.write_text(json.dumps(signed({**stored, "run": text})))
        file.with_suffix(".error.txt").write_text(
            f"Traceback\nValueError: {text} {' '.join(PLANTED.values())}\n"
        )


class Page(HTMLParser):
    """The links, text, ids and scripts of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.active, self.text, self._script = [], [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self._script = tag == "script" and attributes.get("type") != "application/json"
        self.ids += [value for name, value in attrs if name in ("id", "name") and value]
        self.links += [(tag, value) for name, value in attrs if name in ("href", "src") and value]
        self.active += [
            value
            for name, value in attrs
            if (name.startswith("on") and not THEME.match(value or ""))
            or (value or "").strip().lower().startswith("javascript")
        ]

    def handle_data(self, data):
        if self._script and "alert(1)" in data:
            self.active.append(data)
        self.text.append(data)


def test_nothing_foreign_is_active_on_any_page(book):
    for file, page in book.pages.items():
        assert page.active == [], file.name
        assert "root:x:0:0" not in " ".join(page.text), file.name
        assert not any(link == "x" for _, link in page.links), file.name
        for tag, link in page.links:  # nothing is fetched from another host
            assert tag in ("a", "link") or not re.match("(https?:)?//", link), link
    shown = " ".join(book.pages[book.html / "runs" / "leaderboard.html"].text)
    assert "<script>alert(1)</script>" in shown  # as text: nothing was dropped


def test_no_token_is_in_anything_that_was_published(book):
    planted = known_secrets(PLANTED).values
    assert len(planted.kinds(" ".join(PLANTED.values()))) == 2
    for folder in (book.html, book.home / "book", book.home / "results" / "partial"):
        for file in folder.rglob("*"):
            if file.is_file():
                text = file.read_text(encoding="utf-8", errors="replace")
                assert planted.kinds(text) == [], file


def test_every_link_within_the_book_leads_somewhere(book):
    broken = []
    for file, page in book.pages.items():
        for tag, link in page.links:
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//") or tag == "use":
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            # The fragment of the explorer is the state of its script: a query and two models.
            state = target.name == "explorer.html" and parts.fragment.startswith("q=")
            anchor = unquote(parts.fragment) if target in book.pages and not state else ""
            if not target.exists() or (anchor and anchor not in book.pages[target].ids):
                broken.append((file.name, link))
    assert broken == []


def test_notebooks_that_are_none_of_ours_are_named(book):
    page = book.html / "reference" / "parameters.html"
    assert "expected a typed parameter" in page.read_text()


def test_every_id_is_unique(book):
    for file in book.pages:
        ids = re.findall(r'\sid="([^"]+)"', file.read_text())
        assert len(ids) == len(set(ids)), file.name


@pytest.mark.parametrize("width", [PHONE, 1350])
def test_axe_finds_no_violation(book, tmp_path, width):
    """Each page in a window of its own: in a frame, axe leaves out rules for whole pages."""
    for name in (*NAMES, *(["methods", "references"] if width == PHONE else [])):
        page = book.html / f"{name}.html"
        assert used(page, AXE, folder=tmp_path / "p", width=width, library=axe()) == [], name


def test_every_page_says_what_it_was_made_with(book):
    for file in book.pages:
        if file.name not in ("genindex.html", "search.html"):
            text = file.read_text()
            assert text.count('<footer class="q-footer">') == 1, file.name
            assert re.search(r"Again: <code>qwen3nb (book|eval|run) ?", text), file.name
    assert "toys" not in (book.html / "index.html").read_text()  # none of the models is one


def test_a_value_that_is_missing_stops_the_build(checkout, tmp_path):
    """A strict build must report that the glued findings are missing."""
    (checkout / "book" / "_toc.yml").write_text("format: jb-book\nroot: index\n")
    (checkout / "book" / "index.md").write_text("# A book\n\n```{glue} findngs\n```\n")
    (tmp_path / "out").mkdir()
    with pytest.raises(BookError, match="findngs"):
        build._build(tmp_path / "out", strict=True)


STATE = f"""
const cut = await (async () => {{{CUT}}})();
const button = document.querySelectorAll('table.q thead button')[1];
button?.click();
return {{cut, title: document.title, pwned: window.pwned ?? null,
  wide: document.documentElement.scrollWidth - innerWidth,
  figures: document.querySelectorAll('svg.q-svg, img').length,
  sorted: button?.closest('th').getAttribute('aria-sort') ?? null}};
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_page_opens_from_its_file_without_an_error_and_is_readable_on_a_phone(
    book, tmp_path, name
):
    """No script fails, tables sort; what is wider than its box has a bar, shown or hidden."""
    file = book.html / f"{name}.html"
    opened = used(file, STATE, folder=tmp_path / "p", width=PHONE, flags=[OVERLAY])
    assert opened["title"]
    assert (opened["pwned"], opened["wide"] <= 0) == (None, True)
    assert [each for each in opened["cut"] if not each[0]] == []
    assert opened["figures"] > 0 or name in ("runs/leaderboard", "runs/card")
    if name == "runs/leaderboard":
        assert opened["sorted"] in ("ascending", "descending")

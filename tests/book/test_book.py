"""The built book: strict, safe with hostile names, and correct in a browser.

One book is built for all tests here, from records with hostile names, a run on a model in a
folder with a hostile name, and some copies of its page.
"""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest
from helpers.browser import AXE, axe, used
from helpers.checkout import write_checkout
from helpers.html import HOSTILE
from helpers.records import make, signed

from qwen3nb.book.build import build_book, remote_resources, secret_pages
from qwen3nb.execution.notebook import run_notebook
from qwen3nb.utils.secrets import known_secrets

pytestmark = pytest.mark.integration

PLANTED = {"HF_TOKEN": "hf_planted0123456789secret", "DB_PASS": "pl\"ant<e>d & 'w0rd' ~_x"}
RUNS = 6
# Scripts that the theme itself puts into buttons.
THEME = re.compile(r"^(toggle|window\.print|initThebe|document\.)")
NAMES = ("runs/leaderboard", "index", "runs/compare", "runs/card")


@pytest.fixture(scope="module")
def book(tmp_path_factory, encoder_folder, shared_cache):
    """The folder of the pages, and everything else that was written."""
    home = tmp_path_factory.mktemp("book")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QWEN3NB_HOME", str(home))
        patch.setenv("QWEN3NB_CACHE", str(shared_cache))
        for name, value in PLANTED.items():
            patch.setenv(name, value)
        write_checkout(home, api=True)  # tests/execution/test_guide.py runs the lessons
        write_records()
        write_runs(home, encoder_folder)
        html = build_book(show_progress=False).parent
    return SimpleNamespace(home=home, html=html, pages=pages_of(html))


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
            stored["task"].update(dataset=text, unit=text)
            if task == "other":
                stored["task"]["name"] = text
            file.write_text(json.dumps(signed({**stored, "run": text})))
        file.with_suffix(".error.txt").write_text(
            f"Traceback\nValueError: {text} {' '.join(PLANTED.values())}\n"
        )


def write_runs(home, encoder_folder):
    """Run a model in a folder with a hostile name, and copy its page."""
    hostile = home / "runs" / "<img src=x onerror=alert(1)> [x](javascript:alert(1)) `$x$"
    shutil.copytree(encoder_folder, hostile)
    parameters = {"checkpoint": str(hostile), "tasks": "AuthorSTS"}
    page = run_notebook("eval", parameters, show_progress=False)
    for index in range(RUNS - 1):
        text = json.loads(page.read_text())
        first = next(cell for cell in text["cells"] if cell["cell_type"] == "markdown")
        first["source"] = f"# Run {index}"
        page.with_name(f"eval-run-{index:02d}-smoke.ipynb").write_text(json.dumps(text))


class Page(HTMLParser):
    """The links, text, images and scripts of a page."""

    def __init__(self, file):
        super().__init__()
        self.links, self.ids, self.unnamed, self.active, self.text = [], [], [], [], []
        self._script, self._head = False, ""
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self._script = tag == "script" and attributes.get("type") != "application/json"
        self.ids += [value for name, value in attrs if name in ("id", "name") and value]
        self.links += [(tag, value) for name, value in attrs if name in ("href", "src") and value]
        named = attributes.get("aria-label") or attributes.get("aria-labelledby")
        alt, role = (attributes.get("alt") or "").strip(), attributes.get("role")
        drawing = tag == "svg" and (role == "img" or "q-svg" in (attributes.get("class") or ""))
        if (tag == "img" and alt in ("", attributes.get("src"))) or (
            not named and (drawing or role == "region")
        ):
            self.unnamed.append((tag, attributes))
        if tag == "th":
            self._head = named or "\n"
        self.active += [
            value for name, value in attrs if name.startswith("on") and not THEME.match(value or "")
        ]
        self.active += [
            value for name, value in attrs if (value or "").strip().lower().startswith("javascript")
        ]

    def handle_data(self, data):
        if self._script and "alert(1)" in data:
            self.active.append(data)
        self.text.append(data)
        self._head += data

    def handle_endtag(self, tag):
        if tag == "th" and not self._head.strip():
            self.unnamed.append((tag, {}))


def pages_of(html):
    """Return the pages by file, without the templates among the theme's own files."""
    files = sorted(file for file in html.rglob("*.html") if "_static" not in file.parts)
    return {file: Page(file) for file in files}


def test_nothing_foreign_is_active_on_any_page(book):
    by_file = book.pages
    assert len(by_file) > RUNS
    for file, page in by_file.items():
        assert page.active == [], file.name
        assert "root:x:0:0" not in " ".join(page.text), file.name
        assert not any(link == "x" for _, link in page.links), file.name
    shown = " ".join(by_file[book.html / "runs" / "leaderboard.html"].text)
    assert "<script>alert(1)</script>" in shown  # as text: nothing was dropped


def test_no_token_is_in_anything_that_was_published(book):
    planted = known_secrets(PLANTED).values
    assert len(planted.kinds(" ".join(PLANTED.values()))) == 2
    for folder in (book.html, book.home / "book", book.home / "results" / "partial"):
        for file in folder.rglob("*"):
            if file.is_file():
                text = file.read_text(encoding="utf-8", errors="replace")
                assert planted.kinds(text) == [], file
    assert secret_pages(book.html) == []


def test_nothing_is_fetched_from_elsewhere(book):
    assert remote_resources(book.html) == []


def test_every_link_within_the_book_leads_somewhere(book):
    by_file = book.pages
    broken = []
    for file, page in by_file.items():
        for tag, link in page.links:
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//") or tag == "use":
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not target.exists():
                broken.append((file.name, link))
            elif target.name == "explorer.html" and parts.fragment.startswith("q="):
                continue  # the state of its script: a query and two models
            elif parts.fragment and target in by_file:
                missing = unquote(parts.fragment) not in by_file[target].ids
                broken += [(file.name, link)] if missing else []
    assert broken == []


def test_a_parser_sees_nothing_that_fails_assistive_technology(book):
    """Pictures, regions and heads of tables without a name, and elements with the same id."""
    for file, page in book.pages.items():
        assert page.unnamed == [], file.name
    for file in book.pages:
        ids = re.findall(r'\sid="([^"]+)"', file.read_text())
        assert len(ids) == len(set(ids)), file.name


@pytest.mark.parametrize("width", [500, 1350])
@pytest.mark.parametrize("name", [*NAMES, "methods", "references"])
def test_axe_finds_no_violation(book, tmp_path, name, width):
    page = book.html / f"{name}.html"
    assert used(page, AXE, folder=tmp_path / "p", width=width, library=axe()) == []


def test_every_page_says_what_it_was_made_with(book):
    for file in book.pages:
        if file.name not in ("genindex.html", "search.html"):
            text = file.read_text()
            assert text.count('<footer class="q-footer">') == 1, file.name
            assert re.search(r"Again: <code>qwen3nb (book|eval|run) ?", text), file.name
            assert "Cite this" in text


def test_there_is_no_banner_without_toys(book):
    assert "toys" not in (book.html / "index.html").read_text()


def test_thirty_runs_stay_small(book):
    sizes = {file: file.stat().st_size for file in book.html.rglob("*") if file.is_file()}
    of_copies = sum(size for file, size in sizes.items() if file.name.startswith("eval-run-"))
    assert sum(sizes.values()) + of_copies * (30 - RUNS) / (RUNS - 1) < 40 * 2**20
    assert len(list((book.html / "runs").glob("eval-*.html"))) == RUNS


def test_a_value_that_is_missing_stops_the_build(book, monkeypatch, tmp_path):
    """A strict build must report that the glued findings are missing."""
    from qwen3nb.book.build import BookError

    copy = tmp_path / "copy"
    shutil.copytree(book.home, copy, ignore=shutil.ignore_patterns("_build"))
    # Its pages are there: to run them again would only take longer.
    monkeypatch.setattr("qwen3nb.book.build.sweep", lambda *_, **__: [])
    monkeypatch.setattr("qwen3nb.book.build.run_notebook", lambda *_, **__: None)
    for page in (copy / "book" / "runs").glob("eval-run-*.ipynb"):
        page.unlink()
    (copy / "book" / "api.md").write_text("# The Python interface\n")
    index = copy / "book" / "index.md"
    index.write_text(index.read_text().replace("{glue} findings", "{glue} findngs"))
    monkeypatch.setenv("QWEN3NB_HOME", str(copy))
    with pytest.raises(BookError, match="findngs"):
        build_book(show_progress=False)


# Contrast (WCAG 2.2, 1.4.3) of every element of the article that directly contains text.
CONTRAST = """
const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const numbers = c => c.match(/[\\d.]+/g).map(Number);
const light = c => { const [r, g, b] = numbers(c).map(channel);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const behind = e => { for (; e; e = e.parentElement) {
  const c = numbers(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1)
    return getComputedStyle(e).backgroundColor; } return 'rgb(255, 255, 255)'; };
const seen = e => e.checkVisibility() && e.getClientRects().length;
const measured = theme => {
document.documentElement.dataset.theme = theme;
const worst = [];
for (const e of document.querySelectorAll('article *, nav a, .bd-article *')) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || !seen(e) || e.closest('pre, svg, math')) continue;
  const style = getComputedStyle(e);
  if (!style.color.startsWith('rgb(')) continue;
  const [a, b] = [light(style.color), light(behind(e))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) worst.push([e.tagName, e.className, e.textContent.slice(0, 30), ratio]);
}
return {worst: worst.slice(0, 5), wide: document.documentElement.scrollWidth - innerWidth,
  figures: document.querySelectorAll('svg.q-svg, img').length,
  theme: document.documentElement.dataset.theme};
};
return ['light', 'dark'].map(measured);
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_readable_in_a_browser(book, tmp_path, name):
    """No script fails, text has contrast, and the page fits the window, in both modes."""
    both = used(book.html / f"{name}.html", CONTRAST, folder=tmp_path / "profile")
    assert [measured["theme"] for measured in both] == ["light", "dark"]
    for measured in both:
        assert measured["worst"] == []
        assert measured["wide"] <= 0
        assert measured["figures"] > 0 or name in ("index", "runs/card")


# The title, what a foreign script would have set, and elements that would run one.
STATE = """
const code = [...document.querySelectorAll('*')].filter(each => [...each.attributes].some(own =>
  /^javascript:/i.test(own.value.trim()) || /pwned|alert\\(1\\)/.test(own.value) &&
  /^on/i.test(own.name)));
const scripts = [...document.scripts].filter(each => each.type !== 'application/json' &&
  each.id === '' && /^\\s*(window.pwned|alert)/.test(each.textContent));
return [document.title, window.pwned ?? null, [...code, ...scripts].map(each => each.outerHTML),
  document.documentElement.scrollWidth - innerWidth];
"""
PHONE = 500  # the narrowest window that Chromium opens


def page_name(book, file):
    return str(file.relative_to(book.html).with_suffix(""))


def test_every_page_opens_from_its_file_without_an_error_and_fits_a_phone(book, tmp_path):
    names = [file for file in book.pages if not re.match(r"eval-run-(?!00)", file.name)]
    for file in names:
        if file.name not in ("genindex.html", "search.html"):
            opened = used(file, STATE, folder=tmp_path / "profile", width=PHONE)
            title, pwned, scripts, wide = opened
            assert title, file.name
            assert pwned is None, file.name
            assert scripts == [], file.name
            assert wide <= 0 or page_name(book, file) not in NAMES, file.name


def test_the_leaderboard_sorts_in_the_book_itself(book, tmp_path):
    measured = used(
        Path(book.html / "runs" / "leaderboard.html"),
        """const table = document.querySelector('table.q');
        const button = table.querySelectorAll('thead button')[1];
        button.click();
        return table.querySelectorAll('thead th')[1].getAttribute('aria-sort');""",
        folder=tmp_path / "profile",
    )
    assert measured in ("ascending", "descending")

"""How the pages of a built book look, measured in a browser.

    python -m benchmarks.looks [STUDY] [--pages 'runs/*']

Every page is opened at the width of a screen and of a phone, in light and in dark. A page may use
five sizes of type and one colour of links. Nothing may stand beyond its edges, and only tables
scroll sideways. Figures, tables, notes and boxes end at the same edge. Code stands in one fold, but
in lessons, whose subject it is. Nothing is white on a dark page.

The exit status is 1 if a page breaks a rule. Needs Chromium.
"""

import argparse
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

from qwen3nb.book.pages import built_pages

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SCREEN, PHONE = 1350, 390  # pixels
MOST_SIZES = 5  # of type
SMALLEST = 10.5  # pixels of a letter in a figure
_NOT_OURS = ("search.html", "genindex.html", "py-modindex.html")  # of Sphinx itself
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--hide-scrollbars",  # as on a phone, where they lie over the page
    "--allow-file-access-from-files",  # the harness reads the pages that it opens
    "--virtual-time-budget=3600000",
)


class Size(TypedDict):
    """A size of type on a page."""

    size: float  # in pixels
    count: int  # of elements that have it
    example: str  # the first of them


@dataclass(frozen=True)
class Look:
    """What was measured of a page at one width."""

    page: str
    width: int
    sizes: tuple[Size, ...]  # of type
    link_colors: tuple[str, ...]
    wide: bool  # whether the page scrolls sideways
    beyond: tuple[str, ...]  # elements beyond the edge of the page or of what cuts them
    scrolling: tuple[str, ...]  # elements that scroll sideways and are no tables
    edges: tuple[int, ...]  # right edges of blocks, in pixels from the column's own
    code: int  # cells of code outside the fold at the end of the page
    white: tuple[str, ...]  # light boxes on a dark page
    tiny: float  # the smallest letters of a figure, in pixels; 0 without one

    @property
    def faults(self) -> list[str]:
        """What breaks a rule, in words."""
        faults = []
        if len(self.sizes) > MOST_SIZES:
            faults.append(f"{len(self.sizes)} sizes of type: {self._sizes_in_words}")
        if len(self.link_colors) > 1:
            faults.append(f"links in {_listed(self.link_colors)}")
        if self.wide:
            faults.append("the page scrolls sideways")
        if self.beyond:
            faults.append(f"beyond the edge: {_listed(self.beyond)}")
        if self.scrolling:
            faults.append(f"scrolls sideways: {_listed(self.scrolling)}")
        if any(self.edges):
            faults.append(f"right edges: {_listed(self.edges)}")
        if self.code:
            faults.append(f"{self.code} cells of code outside the fold")
        if self.white:
            faults.append(f"white in the dark: {_listed(self.white)}")
        if 0 < self.tiny < SMALLEST:
            faults.append(f"letters of {self.tiny:g} pixels in a figure")
        return faults

    @property
    def _sizes_in_words(self) -> str:
        """Each size with an example, the most frequent first."""
        by_count = sorted(self.sizes, key=lambda size: -size["count"])
        words = [f"{size['size']:g} ({size['example']})" for size in by_count]
        return _listed(words)


def _listed(values: Sequence[object]) -> str:
    return ", ".join(str(value) for value in values)


def measure(pages: Sequence[Path], *, root: Path, widths: Sequence[int]) -> list[Look]:
    """Return the look of each page at each width, in the order of the pages.

    Raises:
        RuntimeError: there is no browser, or it did not come to an end.
    """
    browser = _browser()
    visits = []
    for page in pages:
        name = str(page.relative_to(root))
        visits += [{"page": name, "url": page.as_uri(), "width": width} for width in widths]
    with tempfile.TemporaryDirectory() as folder:
        harness = Path(folder) / "harness.html"
        harness.write_text(_harness(visits), encoding="utf-8")
        own_profile = f"--user-data-dir={folder}/profile"
        window = f"--window-size={SCREEN + 50},1000"
        command = [browser, *_FLAGS, own_profile, window, "--dump-dom", harness.as_uri()]
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    answer = re.search(r'<pre id="looks">(.*?)</pre>', process.stdout, re.DOTALL)
    if answer is None:
        raise RuntimeError(f"the browser did not come to an end: {process.stderr[-1000:]}")
    return [_look(values) for values in json.loads(html.unescape(answer[1]))]


def _harness(visits: Sequence[dict[str, object]]) -> str:
    """Return the page that opens each page in a frame and measures it."""
    script = Path(__file__).with_name("looks.js").read_text(encoding="utf-8")
    return f"""<!doctype html><meta charset="utf-8"><body style="margin:0">
<script>const visits = {json.dumps(visits)};
{script}</script>"""


def _look(values: dict[str, object]) -> Look:
    fields = {}
    for name, value in values.items():
        fields[name] = tuple(value) if isinstance(value, list) else value
    return Look(**fields)  # type: ignore[arg-type]


def _browser() -> str:
    for name in BROWSERS:
        path = shutil.which(name)
        if path:
            return path
    raise RuntimeError(f"no browser here; looked for {', '.join(BROWSERS)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the faults of a book's pages, and return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", nargs="?", type=Path, default=Path())
    parser.add_argument("--pages", default="**/*.html", help="pattern of pages, below _build/html")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    root = (options.study / "_build" / "html").resolve()
    if not root.is_dir():
        root = options.study.resolve()  # the folder of the pages itself
    chosen = set(root.glob(options.pages))
    pages = []
    for page in built_pages(root):
        is_ours = page.name not in _NOT_OURS and page.relative_to(root).parts[0] != "records"
        if is_ours and page in chosen:
            pages.append(page)
    if not pages:
        print(f"no pages in {root}", file=sys.stderr)
        return 2
    looks = measure(pages, root=root, widths=(SCREEN, PHONE))
    number_of_faults = sum(len(look.faults) for look in looks)
    if options.json:
        rows = [asdict(look) | {"faults": list(look.faults)} for look in looks]
        print(json.dumps(rows, indent=1))
        return 1 if number_of_faults else 0
    for look in looks:
        for fault in look.faults:
            print(f"{look.page:60} {look.width:5} {fault}")
    most_sizes = max(len(look.sizes) for look in looks)
    print(f"{len(pages)} pages, at most {most_sizes} sizes of type; faults: {number_of_faults}")
    return 1 if number_of_faults else 0


if __name__ == "__main__":
    sys.exit(main())

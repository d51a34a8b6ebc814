"""A headless browser for tests: what a page is after a script has used it."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-extensions",
    "--no-first-run",
    "--virtual-time-budget=30000",
)


def chromium():
    """The browser's path; the test is skipped where there is none."""
    path = next((path for name in NAMES if (path := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser here; looked for {', '.join(NAMES)}")
    return path


def axe():
    """The path of axe-core's script; the test is skipped where there is none."""
    folder = os.environ.get("QWEN3NB_FIXTURES")
    path = Path(folder) / "axe" / "axe.min.js" if folder else None
    if path is None or not path.is_file():
        pytest.skip("no axe here; put axe.min.js of axe-core into $QWEN3NB_FIXTURES/axe/")
    return path


# What axe finds wrong: rule, and the first elements.
AXE = """
return (await axe.run(document, {resultTypes: ['violations']})).violations.map(
  each => [each.id, each.nodes.slice(0, 3).map(node => node.html.slice(0, 200))]);
"""


# Tables, code and formulas of which a part is beyond the edge of the page or of their box: whether
# a bar below that box shows it, by how many pixels they are wider, and their first words.
CUT = """
const seen = [...document.querySelectorAll('article :is(table, pre, math)')]
  .filter(each => each.checkVisibility() && each.getClientRects().length);
return seen.flatMap(each => {
  let box = each;
  while (box !== document.body && getComputedStyle(box).overflowX === 'visible')
    box = box.parentElement;
  const wider = box === document.body
    ? each.getBoundingClientRect().right - document.documentElement.clientWidth
    : box.scrollWidth - box.clientWidth;
  const bar = box.offsetHeight - box.clientHeight >= 6;
  return wider > 1 ? [[bar, wider, each.textContent.trim().slice(0, 60)]] : [];
});
"""
OVERLAY = "--enable-features=OverlayScrollbar"  # bars that show only while something scrolls


# Runs at the end of a page's loading, and leaves what it returns in the page.
_ENDED = """<script>addEventListener('load', async () => {
  let out = null;
  try { out = await (async () => {RUN})(); } catch (error) { errors.push(String(error)); }
  const shown = document.createElement('pre');
  shown.id = 'probe';
  shown.textContent = JSON.stringify({out, errors});
  document.body.append(shown);
})</script>"""


def used(page, script, *, folder, width=1200, library=None, flags=()):
    """What ``script`` (the body of an async function) returns, run on the page in a file.

    A script error on the page is an assertion error here. A ``library`` is loaded first.
    """
    catch = "<script>window.errors=[];addEventListener('error',e=>errors.push(e.message))</script>"
    if library is not None:
        catch += f'<script src="{library.resolve().as_uri()}"></script>'
    text = page.read_text(encoding="utf-8")
    head = text.find("<head>") + len("<head>") if "<head>" in text else 0
    probe = page.with_name(f"probe-{page.name}")
    probe.write_text(text[:head] + catch + text[head:] + _ENDED.replace("RUN", script))
    own = (f"--user-data-dir={folder}", f"--window-size={width},1000")
    command = [chromium(), *FLAGS, *flags, *own, "--dump-dom", probe.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    probe.unlink()
    match = re.search(r'<pre id="probe"[^>]*>(.*?)</pre>', done.stdout, re.S)
    assert match, f"the script did not reach its end: {done.stderr[-1000:]}"
    answer = json.loads(html.unescape(match[1]))
    assert answer["errors"] == [], answer["errors"]
    return answer["out"]

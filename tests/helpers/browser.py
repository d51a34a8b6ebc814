"""A headless browser for tests: what a page is after a script has used it."""

import html
import json
import re
import shutil
import subprocess

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-extensions", "--no-first-run", "--virtual-time-budget=4000",
)  # fmt: skip


def chromium():
    """The browser's path; the test is skipped where there is none."""
    path = next((path for name in NAMES if (path := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser here; looked for {', '.join(NAMES)}")
    return path


def used(page, script, *, folder, width=1200):
    """What ``script`` (the body of a function) returns, run on the page in the file ``page``.

    A script error on the page is an assertion error here.
    """
    probe = page.with_name(f"probe-{page.name}")
    catch = "<script>window.errors=[];addEventListener('error',e=>errors.push(e.message))</script>"
    run = (
        f"<script>addEventListener('load',()=>{{const said=(()=>{{{script}}})();"
        "const out=document.createElement('pre');out.id='probe';"
        "out.textContent=JSON.stringify({said,errors});document.body.append(out)})</script>"
    )
    text = page.read_text(encoding="utf-8")
    head = text.find("<head>") + len("<head>") if "<head>" in text else 0
    probe.write_text(text[:head] + catch + text[head:] + run, encoding="utf-8")
    command = [chromium(), *FLAGS, f"--user-data-dir={folder}", f"--window-size={width},1000"]
    done = subprocess.run(
        [*command, "--dump-dom", probe.resolve().as_uri()],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    probe.unlink()
    match = re.search(r'<pre id="probe"[^>]*>(.*?)</pre>', done.stdout, re.S)
    assert match, f"the script did not reach its end: {done.stderr[-1000:]}"
    answer = json.loads(html.unescape(match[1]))
    assert answer["errors"] == []
    return answer["said"]

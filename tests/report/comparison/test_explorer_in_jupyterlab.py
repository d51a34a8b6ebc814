"""The explorer's notebook is run in JupyterLab, with its kernel, and used there."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
import requests
from helpers import REPOSITORY
from helpers.browser import chromium
from helpers.devtools import opened
from helpers.records import own, state

from qwen3nb.answers.explorer import explore

SECRET = secrets.token_hex(16)  # of the server
OPEN = """
await jupyterapp.restored;
window.panel = await jupyterapp.commands.execute(
  'docmanager:open', {path: 'notebooks/explorer.ipynb'});
await panel.context.ready;
await panel.sessionContext.ready;
jupyterapp.shell.activateById(panel.id);
panel.content.activate();
return true;
"""
USE = """
const box = document.querySelector('.q-explorer');
const find = (what) => box.querySelector(what);
const pick = (name, value) => {
  const control = find(`[data-pick=${name}]`);
  control.value = value;
  control.dispatchEvent(new Event('change'));
};
const points = () => box.querySelectorAll('.q-point').length;
const look = () => ({...find('.q-tested').dataset, points: points()});
const before = location.href;
const out = {whole: look()};
pick('category', 'odd');
out.odd = look();
box.querySelectorAll('.q-point')[2].dispatchEvent(new MouseEvent('click', {bubbles: true}));
out.question = find('.q-question').textContent;
out.lists = box.querySelectorAll('.q-side li').length;
out.moved = location.href !== before;
out.wide = box.scrollWidth - box.clientWidth;
return out;
"""


@contextmanager
def jupyterlab(study):
    """The address of a JupyterLab of a study, on this machine alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    command += [f"--IdentityProvider.token={SECRET}", f"--ServerApp.root_dir={study}"]
    command += ["--LabApp.expose_app_in_browser=True", "--ServerApp.ip=127.0.0.1"]
    folders = {
        f"JUPYTER_{name}_DIR": str(study / ".jupyter") for name in ("CONFIG", "DATA", "RUNTIME")
    }
    server = subprocess.Popen(
        command,
        cwd=study,
        env={**os.environ, **folders, "QWEN3NB_HOME": str(study)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 60
        while not _answers(f"{address}/api/status?token={SECRET}"):
            assert server.poll() is None, "JupyterLab has ended"
            assert time.monotonic() < end, "JupyterLab did not start"
            time.sleep(0.2)
        yield f"{address}/lab?token={SECRET}&reset"
    finally:
        server.terminate()
        server.wait(30)


def _answers(address):
    try:
        return requests.get(address, timeout=5).ok
    except requests.RequestException:
        return False


@pytest.mark.integration
@pytest.mark.timeout(180)
def test_the_notebook_is_alive_in_jupyterlab(tmp_path):
    chromium()  # skips without a browser
    pytest.importorskip("jupyterlab")
    study = tmp_path / "study"
    for name in ("_config.yml", "book/_toc.yml", "notebooks/explorer.ipynb"):
        (study / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, study / name)
    records = [own("a", 0.5, seed=1), own("b", 0.4, seed=2)]
    for record in records:
        state(record, boosts={}, judgements=None)
        record.save(study / "results")
    explorer = explore(records)
    with jupyterlab(study) as address, opened(tmp_path / "profile") as page:
        page.go(address)
        page.wait("typeof jupyterapp !== 'undefined'")
        page.run(OPEN)
        page.wait("jupyterapp.shell.currentWidget === panel")
        page.run("await jupyterapp.commands.execute('notebook:run-all-cells')")
        page.wait("document.querySelectorAll('.q-point').length > 0")
        shown = page.run(USE)
    difference = explorer.difference()
    assert (shown["whole"]["points"], shown["odd"]["points"]) == (40, 20)
    assert float(shown["whole"]["p"]) == difference.p_value
    assert float(shown["odd"]["p"]) == explorer.only(category="odd").difference().p_value
    assert shown["question"].startswith("text of q")
    assert shown["lists"] == 2 * 5
    assert not shown["moved"]  # the address is JupyterLab's
    assert shown["wide"] <= 0

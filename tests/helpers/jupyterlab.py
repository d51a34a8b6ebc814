"""JupyterLab on this machine, used through a browser."""

import os
import secrets
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import requests

SECRET = secrets.token_hex(16)  # of the server
OPEN = """
await jupyterapp.restored;
window.panel = await jupyterapp.commands.execute(
  'docmanager:open', {path: 'PATH'});
await panel.context.ready;
await panel.sessionContext.ready;
jupyterapp.shell.activateById(panel.id);
panel.content.activate();
return true;
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
        end = time.monotonic() + 240
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


def open_notebook(page, address, path):
    """Open a notebook in JupyterLab, in front and with its kernel."""
    page.go(address)
    page.wait("typeof jupyterapp !== 'undefined'")
    page.run(OPEN.replace("PATH", path))
    page.wait("jupyterapp.shell.currentWidget === panel")

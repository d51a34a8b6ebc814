"""Chromium over its DevTools protocol: for pages that need real time, such as JupyterLab."""

import json
import subprocess
import time
from contextlib import closing, contextmanager

import requests
import websocket

from helpers.browser import chromium

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-extensions",
    "--no-first-run",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)


class Page:
    """An open page, whose scripts are run one after the other."""

    def __init__(self, address):
        self._socket = websocket.create_connection(address, timeout=240)
        self._calls = 0
        self._call("Emulation.setFocusEmulationEnabled", enabled=True)  # as if it were in front

    def _call(self, method, **params):
        self._calls += 1
        self._socket.send(json.dumps({"id": self._calls, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == self._calls:
                assert "error" not in answer, answer
                return answer["result"]

    def go(self, address):
        self._call("Page.navigate", url=address)

    def run(self, script):
        """What ``script``, the body of an async function, returns; an error of it is raised."""
        expression = f"(async () => {{{script}}})()"
        answer = self._call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition, *, seconds=60):
        """Wait until the expression ``condition`` is true; return it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.run(f"return {condition};")
            if value:
                return value
            time.sleep(0.2)
        raise AssertionError(f"{condition} is still false; {self.run('return document.title')}")

    def press(self, key, *, code="", number=0):
        """Press and release a key, such as ``3``, where the focus is.

        ``code`` is the place of the key; a key that writes nothing, such as Tab, has a ``number``.
        """
        text = "" if number else key
        more = {"code": code, "windowsVirtualKeyCode": number}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, **more)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    def close(self):
        self._socket.close()


@contextmanager
def opened(folder, *, width=1350):
    """A page of a browser of its own, whose profile is in ``folder``."""
    flags = [*_FLAGS, f"--user-data-dir={folder}", f"--window-size={width},1000"]
    browser = subprocess.Popen(
        [chromium(), *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        port = _port(folder / "DevToolsActivePort")
        pages = requests.get(f"http://127.0.0.1:{port}/json", timeout=240).json()
        (address,) = [page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page"]
        with closing(Page(address)) as page:
            yield page
    finally:
        browser.terminate()
        browser.wait(30)


def _port(file):
    """The port that the browser writes to a file once it listens."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        if file.is_file() and file.read_text().strip():
            return int(file.read_text().split()[0])
        time.sleep(0.1)
    raise AssertionError("the browser did not start")

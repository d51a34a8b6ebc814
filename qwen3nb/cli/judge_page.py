"""A page on this machine on which one grades documents by the keyboard.

It answers at 127.0.0.1 only, at an address with a random token, and takes grades from its own page
alone: a request of another origin, or for another host, is refused. Texts reach the page as JSON
and are shown as text, never as markup.
"""

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Lock
from urllib.parse import urlsplit

from qwen3nb.evaluation.judging import Grading

HOST = "127.0.0.1"
_LARGEST_BODY = 100_000  # bytes of a grade: its query and the id of its document
_NAMES = (HOST, "localhost")


class JudgePage(ThreadingHTTPServer):
    """The server of a grading page."""

    daemon_threads = True

    def __init__(self, grading: Grading, *, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.grading = grading
        self.token = secrets.token_urlsafe(16)
        self.lock = Lock()  # one request at a time reads or writes grades

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def state(self) -> dict[str, object]:
        """What the page shows: the next question and the verdict so far."""
        progress = self.grading.progress()
        verdict = progress.verdict
        return {
            "question": asdict(progress.question) if progress.question else None,
            "verdict": verdict.text,
            "is_final": verdict.is_final,
            "graded": verdict.graded,
            "pool": verdict.pool,
            "grader": self.grading.grader,
            "lines": progress.lines,
        }


class _Handler(BaseHTTPRequestHandler):
    server: JudgePage

    def do_GET(self) -> None:
        """Send the page, or the state as JSON."""
        if not self._may_answer():
            return
        action = self._action()
        if action == "":
            self._send_page()
        elif action == "state":
            self._send_state(lambda: None)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        """Take a grade or take one back, and send the new state."""
        if not self._may_answer() or not self._is_from_the_page():
            return
        action = self._action()
        if action == "undo":
            self._send_state(self.server.grading.undo)
        elif action == "grade":
            self._take_grade()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _take_grade(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > _LARGEST_BODY:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        try:
            row = json.loads(self.rfile.read(length))
            query, document, grade = str(row["query"]), str(row["document"]), row["grade"]
            if grade is not None and type(grade) is not int:
                raise ValueError(f"expected a whole number; got {grade!r:.40}")
        except (ValueError, KeyError, TypeError) as error:
            self.send_error(HTTPStatus.BAD_REQUEST, explain=str(error))
            return
        self._send_state(lambda: self.server.grading.grade(query, document, grade))

    def _may_answer(self) -> bool:
        """Whether a request knows the token and names this machine; else refuse it."""
        name = self.headers.get("Host", "").rpartition(":")[0]
        parts = urlsplit(self.path).path.split("/")
        knows_token = len(parts) > 1 and secrets.compare_digest(
            parts[1].encode(), self.server.token.encode()
        )
        if name not in _NAMES or not knows_token:
            self.send_error(HTTPStatus.NOT_FOUND)
            return False
        return True

    def _is_from_the_page(self) -> bool:
        """Whether a request comes from the page itself; else refuse it."""
        port = self.server.server_port
        origins = [f"http://{name}:{port}" for name in _NAMES]
        is_json = self.headers.get_content_type() == "application/json"
        if self.headers.get("Origin") not in origins or not is_json:
            self.send_error(HTTPStatus.FORBIDDEN)
            return False
        return True

    def _action(self) -> str:
        """Return the part of the address after the token."""
        return urlsplit(self.path).path.split("/", 2)[-1]

    def _send_state(self, change: Callable[[], None]) -> None:
        with self.server.lock:
            try:
                change()
            except ValueError as error:
                self.send_error(HTTPStatus.BAD_REQUEST, explain=str(error))
                return
            state = self.server.state()
        self._send(json.dumps(state).encode(), "application/json")

    def _send_page(self) -> None:
        nonce = secrets.token_urlsafe(16)
        page = files("qwen3nb.cli").joinpath("judge.html").read_text(encoding="utf-8")
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        content = page.replace("NONCE", nonce).encode()
        self._send(content, "text/html; charset=utf-8", policy=policy)

    def _send(self, content: bytes, kind: str, *, policy: str = "default-src 'none'") -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", policy)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *values: object) -> None:
        """Write no log: addresses have the token."""

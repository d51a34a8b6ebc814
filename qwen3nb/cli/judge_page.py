"""A page on this machine on which one grades documents by the keyboard.

It answers at 127.0.0.1 only, at an address with a random token, and takes grades from its own page
alone: a request of another origin, or for another host, is refused. The port may be another one, as
of an SSH tunnel. Texts reach the page as JSON and are shown as text, never as markup.
"""

import json
import secrets
import sys
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Lock
from urllib.parse import urlsplit

from qwen3nb.evaluation.judging import Grading
from qwen3nb.utils.format import typeset

HOST = "127.0.0.1"
_LARGEST_BODY = 100_000  # bytes of a grade: its query and the id of its document
_SECONDS = 30  # until a slow request is dropped
_NAMES = (HOST, "localhost")


class JudgePage(ThreadingHTTPServer):
    """The server of a grading page."""

    daemon_threads = True

    def __init__(self, grading: Grading, *, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.grading = grading
        self.token = secrets.token_urlsafe(16)
        self.lock = Lock()  # one request at a time reads or writes grades

    def handle_error(self, request: object, client_address: object) -> None:
        """Pass over a browser that has gone; print any other error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

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
            "again": self.grading.again,
            "agreements": [typeset(agreement.text) for agreement in progress.agreements],
            "lines": progress.lines,
        }


class _Handler(BaseHTTPRequestHandler):
    server: JudgePage
    timeout = _SECONDS

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
        stated_length = self.headers.get("Content-Length", "")
        if not (stated_length.isascii() and stated_length.isdecimal()):
            self.send_error(HTTPStatus.LENGTH_REQUIRED)
            return
        length = int(stated_length[:20])
        if length > _LARGEST_BODY:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        try:
            row = json.loads(self.rfile.read(length))
            query, document, grade = str(row["query"]), str(row["document"]), row["grade"]
            if grade is not None and type(grade) is not int:
                raise ValueError(f"expected a whole number; got {grade!r:.40}")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self.send_error(HTTPStatus.BAD_REQUEST, explain=str(error))
            return
        self._send_state(lambda: self.server.grading.grade(query, document, grade))

    def _may_answer(self) -> bool:
        """Whether a request knows the token and names this machine; else refuse it.

        A page of another name that leads to this machine (DNS rebinding) has that name as its host.
        """
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
        own_origin = f"http://{self.headers.get('Host')}"
        is_json = self.headers.get_content_type() == "application/json"
        if self.headers.get("Origin") != own_origin or not is_json:
            self.send_error(HTTPStatus.FORBIDDEN)
            return False
        return True

    def _action(self) -> str:
        """Return the part of the address after the token."""
        return urlsplit(self.path).path.split("/", 2)[-1]

    def _send_state(self, change: Callable[[], None]) -> None:
        """Make a change, and send the new state, or why there is none."""
        status = HTTPStatus.OK
        with self.server.lock:
            try:
                change()
                state = self.server.state()
            except ValueError as error:  # no such grade, or a file that was changed by hand
                status, state = HTTPStatus.BAD_REQUEST, {"error": str(error)}
            except OSError as error:  # such as a full disk
                status, state = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(error)}
        self._send(json.dumps(state).encode(), "application/json", status=status)

    def _send_page(self) -> None:
        nonce = secrets.token_urlsafe(16)
        page = files("qwen3nb.cli").joinpath("judge.html").read_text(encoding="utf-8")
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        content = page.replace("NONCE", nonce).encode()
        self._send(content, "text/html; charset=utf-8", policy=policy)

    def _send(
        self,
        content: bytes,
        kind: str,
        *,
        status: HTTPStatus = HTTPStatus.OK,
        policy: str = "default-src 'none'",
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", policy)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        self.wfile.write(content)

    def version_string(self) -> str:
        """Name no versions."""
        return "qwen3nb"

    def log_message(self, format: str, *values: object) -> None:
        """Write no log: addresses have the token."""

"""A server on this machine that speaks OpenAI's embeddings, with faults to order."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def api_server(answer, *, models=("m",), path="/v1/embeddings"):
    """Serve ``answer(body, headers)``, which returns a body, or status, body and headers.

    Yields the address, which ends in ``/v1``.
    """

    class Handler(BaseHTTPRequestHandler):
        def _send(self, status, body, headers=None):
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Length": len(data), **(headers or {})}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            self._send(200, {"data": [{"id": name} for name in models]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != path:
                self._send(404, {"detail": "Not Found"})
                return
            given = answer(body, self.headers)
            self._send(*(given if isinstance(given, tuple) else (200, given)))

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # of a client that has gone
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def embeddings(vectors, **more):
    """The answer with these vectors."""
    rows = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return {"object": "list", "data": rows, "model": "m", **more}


@contextmanager
def chat_server(answer):
    """Serve ``answer(body)``, which returns a text, or status, body and headers.

    Yields the spec of its model, and the requests that it got.
    """
    requests = []

    def respond(body, headers):
        requests.append(body | {"key": headers.get("Authorization")})
        given = answer(body)
        if not isinstance(given, str):
            return given
        return {"choices": [{"index": 0, "message": {"role": "assistant", "content": given}}]}

    with api_server(respond, path="/v1/chat/completions") as url:
        yield f"api:{url}#m", requests

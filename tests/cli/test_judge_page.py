"""The page of `qwen3nb judge`: who may use it, and what it shows."""

import http.client
import json
import socket
from threading import Thread

import pytest
from helpers.devtools import opened

from qwen3nb.analysis.judging.pool import grading_pool
from qwen3nb.cli.judge_page import HOST, JudgePage
from qwen3nb.datasets.custom.grades import GradeFile
from qwen3nb.evaluation.judging import Grading, JudgingTask

HOSTILE = "</script><img src=x onerror=alert(1)>"
HEBREW = "\u05d0\u05d9\u05da \u05de\u05de\u05d9\u05d9\u05e0\u05d9\u05dd?"
TEXTS = {"a": HOSTILE, "b": "second line\n" * 200, "c": "third"}


@pytest.fixture
def page(tmp_path):
    rankings = {
        "old": {HOSTILE: ["a", "b", "c"], "q2": ["a", "b"]},
        "new": {HOSTILE: ["c", "b", "a"], "q2": ["b", "a"]},
    }
    task = JudgingTask(TEXTS, grading_pool(rankings, current="old"))
    grading = Grading(task, GradeFile(tmp_path / "grades.jsonl"), grader="ann")
    with JudgePage(grading) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def call(page, action="", *, body=None, token=None, host=None, **headers):
    """Return status, body and headers of a request, by default one of the page itself."""
    connection = http.client.HTTPConnection(HOST, page.server_port, timeout=10)
    own_host = f"{HOST}:{page.server_port}"
    sent = {"Host": host or own_host}
    if body is not None:
        sent |= {"Origin": f"http://{own_host}", "Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    method = "GET" if body is None else "POST"
    path = f"/{page.token if token is None else token}/{action}"
    connection.request(method, path, body=body, headers=sent)
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.headers


def grade_of(state, grade):
    question = state["question"]
    return json.dumps(
        {"query": question["query"], "document": question["document"], "grade": grade}
    )


def test_grades_are_saved_one_by_one_and_taken_back(page):
    _, content, _ = call(page, "state")
    state = json.loads(content)
    assert (state["graded"], state["grader"]) == (0, "ann")
    status, content, _ = call(page, "grade", body=grade_of(state, 2))
    after = json.loads(content)
    assert (status, after["graded"]) == (200, 1)
    (line,) = page.grading.file.read()
    assert (line.query, line.document) == (
        state["question"]["query"],
        state["question"]["document"],
    )
    _, content, _ = call(page, "undo", body="{}")
    assert json.loads(content)["question"] == state["question"]
    assert page.grading.file.read() == []


def test_the_page_runs_only_its_own_script_and_shows_texts_as_text(page):
    status, content, headers = call(page)
    assert status == 200
    assert HOSTILE.encode() not in content  # texts come as JSON
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    nonce = policy.partition("script-src 'nonce-")[2].partition("'")[0]
    assert f'<script nonce="{nonce}">'.encode() in content
    assert b"innerHTML" not in content
    _, state, headers = call(page, "state")
    assert headers["Content-Type"] == "application/json"
    assert json.loads(state)["question"]["text"] in TEXTS.values()


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"token": "guess"}, 404),
        ({"token": ""}, 404),
        ({"host": "evil.example:80"}, 404),
        ({"host": "evil.example"}, 404),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        ({"Origin": "http://127.0.0.1"}, 403),
        ({"host": "127.0.0.1.evil.example:80"}, 404),
        ({"Content_Type": "text/plain"}, 403),
        ({"action": "nothing"}, 404),
    ],
)
def test_other_origins_hosts_and_addresses_are_refused(page, changes, status):
    _, content, _ = call(page, "state")
    body = grade_of(json.loads(content), 3)
    assert call(page, **({"action": "grade", "body": body} | changes))[0] == status
    assert page.grading.file.read() == []


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        "{}",
        '{"query": "q2", "document": "a", "grade": 4}',
        '{"query": "q2", "document": "a", "grade": true}',
        '{"query": "q2", "document": "a", "grade": "3"}',
        '{"query": "q2", "document": "zzz", "grade": 3}',
    ],
)
def test_what_is_no_grade_is_refused(page, body):
    assert call(page, "grade", body=body)[0] == 400
    assert page.grading.file.read() == []


def test_a_body_that_is_too_large_is_refused(page):
    assert call(page, "grade", body=" " * 200_000)[0] == 413


def test_the_page_listens_on_this_machine_only(page):
    assert page.server_address[0] == HOST
    assert page.token in page.address
    assert len(page.token) > 20


def test_a_tunnel_may_have_another_port(page):
    _, content, _ = call(page, "state")
    body = grade_of(json.loads(content), 3)
    tunnel = {"host": "localhost:9999", "Origin": "http://localhost:9999"}
    assert call(page, "grade", body=body, **tunnel)[0] == 200


@pytest.mark.parametrize("length", ["", "-1", "1e3", "x", "9" * 30])
def test_a_length_that_is_none_is_refused(page, length):
    own_host = f"{HOST}:{page.server_port}"
    request = (
        f"POST /{page.token}/grade HTTP/1.1\r\nHost: {own_host}\r\nOrigin: http://{own_host}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    with socket.create_connection((HOST, page.server_port), timeout=10) as connection:
        connection.sendall(request.encode())
        assert connection.makefile().readline().split()[1] in ("411", "413")


def test_a_slow_client_stops_nobody_and_is_dropped(page, monkeypatch):
    monkeypatch.setattr(page.RequestHandlerClass, "timeout", 0.2)
    with socket.create_connection((HOST, page.server_port), timeout=10) as slow:
        slow.sendall(f"POST /{page.token}/gra".encode())
        assert call(page, "state")[0] == 200
        assert slow.recv(1000) == b""


def test_a_file_that_was_changed_by_hand_is_stated_on_the_page(page):
    page.grading.file.file.write_text("nonsense\n", encoding="utf-8")
    status, content, _ = call(page, "state")
    assert (status, "grades.jsonl:1: not JSON" in json.loads(content)["error"]) == (400, True)


def test_the_page_names_no_version_and_refuses_other_methods(page):
    _, _, headers = call(page)
    assert headers["Server"] == "qwen3nb"
    connection = http.client.HTTPConnection(HOST, page.server_port, timeout=10)
    connection.request("PUT", f"/{page.token}/grade")
    assert connection.getresponse().status == 501


def press(browser, page, key, *, until, **where):
    """Press a key, and wait until the file has as many grades and the page has its answer."""
    browser.wait("!isBusy")
    browser.press(key, **where)
    browser.wait(f"!isBusy && document.getElementById('progress').dataset.lines === '{until}'")
    assert len(page.grading.file.read()) == until


@pytest.mark.integration
def test_a_session_by_the_keyboard_alone_in_a_browser(page, tmp_path):
    """Grade, skip, take back, and grade on to the end; no foreign text becomes markup."""
    with opened(tmp_path / "profile") as browser:
        browser.go(page.address)
        browser.wait("document.getElementById('progress')?.dataset.lines === '0'")
        press(browser, page, "3", until=1)
        press(browser, page, "s", until=2)
        press(browser, page, "u", until=1)
        press(browser, page, "u", until=0)
        count = 0
        while page.grading.question() is not None:
            count += 1
            press(browser, page, "0", until=count)
        query = browser.run("return document.getElementById('query').textContent")
        assert (count > 0, query) == (True, "Nothing more to grade")
        assert browser.run("return document.images.length") == 0
        verdict = browser.run("return document.getElementById('verdict').textContent")
        assert verdict == page.grading.verdict().text


SHOWN = "[...document.querySelectorAll('h1, #document')].map((part) => part.textContent)"
NAMELESS = """[...document.querySelectorAll('[tabindex], button, progress')].filter((part) =>
  !(part.getAttribute('aria-label') || part.textContent.trim())).length"""


def hebrew_page(tmp_path):
    rankings = {"old": {HEBREW: ["a", "b", "c"]}, "new": {HEBREW: ["c", "b", "a"]}}
    texts = {**TEXTS, "a": HOSTILE * 200, "c": HEBREW * 200}
    task = JudgingTask(texts, grading_pool(rankings, current="old"))
    return JudgePage(Grading(task, GradeFile(tmp_path / "hebrew.jsonl"), grader="ann"))


@pytest.mark.integration
def test_long_texts_other_scripts_layouts_and_two_visits_in_a_browser(tmp_path):
    with hebrew_page(tmp_path) as page, opened(tmp_path / "profile", width=390) as browser:
        thread = Thread(target=page.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        browser.go(page.address)
        browser.wait("document.getElementById('progress')?.dataset.lines === '0'")
        shown = browser.run(f"return {SHOWN}")
        browser.run("window.isFirstVisit = true; location.reload()")
        browser.wait(
            "!window.isFirstVisit && document.getElementById('progress')?.dataset.lines === '0'"
        )
        assert browser.run(f"return {SHOWN}") == shown  # the same question
        assert (
            browser.run("return getComputedStyle(document.querySelector('h1')).direction") == "rtl"
        )
        assert browser.run(f"return {NAMELESS}") == 0
        assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0
        browser.press("PageDown", code="PageDown", number=34)
        browser.wait("document.getElementById('document').scrollTop > 0")
        # On a Russian keyboard, the key s writes another letter; on a French one, 1 writes &.
        press(browser, page, "\u044b", until=1, code="KeyS")
        press(browser, page, "&", until=2, code="Digit1")
        browser.press("&", code="KeyS")
        assert [line.grade for line in page.grading.file.read()] == [None, 1]
        # By Tab to the only button that is left, and Enter.
        assert browser.run("return document.activeElement.id") == "document"
        browser.press("Tab", code="Tab", number=9)
        assert browser.run("return document.activeElement.dataset.grade") == "undo"
        browser.press("\r", code="Enter")
        browser.wait("document.getElementById('progress').dataset.lines === '1'")
        page.shutdown()
        thread.join()
        page.server_close()
        browser.press("2")
        browser.wait("!document.getElementById('problem').hidden")
        problem = browser.run("return document.getElementById('problem').textContent")
        assert problem.startswith("Not saved: ")
        assert problem.endswith("Is qwen3nb judge still running?")

"""Models behind an OpenAI-compatible endpoint."""

import base64
import json
import os
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from threading import Event

import numpy as np
import pytest
from helpers.api_server import api_server, embeddings

from qwen3nb.datasets.collection import TestCollection
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.speed import measure_encoding
from qwen3nb.models.kinds import api
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.types import EncoderError, SpecError
from qwen3nb.records.record import Result
from qwen3nb.records.store import result_files
from qwen3nb.utils.secrets import kernel_environment, key_bound_to_hosts_in, known_secrets

pytestmark = pytest.mark.usefixtures("waits")
KEY = "a-key-of-mine-1234"
silence = Event().wait


def vector(text):
    """A vector of length 5: of a query, which begins with q, or another text."""
    return [3.0, 4.0, 0.0] if text.startswith("q") else [0.0, 3.0, 4.0]


@contextmanager
def serving(answer=None):
    """A spec of a model, and the requests that its server got; ``answer`` may return None."""
    requests = []

    def respond(body, headers):
        requests.append(body | {"key": headers.get("Authorization")})
        given = None if answer is None else answer(body, len(requests))
        rows = [vector(text) for text in body["input"]]
        tokens = sum(len(text.split()) for text in body["input"])
        return given or embeddings(rows, usage={"prompt_tokens": tokens, "total_tokens": tokens})

    with api_server(respond) as url:
        yield f"api:{url}#m", requests


def test_a_server_is_measured_before_a_run_up_to_the_texts_that_it_takes():
    def short_only(body, _):
        return (
            (500, {"error": "too large"}, {}) if len(max(body["input"], key=len)) > 1500 else None
        )

    with serving(short_only) as (spec, _):
        speed = measure_encoding(load_encoder(spec, cache=False))
    assert 0 < max(speed.characters) <= 1500
    assert len(speed.characters) == len(speed.seconds)


def test_vectors_prompts_batches_and_tokens():
    with serving() as (spec, requests):
        encoder = load_encoder(spec, batch_size=2, prompts={"query": "q: "})
        vectors = encoder.encode(["one two", "three", "", "four", "three"])
        unit = np.array([0.0, 0.6, 0.8], dtype=np.float32)
        assert encoder.dimension == 3
        assert not encoder.normalize  # as the server's vectors
        np.testing.assert_allclose(vectors[1] / 5, unit)
        assert [len(each["input"]) for each in requests] == [1, 2, 1, 1]
        assert [each["model"] for each in requests] == ["m"] * 4
        assert encoder.stats.tokens == 2 + 4  # with the first text, "a text"
        np.testing.assert_array_equal(encoder.encode("x", role="query"), [3, 4, 0])
        assert requests[-1]["input"] == ["q: x"]
        np.testing.assert_allclose(load_encoder(spec, normalize=True).encode("x"), unit)
        assert load_model(f"bm25+{spec}").parts[1].dimension == 3


def encoded(body, _):
    data = [base64.b64encode(np.array(vector(t), "<f4").tobytes()).decode() for t in body["input"]]
    return embeddings(data)


def backwards(body, _):
    given = embeddings([vector(text) for text in body["input"]])
    return given | {"data": given["data"][::-1]}


def numbers_only(body, _):
    return (
        (400, {"error": {"message": "no base64"}}) if body["encoding_format"] != "float" else None
    )


def small_batches(body, _):
    refusal = {"error": "batch size 4 > maximum allowed batch size 3", "error_type": "Validation"}
    return (422, refusal) if len(body["input"]) > 3 else None


def nothing_blank(body, _):
    return (400, {"error": {"message": "empty"}}) if "" in body["input"] else None


@pytest.mark.parametrize("way", [encoded, backwards, numbers_only, small_batches, nothing_blank])
def test_each_server_has_its_ways(way):
    texts = ["q1", "d1", "q2", "d2", "d3", ""]
    expected = [vector(text) for text in texts]
    if way is nothing_blank:
        expected[-1] = [0.0, 0.0, 0.0]
    with serving(way) as (spec, _):
        np.testing.assert_array_equal(load_encoder(spec).encode(texts), expected)


@pytest.mark.parametrize(
    ("headers", "waited"),
    [
        ({}, [1.0, 2.0]),
        ({"Retry-After": "7"}, [7.0, 7.0]),
        ({"Retry-After": "soon"}, [1.0, 2.0]),
        ({"Retry-After": format_datetime(datetime.now(UTC) - timedelta(1))}, [0.0, 0.0]),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again(waits, headers, waited, status):
    with serving(lambda _, n: (status, {}, headers) if n in (2, 3) else None) as (spec, requests):
        np.testing.assert_array_equal(load_encoder(spec).encode("d"), [0, 3, 4])
        assert (waits, len(requests)) == (waited, 4)


def fault(status, body=b"", headers=None):
    return lambda _, n: (status, body, headers or {}) if n > 1 else None


def too_long(body, n):
    if n > 1 and "long" in "".join(body["input"]):
        return 500, {"error": {"message": "input is too large to process. increase the batch"}}
    return None


FAULTS = [
    (fault(401, {"error": {"message": f"wrong: {KEY}"}}), r"needs a key .*set QWEN3NB_API_KEY"),
    (fault(404, {"detail": "no"}), "it has no model 'm'; it has m"),
    (too_long, r"1 texts are refused \(status 500, .*too large.* 9 characters: 'long text'"),
    (fault(400, {"error": f"{KEY}\nis wrong"}), r"status 400, '\[removed\] is wrong'"),
    (fault(200, b"<html>A login page"), "expected JSON with data.*'<html>A login page'"),
    (fault(200, {"data": [1]}), "expected JSON with data"),
    (fault(200, b"[" * 200_000), "expected JSON with data"),
    (fault(200, embeddings([[[1.0]]])), "expected JSON|expected indices"),
    (fault(200, embeddings([[1.0, 0.0]])), r"vectors \(1, 3\); got indices \[0\] and \(1, 2\)"),
    (fault(200, embeddings([[1.0, 0, 0]] * 2)), r"expected indices 0 to 0 .*got indices \[0, 1\]"),
    (fault(200, b'{"data": [{"index": 0, "embedding": [1, NaN, 0]}]}'), "not finite"),
    (fault(200, embeddings([[0.0, 0.0, 0.0]])), "is zero"),
    (fault(429, b"", {"Retry-After": "3600"}), "status 429; it asks to wait 3,600 s"),
    (fault(302, b"", {"Location": "/"}), "status 302"),
    (fault(503), "status 503"),
]


@pytest.mark.parametrize(("answer", "message"), FAULTS)
def test_faults_have_errors_in_one_line_without_the_key(monkeypatch, answer, message):
    monkeypatch.setenv("QWEN3NB_API_KEY", KEY)
    with serving(answer) as (spec, requests):
        encoder = load_encoder(spec)
        with pytest.raises(EncoderError, match=message) as caught:
            encoder.encode(["long text"])
        assert {each["key"] for each in requests} == {f"Bearer {KEY}"}
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert KEY not in str(encoder.settings) + repr(encoder)


def test_an_address_without_a_path_gets_v1_and_one_that_ends_in_a_slash_does_not():
    parse = api.Endpoint.parse
    for given, url in (("http://h:1", "http://h:1/v1"), ("http://h:1/", "http://h:1")):
        for spec in (f"api:{given}#m", f"api:{url}/embeddings#m"):
            assert (parse(spec).url, parse(parse(spec).spec)) == (url, parse(spec))


def test_no_server_and_silence(monkeypatch, waits):
    with serving() as (spec, _):
        encoder = load_encoder(spec)
    with pytest.raises(SpecError, match=r"no connection .*is the server running\?"):
        load_encoder(spec)
    assert waits == []
    with pytest.raises(EncoderError, match="no connection"):
        encoder.encode("a")
    assert waits == [1, 2, 4, 8]
    waits.clear()
    with serving(lambda _, number: number > 1 and silence(0.3)) as (spec, requests):
        encoder = load_encoder(spec)
        monkeypatch.setattr(encoder._client, "_seconds", 0.05)
        with pytest.raises(EncoderError, match=r"no answer for 0\.05 s; try a smaller batch_size"):
            encoder.encode("a")
        assert len(requests) == 1 + 5  # it has answered before
    monkeypatch.setattr(api, "_SECONDS_AT_FIRST", 0.1)
    with serving(lambda *_: silence(0.3)) as (spec, requests):
        for variable, seconds in (("", r"0\.1"), ("0.05", r"0\.05")):
            monkeypatch.setenv("QWEN3NB_API_TIMEOUT", variable)
            with pytest.raises(
                SpecError, match=f"no answer for {seconds} s; .*QWEN3NB_API_TIMEOUT"
            ):
                load_encoder(spec)
        assert len(requests) == 2  # each of them once
        monkeypatch.setenv("QWEN3NB_API_TIMEOUT", "soon")
        with pytest.raises(SpecError, match="QWEN3NB_API_TIMEOUT: expected seconds, such as 60"):
            load_encoder(spec)


def test_a_version_makes_it_the_same_model_and_its_vectors_are_kept():
    with serving() as (spec, requests):
        assert load_encoder(spec).identity != load_encoder(spec).identity
        assert load_encoder(spec).cache is None
        assert load_encoder(spec).settings["fingerprint"].startswith("none, run ")
        first, other = load_encoder(f"{spec}@1"), load_encoder(f"{spec}@2")
        again = load_encoder(f"{spec.replace('#', '/#')}@1")
        assert first.identity == again.identity != other.identity
        assert (first.label, first.settings["fingerprint"]) == ("api-m-1", "1")
        first.encode("kept")
        before = len(requests)
        again.encode("kept")
        assert len(requests) == before


@pytest.mark.parametrize(
    ("spec", "url", "model", "version"),
    [
        ("api:http://h:8000/v1#m", "http://h:8000/v1", "m", ""),
        ("api:http://H:8000#BAAI/bge-m3@v2", "http://h:8000/v1", "BAAI/bge-m3", "v2"),
        ("api:https://h/openai/v1/embeddings#t%2Be@005@", "https://h/openai/v1", "t+e@005", ""),
        ("api:http://[::1]:80/v1/#a@b@c", "http://[::1]:80/v1", "a@b", "c"),
    ],
)
def test_specs(spec, url, model, version):
    endpoint = api.Endpoint.parse(spec)
    assert endpoint == (url, model, version)
    assert api.Endpoint.parse(endpoint.spec) == endpoint
    source = find_source(spec)
    assert (source.spec, source.kind) == (endpoint.spec, api.API)
    assert set(source.label) <= set(api.safe_label(source.label))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("large", "expected api:URL#MODEL"),
        ("http://h/v1", "expected api:URL#MODEL"),
        ("http://h:x/v1#m", "expected api:URL#MODEL"),
        (f"u:{KEY}@h/v1#m", "may hold a secret"),
        ("ftp://h/v1#m", "expected api:URL#MODEL"),
        (f"http://u:{KEY}@h/v1#m", "may hold a secret"),
        (f"http://h/v1?key={KEY}#m", "may hold a secret"),
    ],
)
def test_what_is_not_a_spec(address, message):
    with pytest.raises(SpecError, match=message) as caught:
        find_source(f"api:{address}")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "own", "key"),
    [
        ("https://api.openai.com/v1", "", "Bearer for-openai"),
        ("https://api.openai.com.evil.org/v1", "", None),
        ("http://api.openai.com/v1", "", None),
        ("http://127.0.0.1:9/v1", "", None),
        ("http://127.0.0.1:9/v1", KEY, f"Bearer {KEY}"),
    ],
)
def test_the_key_of_openai_is_for_openai(monkeypatch, url, own, key):
    monkeypatch.setenv("OPENAI_API_KEY", "for-openai")
    monkeypatch.setenv("QWEN3NB_API_KEY", own)
    seen = []

    def request(self, _):
        seen.append(self._client.headers.get("Authorization"))
        return np.ones((1, 3), np.float32)

    monkeypatch.setattr(api.ApiEncoder, "_request", request)
    load_encoder(f"api:{url}#m")
    assert seen == [key]


@pytest.mark.parametrize(
    ("hosts", "sent"),
    [
        (None, True),
        ("", False),
        ("other.org", False),
        ("127.0.0.1", True),
        ("127.0.0.1:{port}, other.org", True),
        ("127.0.0.1:1", False),
        ("7.0.0.1", False),
    ],
)
def test_the_key_is_bound_to_its_hosts(monkeypatch, hosts, sent):
    monkeypatch.setenv("QWEN3NB_API_KEY", KEY)
    with serving() as (spec, requests):
        port = spec.split(":")[3].partition("/")[0]
        if hosts is not None:
            monkeypatch.setenv("QWEN3NB_API_HOST", hosts.format(port=port))
        load_encoder(spec)
    assert {each["key"] for each in requests} == {f"Bearer {KEY}" if sent else None}


def test_a_server_that_needs_the_key_of_another_host_says_so(monkeypatch):
    monkeypatch.setenv("QWEN3NB_API_KEY", KEY)
    monkeypatch.setenv("QWEN3NB_API_HOST", "other.org")
    message = r"needs a key \(status 401\), .* set QWEN3NB_API_HOST=127.0.0.1:"
    with serving(lambda *_: (401, {}, {})) as (spec, _), pytest.raises(SpecError, match=message):
        load_encoder(spec)


def test_the_command_line_names_the_hosts_and_a_file_does_not(monkeypatch):
    monkeypatch.delenv("QWEN3NB_API_HOST", raising=False)
    monkeypatch.setenv("QWEN3NB_API_KEY", KEY)
    with serving() as (spec, requests):
        with key_bound_to_hosts_in(["eval", "--model", f"bm25+{spec}"]):
            load_encoder(spec)
            inside = kernel_environment()
            with key_bound_to_hosts_in(["eval"]):  # a command that this one starts
                load_encoder(spec)
        assert {each["key"] for each in requests} == {f"Bearer {KEY}"}
        assert inside["QWEN3NB_API_HOST"] == spec.removeprefix("api:http://").partition("/")[0]
        requests.clear()
        with key_bound_to_hosts_in(["sweep", "sweep.toml"]):
            load_encoder(spec)
        assert {each["key"] for each in requests} == {None}
    assert "QWEN3NB_API_HOST" not in os.environ


def test_a_redirect_to_another_host_is_not_followed(monkeypatch):
    monkeypatch.setenv("QWEN3NB_API_KEY", KEY)
    with serving() as (other, reached):
        target = other.removeprefix("api:").partition("#")[0] + "/embeddings"
        for status in (301, 302, 307, 308):
            answer = (status, {}, {"Location": target})
            refused = pytest.raises(SpecError, match="redirects .* is not followed")
            with serving(lambda *_, answer=answer: answer) as (spec, _), refused:
                load_encoder(spec)
    assert reached == []


@pytest.mark.parametrize(
    "usage",
    [
        {"total_tokens": -5},
        {"total_tokens": 10**30},
        {"total_tokens": 10**5000},
        {"total_tokens": float("inf")},
        {"total_tokens": float("nan")},
        {"total_tokens": "12"},
        {"total_tokens": None},
        {"total_tokens": [1]},
        {"total_tokens": True},
        [],
        "none",
        None,
    ],
)
def test_a_wrong_number_of_tokens_loses_no_evaluation(usage, tmp_path):
    sys.set_int_max_str_digits(0)
    try:
        text = json.dumps(usage).replace("Infinity", "1e999")
    finally:
        sys.set_int_max_str_digits(4300)

    def answer(body, _):
        rows = [vector(text) for text in body["input"]]
        whole = json.dumps(embeddings(rows, usage="USAGE"))
        return 200, whole.replace('"USAGE"', text).encode(), {}

    with serving(answer) as (spec, _):
        collection = TestCollection.from_texts({"q": "q a"}, {"d": "a", "e": "q b"}, {"q": ["e"]})
        run = evaluate(spec, collection, output=tmp_path, show_progress=False)
    (record,) = run.results
    assert record.value == 1.0
    assert len(result_files(tmp_path)) == 1


def test_a_record_that_cannot_be_saved_is_not_counted(monkeypatch, tmp_path):
    def refuse(self, folder):
        raise OSError("no space")

    monkeypatch.setattr(Result, "save", refuse)
    collection = TestCollection.from_texts(["a b"], ["a b", "c d"], [[0]])
    run = evaluate("bm25", collection, output=tmp_path, show_progress=False, strict=False)
    assert (len(run.results), len(run.failures)) == (0, 1)


def test_kernels_get_the_key_which_is_a_secret():
    environ = {"QWEN3NB_API_KEY": KEY, "OPENAI_API_KEY": "another-key"}
    assert kernel_environment(environ=environ) == {"QWEN3NB_API_KEY": KEY}
    assert known_secrets(environ).without(f"x {KEY}") == "x [removed]"


def test_options_of_models_that_run_here_are_refused():
    with pytest.raises(SpecError, match="pooling and max_length cannot be set"):
        load_encoder("api:http://127.0.0.1:9/v1#m", pooling="mean", max_length=8)

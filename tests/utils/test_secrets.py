"""What is a secret, by its name, its form and in every encoding; and what is none."""

import base64
import hashlib
import html
import json
import os
import sys
from urllib.parse import quote, quote_plus

import nbformat
import pytest

from qwen3nb.cluster.processes import start_guarded
from qwen3nb.execution.publish import without_secrets
from qwen3nb.report.render.html import escaped_text
from qwen3nb.report.render.latex import latex_text
from qwen3nb.utils.format import escaped
from qwen3nb.utils.secrets import is_secret_name, kernel_environment, known_secrets

SECRET_NAMES = """
APIKEY AUTH AUTH_TOKEN AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
AZURE_CONNECTION_STRING BASIC_AUTH BEARER CI_JOB_JWT COOKIE DATABASE_URL DB_PASS DEPLOY_KEY_B64
GH_PAT GITHUB_TOKEN GITHUBTOKEN HF_TOKEN HUGGING_FACE_HUB_TOKEN KAGGLE_KEY KEY MYSQL_PWD MY_API_KEY
OPENAI_API_KEY_2 OPENAI_KEY PASS PASSWORD PGPASSWORD QWEN3NB_API_KEY QWEN3NB_MY_KEY
SECRET_KEY_BASE SENTRY_DSN
SESSION_COOKIE SLACK_WEBHOOK_URL SSHPASS SSH_PRIVATE_KEY WANDB_API_KEY hf_token
""".split()  # noqa: SIM905 - a list of words reads better as lines
PLAIN_NAMES = """
AUTHOR BYPASS COMPASS CUDA_VISIBLE_DEVICES DBUS_SESSION_BUS_ADDRESS DESKTOP_SESSION GIT_ASKPASS
HF_HOME HF_HUB_DISABLE_IMPLICIT_TOKEN HF_HUB_OFFLINE HF_TOKEN_PATH HOME HTTP_PROXY KEYBOARD KEYMAP
MAX_TOKENS MONKEY OLDPWD OMP_WAIT_POLICY PATH PATTERN PUBLIC_KEY PWD PYTHONPATH QWEN3NB_HOME
QWEN3NB_PASS_ENV SESSION_MANAGER SSH_AUTH_SOCK TERM_SESSION_ID TOKENIZERS_PARALLELISM WANDB_MODE
XAUTHORITY XDG_SESSION_ID
""".split()  # noqa: SIM905 - likewise


def test_a_name_betrays_a_secret_or_is_only_like_one_that_does():
    assert [name for name in SECRET_NAMES if not is_secret_name(name)] == []
    assert [name for name in PLAIN_NAMES if is_secret_name(name)] == []
    environ = dict.fromkeys([*SECRET_NAMES, *PLAIN_NAMES], "x")
    # A server's model needs its key.
    assert list(kernel_environment(environ=environ)) == ["QWEN3NB_API_KEY", *PLAIN_NAMES]


MADE_UP = "a1B2c3D4e5F6" * 4
FORMS = {
    "Hugging Face": "hf_" + MADE_UP[:34],
    "GitHub": "ghp_" + MADE_UP[:36],
    "OpenAI": "sk-proj-" + MADE_UP,
    "AWS": "AKIA" + "ABCD" * 4,
    "JSON web token": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{MADE_UP}",
    "private key": f"-----BEGIN RSA PRIVATE KEY-----\n{MADE_UP}\n-----END RSA PRIVATE KEY-----",
    "address": "postgres://user:s3cr3t-w0rd@db.example.org/x",
    "bearer": f"Authorization: Bearer {MADE_UP}",
    "signed address": f"https://x.org/f?X-Amz-Signature={MADE_UP}&a=1",
}
PARTS = (MADE_UP[:12], "ABCDABCD", "s3cr3t")
SURROUNDINGS = ("{}", "x={};", '"{}"', "<b>{}</b>", "\\n{}\\n", "_{}", "see {}.")


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_recognised_wherever_it_stands(form):
    secrets = known_secrets({})
    for around in SURROUNDINGS:
        for write in (str, html.escape, lambda text: json.dumps(text)[1:-1], escaped):
            text = around.format(write(FORMS[form]))
            assert secrets.kinds(text), text
            without = secrets.without(text)
            assert not any(part in without for part in PARTS), text
            assert secrets.kinds(without) == []
    assert kernel_environment(environ={"ANYTHING": FORMS[form]}) == {}


VALUES = [
    "correct-horse-battery",
    "p@ss\"w<o&r'd\\x%y",
    "pässwörd/geheim",
    "a b+c/d=e~f^g_h",
    "Zw0elfBoxKaempfer",
    "tok-1_2-3",
]
ENCODINGS = {
    "plain": str,
    "JSON": json.dumps,
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "HTML": html.escape,
    "JSON in HTML": lambda text: html.escape(json.dumps(text)),
    "URL": lambda text: quote(text, safe=""),
    "form": quote_plus,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64, two bytes on": lambda text: base64.b64encode(b"ab" + text.encode() + b"y").decode(),
    "base64 of addresses": lambda text: base64.urlsafe_b64encode(text.encode() + b"?").decode(),
    "hexadecimal": lambda text: text.encode().hex(),
    "Markdown": escaped,
    "LaTeX": latex_text,
    "page": escaped_text,
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("value", VALUES)
def test_the_value_of_a_variable_is_recognised_in_every_encoding(value, encoding):
    secrets = known_secrets({"MY_PAT": value})
    shown = ENCODINGS[encoding](value)
    text = f"before {shown} after"
    assert secrets.kinds(text) == ["the value of MY_PAT"]
    assert secrets.without(text).startswith("before ")
    assert secrets.without(text).endswith(" after")
    assert secrets.kinds(secrets.without(text)) == []


ORDINARY = [
    hashlib.sha256(b"x").hexdigest(),
    hashlib.sha1(b"x", usedforsecurity=False).hexdigest(),
    base64.b64encode(bytes(range(256)) * 40).decode(),
    "sk-estimator-doc-link",
    "https://huggingface.co/Qwen/Qwen3-0.6B?revision=main",
    "hf_hub_download",
    "a hf_token",
    "ftp://user:password@example.org",
    "postgres://{user}:{password}@host",
    "bearer of good news",
    "https://example.org:8080/a@b",
    "mailto:a@b.org",
    "?v=1&amp;digest=0f343b0931126a20f133d67c",
    "-----BEGIN PUBLIC KEY-----",
    "../records/bm25-1a2b3c4d/seed_0/AuthorSTS.json",
    "Bearer authentication-is-described-there",
]


def test_ordinary_text_is_not_a_secret():
    plain = {"HOME": "/root", "MODE": "on", "MY_TOKEN": "short"}
    secrets = known_secrets({**plain, "PASSWORD": "password"})
    text = " ".join(ORDINARY)
    assert secrets.without(f"{text} retrieval /root password on").endswith(" password on")
    assert [text for text in ORDINARY if secrets.kinds(text)] == []


def test_removal_reaches_keys_leaves_lines_and_the_stored_token(tmp_path):
    value = {"k": [1, {"my-own-token": ["x my-own-token"]}], "n": None}
    cleaned, kinds = known_secrets({"X_TOKEN": "my-own-token"}).clean(value)
    assert cleaned == {"k": [1, {"[removed]": ["x [removed]"]}], "n": None}
    assert kinds == ["the value of X_TOKEN"]
    secrets = known_secrets({"MY_CREDENTIALS": "first line of it\nsecond line of it"})
    assert secrets.without("> second line of it <") == "> [removed] <"
    (tmp_path / "token").write_text("stored-token-of-mine\n")
    secrets = known_secrets({"HF_HOME": str(tmp_path)})
    assert secrets.kinds("stored-token-of-mine") == ["the hub's stored token"]


HUB = {"HF_TOKEN": "t", "HTTPS_PROXY": "http://u:s3cr3t@p:1", "http_proxy": "http://p:1"}


def test_a_kernel_has_the_hubs_token_only_for_a_download_and_others_by_name():
    environ = {**HUB, "GH_PAT": "p", "DB_PASS": "q", "A": "b"}
    assert kernel_environment(environ=environ) == {"A": "b", "http_proxy": "http://p:1"}
    assert kernel_environment(environ=environ, download=True) == {**HUB, "A": "b"}
    passed = {**environ, "QWEN3NB_PASS_ENV": "GH_PAT, OTHER"}
    assert "GH_PAT" in kernel_environment(environ=passed)
    assert "DB_PASS" not in kernel_environment(environ=passed)


KEY_OF_LINES = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END"
CHILD = """
import os, subprocess, sys
print("here:", os.environ["MY_TOKEN"], end="!", flush=True)
subprocess.run(["sh", "-c", "echo there: $MY_TOKEN; echo $MY_TOKEN >&2"])
for part in ("half: ", os.environ["MY_TOKEN"][:9], os.environ["MY_TOKEN"][9:], chr(10)):
    os.write(2, part.encode())
print(os.environ["LINES"], flush=True)
os.write(1, b"[no text: " + bytes([255, 254]))
sys.exit(3)
"""


def test_the_log_of_a_process_has_no_secret_whoever_prints_it(tmp_path, monkeypatch):
    token = f"my own words {MADE_UP[:20]}"
    monkeypatch.setenv("MY_TOKEN", token)
    environment = {"PATH": os.environ["PATH"], "MY_TOKEN": token, "LINES": KEY_OF_LINES}
    log = tmp_path / "log"
    process = start_guarded([sys.executable, "-c", CHILD], environment=environment, log=log)
    assert process.wait() == 3
    lines = log.read_bytes().split(b"\n")
    assert lines[:3] == [b"here: [removed]!there: [removed]", b"[removed]", b"half: [removed]"]
    assert lines[3:] == [b"[removed][no text: \xff\xfe"]


def test_a_notebook_has_no_secret_that_came_in_parts(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", MADE_UP)
    parts = ("here: ", MADE_UP[:9], MADE_UP[9:], "!")
    outputs = [nbformat.v4.new_output("stream", text=part) for part in parts]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x", outputs=outputs)])
    cleaned, kinds = without_secrets(notebook)
    assert kinds == ["the value of MY_TOKEN"]
    (output,) = cleaned.cells[0].outputs
    assert output.text == "here: [removed]!"

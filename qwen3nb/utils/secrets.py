"""Keep tokens and passwords out of kernels, outputs, pages and uploads.

Secrets are recognised by the names of environment variables (`_SECRET_NAME`), and by the form of a
text (`_FORMS`), wherever it occurs. The values of such variables are searched for in every encoding
in which a page or a log may show them.
"""

from __future__ import annotations

import base64
import functools
import html
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from qwen3nb.utils.atomic_files import write_bytes, write_text
from qwen3nb.utils.choices import split_names
from qwen3nb.utils.file_contents import contents

T = TypeVar("T")

PASSED = "QWEN3NB_PASS_ENV"  # variables that kernels get anyway, comma-separated
# Variable of a kernel whose evaluations measure again what has records.
FRESH = "QWEN3NB_FRESH"
WITHHELD_VARIABLE = "QWEN3NB_WITHHELD"  # in a kernel: the one with the hub's token, if withheld
API_KEY = "QWEN3NB_API_KEY"  # of a server's model, `qwen3nb.models.kinds.api`; kernels get it
# Hosts that get that key, with or without a port, comma-separated. Unless it is set, the command
# line sets it to the hosts that stand there: a host that a file names does not get the key.
API_HOSTS = "QWEN3NB_API_HOST"
HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
REMOVED = "[removed]"
# The address in a model's spec, such as api:https://host:8000/v1#name.
_API_ADDRESS = re.compile(r"\bapi:(https?://[^\s#,;'\"]+)")
_DEFAULT_PORTS = {"https": 443, "http": 80}
_TEXTS = {".html", ".json", ".js", ".ipynb", ".md", ".txt", ".csv", ".tex", ".bib", ".svg", ".css"}
_AT_ONCE, _LONGEST_LINE, _LONGEST_FILE = 2**16, 2**20, 2**26  # bytes
_SHORTEST = 8  # characters; shorter values occur in ordinary text
_ORDINARY = {"anonymous", "changeme", "disabled", "localhost", "password"}  # as do these

# Long words betray a secret anywhere in a name, short ones only where they are words.
_SECRET_NAME = re.compile(
    r"""TOKEN(?!IZ) | SECRET | PASSWORD | PASSWD | PASSPHRASE | API_?KEY | CREDENTIAL
    | PRIVATE_?KEY | ACCESS_?KEY | CONNECTION_?STR | WEBHOOK
    | (?<!ASK)(?<!BY)(?<!COM)PASS$ | (?:^|_)PASS_ | _PWD$
    | (?:^|_)KEYS? (?:$|_(?:ID|B64|BASE64|PEM|JSON|DATA|VALUE|\d+)$)
    | (?:^|_)(?:PAT|AUTH|OAUTH|BEARER|JWT|DSN|COOKIES?)(?:$|_) | (?:^|_)DATABASE_UR[IL]$""",
    re.VERBOSE,
)
# Settings, counts, paths and public halves of keys.
_HARMLESS = re.compile(
    r"^QWEN3NB_PASS_ENV$|^TOKENIZERS_|^HF_TOKEN_PATH$|^HF_HUB_DISABLE_|_AUTH_SOCK$|PUBLIC_?KEY"
    r"|(?:^|_)(?:MAX|NUM|MIN|N)_(?:\w+_)?TOKENS?$"
)
# For downloads, the hub's client needs its token and the proxy.
_FOR_DOWNLOADS = re.compile(rf"{'|'.join(HUB_TOKENS)}|(?:HTTPS?|ALL|FTP)_PROXY")

# Secrets with a form of their own: how they begin, and the rest; of those with a group, the group
# is the secret. Each begins a word. An underscore may have a backslash, as in Markdown and LaTeX.
_FORMS = (
    ("a Hugging Face token", "hf", r"_[A-Za-z0-9]{20,}"),
    ("a GitHub token", "gh", r"[pousr]_[A-Za-z0-9]{30,}"),
    ("a GitHub token", "github", r"_pat_(?:[A-Za-z0-9]|_){22,}"),
    (
        "an API key",
        "sk-",
        r"(?<!-sk-)(?=[\w-]{0,200}\d)(?=[\w-]{0,200}[A-Za-z0-9]{16})[\w-]{20,400}",
    ),
    ("an AWS key", "AKIA", r"(?<![/+]AKIA)[0-9A-Z]{16}(?![A-Za-z0-9/+])"),
    ("a JSON web token", "eyJ", r"(?<!-eyJ)[\w-]{10,500}\.[\w-]{10,}\.[\w-]{8,}"),
    (
        "a private key",
        "-----BEGIN ",
        r"[A-Z ]*PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=:,\s-]|\\{1,8}[nr])*",
    ),
    (
        "a password in an address",  # but not one that only stands for a password, as in a manual
        "://",
        r"[^\s/:@\"'\\<>]{0,200}:(?!(?:pass|password|%s|\{\w*\}|\$\{?\w+\}?"
        r"|(?:\[|%5B)removed(?:\]|%5D))@)(?P<secret>[^\s/@\"'\\<>]{1,500})@[\w.\[-]",
    ),
    *(
        ("a bearer token", start, r"\s{1,9}(?P<secret>(?=[\w.~+/-]{0,200}\d)[\w.~+/-]{16,4000}=*)")
        for start in ("Bearer", "bearer", "Basic")
    ),
    *(
        (
            "a signed address",
            f"{start}=",
            rf"(?<=[?&;_-]{start}=)(?P<secret>(?!(?:\[|%5B)removed)[^\s&\"'<>\\]{{8,}})",
        )
        for start in ("token", "Signature", "signature", "sig", "key")
    ),
)


_WORD_BREAK = "\0"  # stands for a place where a table may break a word
# Other spellings of a character in HTML, forms and LaTeX.
_OTHER_SPELLINGS = {
    " ": {r"\s+", r"\+"},
    "\n": {r"\r?\n\s*", "n"},
    "-": {"−", r"\{\}-"},
    "−": {r"\$-\$"},
    '"': {"''"},
}


class SecretError(ValueError):
    """Something to be published contains a secret; the message says where, never its value."""


class SecretPattern(NamedTuple):
    """One pattern to search texts for."""

    kind: str  # what it is, such as ``the value of HF_TOKEN``
    literal: str  # a part of every match, which is searched for first
    pattern: re.Pattern[str]  # the whole

    def occurs_in(self, text: str) -> bool:
        """Return whether a text has a match."""
        return self.literal in text and self.pattern.search(text) is not None


@dataclass(frozen=True, repr=False)
class Secrets:
    """The patterns to search texts for."""

    patterns: tuple[SecretPattern, ...]  # values of the environment, then forms

    @property
    def values(self) -> Secrets:
        """Only the values of the environment: texts in data may look like any secret."""
        values = [pattern for pattern in self.patterns if pattern not in _forms()]
        return Secrets(tuple(values))

    def kinds(self, text: str) -> list[str]:
        """Return the kinds of secrets in a text."""
        kinds: dict[str, None] = {}
        for pattern in self.patterns:
            if pattern.occurs_in(text):
                kinds[pattern.kind] = None
        return list(kinds)

    def kinds_in_file(self, file: Path) -> list[str]:
        """Return the kinds of secrets in a file of any kind, and in what it holds packed."""
        kinds: dict[str, None] = {}
        if not self.patterns:
            return []
        for content in contents(file):
            # UTF-16 and UTF-32 have nulls between the letters.
            letters = content.replace(b"\0", b"")
            if not any(pattern.literal.encode() in letters for pattern in self.patterns):
                continue  # most files: they need not be read as text
            kinds |= dict.fromkeys(self.kinds(letters.decode(errors="replace")))
        return list(kinds)

    def without(self, text: str) -> str:
        """Return a text with each secret replaced by ``[removed]``."""
        for pattern in self.patterns:
            if pattern.literal in text:
                text = pattern.pattern.sub(_removed, text)
        return text

    def clean(self, value: T) -> tuple[T, list[str]]:
        """Return a JSON value with the secrets in its strings removed, and their kinds."""
        kinds: list[str] = []
        cleaned: T = self._cleaned(value, kinds)
        return cleaned, list(dict.fromkeys(kinds))

    def _cleaned(self, value: Any, kinds: list[str]) -> Any:
        """Return a JSON value without secrets, whose kinds are added to ``kinds``."""
        if isinstance(value, str):
            kinds_in_text = self.kinds(value)
            if not kinds_in_text:
                return value
            kinds += kinds_in_text  # the list of the caller
            return self.without(value)
        if isinstance(value, dict):  # also a notebook's nodes, which keep their class
            # Each entry is taken out and put back, which keeps their order.
            for key in list(value):
                entry = value.pop(key)
                value[self._cleaned(key, kinds)] = self._cleaned(entry, kinds)
            return value
        if isinstance(value, list):
            return [self._cleaned(entry, kinds) for entry in value]
        return value

    def refuse(self, text: str, *, place: str) -> None:
        """Raise an error if a text contains a secret.

        Raises:
            SecretError: names the place and the kind.
        """
        kinds = self.kinds(text)
        if kinds:
            raise SecretError(
                f"{place}: holds {', '.join(kinds)}, so it was not written; remove it there"
            )


def _removed(match: re.Match[str]) -> str:
    if "secret" not in match.re.groupindex:
        return REMOVED
    start, end = match.span("secret")
    before = match.string[match.start() : start]
    after = match.string[end : match.end()]
    return f"{before}{REMOVED}{after}"


def known_secrets(environ: Mapping[str, str] | None = None) -> Secrets:
    """Return patterns of the environment's secrets, the hub's stored token and known forms."""
    if environ is None:
        environ = os.environ
    patterns: list[SecretPattern] = []
    for name, value in environ.items():
        if _is_secret(name, value):
            patterns += _patterns_of(f"the value of {name}", value)
    patterns += _patterns_of("the hub's stored token", _stored_token(environ))
    return Secrets((*patterns, *_forms()))


@functools.cache
def _forms() -> tuple[SecretPattern, ...]:
    patterns: list[SecretPattern] = []
    for kind, start, rest in _FORMS:
        pattern = _word(start) + rest.replace("_", r"\\{0,8}_")
        patterns.append(SecretPattern(kind, start, re.compile(pattern)))
    return tuple(patterns)


def _word(start: str) -> str:
    """Return a pattern of the start of a word, also after a line break escaped in JSON."""
    literal = re.escape(start)
    if not start[0].isalnum():
        return literal
    return rf"{literal}(?:(?<![A-Za-z0-9]{literal})|(?<=\\[nrt]{literal}))"


def write_public(path: Path, text: str) -> Path:
    """Write a text for publication, as `write_text`, unless it contains a secret.

    Raises:
        SecretError: the text contains a secret; nothing was written.
    """
    known_secrets().refuse(text, place=str(path))
    return write_text(path, text)


def copy_without_secrets(source: BinaryIO, file: Path) -> None:
    """Write what a program prints to a file without secrets, line by line, until it ends; close it.

    What cannot be written is lost, as the program must not wait for it.
    """
    secrets = known_secrets()
    with source, file.open("wb", buffering=0) as target:
        for lines in _whole_lines(source):
            with suppress(OSError):  # a full disk
                target.write(_bytes_without(secrets, lines))
    with suppress(OSError):
        remove_secrets(file, secrets)  # those of several lines


def _whole_lines(source: BinaryIO) -> Iterator[bytes]:
    """Yield what is read of a stream as soon as it has a line; progress bars return instead."""
    rest = b""
    while True:
        data = os.read(source.fileno(), _AT_ONCE)
        rest += data
        end = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
        if not data or len(rest) > _LONGEST_LINE:
            end = len(rest)
        if end:
            yield rest[:end]
        rest = rest[end:]
        if not data:
            return


def remove_secrets(file: Path, secrets: Secrets) -> None:
    """Remove the secrets in a text file, unless it is very large."""
    if file.stat().st_size > _LONGEST_FILE:
        return
    content = file.read_bytes()
    cleaned = _bytes_without(secrets, content)
    if cleaned != content:
        write_bytes(file, cleaned)


def _bytes_without(secrets: Secrets, content: bytes) -> bytes:
    text = content.decode(errors="surrogateescape")
    return secrets.without(text).encode(errors="surrogateescape")


def secret_files(folder: Path, *, values_only: bool = False) -> list[tuple[str, list[str]]]:
    """Return the files below a folder that contain secrets, and the kinds of secrets.

    Searched are the bytes of each file, and what `contents` unpacks. The texts of records are data,
    which may look like any secret. So in a folder ``records``, and with ``values_only``, only the
    values of known secrets are searched for; likewise in binary files, and in a folder ``_static``
    at the top, which holds a theme's files.
    """
    secrets = known_secrets()
    found = []
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder)
        top, *_ = name.parts
        if not file.is_file():
            continue
        patterns = secrets
        if values_only or file.suffix not in _TEXTS or top in ("records", "_static"):
            patterns = secrets.values
        kinds = patterns.kinds_in_file(file)
        if kinds:
            found.append((str(name), kinds))
    return found


def is_secret_name(name: str) -> bool:
    """Return whether the value of a variable with this name is a secret.

    >>> is_secret_name("GH_PAT"), is_secret_name("TOKENIZERS_PARALLELISM"), is_secret_name("PWD")
    (True, False, False)
    """
    upper = name.upper()
    return bool(_SECRET_NAME.search(upper)) and not _HARMLESS.search(upper)


def kernel_environment(
    *,
    download: bool = False,
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment of a kernel: this process's, without secrets.

    Args:
        download: whether to include the hub's token and a proxy's password, for downloads.
        environ: the variables to choose from; by default this process's.
    """
    if environ is None:
        environ = os.environ
    # The key of a server's model, and what the user passes on.
    admitted = {API_KEY, *passed_names(environ)}
    variables: dict[str, str] = {}
    for name, value in environ.items():
        # The hub's token, and a proxy, whose address may have a password.
        is_for_downloads = download and _FOR_DOWNLOADS.fullmatch(name.upper())
        if name in admitted or is_for_downloads or not _is_secret(name, value):
            variables[name] = value
    return variables


def passed_names(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the names that ``QWEN3NB_PASS_ENV`` admits to kernels."""
    if environ is None:
        environ = os.environ
    return split_names(environ.get(PASSED, ""))


def _is_secret(name: str, value: str) -> bool:
    return is_secret_name(name) or any(form.occurs_in(value) for form in _forms())


def _stored_token(environ: Mapping[str, str]) -> str:
    """Return the token stored by ``hf auth login``; empty if there is none."""
    cache = environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = environ.get("HF_HOME") or f"{cache}/huggingface"
    try:
        file = Path(environ.get("HF_TOKEN_PATH") or f"{home}/token").expanduser()
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError, RuntimeError):  # none, not text, or no home folder
        return ""


def _patterns_of(kind: str, value: str) -> Iterator[SecretPattern]:
    """Yield patterns for a value or parts of it, plain or encoded; the longest first."""
    texts: set[str] = set()
    for part in _secret_parts(value):
        occurs_in_ordinary_text = len(part) < _SHORTEST or part.lower() in _ORDINARY
        if not occurs_in_ordinary_text:
            texts.add(part)
    for text in sorted(texts, key=len, reverse=True):
        # Its longest word is looked for first, which is faster than the pattern.
        yield SecretPattern(kind, _longest_word(text), re.compile(_all_spellings(text)))
        data = text.encode(errors="replace")
        hexadecimal = data.hex()
        yield SecretPattern(kind, hexadecimal, re.compile(hexadecimal))
        for encoded in _base64(data):
            # The base64 of addresses has - and _ in place of two characters.
            pattern = encoded.replace("+", "[+-]").replace("/", "[/_]")
            yield SecretPattern(kind, _longest_word(encoded), re.compile(pattern))


def _secret_parts(value: str) -> Iterator[str]:
    """Yield a value, its lines, and its parts in the form of a secret."""
    text = value.strip()
    yield text
    if "\n" in text:  # such as a private key
        for line in text.splitlines():
            is_header = line.startswith("-----")  # such as -----BEGIN PRIVATE KEY-----
            if not is_header:
                yield line.strip()
    for form in _forms():
        for match in form.pattern.finditer(text):
            yield match.groupdict().get("secret", match[0])  # only the group, if it has one


def _longest_word(text: str) -> str:
    """Return the longest run of letters and digits, which every encoding keeps."""
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+", text)
    return max(words, key=len, default="")


def _all_spellings(text: str) -> str:
    """Return a pattern of a text, plain or escaped for JSON, HTML, URLs, Markdown or LaTeX."""
    # A table may break a word before a capital: learningRate as learning<wbr>Rate.
    breakable = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", _WORD_BREAK, text)
    return "".join(map(_spellings_of_character, breakable))


def _spellings_of_character(char: str) -> str:
    """Return a pattern of a character in every spelling."""
    if char == _WORD_BREAK:
        return "(?:<wbr>)?"
    if char.isascii() and char.isalnum():
        return char
    plain = re.escape(char)
    code = ord(char)
    # The comments show those of the ampersand.
    spellings = {
        plain,
        re.escape(html.escape(char)),  # &amp;
        re.escape(quote(char, safe="")),  # %26
        rf"&\#0*{code};",  # &#38;
        rf"&\#[xX]0*{code:x};",  # &#x26;
        rf"u{code:04x}",  # \u0026 of JSON, whose backslash is allowed for below
        rf"u{code:04X}",
        r"text[a-z]+\{\}",  # \textampersand{} of LaTeX
        rf"\{{{plain}\}}",  # {&}
    }
    spellings |= _OTHER_SPELLINGS.get(char, set())
    longest_first = sorted(spellings, key=len, reverse=True)
    # In JSON and LaTeX, up to eight backslashes may come before it.
    return rf"\\{{0,8}}(?:{'|'.join(longest_first)})"


def _base64(data: bytes) -> Iterator[str]:
    """Yield bytes in base64, wherever they begin in a group of three."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + data).rstrip(b"=").decode()
        if (before + len(data)) % 3:
            encoded = encoded[:-1]  # its last bits are of the next byte
        yield encoded[(8 * before + 5) // 6 :]


@contextmanager
def key_bound_to_hosts_in(words: Iterable[str]) -> Iterator[None]:
    """Let only hosts in specs among ``words`` get `API_KEY`, here and in kernels started inside.

    A variable that is set already decides instead: the user's, or that of the command outside.
    """
    if API_HOSTS in os.environ:  # by the user, or around this block
        yield
        return
    hosts: list[str] = []
    for word in words:
        # Such as https://host:8000/v1 in api:https://host:8000/v1#name.
        for address in _API_ADDRESS.findall(word):
            hosts.append(host_of(address))
    # Only hosts on the command line get the key, not those that a file names.
    os.environ[API_HOSTS] = ",".join(dict.fromkeys(hosts))
    try:
        yield
    finally:
        os.environ.pop(API_HOSTS, None)


def host_of(address: str) -> str:
    """Return host and port of an address; empty if it has none.

    >>> host_of("https://API.example.org/v1"), host_of("http://[::1]:8000")
    ('api.example.org:443', '[::1]:8000')
    """
    try:
        parts = urlsplit(address.lower())
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return ""
    name = parts.hostname
    if not name:
        return ""
    if ":" in name:  # an address of IPv6
        name = f"[{name}]"
    return f"{name}:{port}"


def gets_key(address: str) -> bool:
    """Return whether a server at ``address`` gets `API_KEY`: always, unless `API_HOSTS` is set."""
    hosts = os.environ.get(API_HOSTS)
    if hosts is None:
        return True
    host = host_of(address)
    allowed = split_names(hosts.lower())
    return host in allowed or host.rpartition(":")[0] in allowed

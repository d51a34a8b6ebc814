"""Bounded types for values in files, and pydantic's errors in one line with the field's name.

A file may be damaged, or written by another program. A value that passes these types can safely be
shown, sorted, compared and used as a path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from reprlib import Repr
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, Strict, StringConstraints, TypeAdapter, ValidationError

from qwen3nb.utils.bounded_files import TOML_BYTES, FileBoundError, read_bounded_text
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.strict_json import parse_toml

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

T = TypeVar("T")
_PLAIN = r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$"  # no control characters
_LARGEST = 1 << 63  # of a whole number
_LARGEST_NUMBER = 1e15
_DEEPEST = 32  # levels of free JSON
_LONGEST = 200  # characters of a message
_UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")  # pydantic's types of an error

# pydantic's messages name Python types; files have those of JSON.
_WORDS = {
    "Input should be": "expected",
    "a valid tuple": "a list",
    "a valid dictionary or instance of": "fields of",
    "a valid dictionary": "an object",
    "an instance of": "fields of",
}

# Surrogates are refused wherever a length is checked.
Unicode = Annotated[str, Strict(), StringConstraints(max_length=1 << 40)]
Name = Annotated[str, Strict(), StringConstraints(max_length=255, pattern=_PLAIN)]
Label = Annotated[str, Strict(), StringConstraints(min_length=1, max_length=255, pattern=_PLAIN)]
Text = Annotated[str, Strict(), StringConstraints(max_length=4096, pattern=_PLAIN)]
FileName = Annotated[
    str, Strict(), StringConstraints(max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
]
Names = tuple[Name, ...]
Count = Annotated[int, Strict(), Field(ge=0, le=_LARGEST)]
# A number keeps its type in the file.
Number = (
    Annotated[float, Strict(), Field(ge=-_LARGEST_NUMBER, le=_LARGEST_NUMBER)]
    | Annotated[int, Strict(), Field(ge=-_LARGEST_NUMBER, le=_LARGEST_NUMBER)]
)
Amount = (
    Annotated[float, Strict(), Field(ge=0, le=_LARGEST_NUMBER)]
    | Annotated[int, Strict(), Field(ge=0, le=_LARGEST_NUMBER)]
)


def _moment(text: str) -> str:
    try:
        datetime.fromisoformat(text or "2026-01-01")
    except ValueError:
        raise ValueError("expected a time in ISO 8601") from None
    return text


# A model's spec, which may be a path.
PathText = Annotated[str, Strict(), StringConstraints(max_length=2048, pattern=_PLAIN)]
Moment = Annotated[Text, AfterValidator(_moment)]


def choice(*names: str) -> AfterValidator:
    """Return an annotation that checks that a text is one of ``names``."""
    return AfterValidator(lambda text: check_choice("value", text, names))


def bounded_json(value: T) -> T:
    """Return a JSON value, such as settings, after checking depth, texts and numbers.

    Raises:
        ValueError: nested too deeply, text that is not valid Unicode, or a number above 2^63.
    """
    pending: list[tuple[object, int]] = [(value, 0)]
    while pending:
        part, depth = pending.pop()
        if depth > _DEEPEST:
            raise ValueError(f"expected at most {_DEEPEST} levels")
        if isinstance(part, dict):
            for key, inner in part.items():
                pending.append((key, depth + 1))
                pending.append((inner, depth + 1))
        elif isinstance(part, list):
            for inner in part:
                pending.append((inner, depth + 1))
        elif isinstance(part, str):
            # Raises for a surrogate, which is no valid text.
            part.encode()
        elif isinstance(part, int | float):
            is_bounded = abs(part) <= _LARGEST  # NaN is not
            if not is_bounded:
                raise ValueError("expected a number of at most 2^63")
    return value


def shortened(value: object) -> str:
    """Return a value's repr, shortened."""
    short = Repr()
    short.maxlevel = 2
    short.maxstring = 60
    short.maxlong = 40
    short.maxother = 60
    return short.repr(value)


def read_toml(
    file: Path,
    kind: Any,
    *,
    known: Mapping[str, Iterable[str]] | None = None,
    refusal: Callable[[str], Exception] = ValueError,
) -> Any:
    """Return the content of a TOML file, as ``kind`` by pydantic.

    ``known`` is that of `field_problems`. The error, by default a ValueError, is made by
    ``refusal`` from one line that names the file, and the field.
    """
    value = None
    try:
        value = parse_toml(read_bounded_text(file, most_bytes=TOML_BYTES))
        return TypeAdapter(kind).validate_python(value)
    # A ValidationError is a ValueError, too, so it comes first.
    except ValidationError as error:
        reason = field_problems(error, value, known=known)[0]
    except FileBoundError as error:
        raise refusal(str(error)) from None
    except ValueError as error:
        reason = f"not TOML ({error})"
    raise refusal(f"{file}: {reason}")


def field_problem(error: ValidationError, value: object, *, within: Iterable[str] = ()) -> str:
    """Return the first of `field_problems`."""
    return field_problems(error, value, within=within)[0]


def field_problems(
    error: ValidationError,
    value: object,
    *,
    within: Iterable[str] = (),
    known: Mapping[str, Iterable[str]] | None = None,
) -> list[str]:
    """Return pydantic's errors as ``field.name: expected …; got …``.

    Args:
        error: the errors.
        value: the validated value; distinguishes fields from pydantic's names of types.
        within: the fields that contain ``value``.
        known: names of fields by that of the table they are in, or ``""`` for any other, of which
            one is suggested for an unknown one.
    """
    problems: list[str] = []
    for details in error.errors(include_url=False, include_context=False):
        path = [*within, *_field_path(details, value)]
        # Such as runs.[0].limit, which becomes runs[0].limit.
        field = ".".join(path).replace(".[", "[")
        if details["type"] in _UNKNOWN_KEY:
            suggestion = _suggestion(path, known or {})
            problems.append(f"{field:.{_LONGEST}}: unknown key; {suggestion}")
            continue
        problem = f"{field}: {_reason(details)}"
        if len(problem) > _LONGEST:
            # The end says what is wrong, so the beginning is cut.
            problem = f"…{problem[-_LONGEST:]}"
        problems.append(problem)
    return problems


def _field_path(details: ErrorDetails, value: Any) -> list[str]:
    """Return the parts of a field's name, without pydantic's names of types."""
    path: list[str] = []
    for part in details["loc"]:
        # Such as ("runs", 0, "tuple", "limit"), which becomes runs, [0], limit.
        if _has_part(value, part):
            value = value[part]
        elif details["type"] != "missing":  # the name of a type, which the value does not have
            continue
        if isinstance(part, int):
            path.append(f"[{part}]")
        else:
            path.append(part)
    return path


def _has_part(value: object, part: int | str) -> bool:
    if isinstance(value, list | tuple):
        return isinstance(part, int) and 0 <= part < len(value)
    return isinstance(value, dict) and part in value


def _reason(details: ErrorDetails) -> str:
    """Return what is wrong with a field."""
    if details["type"] == "missing":
        return "is missing"
    message = details["msg"].removeprefix("Value error, ")
    for python_words, json_words in _WORDS.items():
        message = message.replace(python_words, json_words)
    return f"{message}; got {shortened(details['input'])}"


def _suggestion(path: Sequence[str], known: Mapping[str, Iterable[str]]) -> str:
    """Return the field that an unknown key may stand for, or all fields."""
    # The last name is that of the field, those before it are of tables.
    *tables, key = path
    # Under an empty name are the fields outside of tables.
    names = list(known.get("", ()))
    if tables and tables[0] in known:
        names = list(known[tables[0]])
    similar = get_close_matches(key, names, 1, cutoff=0.5)
    if similar:
        return f"did you mean {similar[0]!r}?"
    return f"known: {', '.join(names)}"

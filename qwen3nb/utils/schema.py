"""Bounded types for values in files, and pydantic's errors in one line with the field's name.

A file may be damaged, or written by another program. A value that passes these types can safely be
shown, sorted, compared and used as a path.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from reprlib import Repr
from typing import Annotated, Any

from pydantic import AfterValidator, Field, Strict, StringConstraints, TypeAdapter, ValidationError

from qwen3nb.utils.choices import one_of
from qwen3nb.utils.strict_json import parse_toml

_PLAIN = r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$"  # no control characters
_LARGEST = 1 << 63  # of a whole number
_LARGEST_NUMBER = 1e15
_DEEPEST = 32  # levels of free JSON
_LONGEST = 200  # characters of a message

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
    return AfterValidator(lambda text: one_of("value", text, names))


def bounded_json(value: Any) -> Any:
    """Return a JSON value, such as settings, after checking depth, texts and numbers.

    Raises:
        ValueError: nested too deeply, text that is not valid Unicode, or a number above 2^63.
    """
    rest = [(value, 0)]
    while rest:
        each, depth = rest.pop()
        if depth > _DEEPEST:
            raise ValueError(f"expected at most {_DEEPEST} levels")
        if isinstance(each, dict):
            rest += [(part, depth + 1) for pair in each.items() for part in pair]
        elif isinstance(each, list):
            rest += [(part, depth + 1) for part in each]
        elif isinstance(each, str):
            each.encode()
        elif isinstance(each, int | float) and not abs(each) <= _LARGEST:
            raise ValueError("expected a number of at most 2^63")
    return value


def shortened(value: object) -> str:
    """Return a value's repr, shortened."""
    short = Repr()
    short.maxlevel, short.maxstring, short.maxlong, short.maxother = 2, 60, 40, 60
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
        value = parse_toml(file.read_text(encoding="utf-8"))
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        why = field_problems(error, value, known=known)[0]
    except ValueError as error:
        why = f"not TOML ({error})"
    raise refusal(f"{file}: {why}")


def field_problem(error: ValidationError, value: Any, *, within: Iterable[str] = ()) -> str:
    """Return the first of `field_problems`."""
    return field_problems(error, value, within=within)[0]


def field_problems(
    error: ValidationError,
    value: Any,
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
    each = error.errors(include_url=False, include_context=False)
    return [_problem(one, value, [*within], known or {}) for one in each]


def _problem(error: Any, value: Any, path: list[str], known: Mapping[str, Iterable[str]]) -> str:
    for part in error["loc"]:
        is_item = isinstance(value, list | tuple) and isinstance(part, int)
        if is_item or (isinstance(value, dict) and part in value):
            value = value[part]
        elif error["type"] != "missing":
            continue  # pydantic's name of a type
        path.append(f"[{part}]" if isinstance(part, int) else str(part))
    where = ".".join(path).replace(".[", "[")
    if error["type"] == "missing":
        text = f"{where}: is missing"
    elif error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        names = [*known.get(path[0] if len(path) > 1 else "", known.get("", ()))]
        near = get_close_matches(path[-1], names, 1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
        return f"{where:.{_LONGEST}}: unknown key; {hint}"
    else:
        what = error["msg"].removeprefix("Value error, ")
        for theirs, ours in _WORDS.items():
            what = what.replace(theirs, ours)
        text = f"{where}: {what}; got {shortened(error['input'])}"
    return text if len(text) <= _LONGEST else f"…{text[-_LONGEST:]}"

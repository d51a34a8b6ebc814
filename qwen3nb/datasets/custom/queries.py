"""Read queries from a TOML file, or a golden set in JSON; errors name the file and the key.

::

    [[queries]]
    id = "q001"                     # letters, digits, . _ -
    query = "rust grep tool"
    category = "composite"          # optional, a name like an id
    cluster = "user 12"             # optional: queries of one user or document, tested together
    relevance_grades = { "acme/grep" = 3, "acme/tmux" = 1 }    # up to 3; absent scores 0
    expected = ["acme/grep"]        # optional; `expected_repos` is an alias

    [models.current]                # optional: the models to compare by default
    model_id = "intfloat/e5-small-v2"      # a hub id, a name, bm25; ./folder: next to this file;
                                           # bm25+NAME: both, fused by rank. No server (api:…):
                                           # name it on the command line
    name = "e5-small"                      # optional: its label in records and reports
    dimensions = 384                       # optional, checked
    prompts = { query = "query: ", passage = "passage: " }    # optional, per role

    [models.candidate]              # each other model is compared with models.current
    model_id = "BAAI/bge-small-en-v1.5"
    prompts = { query = "Represent this sentence for searching relevant passages: " }

    [settings]                      # optional; see `ScoringSettings`
    relevance_threshold = 2
    complete = true                 # every relevant document has a grade: what has none is not
                                    # relevant; by default it is unknown

The grades are the ground truth. If a query has grades, its ``expected`` list is only compared with
them; otherwise every expected document has grade 3. `book/guide/what-is-refused.md` lists what is
refused and what is counted.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import pydantic
from pydantic_core import PydanticCustomError

from qwen3nb.datasets.custom.formats import all_suffixes, find_format, plain_suffix
from qwen3nb.datasets.custom.golden_sets import read_golden_set, with_our_names
from qwen3nb.datasets.custom.grades import HIGHEST_GRADE
from qwen3nb.datasets.in_memory import table_rows
from qwen3nb.datasets.rows import LARGEST_GRADE, DataError, printable, read_text
from qwen3nb.utils.schema import field_problems
from qwen3nb.utils.secrets import known_secrets
from qwen3nb.utils.strict_json import first_duplicate, parse_toml

MOST = 4 << 20  # bytes
UNCATEGORISED = "uncategorised"
_RELATIVE_STARTS = ("./", "../")
_SERVER_ADDRESS = re.compile(r"^\s*api:|://", re.IGNORECASE)  # a model behind an address
_MOST_ERRORS = 20  # reported at once
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


T = TypeVar("T")


def _must_be(expected: str, is_valid: Callable[[Any], bool]) -> pydantic.AfterValidator:
    """Return an annotation that refuses values that are not valid, as not ``expected``."""

    def check(value: T) -> T:
        if not is_valid(value):
            raise PydanticCustomError(
                "unexpected_value",
                "Input should be {expected}",  # pydantic fills it in
                {"expected": expected},
            )
        return value

    return pydantic.AfterValidator(check)


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _is_text(text: str) -> bool:
    return bool(text.strip()) and _is_prompt(text)


def _is_prompt(text: str) -> bool:
    return "\0" not in text


def _is_without_duplicates(names: list[str]) -> bool:
    return len(set(names)) == len(names)


def _is_boost(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= 10  # type: ignore[operator]


def _is_loss(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < 1  # type: ignore[operator]


def _whole(value: object) -> object:
    """Convert 2.0 to 2; pydantic refuses other floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


_Name = Annotated[str, _must_be("a name of letters, digits, . _ -", _is_name)]
_Text = Annotated[str, _must_be("text that is not blank", _is_text)]
_Ids = Annotated[list[_Text], _must_be("a list without duplicates", _is_without_duplicates)]
# A negative grade counts as 0.
_Grade = Annotated[
    int, pydantic.Field(ge=-LARGEST_GRADE, le=HIGHEST_GRADE), pydantic.BeforeValidator(_whole)
]
_Count = Annotated[int, pydantic.Field(gt=0, lt=10**6)]
_Prompt = Annotated[str, _must_be("text without NUL", _is_prompt)]
# 1 and 1.0 differ in a record's identity: keep numbers as written.
_Boost = Annotated[Any, _must_be("a number from 0 to 10", _is_boost)]
_Loss = Annotated[Any, _must_be("a number from 0 to 1", _is_loss)]


class _TomlTable(pydantic.BaseModel):
    """A table: no unknown keys, no conversions of types."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True)


class ScoringSettings(_TomlTable):
    """Settings that affect scores, apart from the model."""

    # lowest grade that counts as relevant in binary metrics
    relevance_threshold: Annotated[int, pydantic.Field(ge=1, le=HIGHEST_GRADE)] = 2
    # whether every relevant document has a grade, so that one without a grade is not relevant
    complete: bool = False
    # relative gain of a document with a million stars
    star_boost_coefficient: _Boost = 0.1
    # relative loss of a document unchanged for ``recency_days``
    recency_coefficient: _Loss = 0.2
    recency_days: _Count = 365  # age in days at which the loss is complete


class Query(_TomlTable):
    """One query; fields are given by their names or their aliases in the file."""

    id: _Name  # its id
    text: str = pydantic.Field(validation_alias="query")  # the text to search for
    category: _Name = UNCATEGORISED  # for breakdowns
    cluster: _Text | None = None  # for tests; None for a query of its own
    # grade per document; the ground truth
    grades: dict[str, _Grade] = pydantic.Field({}, validation_alias="relevance_grades")
    # the ``expected`` list, or empty
    expected: _Ids = pydantic.Field(
        [], validation_alias=pydantic.AliasChoices("expected", "expected_repos")
    )

    @pydantic.model_validator(mode="after")
    def _judged(self) -> Self:
        if not self.model_fields_set & {"grades", "expected"}:
            raise PydanticCustomError(
                "not_judged", "Either 'relevance_grades' or 'expected' is required"
            )
        if "grades" not in self.model_fields_set:
            self.grades.update(dict.fromkeys(self.expected, HIGHEST_GRADE))
        return self


class _ModelTable(_TomlTable):
    model_id: _Text
    name: _Name | None = None
    dimensions: _Count | None = None
    prompts: dict[Literal["query", "passage"], _Prompt] | None = None


class _File(_TomlTable):
    queries: Annotated[list[Query], pydantic.Field(min_length=1)]
    models: dict[str, _ModelTable] = {}
    settings: ScoringSettings = ScoringSettings()


_KNOWN = {
    "": [*_File.model_fields],
    "models": [*_ModelTable.model_fields],
    "queries": sorted({"query", *Query.model_fields} - {"text"}),
    "settings": [*ScoringSettings.model_fields],
}


@dataclass(frozen=True)
class ModelEntry:
    """A model named in the file."""

    name: str  # the name of its table, such as ``current``
    spec: str  # as for `load_model`
    dimensions: int | None = None  # expected length of its vectors; None for any
    label: str = ""  # its label in records; empty for the model's own
    # text before every input, by role; None for the model's own
    prompts: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        known_secrets().refuse(self.label, place="the label of a model")  # it names a folder


@dataclass(frozen=True)
class QueryFile:
    """The content of a query file."""

    file: Path
    queries: tuple[Query, ...]
    models: tuple[ModelEntry, ...] = ()
    settings: ScoringSettings = field(default_factory=ScoringSettings)

    @property
    def by_use(self) -> tuple[ModelEntry, ...]:
        """The models, the one in use (``models.current``) first."""
        return tuple(sorted(self.models, key=lambda model: model.name != "current"))


def model_entry(model: Any, file: QueryFile) -> Any:
    """Return the entry of ``file`` with this label or name, or one for ``LABEL=SPEC``.

    Anything else, such as a spec, is returned as it is.
    """
    text = str(model)
    for entry in file.models:
        if text in (entry.label, entry.name):
            return entry
    label, _, spec = text.partition("=")
    # Such as small=intfloat/e5-small-v2, unless it is the name of a file.
    has_label = spec != "" and _NAME.fullmatch(label) is not None
    if has_label and not Path(text).exists():
        return ModelEntry(label, spec, label=label)
    return model


def read_queries(source: object) -> QueryFile:
    """Read and check a file, or queries in a data frame or a list of dictionaries.

    Files of other formats are read as `qwen3nb.datasets.custom.golden_sets` says.

    Raises:
        DataError: unreadable, not TOML, or invalid; one line per error, with the
            key, the expected value and the value in the file.
    """
    if isinstance(source, Path | str):
        file = Path(source).expanduser()
        return _checked(file, _tables(file))
    queries = with_our_names(table_rows(source, what="queries"))
    return _checked(Path("queries"), {"queries": queries})


def read_query_texts(file: Path) -> list[str]:
    """Return the texts of queries, whether they have judgements or not.

    A file that ends in .txt has a query per line. Others are read as `read_queries` does.

    Raises:
        DataError: it cannot be read, or has no query.
    """
    if plain_suffix(file) == ".txt":
        lines = read_text(file, byte_limit=MOST).splitlines()
        texts = [line.strip() for line in lines if line.strip()]
    else:
        texts = _texts_of_queries(_tables(file).get("queries"))
    if not texts:
        raise DataError(f"{file}: no queries; expected a .txt file with one per line, for example")
    return texts


def _texts_of_queries(queries: object) -> list[str]:
    """Return the texts of a list of queries."""
    texts = []
    for query in queries if isinstance(queries, list) else []:
        text = query.get("query") if isinstance(query, Mapping) else query
        if isinstance(text, str) and text.strip():
            texts.append(text)
    return texts


def _tables(file: Path) -> dict[str, object]:
    """Return the tables of a file, unchecked."""
    is_toml = plain_suffix(file) == ".toml"
    if not is_toml:
        # A database is recognised by its content, other formats by their suffix.
        file_format = find_format(file)
        if file_format is not None:
            return read_golden_set(file, file_format, byte_limit=MOST)
    text = read_text(file, byte_limit=MOST)
    try:
        return parse_toml(text)
    except ValueError as error:
        reason = f"{printable(str(error)):.300}"
        looks_like_other_format = text.lstrip().startswith(("{", "[{", "---"))  # JSON, YAML
        if looks_like_other_format:
            reason += f"; expected a name that ends in .toml, {', '.join(all_suffixes())}"
        raise DataError(f"{file}: not TOML: {reason}") from None


def _checked(file: Path, tables: dict[str, object]) -> QueryFile:
    """Return the content of a query file; raise DataError as `read_queries` does."""
    try:
        content = _File.model_validate(tables)
    except pydantic.ValidationError as error:
        problems = field_problems(error, tables, known=_KNOWN)  # suggests known keys
        lines = [f"{file}: {problem}" for problem in problems[:_MOST_ERRORS]]
        if len(problems) > _MOST_ERRORS:
            lines.append(f"... and {len(problems) - _MOST_ERRORS} more")
        raise DataError("\n".join(lines)) from None
    duplicate = first_duplicate(query.id for query in content.queries)
    if duplicate is not None:
        raise DataError(f"{file}: queries: Duplicate id {duplicate!r}")
    models = [_model(name, table, file) for name, table in content.models.items()]
    return QueryFile(
        file,
        queries=tuple(content.queries),
        models=tuple(models),
        settings=content.settings,
    )


def _model(name: str, table: _ModelTable, file: Path) -> ModelEntry:
    """Return the model of a table.

    Raises:
        DataError: it is not on this machine. A file of data must not send data.
    """
    is_path = table.model_id.startswith(_RELATIVE_STARTS)  # begins with ./ or ../
    parts = [table.model_id]
    if not is_path:  # of a fusion; in a path, a plus sign is part of the name
        parts = table.model_id.split("+")
    for part in parts:
        if _SERVER_ADDRESS.search(part):  # such as api:https://host#model
            raise DataError(
                f"{file}: models.{name}.model_id: a query file cannot name a server, which would "
                f"get your documents; name it on the command line: --model {name}=api:URL#MODEL"
            )
    spec = "+".join(_relative_to_file(part, file) for part in parts)
    prompts: dict[str, str] | None = None
    if table.prompts is not None:
        prompts = {str(role): prompt for role, prompt in table.prompts.items()}
    return ModelEntry(
        name,
        spec,
        dimensions=table.dimensions,
        label=table.name or "",
        prompts=prompts,
    )


def _relative_to_file(part: str, file: Path) -> str:
    """Return a model's spec; a relative path is one next to the query file."""
    if part.startswith(_RELATIVE_STARTS):
        return str(file.parent / part)
    return part

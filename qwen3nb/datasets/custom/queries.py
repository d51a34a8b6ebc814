"""Read queries from a TOML file, or a golden set in JSON; errors name the file and the key.

::

    [[queries]]
    id = "q001"                     # blanks and commas may be in it
    query = "rust grep tool"
    category = "composite"          # optional, a name like an id
    cluster = "user 12"             # optional: queries of one user or document, tested together
    relevance_grades = { "acme/grep" = 3, "acme/tmux" = 1 }    # 0.5 is a grade, too
    expected = ["acme/grep"]        # optional; `expected_repos` is an alias
    complete = true                 # optional: what has no grade is not relevant, for this query
    generated = "title"             # made from a document in this way, and not asked by people

    [[generated]]                   # optional: how queries were made, see `qwen3nb queries`
    seed = 0
    documents = "3f1a…"             # SHA-256 of the documents

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
    relevance_threshold = 2         # 1 if no grade is above 1
    highest_grade = 3               # of the scale; a higher grade is refused as a slip
    complete = true                 # every relevant document has a grade: what has none is not
                                    # relevant; by default it is unknown

The grades are the ground truth. If a query has grades, its ``expected`` list is only compared with
them; otherwise every expected document has grade 3. `book/guide/what-is-refused.md` lists what is
refused and what is counted.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import pydantic
from pydantic_core import PydanticCustomError

from qwen3nb.datasets.collection_files import is_collection_folder, read_collection_folder
from qwen3nb.datasets.custom.formats import all_suffixes, find_format, plain_suffix
from qwen3nb.datasets.custom.generated import kind_of, stated_kind
from qwen3nb.datasets.custom.golden_sets import (
    EXAMPLE,
    NAME,
    GoldenSet,
    golden_set_of,
    golden_set_of_list,
    read_golden_set,
)
from qwen3nb.datasets.custom.grades import HIGHEST_GRADE
from qwen3nb.datasets.custom.lines import FieldLines
from qwen3nb.datasets.in_memory import plain_content
from qwen3nb.datasets.judgement_lists import read_text_list
from qwen3nb.datasets.judgements import CONFLICTING
from qwen3nb.datasets.rows import (
    LARGEST_GRADE,
    DataError,
    checked_id,
    printable,
    read_text,
    stated_number,
)
from qwen3nb.utils.schema import field_problems
from qwen3nb.utils.secrets import known_secrets
from qwen3nb.utils.strict_json import first_duplicate, parse_toml

MOST = 4 << 20  # bytes
UNCATEGORISED = "uncategorised"
_RELATIVE_STARTS = ("./", "../")
_SERVER_ADDRESS = re.compile(r"^\s*api:|://", re.IGNORECASE)  # a model behind an address
_MOST_ERRORS = 20  # reported at once
_TOML_TABLE = re.compile(r"^\s*\[", re.MULTILINE)
_TOML_POSITION = re.compile(r"at line (\d+), column (\d+)")
_TOML_EXAMPLES = {
    "id": 'id = "q1"',
    "query": 'query = "sort a list"',
    "category": 'category = "short"',
    "relevance_grades": 'relevance_grades = { "list.sort" = 3 }',
    "expected": 'expected = ["list.sort"]',
}
_TOML_EXAMPLE = 'relevance_grades = { "list.sort" = 3 } below [[queries]], id and query'
_LONGEST_ID = 255


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
    return NAME.fullmatch(text) is not None


def _is_mark(text: str) -> bool:
    return not text or _is_name(text)


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


def _grade(value: object) -> float:
    """Return a number, or its text, as a grade: 2 for 2.0 and "2.000"."""
    number = stated_number(value)
    if number is None or abs(number) > LARGEST_GRADE:
        raise PydanticCustomError(
            "grade", "Input should be a number from -1,000 to 1,000, such as 2 or 0.5"
        )
    if number.is_integer():
        return int(number)
    return number


def _is_id(text: str) -> bool:
    try:
        checked_id(text, place="")
    except DataError:
        return False
    is_path = text.startswith(("/", "\\", *_RELATIVE_STARTS))
    return len(text) <= _LONGEST_ID and not is_path


_Name = Annotated[str, _must_be("a name of letters, digits, . _ -", _is_name)]
_Text = Annotated[str, _must_be("text that is not blank", _is_text)]
_Ids = Annotated[list[_Text], _must_be("a list without duplicates", _is_without_duplicates)]
_Id = Annotated[str, _must_be("a name of printable characters, not a path", _is_id)]
# A negative grade counts as 0.
_Grade = Annotated[float, pydantic.PlainValidator(_grade)]
_Count = Annotated[int, pydantic.Field(gt=0, lt=10**6)]
_Prompt = Annotated[str, _must_be("text without NUL", _is_prompt)]
# True is a mark that does not say how.
_Mark = Annotated[
    str,
    pydantic.BeforeValidator(stated_kind),
    _must_be("a name of letters, digits, . _ -, or true", _is_mark),
]
# 1 and 1.0 differ in a record's identity: keep numbers as written.
_Boost = Annotated[Any, _must_be("a number from 0 to 10", _is_boost)]
_Loss = Annotated[Any, _must_be("a number from 0 to 1", _is_loss)]


class _TomlTable(pydantic.BaseModel):
    """A table: no unknown keys, no conversions of types."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True)


class ScoringSettings(_TomlTable):
    """Settings that affect scores, apart from the model."""

    # lowest grade that counts as relevant in binary metrics
    relevance_threshold: Annotated[
        int | float, pydantic.Field(gt=0, le=LARGEST_GRADE, allow_inf_nan=False)
    ] = 2
    # highest grade of the scale: a higher one is refused
    highest_grade: Annotated[int, pydantic.Field(ge=1, le=LARGEST_GRADE)] = HIGHEST_GRADE
    # whether every relevant document has a grade, so that one without a grade is not relevant
    complete: bool = False
    # relative gain of a document with a million stars
    star_boost_coefficient: _Boost = 0.1
    # relative loss of a document unchanged for ``recency_days``
    recency_coefficient: _Loss = 0.2
    recency_days: _Count = 365  # age in days at which the loss is complete


class Query(_TomlTable):
    """One query; fields are given by their names or their aliases in the file."""

    id: _Id
    text: str = pydantic.Field(validation_alias="query")  # the text to search for
    category: _Name = UNCATEGORISED  # for breakdowns
    cluster: _Text | None = None  # for tests; None for a query of its own
    # grade per document; the ground truth
    grades: dict[str, _Grade] = pydantic.Field({}, validation_alias="relevance_grades")
    # the ``expected`` list, or empty
    expected: _Ids = pydantic.Field(
        [], validation_alias=pydantic.AliasChoices("expected", "expected_repos")
    )

    # whether every relevant document has a grade, so that one without a grade is not relevant
    complete: bool = False
    generated: _Mark = ""  # how it was made; empty for a query that people asked

    @property
    def generated_kind(self) -> str:
        """How it was made, by its mark or its id; empty for a query that people asked."""
        return kind_of(self.id, self.generated)

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


class Origin(_TomlTable):
    """How some generated queries of a file were made."""

    kinds: list[_Name] = []
    number: Annotated[int, pydantic.Field(ge=0)] | None = None  # wanted of each kind
    seed: Annotated[int, pydantic.Field(ge=0)] | None = None
    model: str = ""  # the language model that wrote some of them; empty without one
    source: str = ""  # name of the file of documents
    documents: str = ""  # their SHA-256


class _File(_TomlTable):
    queries: Annotated[list[Query], pydantic.Field(min_length=1)]
    models: dict[str, _ModelTable] = {}
    settings: ScoringSettings = ScoringSettings()
    generated: list[Origin] = []


_KNOWN = {
    "": [*_File.model_fields],
    "generated": [*Origin.model_fields],
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
    origins: tuple[Origin, ...] = ()  # how its generated queries were made

    @property
    def generated(self) -> dict[str, str]:
        """How each generated query was made, by its text."""
        kinds = {query.text: query.generated_kind for query in self.queries}
        return {text: kind for text, kind in kinds.items() if kind}

    understood: str = ""  # how the file was read, in a line
    # the documents, if the queries came with them: a folder, or texts by id
    documents: Path | Mapping[str, str] | None = None

    @property
    def judged_documents(self) -> set[str]:
        """The documents that have a grade for a query."""
        return {document for query in self.queries for document in query.grades}

    @property
    def threshold(self) -> float | None:
        """The lowest relevant grade, if the file states it."""
        if "relevance_threshold" in self.settings.model_fields_set:
            return self.settings.relevance_threshold
        return None

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
    label, spec = label_and_spec(text)
    if label:
        return ModelEntry(label, spec, label=label)
    return model


def label_and_spec(text: str) -> tuple[str, str]:
    """Return both of ``LABEL=SPEC``, such as ``small=intfloat/e5-small-v2``.

    The label is empty for a spec alone, and for the name of a file that has such a sign.
    """
    label, _, spec = text.partition("=")
    has_label = spec != "" and NAME.fullmatch(label) is not None
    if has_label and not Path(text).exists():
        return label, spec
    return "", text


def read_queries(source: object) -> QueryFile:
    """Read and check queries with their judgements.

    Args:
        source: a TOML file; a file of another format, as `qwen3nb.datasets.custom.golden_sets` and
            `qwen3nb.datasets.judgement_lists` say; a folder of BEIR or MTEB; or the same in memory:
            a data frame, a list of dictionaries, or a dictionary as LlamaIndex has it.

    Raises:
        DataError: unreadable, or invalid; one line per error, with the line, the key, the expected
            value and the value in the file.
    """
    if not isinstance(source, Path | str):
        content = plain_content(source, what="queries")
        return checked_queries(Path("queries"), golden_set_of(content, place="queries"))
    file = Path(source).expanduser()
    if file.is_dir():
        return _of_folder(file)
    return checked_queries(file, read_content(file))


def _of_folder(folder: Path) -> QueryFile:
    """Return the judged queries of a folder of BEIR or MTEB, which has the documents, too.

    Raises:
        DataError: it is no such folder, or a file of it is malformed.
    """
    if not is_collection_folder(folder):
        raise DataError(
            f"{folder}: expected a file of queries, or a folder with corpus, queries and qrels "
            "as of BEIR or MTEB"
        )
    files = read_collection_folder(folder)
    understood = files.understood
    queries = []
    for query, text in files.queries.items():
        if query in files.qrels:
            grades = files.qrels[query]
            queries.append({"id": query, "query": text, "relevance_grades": grades})
    conflicts = files.counts.get(CONFLICTING, 0)
    if conflicts:
        understood += f"; {CONFLICTING}: {conflicts:,}"
    content = GoldenSet({"queries": queries}, understood, foreign=True)
    return checked_queries(folder, content, documents=folder)


def read_content(file: Path) -> GoldenSet:
    """Return the content of a query file, unchecked.

    Raises:
        DataError: it cannot be read, or has neither queries nor judgements.
    """
    is_toml = plain_suffix(file) == ".toml"
    if not is_toml:
        # A database is recognised by its content, other formats by their suffix.
        file_format = find_format(file)
        if file_format is not None:
            return read_golden_set(file, file_format, byte_limit=MOST)
    text = read_text(file, byte_limit=MOST)
    try:
        return GoldenSet(parse_toml(text), "TOML")
    except ValueError as error:
        reason = f"{printable(str(error)):.300}"
    looks_like_other_format = text.lstrip().startswith(("{", "[{", "---"))  # JSON, YAML
    if looks_like_other_format:
        reason += f"; expected a name that ends in .toml, {', '.join(all_suffixes())}"
    elif not is_toml and not _TOML_TABLE.search(text):
        return golden_set_of_list(read_text_list(file), place=file)
    place = str(file)
    position = _TOML_POSITION.search(reason)
    if position is not None:
        place += f":{position[1]}:{position[2]}"
    raise DataError(f"{place}: not TOML: {reason}; right: {_TOML_EXAMPLE}")


def checked_queries(
    file: Path,
    content: GoldenSet,
    *,
    documents: Path | Mapping[str, str] | None = None,
) -> QueryFile:
    """Return the content of a query file, after checking it.

    Args:
        file: its place, for errors.
        content: what it holds.
        documents: those that came with the queries.

    Raises:
        DataError: as `read_queries`.
    """
    tables = dict(content.tables)
    try:
        checked = _File.model_validate(tables)
    except pydantic.ValidationError as error:
        problems = field_problems(error, tables, known=_KNOWN)  # suggests known keys
        fields = [details["loc"] for details in error.errors(include_url=False)]
        raise _data_error(file, content, problems, fields) from None
    names = [query.id for query in checked.queries]
    duplicate = first_duplicate(names)
    if duplicate is not None:
        first = names.index(duplicate)
        second = names.index(duplicate, first + 1)
        problem = f"queries: Duplicate id {duplicate!r}, also of queries[{first}]"
        raise _data_error(file, content, [problem], [("queries", second, "id")])
    if not content.foreign:
        _check_scale(file, content, checked)
    models = [_model(name, table, file) for name, table in checked.models.items()]
    return QueryFile(
        file,
        queries=tuple(checked.queries),
        models=tuple(models),
        settings=checked.settings,
        origins=tuple(checked.generated),
        understood=content.understood,
        documents=documents or content.documents,
    )


def _check_scale(file: Path, content: GoldenSet, checked: _File) -> None:
    """Refuse grades above the scale; raise DataError with each."""
    highest = checked.settings.highest_grade
    problems: list[str] = []
    fields: list[tuple[int | str, ...]] = []
    for position, query in enumerate(checked.queries):
        for document, grade in query.grades.items():
            if grade > highest:
                problems.append(
                    f"queries[{position}].relevance_grades.{document:.60}: expected a grade of at "
                    f"most {highest}; got {grade}. A longer scale is stated by highest_grade under "
                    "[settings]"
                )
                fields.append(("queries", position, "relevance_grades", document))
    if problems:
        raise _data_error(file, content, problems, fields)


def _data_error(
    file: Path,
    content: GoldenSet,
    problems: Sequence[str],
    fields: Sequence[tuple[int | str, ...]],
) -> DataError:
    """Return the error of a query file: a line for each problem, with its place.

    The first ends with a line that would be right.
    """
    example = EXAMPLE
    if content.understood == "TOML":
        field_names = [name for name in fields[0] if name in _TOML_EXAMPLES]
        example = _TOML_EXAMPLES[str(field_names[-1])] if field_names else _TOML_EXAMPLE
    lines: list[str] = []
    field_lines = FieldLines(file)
    for problem, path in zip(problems[:_MOST_ERRORS], fields, strict=False):
        place = str(file)
        is_of_query = len(path) > 1 and path[0] == "queries" and isinstance(path[1], int)
        if content.places and is_of_query:
            place = content.places[int(path[1])]
        elif file.is_file():
            place += field_lines.of(path)
        hint = ""
        if not lines:
            hint = f"; right: {example}"
        lines.append(f"{place}: {problem}{hint}")
    if len(problems) > _MOST_ERRORS:
        lines.append(f"... and {len(problems) - _MOST_ERRORS} more")
    return DataError("\n".join(lines))


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

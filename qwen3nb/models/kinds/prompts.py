"""Prompts, with the names of sentence-transformers and MTEB and those of this package.

Both prepend a text chosen by name to an input. Only the names of roles differ:

=========================================  =======================================
sentence-transformers and MTEB             this package
=========================================  =======================================
``query``, ``STS12-query``                 the same
``document``, ``STS12-document``           ``passage``, ``STS12-passage``
the prompt that ``default_prompt_name``    ``symmetric``
names, used where no prompt is requested
names of tasks and task types              the same
=========================================  =======================================

A folder stores its prompts in ``config_sentence_transformers.json``. Some models, such as
``intfloat/e5-large-v2``, document them only in their model card; without them, scores do not
reflect the intended use. ``prompt_families.toml`` lists these prompts, for a warning.
"""

import difflib
import functools
import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from pydantic import ConfigDict
from typing_extensions import TypedDict

from qwen3nb import paths
from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.types import SpecError
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.schema import read_toml

FILE = "config_sentence_transformers.json"
ROLES = ("query", "passage")
_INSTRUCTION_SLOT = "{instruction}"
_DOCUMENT, _PASSAGE, _SYMMETRIC = "document", "passage", "symmetric"
# ``query=find: ``, and the semicolon before another assignment.
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z][\w.()-]*)=(?P<text>.*)", flags=re.DOTALL)
_BETWEEN_ASSIGNMENTS = re.compile(r";\s*(?=[A-Za-z][\w.()-]*=)")
NO_PROMPTS = "none"
_SET = re.compile(r"\d+|[^=]+\.toml")  # 15, or my/prompts.toml


def named_prompts(prompts: Mapping[str, str]) -> dict[str, str]:
    """Return prompts of a user or the registry, with this package's names.

    ``document`` and ``passage`` mean the same. Empty prompts of roles are left out.

    Raises:
        SpecError: a prompt that is not a string, or ``document`` and ``passage`` that differ.

    >>> named_prompts({"query": "query: ", "STS12-document": "d ", "document": ""})
    {'query': 'query: ', 'STS12-passage': 'd '}
    """
    renamed: dict[str, str] = {}
    for name, text in prompts.items():
        if not isinstance(text, str):
            raise SpecError(f"prompt {name!r} is {text!r:.80}; expected a string")
        our_name = _renamed(name, _DOCUMENT, _PASSAGE)  # "document" and "STS12-document", too
        earlier_text = renamed.get(our_name, text)
        if earlier_text != text:
            raise SpecError(
                f"two prompts for {our_name!r}: {earlier_text!r} and {text!r}; give one"
            )
        renamed[our_name] = text
    # An empty prompt says something for a task only, where it is used in place of its role's.
    kept_prompts: dict[str, str] = {}
    for name, text in renamed.items():
        is_role = name in ("query", _PASSAGE, _SYMMETRIC)
        if text or not is_role:
            kept_prompts[name] = text
    return kept_prompts


def parse_prompts(prompts: Mapping[str, str] | str | None) -> dict[str, str] | None:
    r"""Return the `named_prompts` given by a user, possibly in one line; None for the model's own.

    A line consists of ``NAME=TEXT``, separated by ``;``; in a text, ``\n`` is a line break. A JSON
    object allows any text. ``none`` means no prompts, not even the model's own; an empty line means
    the model's own.

    >>> parse_prompts("query=find: ;document=text; "), parse_prompts("none"), parse_prompts("")
    ({'query': 'find: ', 'passage': 'text; '}, {}, None)

    Raises:
        SpecError: invalid syntax, or a name that looks like a mistyped role.
    """
    if prompts is None:
        return None
    if not isinstance(prompts, str):
        return named_prompts(prompts)
    text = prompts.strip()
    if not text:  # the model's own
        return None
    if text == NO_PROMPTS:  # none, not even the model's own
        return {}
    if text.startswith("{"):
        parsed = _from_json(prompts)
    else:
        parsed = _from_line(prompts)
    warnings = mistyped_roles(parsed)
    if warnings:
        raise SpecError(warnings[0])
    return parsed


def _from_json(text: str) -> dict[str, str]:
    try:
        return named_prompts(json.loads(text))
    except ValueError as error:
        raise SpecError(f"prompts {text!r:.80}: not a JSON object of texts ({error})") from None


def _from_line(line: str) -> dict[str, str]:
    # Such as "query=find: ;document=text: ".
    prompts: dict[str, str] = {}
    for assignment in _BETWEEN_ASSIGNMENTS.split(line):
        match = _ASSIGNMENT.fullmatch(assignment)
        if match is None:
            raise SpecError(
                f"prompts {line!r:.80}: expected NAME=TEXT, such as query='query: ', where NAME is "
                "query or passage"
            )
        name, text = match["name"], match["text"]
        if name in prompts:
            raise SpecError(f"prompts {line!r:.80}: a name occurs twice; give one text for each")
        prompts[name] = text.replace(r"\n", "\n")  # written as two characters in a line
    return named_prompts(prompts)


def names_prompt_set(prompts: object) -> bool:
    """Return whether ``prompts`` names a set of prompts; see `read_prompts`.

    >>> names_prompt_set("15"), names_prompt_set("my/prompts.toml"), names_prompt_set("query=a: ")
    (True, True, False)
    """
    return isinstance(prompts, str) and _SET.fullmatch(prompts.strip()) is not None


def prompts_line(prompts: Mapping[str, str]) -> str:
    """Return prompts as one line for `parse_prompts`.

    >>> prompts_line({"query": "query: "}), prompts_line({})
    ('{"query": "query: "}', 'none')
    """
    return json.dumps(dict(prompts), ensure_ascii=False) if prompts else NO_PROMPTS


def prompt_for(
    prompts: Mapping[str, str], *, role: str | None, task: Any = None, instruction: str = ""
) -> str:
    """Return the prompt of a text, or an empty string.

    Keys are tried in MTEB's order: ``<task>-<role>``, ``<task>``, ``<type>-<role>``, ``<type>``,
    ``<role>``; for a text without a role, ``<task>``, ``<type>``, ``symmetric``.

    Args:
        prompts: text per key. ``{instruction}`` in it is replaced with the task's instruction, else
            with ``instruction``, unless that is empty.
        role: ``query`` or ``passage``, like ``encode_query`` and ``encode_document`` of
            sentence-transformers; None, like its ``encode``.
        task: MTEB's task metadata, with ``name``, ``type`` and perhaps ``prompt``.
        instruction: the model's default; empty for prompts that are used as they are.

    >>> prompts = {"query": "query: ", "STS": "similar: "}
    >>> prompt_for(prompts, role="query"), prompt_for(prompts, role="passage")
    ('query: ', '')
    """
    prompt = ""
    for name in _prompt_names(role, task):  # the first that exists, from a task's to a role's
        if name in prompts:
            prompt = prompts[name]
            break
    if instruction and _INSTRUCTION_SLOT in prompt:  # "Instruct: {instruction}" …
        prompt = prompt.replace(_INSTRUCTION_SLOT, _task_instruction(task, role) or instruction)
    return prompt


def _prompt_names(role: str | None, task: Any) -> list[str]:
    """Return the names of a prompt for a text, the first that exists is used."""
    names = [role or _SYMMETRIC]
    if task is None:
        return names
    if role:
        return [f"{task.name}-{role}", task.name, f"{task.type}-{role}", task.type, *names]
    return [task.name, task.type, *names]


def _task_instruction(task: Any, role: str | None) -> str:
    """Return MTEB's instruction for the task, possibly per role; empty without one."""
    instruction = getattr(task, "prompt", None)
    if isinstance(instruction, Mapping):
        mteb_role = _DOCUMENT if role == _PASSAGE else "query"
        instruction = instruction.get(mteb_role)
    if isinstance(instruction, str):
        return instruction
    return ""


def mistyped_roles(names: Iterable[str]) -> list[str]:
    """Return a warning for each name of a prompt that looks like a mistyped role.

    >>> mistyped_roles(["query", "qeury", "STS12"])
    ["prompt 'qeury' is used only where a program requests it; did you mean 'query'?"]
    """
    roles = ("query", _DOCUMENT, _PASSAGE, _SYMMETRIC)
    warnings = []
    for name in names:
        role = name.rpartition("-")[2]  # after a task's name: "query" of "STS12-query"
        if role in roles:
            continue
        similar_roles = difflib.get_close_matches(role, roles, n=1, cutoff=0.7)
        if similar_roles:
            warnings.append(
                f"prompt {name!r} is used only where a program requests it; did you mean "
                f"{similar_roles[0]!r}?"
            )
    return warnings


def stored_prompts(folder: ModelFolder) -> dict[str, str]:
    """Return the prompts that sentence-transformers and MTEB use for the model in ``folder``.

    Raises:
        SpecError: the file does not have the format of sentence-transformers.
    """
    fields = folder.object(FILE)
    try:
        prompts = fields.get("prompts") or {}
        if not isinstance(prompts, dict):
            raise SpecError(f"prompts is {prompts!r:.80}; expected an object")
        return used_prompts(prompts, default=fields.get("default_prompt_name"))
    except SpecError as error:
        raise SpecError(f"{folder.path / FILE}: {error}") from None


def used_prompts(prompts: Mapping[str, str | None], *, default: str | None) -> dict[str, str]:
    """Return the prompts that a SentenceTransformer uses, with this package's names.

    Other names are left out: sentence-transformers, whose models always have a prompt ``document``,
    never uses one called ``passage``. ``default`` is the name of the prompt used if none is
    requested.
    """
    # Under our own names, such as "passage", sentence-transformers never uses a prompt.
    stored = {name: text for name, text in prompts.items() if text is not None}
    in_use = {name: text for name, text in stored.items() if not _is_our_name(name)}
    if default is not None:
        # sentence-transformers has empty prompts for these two where none are stored.
        if default not in ("query", _DOCUMENT, *stored):
            raise SpecError(
                f"default_prompt_name is {default!r}, which is not a prompt; "
                f"expected one of: {', '.join(stored) or 'none, as there are no prompts'}"
            )
        in_use[_SYMMETRIC] = stored.get(default, "")
    return named_prompts(in_use)


def _is_our_name(name: str) -> bool:
    """Return whether a prompt has a name of this package, such as ``STS12-passage``."""
    return name in (_PASSAGE, _SYMMETRIC) or name.endswith(f"-{_PASSAGE}")


def exported_prompts(prompts: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of ``config_sentence_transformers.json`` for ``prompts``.

    >>> exported_prompts({"passage": "passage: "})
    {'prompts': {'document': 'passage: '}, 'default_prompt_name': None}
    """
    renamed = named_prompts(prompts)
    return {
        "prompts": {_renamed(name, _PASSAGE, _DOCUMENT): text for name, text in renamed.items()},
        "default_prompt_name": _SYMMETRIC if _SYMMETRIC in renamed else None,
    }


def _renamed(name: str, old: str, new: str) -> str:
    """Return ``name`` with its role, alone or after a task, renamed from ``old`` to ``new``."""
    if name == old:
        return new
    return f"{name.removesuffix(old)}{new}" if name.endswith(f"-{old}") else name


@functools.cache
def prompt_families() -> Mapping[str, Mapping[str, Any]]:
    """Return the pattern, prompts and model card of each family, by its name."""
    return tomllib.loads(
        Path(__file__).with_name("prompt_families.toml").read_text(encoding="utf-8")
    )


def prompt_warning(source: Source, prompts: Mapping[str, str] | None = None) -> str:
    """Return a warning for a model that is used without the prompts of its family, or "".

    With other ``prompts``, the warning is about those that differ from the authors' in white space
    alone, such as ``query:`` without the blank after it.

    The family follows from the hub id, the folder's name or ``_name_or_path`` in ``config.json``.
    Models of unknown families or of this package get no warning, and without ``prompts`` none with
    prompts of their own.
    """
    if not source.kind.of_others:
        return ""
    family = _family_of(source)
    prescribed: Mapping[str, str] = {}
    if family:
        prescribed = prompt_families()[family]["prompts"]
    if prompts is not None:  # given by the user: only a slip in a blank is worth a warning
        return _blank_warning(source.label, prompts, source.prompts or prescribed)
    if source.prompts or not family:
        return ""
    card = prompt_families()[family]["card"]
    listed_prompts = ", ".join(f"{text!r} for a {role}" for role, text in prescribed.items())
    return (
        f"{source.label}: used without prompts, but the authors of {family} prescribe "
        f"{listed_prompts} ({card}), so its scores may be too low. Give "
        f"`{_prompt_options(prescribed)}`, or `--prompt {NO_PROMPTS}` to use none"
    )


def _family_of(source: Source) -> str:
    """Return the family of a model; empty if it is not known."""
    names = [source.id or "", source.spec]
    if source.folder is not None:
        path = source.folder.path.resolve()
        names.append("/".join(path.parts[-2:]))  # organisation/name, as on the hub
        names.append(str(source.folder.config.get("_name_or_path") or ""))
    plain_names = [name.lower().replace("_", "-") for name in names]
    for family, fields in prompt_families().items():
        if any(re.search(fields["pattern"], name) for name in plain_names):
            return family
    return ""


def _prompt_options(prompts: Mapping[str, str]) -> str:
    """Return the options of the command line that give these prompts."""
    options = []
    for role, text in prompts.items():
        assignment = shlex.quote(f"{role}={text}")
        options.append(f"--prompt {assignment}")
    return " ".join(options).replace("\n", r"\n")


def _blank_warning(label: str, prompts: Mapping[str, str], expected: Mapping[str, str]) -> str:
    """Return a warning about prompts that differ from the expected ones in white space alone."""
    corrected = {}
    for role, text in prompts.items():
        prescribed = expected.get(role, text)  # a prompt that nobody prescribes cannot differ
        differs_in_blanks = "".join(text.split()) == "".join(prescribed.split())
        if text != prescribed and differs_in_blanks:
            corrected[role] = prescribed
    if not corrected:
        return ""
    differences = [f"{prompts[role]!r} for {text!r}" for role, text in corrected.items()]
    return (
        f"{label}: the prompts differ in a blank from those of its authors: "
        f"{', '.join(differences)}. "
        f"Its scores may be too low; give `{_prompt_options(corrected)}`"
    )


# Sets of prompts.

_STORED_SET = Path(__file__).with_name("prompts.toml")
_DEFAULT_TASK_TYPE = "Retrieval"


@dataclass(frozen=True)
class QueryPrompt:
    """One prompt of a set."""

    name: str
    text: str
    source: str = ""  # source of the idea


class _Set(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    types: dict[str, dict[str, str]]
    prompts: list[QueryPrompt]


_WORD = re.compile(r"\{(\w+)\}")  # {word}


def read_prompts(name: str, task_type: str = _DEFAULT_TASK_TYPE) -> list[QueryPrompt]:
    """Return the prompts of a set for a type of task.

    Args:
        name: number of prompts of the stored set, such as ``15``, or the path of a TOML file like
            ``prompts.toml`` next to this module, which has the words of types that it lacks.
        task_type: MTEB's, such as ``STS``.

    Raises:
        SpecError: no such file or number, an invalid file, an unknown type or word, or two prompts
            with the same name or text.
    """
    name = name.strip()
    file = prompts_file(name)
    try:
        entries = read_toml(file, _Set, refusal=SpecError)
    except OSError as error:
        raise SpecError(f"no set of prompts {name!r}: {error.strerror}") from None
    try:
        words = _words_for(task_type, entries.get("types", {}))
        prompts = [_filled(prompt, words) for prompt in entries.get("prompts", [])]
    except ValueError as error:
        raise SpecError(f"{file}: {error}") from None
    distinct_names = {prompt.name for prompt in prompts}
    distinct_texts = {prompt.text for prompt in prompts}
    are_distinct = len(distinct_names) == len(distinct_texts) == len(prompts)
    if not prompts or not are_distinct:
        raise SpecError(f"{file}: expected [[prompts]], each with a unique name and text")
    if not name.isdecimal():  # a file: all of its prompts; a number: the first of the stored set
        return prompts
    count = int(name)
    if not 1 <= count <= len(prompts):
        raise SpecError(f"prompts is {name}; expected 1 to {len(prompts)}, or a TOML file")
    return prompts[:count]


def _words_for(task_type: str, types: Mapping[str, dict[str, str]]) -> dict[str, str]:
    """Return the words of prompts for a type of task: a file's, else the stored ones."""
    content = tomllib.loads(_STORED_SET.read_text(encoding="utf-8"))
    stored_types: dict[str, dict[str, str]] = content["types"]
    if types != stored_types:  # a user's, so their names are checked; mteb is slow to import
        from mteb.abstasks.task_metadata import TaskType

        for name in types:
            check_choice("type", name, get_args(TaskType))
    words_by_type = {**stored_types, **types}
    return words_by_type.get(task_type) or words_by_type[_DEFAULT_TASK_TYPE]


def _filled(prompt: QueryPrompt, words: Mapping[str, str]) -> QueryPrompt:
    """Return a prompt with its words in place of their names."""

    def word(match: re.Match[str]) -> str:
        return words[check_choice("word", match[1], words)]

    return replace(prompt, text=_WORD.sub(word, prompt.text))


def prompts_file(name: str) -> Path:
    """Return the file of a set, relative to the working directory or to the study."""
    if name.strip().isdecimal():
        return _STORED_SET
    file = Path(name.strip()).expanduser()
    if file.is_file():
        return file
    return paths.root() / file

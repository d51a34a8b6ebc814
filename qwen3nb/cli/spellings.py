"""Other names of commands and other spellings of options: accepted, but not listed.

A command that has moved is found by its old name. The design documents write options with
underscores (``--output_dir``), by the names of their own scripts (``--encoder_path``,
``--run_sts``), and several values after one option (``--baselines e5-base gte-base``). Each is
rewritten to the option of the command. The line that one would write today is then printed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

import click

# By its words: where a command of an earlier release, or of the design documents, is today.
_COMMANDS: Mapping[str, str] = {
    "quick": "check",
    "parity": "check parity",
    "rerank-suite": "rerank suite",
    "rerank-outputs": "rerank outputs",
    "tables": "paper tables",
    "push": "card push",
    "diff": "freeze diff",
    "bench compare": "bench diff",
    "analyze-results": "analyze",
    "average-checkpoints": "average",
    "evaluate-embeddings": "rerank outputs",
    "evaluate-reranking-suite": "rerank suite",
    "extract-encoder": "extract",
    "generate-model-card": "card",
    "quick-eval": "check",
    "run-evaluation": "report",
}
# By command, and for every command under the empty name: the option that another spelling stands
# for. It applies where the command has that option, and none of the other name.
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "": {
        "--encoder-path": "--model",
        "--model-name": "--model",
        "--model-path": "--model",
        "--model-name-or-path": "--model",
        "--output": "--out",
        "--output-dir": "--out",
        "--output-path": "--out",
        "--retrieval-num-docs": "--limit",
        "--mteb-tasks": "--tasks",
        "--eval-tier": "--tier",
        "--eval-results": "--results",
    },
    "extract": {"--checkpoint": "--model"},
    "average": {"--checkpoint-dir": "--training", "--last-n": "--last", "--best-n": "--best"},
    "report": {"--qwen3-baseline-path": "--baselines"},
    "outputs": {"--checkpoint": "--adapter"},
    "analyze": {"--output-dir": "--outputs"},
}
# Flags that select tasks: the MTEB type; empty if the command runs them without it.
_TYPES_OF_FLAGS: Mapping[str, str] = {
    "--run-sts": "STS",
    "--run-retrieval": "Retrieval",
    "--run-mteb": "",
    "--compare-baselines": "",
}
# Options whose values may follow each other; they are joined with commas, as in one value.
_LISTS = ("--baselines", "--tasks", "--types")
# What to write instead where a command does not have the option.
_INSTEAD: Mapping[str, str] = {
    "--baselines": "`qwen3nb report --model M --baselines A,B` compares models",
    "--qwen3-baseline-path": "`qwen3nb report --model M --baselines PATH` compares models",
    "--compare-baselines": "`qwen3nb report --model M --baselines A,B` compares models",
    "--run-sts": "`qwen3nb eval --model M --types STS` runs these tasks",
    "--run-retrieval": "`qwen3nb eval --model M --types Retrieval` runs these tasks",
    "--run-mteb": "`qwen3nb eval --model M --tier fast` runs MTEB's tasks",
    "--mteb-tasks": "`qwen3nb eval --model M --tasks A,B` runs these tasks",
    "--retrieval-num-docs": "`qwen3nb eval --model M --limit N` bounds a task",
}


def current_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with the name that its command has today.

    >>> current_words(["push", "encoder"])
    ['card', 'push', 'encoder']
    """
    for count in (2, 1):
        name = " ".join(words[:count]).replace("_", "-")
        if name in _COMMANDS:
            return [*_COMMANDS[name].split(), *words[count:]]
    # `rerank --pairs` was the only one that it did.
    scores_pairs = words[:1] == ["rerank"] and words[1:2] and words[1].startswith("--")
    if scores_pairs and words[1] != "--help":
        return ["rerank", "pairs", *words[1:]]
    return list(words)


def respelled(
    command: str,
    arguments: Sequence[str],
    own_options: Collection[str],
    *,
    has_arguments: bool = False,
) -> list[str]:
    """Return the arguments of a command with every option in its own spelling.

    Args:
        command: its name.
        arguments: of the command line, without the command.
        own_options: the spellings that the command has.
        has_arguments: whether it has arguments without an option; values are then not joined.

    Raises:
        click.UsageError: an option of the design documents that the command lacks; the message says
            what to write.
    """
    other_names = {**_OPTIONS[""], **_OPTIONS.get(command, {})}
    rewritten: list[str] = []
    additions: list[tuple[str, str]] = []  # options with values to add to their lists
    words = deque(arguments)
    while words and words[0] != "--":
        name, equals, value = words.popleft().partition("=")
        option = _spelling(name, other_names, own_options)
        if _selects_tasks(option, own_options):
            types = _TYPES_OF_FLAGS[option]
            if types:
                additions.append(("--types", types))
            continue
        if option in _INSTEAD and option not in own_options:
            raise click.UsageError(f"No such option {name!r}: {_INSTEAD[option]}.")
        takes_following_words = option in _LISTS and not equals
        if not takes_following_words:
            rewritten.append(f"{option}{equals}{value}")
            continue
        at_most = len(words)
        if has_arguments:
            at_most = 1
        values = ",".join(_pop_values(words, at_most=at_most))
        has_other_name = option != _hyphenated(name)  # such as one for the path of a baseline
        if has_other_name:
            additions.append((option, values))
            continue
        rewritten.append(option)
        if values:
            rewritten.append(values)
    for option, value in additions:
        _add_to_list(rewritten, option, value)
    return [*rewritten, *words]


def _selects_tasks(option: str, own_options: Collection[str]) -> bool:
    """Return whether an option is a flag for tasks that a command without it selects by name."""
    return option in _TYPES_OF_FLAGS and option not in own_options and "--tasks" in own_options


def _hyphenated(option: str) -> str:
    if option.startswith("--"):
        return option.replace("_", "-")
    return option


def _spelling(option: str, other_names: Mapping[str, str], own_options: Collection[str]) -> str:
    """Return the command's own spelling of an option; the option itself if it has none."""
    if not option.startswith("--") or option in own_options:
        return option
    hyphenated = _hyphenated(option)
    if hyphenated in own_options:  # --output_dir for --output-dir
        return hyphenated
    if other_names.get(hyphenated) in own_options:  # --model_path for --model
        return other_names[hyphenated]
    return hyphenated


def _pop_values(words: deque[str], *, at_most: int) -> list[str]:
    """Take the values that follow an option from the words of a command line."""
    values: list[str] = []
    while words and len(values) < at_most and not words[0].startswith("-"):
        values.append(words.popleft())
    return values


def _add_to_list(arguments: list[str], option: str, value: str) -> None:
    """Add a value to the list of an option, in place."""
    if option not in arguments[:-1]:
        arguments += [option, value]
        return
    place_from_end = arguments[::-1].index(option)
    place_of_list = len(arguments) - place_from_end
    arguments[place_of_list] += f",{value}"

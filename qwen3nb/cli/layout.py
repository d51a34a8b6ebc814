"""How the help of a command is laid out: the options that one needs first, the rest under headings.

An option is declared by its command, or by the notebook that the command runs. Here it only gets
its place, by the name of its parameter.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

MOST_FIRST = 7  # options that a help shows first
_FIRST = "Options"
_OTHER = "Other"

# By heading, in their order: the parameters below it.
_HEADINGS = {
    "Data": """
        data tasks benchmark types languages splits subsets limit judgements
        relevance_threshold complete preset table id_column text title on boost chunks name msmarco
        embedding_tasks sheets again
    """,
    "Model": """
        pooling max_length dimensions prompts base prefix append_eos bidirectional normalize
        normalization instruction template adapter license hub_id density rank scale
        old_dimensions new_dimensions
    """,
    "Speed": """
        preview until_certain batch_size batch_tokens budget device dtype cache no_cache cache_dtype
        threads at_once part ray gpus_each tokens_per_second
    """,
    "Statistics": """
        baseline tested metric higher_is_better alpha margin power correction n_resamples most seed
        task_steps exit_code depth by_seeds prompts_as paired training_seeds seed_deviation
        prompt_count prompt_deviation
    """,
    "Files": """
        output_dir output results config facts mirror cache_limit read_limit runs fresh typed page
        map_file reports no_report before summary pass_env as_json port by_size
    """,
}
# By command: the parameters that one needs first, if these are others than those without a heading.
_NEEDED = {
    "extract": "checkpoint output pooling prefix label onnx verbose",
    "average": "folder output last best metric method weights",
    "encode": "spec source output role shards ray",
    "check": "model pooling prompts max_length device as_json",
    "check parity": "model where prompts_by least probes_only queries as_json",
    "choose": "candidates tier data soup",
    "eval": "checkpoint tier tasks data limit config dry_run",
    "judge": "queries documents models grades grader terminal sheet",
    "queries": "documents out kinds number worth models writer",
    "domain": "queries documents models text id_column check output",
    "rerank pairs": "model pairs output adapter instruction",
    "rerank suite": "model adapter tier first depth limit output",
    "rerank outputs": "checkpoint training base data tier depth limit",
    "sweep": "models tiers notebooks typed at_once dry_run no_book",
    "run eval": "checkpoint tier tasks data limit typed",
    "run extract": "training average count metric better pooling output",
    "run compare": "tier task baseline metric margin typed",
    "run explorer": "tier task metric models typed",
    "migrate": "queries documents text thresholds documents_total map_file no_page",
    "analyze": "output_dir also by kind specialist tier report",
    "compare": "current models task margin tested out gate",
    "plan": "models baseline margin tier tasks deviation out",
    "report": "model baselines tier tasks limit output facts",
}


def arranged_options(
    command_path: str, options: Sequence[click.Option]
) -> dict[str, list[click.Option]]:
    """Return the options of a command by heading; a short list has one.

    Args:
        command_path: the words of the command, without the program.
        options: those that its help shows.
    """
    if len(options) <= MOST_FIRST:
        return {_FIRST: list(options)}
    heading_by_name = {
        name: heading for heading, names in _HEADINGS.items() for name in names.split()
    }
    needed = _NEEDED.get(command_path, "").split()
    first = sorted(
        (option for option in options if option.name in needed),
        key=lambda option: needed.index(str(option.name)),
    )
    if not needed:
        first = [option for option in options if option.name not in heading_by_name][:MOST_FIRST]
    arranged: dict[str, list[click.Option]] = {_FIRST: first}
    for heading in _HEADINGS:
        arranged[heading] = []
    arranged[_OTHER] = []
    for option in options:
        if option not in first:
            arranged[heading_by_name.get(str(option.name), _OTHER)].append(option)
    return {heading: below for heading, below in arranged.items() if below}


def option_row(option: click.Option, context: click.Context) -> tuple[str, str]:
    """Return how an option is written, and what it does in one line if possible."""
    return _spelling(option, context), _description(option, context)


def _spelling(option: click.Option, context: click.Context) -> str:
    """Return the names of an option with a word for its value, such as ``--limit N``."""
    positive = option.opts[0].removeprefix("--")
    if option.secondary_opts == [f"--no-{positive}"]:
        return f"--[no-]{positive}"
    text = ", ".join(option.opts)
    if option.secondary_opts:
        return "/".join([text, *option.secondary_opts])
    if option.is_flag:
        return text
    return f"{text} {_value_word(option, context)}"


def _value_word(option: click.Option, context: click.Context) -> str:
    """Return the word that stands for the value of an option."""
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return str(option.name).upper()
    if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
        return "N"
    return option.make_metavar(context).replace("DIRECTORY", "FOLDER")


def _description(option: click.Option, context: click.Context) -> str:
    """Return the help of an option, with what it leaves out of its choices and its default."""
    help_text = (option.help or "").strip()
    extra = option.get_help_extra(context)
    default = extra.get("default", "")
    choices = [str(choice) for choice in getattr(option.type, "choices", ())]
    text = _sentence(help_text, values=[*choices, default])
    if any(choice not in help_text for choice in choices):
        all_choices = ", ".join(choices)
        text = f"{text}: {all_choices}".removeprefix(": ")
    notes = []
    if "required" in extra:
        notes.append("required")
    is_flag = isinstance(option.default, bool)
    # Such as "0: all", "float32; faster: int8", or a default in words.
    explained = (
        f"{default}:" in help_text or help_text.startswith(f"{default};") or "[default" in help_text
    )
    if is_flag and option.default is True:
        notes.append("default: on")
    elif default and not is_flag and not explained:
        notes.append(f"default: {default}")
    if notes:
        text += f"  [{'; '.join(notes)}]"
    return text.strip()


def _sentence(text: str, *, values: Sequence[str]) -> str:
    """Return a text with a capital and without a full stop; a value at its start stays as it is."""
    sentence = text.replace(".  [", "  [")
    if sentence.endswith("."):
        sentence = sentence[:-1]
    first_word = sentence.split(" ")[0].strip(",:;")
    if first_word in values or "=" in first_word:
        return sentence
    return sentence[:1].upper() + sentence[1:]

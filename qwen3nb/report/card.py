"""Model cards, from an export's provenance, its results and facts stated by the authors.

Unknown facts are marked as missing; nothing is guessed. The hub checks licence, languages and ids
when a card is uploaded; see https://huggingface.co/docs/hub/model-cards.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from pydantic import BaseModel, ConfigDict

import qwen3nb
from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import comparable, newest_records
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.answers.all_results import summarise
from qwen3nb.answers.comparison import Comparison, compare
from qwen3nb.answers.languages import LANGUAGES, PAIRS, group_means
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.answers.one_model import parts_table, results_table, suite_table
from qwen3nb.checkpoints.folder import ModelFolder, trainer_state
from qwen3nb.checkpoints.model_card import CARD, PENDING, card_fields
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.datasets.rows import finite_number
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.models.kinds.prompts import named_prompts
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import fingerprint
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import newest
from qwen3nb.records.store import latest
from qwen3nb.report.render.table import MANY, Cell, Table, plural, short_task
from qwen3nb.tiers import TIERS
from qwen3nb.utils.book_settings import book_settings
from qwen3nb.utils.format import code, escaped, number_text
from qwen3nb.utils.schema import read_toml
from qwen3nb.utils.secrets import known_secrets

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

    from qwen3nb.answers.extraction import ExtractedModel
    from qwen3nb.extraction.export import ExportFields


log = logging.getLogger(__name__)

JsonObject: TypeAlias = dict[str, Any]  # of a file of the model, of its training or of facts

_TAGS = ("sentence-transformers", "feature-extraction", "sentence-similarity", "qwen3", "encoder")
# Baselines that any encoder should beat: random vectors, and lexical search without training.
_WEAKEST_BASELINES = ("random", "bm25")
_MOST_PARTS = 200  # rows of a card's table of subsets
_MOST_LANGUAGES = 8  # shown unfolded


def card_text(
    folder: Path | str,
    results: Sequence[Result],
    *,
    tier: str = "smoke",
    facts: Path | None = None,
    license: str = "",
    hub_id: str = "",
    name: str = "",
    front: bool = True,
    every_score: bool = False,
) -> str:
    """Return the card as Markdown, with front matter for the hub.

    It is two screens long: the means, what they are compared with, how to use the model and its
    limits. All else is folded.

    Args:
        folder: an extracted model directory.
        results: any records; those of this model on the tier are shown.
        tier: the tier whose tasks the comparison shows.
        facts: a TOML file with facts from the authors; see `qwen3nb.report.card.Facts`.
        license: licence, if neither the facts nor the training's files state one.
        hub_id: the model's id on the hub, for the examples; by default they name the folder.
        name: name used in the examples for a folder that is not finished.
        front: whether to include the front matter; pages of the book omit it.
        every_score: whether the front matter has every score, and not only the means of many.

    Raises:
        ValueError: the folder was not written by `extract`, or a fact is invalid.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    folder = Path(folder)
    provenance = read_provenance(folder) or {}
    if "source" not in provenance:
        raise ValueError(
            f"{folder}: no qwen3nb.json of `qwen3nb extract`; expected a model directory it wrote"
        )
    author_facts = stated_facts(source_folder(provenance), facts, license=license)
    records = records_of(folder, results)
    if not author_facts.get("language"):
        author_facts["language"] = languages(records)
    # Not HTML: every outside value goes through `escaped`.
    environment = Environment(
        loader=PackageLoader("qwen3nb.report", "."),
        undefined=StrictUndefined,
        trim_blocks=False,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, escaped value by value
    )
    fields = {
        **provenance,
        **_model_fields(folder, provenance, author_facts),
        **_result_fields(records, results, tier=tier, longest_text=provenance["max_length"]),
        "pending": PENDING,
        "name": name or loaded_name(folder, hub_id),
        "code": code,
        "version": qwen3nb.__version__,
    }
    body = environment.get_template("card.md.j2").render(fields)
    if not front:
        return body
    front_text = front_matter(
        folder, records, author_facts, name=provenance["label"], every_score=every_score
    )
    return f"---\n{front_text}\n---\n\n{body}"


def extract(
    checkpoint: Path | str,
    output: Path | str,
    *,
    facts: Path | str | None = None,
    license: str = "",
    hub_id: str = "",
    label: str | None = None,
    onnx: bool = False,
    **options: Unpack[ExportFields],
) -> ExtractedModel:
    """Write the encoder of ``checkpoint`` to the directory ``output``, verified and described.

    Its README is the complete model card; `qwen3nb card` updates it once there are results.

    Args:
        checkpoint: a folder with ``config.json``, weights and a tokenizer.
        output: the directory to create; an earlier export is replaced after verification.
        facts: a TOML file with facts from the authors; see
            `qwen3nb.report.card.Facts`.
        license: licence, if neither the facts nor the training's files state one.
        hub_id: the model's id on the hub, for the card's examples.
        label: label in results; by default, the label of an export of the same weights in
            ``output``, else the name of that folder.
        onnx: whether to write an ONNX graph, too.
        options: the fields of `qwen3nb.extraction.export.ExportOptions`, such as ``pooling``,
            ``normalize``, ``max_length``, ``dtype``, ``prefix``, ``append_eos``.

    Raises:
        CheckpointError: the checkpoint is invalid, or the export does not reproduce its
            source. ``output`` is then left unchanged.
        ValueError: an unknown choice, or an invalid fact.
    """
    from qwen3nb.answers.extraction import ExtractedModel
    from qwen3nb.extraction.extract import write_encoder  # loads torch

    facts_file = None if facts is None else Path(facts)
    read_facts(facts_file)  # raises before anything is written
    name = loaded_name(Path(output), hub_id)

    def write_card(folder: Path) -> str:
        card = card_text(folder, [], facts=facts_file, license=license, hub_id=hub_id, name=name)
        # Raises if the card has a secret in it.
        known_secrets().refuse(card, place=str(Path(output) / "README.md"))
        return card

    extraction = write_encoder(
        checkpoint, output, label=label, onnx=onnx, describe=write_card, **options
    )
    return ExtractedModel.of(extraction)


def loaded_name(folder: Path, hub_id: str) -> str:
    """Return the name loaded in the examples: the id on the hub, or the folder's name, quotable.

    Raises:
        ValueError: not a valid id on the hub.
    """
    if hub_id and not HUB_ID.fullmatch(hub_id):
        raise ValueError(f"expected an id on the hub such as organisation/name; got {hub_id!r}")
    return hub_id or re.sub(r"""["'`\\\s<>]""", "-", folder.name)


def _model_fields(folder: Path, provenance: JsonObject, author_facts: JsonObject) -> JsonObject:
    """Return the template's fields on the model, in addition to the provenance."""
    source = find_source(str(folder))
    training = training_of(source_folder(provenance))
    pooling = provenance["pooling"]
    other_poolings = [name for name in POOLINGS if name != pooling]
    objective = str(training.get("objective", author_facts.get("objective", "")))
    citation = author_facts.get("citation", "")
    bibtex = ""
    if _is_bibtex(citation):
        bibtex, citation = citation.strip(), ""
    return {
        # Themes print titles unescaped in places: use only the label, which is safe.
        "label": source.label,
        "parameters": f"{provenance['parameters']:,}",
        # For an example of how to load the model with another one.
        "other_pooling": other_poolings[0],
        "pooling_code": POOLINGS[pooling].code,
        "prompts": named_prompts(provenance.get("prompts", {})),
        "graph": provenance["verification"].get("onnx"),
        # Trained on the data of the demo.
        "toy": str(training.get("data", "")).startswith("PyDocs"),
        "details": _escaped(details(ModelFolder(folder).config, provenance, author_facts)),
        "origin": _escaped(origin(provenance, fingerprint(source))),
        "training": _escaped(training_facts(training, author_facts)),
        "unrecorded": not training,
        "ul2": "ul2" in objective.lower(),
        "bibtex": bibtex,
        "citation": escaped(citation),
        "thanks": escaped(author_facts.get("acknowledgements", "")),
    }


def _is_bibtex(citation: str) -> bool:
    """Whether a citation is BibTeX that can stand in a block of code: none of it ends the block."""
    return citation.lstrip().startswith("@") and "```" not in citation


def _escaped(rows: Rows) -> Rows:
    """Escape the rows, and link the base model to the hub if it is a hub id."""
    cells = []
    for name, value in rows:
        text = escaped(value)
        if name == "base model" and HUB_ID.fullmatch(value):
            text = f"[{text}](https://huggingface.co/{value})"
        cells.append((escaped(name), text))
    return cells


def _result_fields(
    records: Sequence[Result], all_results: Sequence[Result], *, tier: str, longest_text: int
) -> JsonObject:
    """Return the template's fields on the model's records, compared with those of others."""
    tier_tasks = TIERS[tier].task_keys
    other_tasks = [record.task.key for record in records if record.task.key not in tier_tasks]
    on_tier = compare(all_results, tier=tier)
    # The limits also concern the model's tasks outside the tier.
    on_all_tasks = compare(
        all_results, tasks=[*tier_tasks, *other_tasks], baseline=on_tier.baseline
    )
    standings = _standings(records, on_all_tasks)
    limits = limitations(records, standings, longest_text=longest_text)
    runs = {escaped(record.run) for record in records}
    fields: JsonObject = {
        "evaluation": "",
        "suite": "",
        "comparison": "",
        "by_language": "",
        "languages_in_full": "",
        "against": [escaped(standing.text) for standing in standings],
        "details_of_limits": [escaped(text) for text in limits_by_task(standings)],
        "warnings": [
            (warning.title, escaped(warning.text)) for warning in DataUsed.of(records).warnings
        ],
        "limits": [escaped(sentence) for sentence in limits],
        "runs": ", ".join(sorted(runs)),
    }
    if records:
        tables = [results_table(records), _short_parts_table(records)]
        board = leaderboard(all_results, tier=tier, comparison=on_tier)
        fields["evaluation"] = "\n\n".join(table.to_markdown() for table in tables if table)
        means = suite_table(summarise(records, requested=tier_tasks))
        # How a mean is computed stands on the pages of the book.
        fields["suite"] = replace(means, method="").to_markdown()
        fields["comparison"] = board.table_with_published().to_markdown()
        fields |= _language_fields(records, all_results)
    return fields


def _short_parts_table(records: Sequence[Result]) -> Table | None:
    """Return the scores of all subsets; where they are many, a sentence on where they are."""
    table = parts_table(records)
    if table is None or len(table) <= _MOST_PARTS:
        return table
    count = sum(len(record.parts) for record in records)
    return replace(table, rows=(), note=f"The scores of {count:,} subsets are in the records.")


def _language_fields(records: Sequence[Result], all_results: Sequence[Result]) -> JsonObject:
    """Return the means by language: the languages with most tasks, and all if there are more.

    The tasks of a language are those of all models, as on the book's other pages.
    """
    identity = records[0].model.identity
    rows = []
    titles = []  # of what each row's score is by
    missing: dict[str, None] = {}
    for grouping in (LANGUAGES, PAIRS):
        means = group_means([*all_results, *records], grouping)
        for group in means.tasks:
            mean = means.mean(identity, group)
            if not mean.scores:
                continue
            missing |= dict.fromkeys(mean.missing)
            value = Cell("incomplete") if mean.value is None else Cell(f"{mean.value:.3f}")
            rows.append((group, mean.count, value))
            titles.append(grouping.title)
    if len(rows) < 2:
        return {}
    heads = ("language", "tasks", "mean of main scores")
    lacks = f"Without a score: {', '.join(missing)}." if missing else ""
    if len(rows) <= _MOST_LANGUAGES:
        return {"by_language": Table.of(rows, heads, note=lacks).to_markdown()}
    note = languages_below(titles[_MOST_LANGUAGES:])
    first_rows = Table.of(rows[:_MOST_LANGUAGES], heads, note=note)
    return {
        "by_language": first_rows.to_markdown(),
        "languages_in_full": Table.of(rows, heads, note=lacks).to_markdown(),
    }


def languages_below(titles: Sequence[str]) -> str:
    """Say how many languages, and how many pairs of them, stand further below in a card.

    >>> languages_below(["language", "language", "pair of languages"])
    'Below the scores by task are 2 more languages and 1 pair of languages.'
    """
    languages = titles.count(LANGUAGES.title)
    pairs = titles.count(PAIRS.title)
    counts = []
    if languages:
        counts.append(plural(languages, "more language"))
    if pairs:
        counts.append(f"{plural(pairs, 'pair')} of languages")
    verb = "is" if len(titles) == 1 else "are"
    return f"Below the scores by task {verb} {' and '.join(counts)}."


def records_of(folder: Path, results: Sequence[Result]) -> list[Result]:
    """Return the records of the model in ``folder``: same weights and files, any label.

    If a model was evaluated in several ways, such as with different poolings, the one with most
    records is shown; if tied, the newest.
    """
    if not results:
        return []
    model_fingerprint = fingerprint(find_source(str(folder)))
    # Weights and files decide: the label may have changed.
    of_model = [
        record
        for record in latest(results)
        if record.model.settings.get("model") == model_fingerprint
    ]
    newest_of_tasks, _ = newest_records(of_model)
    by_identity = defaultdict(list)  # one of each way in which the model was used
    for record in newest_of_tasks:
        by_identity[record.model.identity].append(record)
    if not by_identity:
        return []
    highest_count = max(len(records) for records in by_identity.values())
    # Of the ways with most records, the one that was used last.
    candidates: list[Result] = []
    for records in by_identity.values():
        if len(records) == highest_count:
            candidates += records
    return by_identity[newest(candidates).model.identity]


def front_matter(
    folder: Path,
    results: Sequence[Result],
    author_facts: JsonObject,
    *,
    name: str,
    every_score: bool = False,
) -> str:
    """Return the front matter as YAML, with the main scores, or the means of many.

    Base models and data sets that are not on the hub are left out. So are single scores if they are
    many, unless ``every_score``: the hub reads them in ``.eval_results``, and takes those first.
    """
    import yaml
    from huggingface_hub import ModelCardData

    data = ModelCardData(model_name=name, license=author_facts.get("license"), tags=list(_TAGS))
    data.library_name, data.pipeline_tag = "transformers", "feature-extraction"
    if (folder / "modules.json").is_file():
        data.library_name, data.pipeline_tag = "sentence-transformers", "sentence-similarity"
    for key in ("license_name", "license_link", "language"):
        if author_facts.get(key):
            data[key] = author_facts[key]
    datasets = [path for path in author_facts.get("datasets", ()) if HUB_ID.fullmatch(path)]
    if datasets:
        data.datasets = datasets
    base_model = author_facts.get("base_model") or ""
    if HUB_ID.fullmatch(base_model):
        data.base_model = base_model
    eval_results = _eval_results(results)
    if len(eval_results) > MANY and not every_score:
        eval_results = _mean_results(results)
    if eval_results:  # none if all scores are on substitutes for a task's data
        data.eval_results = eval_results
        data.tags = [*_TAGS, "mteb"]
    # One line per innermost list or mapping: 250 lines for 61 tasks instead of 1,400.
    style: JsonObject = {"default_flow_style": None, "width": 1000, "sort_keys": False}
    text = yaml.dump(data.to_dict(), Dumper=_dumper(), allow_unicode=True, **style)
    return str(text).rstrip()


def _dumper() -> Any:
    """Return a safe dumper that also quotes what only YAML 1.2 takes for a number, as ``1e3``."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def represent_str(self, text: str) -> Any:
            quote = None
            # PyYAML would write 1e3 without quotes, which the hub's YAML 1.2 reads as a number.
            if _NUMBER.fullmatch(text):
                quote = "'"
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=quote)

    Dumper.add_representer(str, Dumper.represent_str)
    return Dumper


def _eval_results(results: Sequence[Result]) -> list[EvalResult]:
    """Return entries for the hub's index of results: the main score of each split and subset.

    Scores on substitutes for a task's data, or on generated queries, are left out: the index would
    name other data.
    """
    from huggingface_hub import EvalResult

    entries = []
    for result in results:
        task = result.task
        if task.is_substitute or task.is_generated:
            continue
        for subset, split, score in _scores_by_part(result):
            if score.value is None:
                continue
            name = task.name
            if subset not in (None, "default"):
                name = f"{name} ({subset})"
            entry = EvalResult(
                task_type=task.type,
                dataset_type=task.dataset,
                dataset_name=name,
                dataset_config=subset,
                dataset_split=split,
                dataset_revision=task.revision,
                # MTEB's own name of the metric, where it has one.
                metric_type=task.mteb.metric if task.mteb else task.main_metric,
                metric_value=round(score.value, 6),
            )
            entries.append(entry)
    return entries


def _mean_results(results: Sequence[Result]) -> list[EvalResult]:
    """Return an entry for the mean of each benchmark; none on substitutes for their data."""
    from huggingface_hub import EvalResult

    summary = summarise(results, requested=[result.task.key for result in results])
    if summary.data.substitutes or summary.data.generated:
        return []
    entries: dict[str, EvalResult] = {}
    for mean in summary.means:
        # The first mean of a benchmark is the one over all of its tasks.
        if mean.value is not None and mean.column.benchmark not in entries:
            entries[mean.column.benchmark] = EvalResult(
                task_type="Mean",
                dataset_type="mteb",
                dataset_name=mean.column.name,
                dataset_config=mean.column.benchmark,
                metric_type=mean.column.measure,
                metric_value=round(mean.value, 6),
            )
    return list(entries.values())


def _scores_by_part(result: Result) -> list[tuple[str | None, str | None, Aggregate]]:
    """Return subset, split and score of each part of a task, or of the whole."""
    if result.parts:
        return [(part.subset, part.split, part.score) for part in result.parts]
    # Named only if it is the only one; a score over several has no such name.
    subset, split = None, None
    if len(result.task.subsets) == 1:
        subset = result.task.subsets[0]
    if len(result.task.splits) == 1:
        split = result.task.splits[0]
    return [(subset, split, result.main)]


@dataclass(frozen=True)
class _Standing:
    """A model compared with another one, on the tasks that both have."""

    other: str
    differences: tuple[PairedDifference, ...]  # of the model from the other
    alpha: float
    is_weak: bool  # whether any encoder should beat the other

    @property
    def better(self) -> list[PairedDifference]:
        """The differences that are shown to be in the model's favour."""
        return [d for d in self.differences if d.significant(self.alpha) and d.difference > 0]

    @property
    def behind(self) -> list[PairedDifference]:
        """The differences that are shown to be against the model, the largest first."""
        worse = [d for d in self.differences if d.significant(self.alpha) and d.difference < 0]
        return sorted(worse, key=lambda difference: difference.difference)

    @property
    def undecided(self) -> list[PairedDifference]:
        """The differences that are not shown to be any."""
        return [d for d in self.differences if not d.significant(self.alpha)]

    @property
    def text(self) -> str:
        """On how many tasks the model is better, and on how many it is behind."""
        outcomes = {
            "better": self.better,
            "behind": self.behind,
            "no difference shown": self.undecided,
        }
        parts = [f"{verdict} on {len(found)}" for verdict, found in outcomes.items() if found]
        # The first count says of how many: "better on 1 of 3 tasks, behind on 2".
        parts[0] += f" of {plural(len(self.differences), 'task')}"
        return f"Against {self.other}: {', '.join(parts)}."

    @property
    def limit(self) -> str:
        """What a model that should beat the other does not show; empty if it does."""
        of_tasks = f"of {plural(len(self.differences), 'task')}"
        undecided = f"Not shown to be better than {self.other} on {len(self.undecided)} {of_tasks}."
        if not self.behind:
            return undecided if self.undecided else ""
        worst = self.behind[0]
        change = number_text(worst.difference, sign=True)
        behind = (
            f"Behind {self.other} on {len(self.behind)} {of_tasks}, by most on "
            f"{short_task(worst.task)} ({worst.metric} {change})"
        )
        if not self.undecided:
            return f"{behind}."
        return f"{behind}; not shown to be better on {len(self.undecided)}."


def _standings(records: Sequence[Result], comparison: Comparison) -> list[_Standing]:
    """Compare a model with the weakest baselines, and with the comparison's own."""
    others = {
        name: name in _WEAKEST_BASELINES for name in (*_WEAKEST_BASELINES, comparison.baseline)
    }
    standings = []
    for other, is_weak in others.items():
        differences = _differences_from(other, records, comparison)
        if differences:
            alpha = comparison.procedure.alpha
            standings.append(_Standing(other, tuple(differences), alpha, is_weak))
    return standings


def _differences_from(
    other: str, records: Sequence[Result], comparison: Comparison
) -> list[PairedDifference]:
    differences = []
    for (_, name), other_record in comparison.records.items():
        if other not in (name, other_record.model.label):
            continue
        for record in records:
            if record.model == other_record.model or not comparable(record, other_record):
                continue
            difference = comparison.between(record, other_record)
            if difference is not None:
                differences.append(difference)
    return sorted(differences, key=lambda difference: difference.task)


def limitations(
    records: Sequence[Result], standings: Iterable[_Standing], *, longest_text: int
) -> list[str]:
    """Return at most five limits that matter; `limits_by_task` has each task."""
    if not records:
        return ["Not measured yet: nothing is known about its quality."]
    sentences = []
    for standing in standings:
        if standing.is_weak and standing.limit:
            sentences.append(standing.limit)
    types = {str(record.task.type) for record in records}
    sentences.append(
        f"Measured on {plural(len(records), 'task')} of {plural(len(types), 'type')}; nothing is "
        "known about other tasks, domains or languages."
    )
    sentences.append(f"Texts of more than {longest_text:,} tokens are cut off.")
    return sentences


def limits_by_task(standings: Iterable[_Standing]) -> list[str]:
    """Return each task on which a model does not show to be better than a weak baseline."""
    sentences = []
    for standing in standings:
        if not standing.is_weak:
            continue
        for difference in standing.differences:
            if difference in standing.better:
                continue
            verdict = "not significantly different from"
            if difference in standing.behind:
                verdict = "behind"
            sentences.append(
                f"{difference.task}: {verdict} {standing.other} ({difference.metric} {difference})."
            )
    return sentences


HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_NOT_GIVEN = "not given"
_LIST_FACTS = ("language", "datasets")
# Facts that the files of a training may state.
_YAML_NULLS = ("", "null", "Null", "NULL", "~")  # YAML's nothing, as text
_OF_LICENCE = ("license", "license_name", "license_link")
_RECORDED_FACTS = (*_OF_LICENCE, "language", "datasets", "base_model")
# Text that YAML 1.2, which the hub reads, takes for a number; PyYAML writes it without quotes.
_NUMBER = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|0o[0-7]+")
Rows = list[tuple[str, str]]


def languages(results: Iterable[Result]) -> list[str]:
    """Return the languages of a model's tasks, in the hub's notation.

    MTEB writes ``eng-Latn`` for English and ``python-Code`` for a programming language.
    """
    codes = set()
    for result in results:
        languages_of_task = list(result.task.languages)
        for part in result.parts:
            languages_of_task += part.languages
        for name in languages_of_task:
            language, _, script = name.partition("-")
            if script == "Code":
                language = "code"
            elif language == "eng":
                language = "en"  # the hub accepts three letters for other languages
            codes.add(language)
    return sorted(codes)


class Facts(BaseModel):
    """Content of a facts file: facts that no file of the model or its training has."""

    model_config = ConfigDict(extra="forbid", strict=True)

    license: str = ""
    license_name: str = ""
    license_link: str = ""
    language: list[str] = []
    datasets: list[str] = []
    base_model: str = ""
    objective: str = ""
    mixture: str = ""
    data: str = ""
    tokens: str = ""
    hardware: str = ""
    duration: str = ""
    citation: str = ""
    acknowledgements: str = ""


def read_facts(file: Path | None) -> JsonObject:
    """Read facts about a model from a TOML file; empty without one.

    Raises:
        ValueError: not TOML, an unknown key (lists the known ones), or a value of a wrong type.
    """
    if file is None:
        return {}
    facts: Facts = read_toml(file, Facts, known={"": Facts.model_fields})
    return facts.model_dump(exclude_unset=True)


def stated_facts(source: Path, file: Path | None, *, license: str = "") -> JsonObject:
    """Return all stated facts, from a facts file and the training's files.

    Precedence: the facts file, ``training.json``, the card of the checkpoint ``source``, which need
    not exist any more, and the base model's name in its configuration. If none states a licence, it
    is ``license``, by default that of the book. A licence that is stated but cannot be read is not
    replaced by the book's; a warning names its file.

    Raises:
        ValueError: as in `read_facts`.
    """
    all_facts: JsonObject = {}
    # Facts that are added later replace earlier ones, so the weakest source comes first.
    base_model = ModelFolder(source).config.get("_name_or_path")
    if _is_on_hub(base_model):
        all_facts["base_model"] = base_model
    licence_problems: list[str] = []
    for read_file in (_facts_of_card, _facts_of_training):
        try:
            facts = read_file(source)
        except _LicenceError as error:
            facts = error.other_facts
            licence_problems.append(str(error))
        _add_facts(all_facts, facts)
    _add_facts(all_facts, read_facts(file))
    if "license" in all_facts:
        return all_facts
    # The book's licence is no substitute for one that is stated, but cannot be read.
    if not license and not licence_problems:
        license = book_settings().license
    if license:
        all_facts["license"] = license
        return all_facts
    for problem in licence_problems:
        log.warning("%s; the card states no licence: give one by --license or --facts", problem)
    return all_facts


def _is_on_hub(name: object) -> bool:
    """Whether a name is an id on the hub; that of a folder may look like one."""
    return isinstance(name, str) and bool(HUB_ID.fullmatch(name)) and not Path(name).exists()


class _LicenceError(ValueError):
    """A licence that is stated, but cannot be read; has the other facts of the same file."""

    def __init__(self, message: str, other_facts: JsonObject) -> None:
        super().__init__(message)
        self.other_facts = other_facts


def _facts_of_card(source: Path) -> JsonObject:
    try:
        fields = card_fields(source)
    except CheckpointError as error:
        raise _LicenceError(str(error), {}) from None
    fields = _without_nulls(_with_usual_names(fields))
    return _recorded_facts(fields, file=source / CARD)


def _with_usual_names(fields: JsonObject) -> JsonObject:
    """Return fields with ``License`` or ``licence`` as ``license``, unless that is there, too."""
    renamed_fields = dict(fields)
    for name, value in fields.items():
        usual_name = name.lower().replace("licence", "license")
        renamed_fields.setdefault(usual_name, value)
    return renamed_fields


def _without_nulls(fields: JsonObject) -> JsonObject:
    """Return fields of YAML read as text, without those that state nothing."""
    facts: JsonObject = {}
    for name, value in fields.items():
        if isinstance(value, list):
            entries = [entry for entry in value if entry not in _YAML_NULLS]
            if entries:
                facts[name] = entries
        elif value not in _YAML_NULLS:
            facts[name] = value
    return facts


def _facts_of_training(source: Path) -> JsonObject:
    return _recorded_facts(training_of(source), file=source / "training.json")


def _add_facts(all_facts: JsonObject, facts: JsonObject) -> None:
    """Add facts in place; a licence replaces the earlier one with its name and link."""
    if "license" in facts:
        for name in _OF_LICENCE:
            all_facts.pop(name, None)
    all_facts.update(facts)


def _recorded_facts(fields: JsonObject, *, file: Path) -> JsonObject:
    """Return the recorded facts: lists where the card has lists; several licences are a list."""
    facts: JsonObject = {}
    for name in _RECORDED_FACTS:
        texts = _texts(fields.get(name))
        if not texts:
            continue
        # One text, but for what the card has as a list.
        facts[name] = texts[0]
        if name in _LIST_FACTS or (name == "license" and len(texts) > 1):
            facts[name] = texts
    # Something is stated, such as a number, that is neither a text nor a list of texts.
    if fields.get("license") and "license" not in facts:
        licence = str(fields["license"])
        # Of what is stated, at most 80 characters.
        raise _LicenceError(f"{file}: its licence {licence!r:.80} is no text", facts)
    return facts


def _texts(value: object) -> list[str]:
    """Return a text, or the texts of a list, without what is empty or no text."""
    values = value if isinstance(value, list) else [value]
    return [text.strip() for text in values if isinstance(text, str) and text.strip()]


def details(config: JsonObject, provenance: JsonObject, facts: JsonObject) -> Rows:
    """Return the model's details: its shape from ``config.json``, its use from the export."""
    heads = f"{config['num_attention_heads']}, key/value {config['num_key_value_heads']}"
    length = "length 1" if provenance["normalize"] else "not normalised"
    rows: list[tuple[str, Any]] = [
        ("type", "Qwen3 encoder, bidirectional attention"),
        ("base model", facts.get("base_model")),
        ("parameters", f"{provenance['parameters']:,}, embeddings included"),
        ("layers", config["num_hidden_layers"]),
        ("hidden size", config["hidden_size"]),
        ("attention heads", f"{heads}, of {config['head_dim']} dimensions"),
        ("vocabulary", f"{config['vocab_size']:,} rows"),
        (
            "vectors",
            f"{provenance['dimension']} dimensions, pooling {provenance['pooling']}, {length}",
        ),
        ("input", _input_text(provenance)),
    ]
    if provenance.get("prompts"):
        rows.append(("prompts", _prompts_text(provenance["prompts"])))
    rows += [
        ("longest text", f"{provenance['max_length']} tokens; the rest is truncated"),
        ("context length", f"{config['max_position_embeddings']:,} tokens (its positions)"),
        ("stored as", provenance["dtype"]),
        ("languages", ", ".join(facts.get("language", ()))),
        ("licence", _licence(facts)),
    ]
    return _with_gaps_named(rows)


def _input_text(provenance: JsonObject) -> str:
    """Say what is put around a text."""
    parts = []
    if provenance["prefix"]:
        parts.append(f"starts with {provenance['prefix']!r}")
    if provenance["append_eos"]:
        parts.append("ends with the end-of-text token")
    return ", ".join(parts) or "the text as it is"


def _prompts_text(prompts: Mapping[str, str]) -> str:
    """Return the prompts by role, and who applies them."""
    parts = ", ".join(f"{role} {text!r}" for role, text in prompts.items())
    text = f"{parts}; applied by encode_query and encode_document"
    if "symmetric" in prompts:
        text = f"{text}, symmetric by encode alone"
    return text


def _licence(facts: JsonObject) -> str:
    """Return the licence in words, with the name that stands behind ``other``."""
    licence = facts.get("license", "")
    if isinstance(licence, list):
        licence = ", ".join(licence)
    name = facts.get("license_name")
    if not name:
        return str(licence)
    if not licence:
        return str(name)
    return f"{licence} ({name})"


def origin(provenance: JsonObject, fingerprint: JsonObject) -> Rows:
    """Return the source checkpoint, the digests, and what was verified."""
    source, verification = provenance["source"], provenance["verification"]
    difference = verification.get("sentence_transformers_difference")
    in_sentence_transformers = "not checked"
    if difference is not None:
        in_sentence_transformers = f"differs by at most {difference:.1e}"
    versions = [f"{library} {version}" for library, version in provenance["versions"].items()]
    return [
        ("extracted from", Path(source["folder"]).name),
        ("SHA-256 of the source's weights", source["digest"]),
        *_step_or_average(source),
        ("SHA-256 of these weights", str(fingerprint["weights"])),
        ("verified", _verification_text(verification)),
        ("in sentence-transformers", in_sentence_transformers),
        ("written with", ", ".join(versions)),
    ]


def _step_or_average(source: JsonObject) -> Rows:
    """Return the step of a checkpoint, or the checkpoints of which it is the average."""
    averaging = source.get("averaging")
    if averaging:
        names = ", ".join(averaging["averaged_from"])
        rows = [("average of", f"{averaging['rule']}: {names}")]
        if "merge" in averaging:
            rows.append(("merged by", _merge_text(averaging["merge"])))
        for name, digest in averaging.get("digests", {}).items():
            rows.append((f"SHA-256 of {name}", digest))
        return rows
    if source.get("step") is not None:
        return [("training step", str(source["step"]))]
    return []


def _merge_text(merge: JsonObject) -> str:
    """Say how models were merged, such as ``slerp, weights 0.67, 0.33``."""
    weights = ", ".join(f"{weight:.3g}" for weight in merge["weights"])
    parts = [f"{merge['method']}, weights {weights}"]
    for name in ("base", "density", "scale", "seed"):
        if name in merge:
            parts.append(f"{name} {merge[name]}")
    return ", ".join(parts)


def _verification_text(verification: JsonObject) -> str:
    tokens = verification["tokens"]
    return (
        "largest difference from the source encoder "
        f"{verification['max_difference']:.1e} (bound {verification['bound']:.0e}) over "
        f"{verification['texts']} texts of {min(tokens)} to {max(tokens)} tokens, padded "
        f"{' and '.join(verification['padding'])}"
    )


def training_of(source: Path) -> JsonObject:
    """Read ``training.json`` and ``trainer_state.json`` in or above a checkpoint's folder.

    The content of ``trainer_state.json`` is under the key ``trainer``.
    """
    name = "training.json"
    folder = source
    if not (source / name).is_file() and (source.parent / name).is_file():
        folder = source.parent
    return {**ModelFolder(folder).object(name), "trainer": trainer_state(source)}


def training_facts(training: JsonObject, facts: JsonObject) -> Rows:
    """Return facts of the training from its own files, or else from its authors."""
    settings, trainer = _object(training.get("settings")), _object(training.get("trainer"))
    log = _objects(trainer.get("log_history"))
    step = trainer.get("global_step")
    denoisers = []
    for denoiser in _objects(training.get("denoisers")):
        share = finite_number(denoiser.get("share"))
        if share is not None:
            denoisers.append(f"{denoiser.get('mode')} {share:.0%}")
    data = training.get("data") or facts.get("data") or ", ".join(facts.get("datasets", ()))
    # What the training recorded comes first, then what its authors state.
    rows: list[tuple[str, Any]] = [
        ("objective", training.get("objective") or facts.get("objective")),
        ("mixture", "; ".join(denoisers) or facts.get("mixture")),
        ("data", data),
        ("tokens seen", _tokens_seen(training, facts)),
        ("steps", settings.get("steps") or step),
        ("epochs", _epochs(trainer.get("epoch"))),
        ("texts per step", settings.get("batch") or trainer.get("train_batch_size")),
        ("peak learning rate", settings.get("learning_rate") or _peak_rate(log)),
        ("eval_loss at this step", _loss_at(step, log)),
        ("hardware", training.get("hardware") or facts.get("hardware")),
        ("duration", _duration(training, facts)),
        ("seed", settings.get("seed")),
    ]
    return _with_gaps_named(rows)


def _object(value: object) -> JsonObject:
    """Return a JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[JsonObject]:
    """Return the JSON objects in a list; none for anything else."""
    if not isinstance(value, list):
        return []
    return [entry for entry in value if isinstance(entry, dict)]


def _tokens_seen(training: JsonObject, facts: JsonObject) -> str | None:
    tokens_seen = finite_number(training.get("tokens_seen"))
    if tokens_seen:
        return f"{tokens_seen:,}"
    tokens: str | None = facts.get("tokens")
    return tokens


def _epochs(epoch: object) -> str | None:
    number = finite_number(epoch)
    if number is None:
        return None
    return f"{number:.3g}"


def _peak_rate(log: Sequence[JsonObject]) -> float | None:
    rates = [finite_number(entry.get("learning_rate")) for entry in log]
    return max((rate for rate in rates if rate is not None), default=None)


def _loss_at(step: object, log: Sequence[JsonObject]) -> str | None:
    """Return the loss of exactly that step; a cumulative log may end at an earlier one."""
    for entry in log:
        if entry.get("step") == step and "eval_loss" in entry:
            loss = entry["eval_loss"]
            # A loss of NaN is shown, too: the training diverged.
            if isinstance(loss, float) or finite_number(loss) is not None:
                return f"{loss:.4f}"
    return None


def _duration(training: JsonObject, facts: JsonObject) -> str | None:
    seconds = finite_number(training.get("seconds"))
    if seconds is not None:
        return f"{seconds:,.0f} s"
    duration: str | None = facts.get("duration")
    return duration


def _with_gaps_named(rows: Iterable[tuple[str, object]]) -> Rows:
    """Return rows as text; a value that is not known is ``not given``."""
    texts = []
    for name, value in rows:
        text = _NOT_GIVEN if value in (None, "") else str(value)
        texts.append((name, text))
    return texts


def source_folder(provenance: JsonObject) -> Path:
    """Return the folder of the checkpoint at the time of extraction; it may not exist any more."""
    return paths.root() / str(provenance["source"]["folder"])

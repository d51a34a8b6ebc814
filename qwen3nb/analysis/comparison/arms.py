"""Trainings of several seeds, the arms, as texts name them and records have them.

An arm is a training; its models differ by the seed. The seed is what the record of an adapter
states, else the number after ``seed`` in the label: ``demo-seed_7`` is seed 7 of ``demo``. A
pattern of labels, such as ``enc-*``, or a list of labels makes an arm of any models. An arm may
also be one model, such as bm25, which is then taken as it is.
"""

import fnmatch
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from qwen3nb.models.kinds.source import safe_label
from qwen3nb.records.record import Result
from qwen3nb.records.results import from_oldest
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.format import first_names

_SEED = re.compile(r"[-_.=]?seed[-_.=]?(?P<seed>\d{1,9})", re.IGNORECASE)
_STEP = re.compile(r"[-_.]?checkpoint[-_](?P<step>\d{1,12})$")
_PATTERN = re.compile(r"[*?\[]")
_MOST_NAMED = 4  # labels in an error


class Member(NamedTuple):
    """One model of an arm: all records of a training's seed, or of a label."""

    seed: str  # its number, or the label of a model whose seed is not known
    label: str
    training: str = ""  # empty: the model is found by its label

    def has(self, record: Result) -> bool:
        """Whether a record is of this model."""
        if self.training:
            return training_and_seed(record) == (self.training, self.seed)
        return record.model.label == self.label


@dataclass(frozen=True)
class Arm:
    """A training, and its models."""

    name: str
    members: tuple[Member, ...]

    @property
    def seeds(self) -> tuple[str, ...]:
        """The seeds, or labels of models whose seed is not known."""
        return tuple(member.seed for member in self.members)

    def has(self, record: Result) -> bool:
        """Whether a record is of one of the models."""
        return any(member.has(record) for member in self.members)


def training_and_seed(result: Result) -> tuple[str, str] | None:
    """Return the name of a record's training without its seed, and the seed; None if not known.

    >>> from types import SimpleNamespace as N
    >>> model = N(label="demo-seed_7-checkpoint-400", spec="")
    >>> training_and_seed(N(training=None, model=model))
    ('demo-checkpoint-400', '7')
    """
    training = result.training
    if training is not None and training.seed is not None and training.name:
        return training.name, str(training.seed)
    label = result.model.label
    found = _SEED.search(label)
    if found is None:
        return None
    name = (label[: found.start()] + label[found.end() :]).strip("-_.=")
    if found.start() == 0:  # of ``runs/demo/seed_7/checkpoint-400``, the label lacks ``demo``
        name = "-".join(part for part in (_folder_above_seed(result.model.spec), name) if part)
    return name or "training", str(int(found["seed"]))


def _folder_above_seed(spec: str) -> str:
    """Return the name of the folder that a folder of a seed is in; empty if there is none."""
    parts = spec.split("/")
    for above, below in itertools.pairwise(parts):
        if _SEED.fullmatch(below):
            return safe_label(above)
    return ""


def find_arms(records: Iterable[Result], *, at_least: int = 2) -> dict[str, Arm]:
    """Return the trainings with this many seeds or more, by name, from labels and adapters."""
    members: dict[str, dict[str, Member]] = {}
    for record in from_oldest(records):
        found = training_and_seed(record)
        if found is not None:
            name, seed = found
            member = Member(seed, record.model.label, training=name)
            members.setdefault(name, {})[seed] = member
    return {
        name: Arm(name, tuple(sorted(by_seed.values(), key=_by_number)))
        for name, by_seed in sorted(members.items())
        if len(by_seed) >= at_least
    }


def last_steps(arms: Iterable[Arm]) -> list[Arm]:
    """Return the arms without earlier checkpoints of the same training.

    >>> arms = [Arm("a-checkpoint-9", ()), Arm("a-checkpoint-20", ()), Arm("b", ())]
    >>> [arm.name for arm in last_steps(arms)]
    ['a-checkpoint-20', 'b']
    """
    last: dict[str, tuple[int, Arm]] = {}
    for arm in arms:
        found = _STEP.search(arm.name)
        name, step = arm.name, 0
        if found is not None:
            name, step = arm.name[: found.start()], int(found["step"])
        if name not in last or last[name][0] <= step:
            last[name] = (step, arm)
    return [arm for _, arm in last.values()]


def _by_number(member: Member) -> tuple[int, str]:
    """Return the key to sort members by; numbers by their size, before labels."""
    if member.seed.isdecimal():
        return int(member.seed), ""
    return 2**63, member.seed


def choose_arm(records: Sequence[Result], text: str) -> Arm:
    """Return the arm that a text names.

    Args:
        records: any records.
        text: a training; a pattern of labels, such as ``enc-*``; a list of labels joined by ``+``;
            or one label. ``NAME=`` before labels names the arm.

    Raises:
        ValueError: nothing of this name, with trainings and labels; another name for a training; or
            no records.
    """
    name, _, models = text.rpartition("=")
    trainings = find_arms(records, at_least=1)
    labels = sorted({record.model.label for record in records})
    if not labels:
        raise ValueError(f"no records, so none of {text}; `qwen3nb eval` writes some")
    if not models:
        raise ValueError(f"expected a training or labels; got {text!r}")
    if models in trainings and models not in labels:
        if name:
            raise ValueError(f"{models} is a training, which keeps its name; got {text!r}")
        return trainings[models]
    chosen = _chosen_labels(models, labels, trainings)
    if not name and len(chosen) > 1:
        # Labels of one training are that training, by whatever pattern they are named.
        name = _common_training(records, chosen)
    return _arm_of_labels(records, name or models, chosen)


def _chosen_labels(text: str, labels: Sequence[str], trainings: Iterable[str]) -> list[str]:
    """Return the labels that a text names: a pattern, a list, or one label.

    Raises:
        ValueError: no such label; names labels, and for a single one trainings, too.
    """
    if _PATTERN.search(text):
        chosen = [label for label in labels if fnmatch.fnmatchcase(label, text)]
        if not chosen:
            known_labels = first_names(labels, most=_MOST_NAMED)
            raise ValueError(f"no label matches {text!r}; labels: {known_labels}")
        return chosen
    if "+" not in text:
        return [check_choice("training or label", text, [*trainings, *labels])]
    return [check_choice("label", label, labels) for label in text.split("+")]


def _common_training(records: Iterable[Result], labels: Sequence[str]) -> str:
    """Return the name of the training that all models are of; empty if there is none."""
    names = set()
    for record in records:
        if record.model.label in labels:
            name, _ = training_and_seed(record) or ("", "")
            names.add(name)
    if len(names) > 1:
        return ""
    return names.pop()


def _arm_of_labels(records: Sequence[Result], name: str, labels: Sequence[str]) -> Arm:
    """Return an arm of models with these labels."""
    by_label = {record.model.label: record for record in from_oldest(records)}
    members = []
    for label in dict.fromkeys(labels):
        _, seed = training_and_seed(by_label[label]) or ("", label)
        members.append(Member(seed, label))
    seeds = [member.seed for member in members]
    if len(set(seeds)) < len(seeds):  # as of two trainings in one arm: then labels tell them apart
        members = [member._replace(seed=member.label) for member in members]
    return Arm(name, tuple(sorted(members, key=_by_number)))

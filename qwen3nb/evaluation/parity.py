"""Whether a model that is served is the model that was measured, and if not, why.

Probes are texts of which each reacts to some causes and not to others. Where another program's
vectors for them differ from ours, our model encodes them again under each hypothesis of what went
wrong, and the hypothesis whose vectors match is the cause. A second cause is looked for in what the
first leaves, and so on; one that a later one makes needless is dropped.

A lost prompt moves all probes of its role; tokens, pooling, attention or another model move all,
and truncation the long ones only; newlines, case, Unicode forms or special tokens those that have
some; fewer bits all of them a little. Normalisation and dimensions show in the numbers themselves.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Unpack
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray
from regex import sub

from qwen3nb.analysis.comparison.differences import paired_differences
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.datasets.pydocs.build import PyDocs, load_pydocs
from qwen3nb.metrics.intervals import Array
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.capabilities import encodes
from qwen3nb.models.encoders.base import Encoder, truncate_dimensions
from qwen3nb.models.encoders.wrapped import WrappedEncoder
from qwen3nb.models.kinds.api import RefusedError
from qwen3nb.models.kinds.prompts import prompt_for
from qwen3nb.models.load import load_encoder, loaded, named
from qwen3nb.models.model import Model
from qwen3nb.models.modeling.pooling import POOLINGS, pool
from qwen3nb.models.options import OptionArguments
from qwen3nb.models.search.dense import search_options
from qwen3nb.models.search.exact import Hits, search
from qwen3nb.models.types import SpecError, Vectors
from qwen3nb.utils.choices import check_choice

Encode = Callable[[list[str], str], Vectors]  # texts and their role to vectors (N, D)

_FLOAT32_ERROR = 1e-6  # 1 - cosine that programs in float32 do not reach
_EXPLAINED_ERROR = 1e-5  # 1 - cosine of a text that is explained
_LOW_PRECISION_ERROR = 0.05  # 1 - cosine up to which numbers of fewer bits may be the reason
_LENGTH_TOLERANCE = 0.02  # by how much a length may differ from 1, in 16 bits
_DIGITS_IF_HALVED = 0.3  # decimal digits that an error gains if it is halved: log10(2)
_MAX_CAUSES = 8
_FAR_MORE = 30  # times the typical error, above which a probe has a cause of its own
_SPREAD = 10  # times that fewer bits may move one text more than another
# 1 - cosine above which they are so few that they move all texts alike: 4 bits by a factor of 2.4,
# a missing layer of all-MiniLM-L6-v2 by 4.4 to 4.8.
_COARSE_ERROR, _SPREAD_IF_COARSE = 0.02, 3.5
_MAX_TOKENS = 1200  # of a probe
_MIN_TOKENS = 8  # of a maximum length that is tried
_LENGTHS = (64, 100, 128, 200, 254, 256, 300, 384, 400, 500, 510, 512, 768, 1000, 1024)
_CUTS = {"text": "", "end": ", end token and all", "beginning": ", of the end only"}
_HIDDEN_IN_COSINES = ("normalisation", "dimensions", "refused texts")  # causes


class RoundingNode(NamedTuple):
    """A node of a graph that rounds activations to a range fixed beforehand."""

    name: str
    spelling: bytes  # in the graph's file


_ROUNDING_NODES = {
    ".xml": RoundingNode("FakeQuantize", b'type="FakeQuantize"'),
    ".onnx": RoundingNode("QuantizeLinear", b'"\x0eQuantizeLinear'),
}


class TextChange(NamedTuple):
    """What a program may do to a text before the tokenizer."""

    cause: str
    apply: Callable[[str], str]


_TEXT_CHANGES = {
    "replaced by spaces": TextChange("newlines", lambda text: text.replace("\n", " ")),
    "collapsed": TextChange("white space", lambda text: " ".join(text.split())),
    "stripped at the ends": TextChange("white space", str.strip),
    "lower-cased": TextChange("case", str.lower),
    "NFKC": TextChange("Unicode form", lambda text: normalize("NFKC", text)),
    "NFD": TextChange("Unicode form", lambda text: normalize("NFD", text)),
    "ASCII only": TextChange("Unicode form", lambda text: text.encode("ascii", "ignore").decode()),
    # Marks: the two dots of ``ü``, as a character of their own in NFD.
    "marks stripped": TextChange(
        "Unicode form", lambda text: sub(r"\p{M}", "", normalize("NFD", text))
    ),
}
_IN_PROMPTS_TOO = ", in prompts too"
_READ_AS_TEXT = "read as text"  # special tokens
_PASSAGES = {
    "capitals": "NASA Launched Apollo 11 From Florida; The U.S. Cheered.",
    "newlines": "def area(r):\n    return 3 * r\n\n\nprint(area(2))",
    "white space": "  two  blanks,\ta tab, and blanks at both ends  ",
    "special token": "before {special} after",
    "German": "Größere Fähren überqueren die Förde täglich außer montags.",
    "compatibility forms": "the ﬁrst ﬂat: ½ of ① and Ⅻ, ＡＢＣ",
    "Chinese": "水在标准大气压下于一百摄氏度沸腾。",
    "Arabic and Hindi": "الماء يغلي عند مئة درجة. पानी सौ डिग्री पर उबलता है।",
    "emoji": "a cat 🐈 and a family 👩‍👩‍👧",
    "empty": "",
}


class Probe(NamedTuple):
    """A text in its role, which tells causes apart."""

    name: str
    role: str
    text: str


@dataclass(frozen=True)
class Setup:
    """How a text becomes a vector: ours, or that of a hypothesis."""

    query: str  # prompts
    passage: str
    pooling: str = ""
    causal: bool | None = None
    before: tuple[int, ...] = ()  # tokens that the tokenizer adds to a text
    after: tuple[int, ...] = ()
    length: int = _MAX_TOKENS  # tokens, those included
    cut: str = "text"  # what is cut, of `_CUTS`
    # Of `_TEXT_CHANGES`, perhaps with `_IN_PROMPTS_TOO`; or `_READ_AS_TEXT`.
    texts: tuple[str, ...] = ()


class Change(NamedTuple):
    """A hypothesis: how another setup would differ from ours."""

    name: str  # of the cause
    detail: str
    fields: Mapping[str, Any] = {}
    text: str = ""  # one more of `Setup.texts`

    def applied(self, setup: Setup) -> Setup:
        """Return the setup with this change."""
        texts = setup.texts
        if self.text:
            texts = (*texts, self.text)
        return replace(setup, **self.fields, texts=texts)


@dataclass(frozen=True)
class Cause:
    """Why vectors differ."""

    name: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"


@dataclass(frozen=True)
class Rankings:
    """Search in PyDocs, or a sample of it, by both: nDCG@10, and the rankings themselves."""

    queries: int
    of: int  # queries of all of PyDocs
    documents: int
    ours: float
    theirs: float
    difference: float  # theirs - ours
    interval: tuple[float, float] | None  # 95 %, of the difference; by module of the queries
    other_first: int  # queries whose first document is another
    shared: float  # mean share of the first ten documents that both find

    def __str__(self) -> str:
        ends = ""
        if self.interval is not None:
            low, high = self.interval
            ends = f" [{low:+.3f}, {high:+.3f}]"
        return (
            f"PyDocs, {self.queries:,} of {self.of:,} queries, {self.documents:,} documents: "
            f"nDCG@10 {self.ours:.3f} here, {self.theirs:.3f} there, difference "
            f"{self.difference:+.3f}{ends}; {self.other_first:,} with another first document, "
            f"{self.shared:.0%} of ten shared"
        )


@dataclass(frozen=True, repr=False)
class Parity:
    """The comparison of a model with one that should be the same."""

    model: str
    where: str
    same: bool  # whether every probe has the ``least`` cosine or more, and all numbers are there
    causes: tuple[Cause, ...]  # why it is not; empty if no difference can be seen
    cosines: Mapping[str, float | None]  # of probes to ours, by name and role; None: no vector
    explained: float  # the least cosine once the causes are allowed for
    least: float
    rankings: Rankings | None = None

    def __repr__(self) -> str:
        verdict = "the same as"
        if not self.same:
            verdict = f"NOT {verdict}"
        lines = [f"{self.where} is {verdict} {self.model}"]
        lines += [f"  cause: {cause}" for cause in self.causes]
        if self.causes:
            lines.append(f"  with that allowed for, cosines are {self.explained:.6f} or more")
        for name, cosine in self.cosines.items():
            if cosine is None:
                lines.append(f"  {name}: no vector")
            elif cosine < self.least:
                lines.append(f"  {name}: {cosine:.6f}")
        lowest = min(cosine for cosine in self.cosines.values() if cosine is not None)
        lines.append(f"  {len(self.cosines)} texts, least cosine {lowest:.6f}")
        if self.rankings:
            lines.append(f"  {self.rankings}")
        return "\n".join(lines)


def parity(
    model: Model | str | Path,
    where: Any,
    *,
    prompts_by: str = "client",
    least: float = 0.9999,
    rankings: bool = True,
    queries: int = 200,
    **options: Unpack[OptionArguments],
) -> Parity:
    """Compare ``model`` with what should be the same model in another program.

    Args:
        model: a `Model` or its spec: the model that was measured.
        where: ``URL#MODEL`` of an OpenAI-compatible server; an ``.onnx`` or ``.xml`` (OpenVINO)
            file, which gets our tokens; a folder or another spec; or an object with a method per
            role, ``encode_query`` or ``embed_query`` and so on, or with ``encode``.
        prompts_by: ``client``: a server gets texts with our prompts; ``server``: without, as it
            adds them itself. Folders and objects with a method per role always add their own.
        least: least cosine of a probe for the same model.
        rankings: whether both also search PyDocs.
        queries: that many of PyDocs, each with four documents; 0 for all of it.
        options: of `Model`, for ``model``.

    Raises:
        SpecError: no such model, or ``where`` is none of these.
        EncoderError: the other program fails on a plain text.
    """
    check_choice("prompts_by", prompts_by, ("client", "server"))
    measured = replace(named(model), cache=False, show_progress=False, **options)
    reference = _Reference(measured.load_encoder())
    encode_there, name = _other_encoder(where, reference, adds_prompts=prompts_by == "server")
    probes = list(_probes(reference))
    in_bfloat16 = replace(measured, dtype="bfloat16")
    findings = _Findings(reference, probes, _probe_vectors(encode_there, probes), where)
    # A second model is loaded only if an error looks like one of precision.
    causes, setup = findings.causes(lambda: _Reference(in_bfloat16.load_encoder()))
    errors = findings.errors(reference.our_setup)
    is_near = bool(np.nanmax(errors) <= 1 - least)
    has_hidden_cause = any(cause.name in _HIDDEN_IN_COSINES for cause in causes)
    found_rankings = None
    if rankings:
        found_rankings = _rankings(reference.encoder, encode_there, queries)
    return Parity(
        reference.encoder.label,
        name,
        same=is_near and not has_hidden_cause,
        causes=causes,
        cosines=_cosines(probes, errors),
        explained=1 - float(np.nanmax(findings.errors(setup))),
        least=least,
        rankings=found_rankings,
    )


def _cosines(probes: Sequence[Probe], errors: Array) -> dict[str, float | None]:
    """Return the cosine of each probe by its name and role; None for no vector."""
    cosines: dict[str, float | None] = {}
    for probe, error in zip(probes, errors.tolist(), strict=True):
        cosine = None
        if not math.isnan(error):
            cosine = 1 - error
        cosines[f"{probe.name} ({probe.role})"] = cosine
    return cosines


def _probe_vectors(encode: Encode, probes: Sequence[Probe]) -> Vectors:
    """Return the vectors of probes, NaN for a text that is refused; the first must not be."""
    vectors: list[Vectors] = []
    for probe in probes:
        try:
            vector = encode([probe.text], probe.role)[0]
        except RefusedError:
            if not vectors:
                raise  # the width of a vector is not known yet
            vector = np.full_like(vectors[0], np.nan)
        # Zero for an empty text is as good as none.
        if not probe.text and not vector.any():
            vector = np.full_like(vectors[0], np.nan)
        vectors.append(vector)
    return np.stack(vectors)


class _Input(NamedTuple):
    """What a runner gets, and how it runs."""

    tokens: tuple[int, ...]
    pooling: str
    causal: bool | None


class _Reference:
    """Our model, under any setup. Equal tokens are encoded once per pooling and attention."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.max_tokens = _MAX_TOKENS  # of a probe
        query, passage = [
            prompt_for(encoder.prompts, role=role, instruction=encoder.source.instruction)
            for role in ("query", "passage")
        ]
        self.our_setup = Setup(query, passage)
        self._known: dict[str | _Input, NDArray[np.float32]] = {}  # vectors by input
        self._ids: dict[tuple[Any, ...], list[Any]] = {}  # tokens by text and options
        runner = encoder.runner
        # Without a runner, only texts can be changed, not how they are read.
        self.has_runner = runner is not None
        if runner is None:
            return
        positions = getattr(runner.model.config, "max_position_embeddings", _MAX_TOKENS)
        self.max_tokens = min(positions, _MAX_TOKENS)
        before, after = self._added_tokens()
        self.our_setup = replace(
            self.our_setup,
            pooling=runner.pooling,
            causal=runner.causal,
            before=before,
            after=after,
            length=getattr(encoder, "max_length", None) or self.max_tokens,
        )

    def _added_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the tokens that the tokenizer adds before and after a text."""
        text = self.ids("water")
        whole_row = self.ids("water", add_special_tokens=True)
        ends = range(len(text), len(whole_row) + 1)
        end = next(end for end in ends if whole_row[end - len(text) : end] == text)
        return tuple(whole_row[: end - len(text)]), tuple(whole_row[end:])

    def ids(self, text: str, **options: bool) -> list[Any]:
        """Return the tokens of a text, without those that are added; else its words."""
        if not self.has_runner:
            return text.split()
        # Most changes are of the tokens: the same texts come again with each.
        key = (text, *sorted(options.items()))
        if key not in self._ids:
            options = {"add_special_tokens": False, "verbose": False, **options}
            self._ids[key] = list(self.encoder.tokenizer(text, **options)["input_ids"])
        return self._ids[key]

    def vectors(self, setup: Setup, probes: Sequence[Probe]) -> Vectors:
        """Return the vectors (N, D) of probes; their lengths mean nothing."""
        inputs = [self._input(setup, probe) for probe in probes]
        unknown = [entry for entry in inputs if entry not in self._known]
        distinct = list(dict.fromkeys(unknown))
        if distinct:
            self._known.update(zip(distinct, self._encode(setup, distinct), strict=True))
        return np.array([self._known[entry] for entry in inputs])

    def _input(self, setup: Setup, probe: Probe) -> str | _Input:
        """Return what is encoded for a probe: tokens, or a text without a runner."""
        text = self._text(setup, probe)
        if not self.has_runner:
            return text
        return _Input(self.row(setup, text), setup.pooling, setup.causal)

    def _encode(self, setup: Setup, inputs: Sequence[Any]) -> Vectors:
        if not self.has_runner:
            return self.encoder.prompted({}).encode(inputs)
        runner = self.encoder.runner.variant(pooling=setup.pooling, causal=setup.causal)
        vectors = runner.vectors([entry.tokens for entry in inputs])
        return vectors[:, : self.encoder.dimension]

    def _text(self, setup: Setup, probe: Probe) -> str:
        """Return prompt and text of a probe, changed as the setup says."""
        prompt, text = getattr(setup, probe.role), probe.text
        for name in setup.texts:
            # The change may join prompt and text, so they are one text from here on.
            if name.endswith(_IN_PROMPTS_TOO):
                # Such as ``lower-cased, in prompts too``.
                change = _TEXT_CHANGES[name.removesuffix(_IN_PROMPTS_TOO)]
                prompt, text = "", change.apply(prompt + text)
            elif name in _TEXT_CHANGES:
                text = _TEXT_CHANGES[name].apply(text)
        return str(prompt + text)

    def row(self, setup: Setup, text: str) -> tuple[int, ...]:
        """Return the token ids of a text, cut as the setup says."""
        ids = self.ids(text, split_special_tokens=_READ_AS_TEXT in setup.texts)
        limit = min(setup.length, self.max_tokens)
        # Too long: the text alone is cut, or the whole row at either end.
        if setup.cut == "text":
            room_for_text = limit - len(setup.before) - len(setup.after)
            ids = ids[: max(room_for_text, 0)]
        whole_row = (*setup.before, *ids, *setup.after)
        if setup.cut == "beginning":
            return whole_row[-limit:]
        return whole_row[:limit]


def _probes(reference: _Reference) -> Iterator[Probe]:
    """Yield the probes; the long ones are longer than the maximum length, if there is room."""
    for role in ("passage", "query"):
        yield Probe("sentence", role, "The river rises in the mountains and ends in a delta.")
        yield Probe("word", role, "water")
        yield Probe("question", role, "Which enzyme copies the DNA before a cell divides?")
    special = "<|endoftext|>"
    if reference.has_runner:
        tokenizer = reference.encoder.tokenizer
        special = tokenizer.eos_token or tokenizer.sep_token or special
    for name, text in _PASSAGES.items():
        yield Probe(name, "passage", text.replace("{special}", special))
    long = _long_text(reference)
    # 0.4, 2 and 1.5 times the maximum length, if there is room.
    yield Probe("medium", "passage", long[: len(long) // 5])
    yield Probe("long", "passage", long)
    yield Probe("long", "query", long[: len(long) * 3 // 4])


def _long_text(reference: _Reference) -> str:
    """Return a text of twice the maximum length, if it has room beside a prompt."""
    room_beside_prompt = reference.max_tokens - 100
    limit = min(max(2 * reference.our_setup.length, 300), room_beside_prompt)
    text = ""
    for n in range(1, 200):
        # Sentences that differ, so that every token counts; remainders vary their numbers.
        text += f"Part {n}: station {n * 7 % 31} counted {n * 37 % 101} birds on day {n * n % 17}. "
        if len(reference.ids(text)) >= limit:
            break
    return text


class _Findings:
    """What the other program returned, (N, D'), NaN for nothing; and what explains it."""

    def __init__(
        self, reference: _Reference, probes: Sequence[Probe], other_vectors: Vectors, other: Any
    ) -> None:
        self.reference = reference
        self.probes = probes
        self.other_vectors = other_vectors
        self.other = other
        names = [probe.name for probe in probes]
        # Masks (N,): plain probes are moved only by what moves all texts.
        self.is_plain = np.isin(names, ("sentence", "word", "question"))
        self.is_long = np.isin(names, "long")
        self.roles = np.array([probe.role for probe in probes])

    def errors(self, setup: Setup) -> Array:
        """Return 1 - cosine (N,) to ours under a setup."""
        return _errors(self.reference.vectors(setup, self.probes), self.other_vectors)

    def typical_errors(self, errors: Array) -> dict[str, float]:
        """Return the median error of plain texts, by role."""
        medians = {}
        for role in ("passage", "query"):
            is_plain_in_role = self.is_plain & (self.roles == role)
            medians[role] = float(np.nanmedian(errors[is_plain_in_role]))
        return medians

    def causes(self, load_in_bfloat16: Callable[[], _Reference]) -> tuple[tuple[Cause, ...], Setup]:
        """Return the causes, and the setup that they amount to.

        ``load_in_bfloat16`` loads our model with fewer bits, if that is needed.
        """
        setup, changes = self._search()
        causes = [Cause(change.name, change.detail) for change in changes]
        causes += self._causes_in_numbers()
        causes += self._unexplained(setup, load_in_bfloat16)
        return tuple(causes), setup

    def _causes_in_numbers(self) -> Iterator[Cause]:
        """Yield what no cosine shows: other dimensions or lengths, and texts without a vector."""
        dimension, our_dimension = self.other_vectors.shape[1], self.reference.encoder.dimension
        detail = f"vectors of {dimension} numbers, ours of {our_dimension}"
        if dimension < our_dimension:
            yield Cause("dimensions", detail)
        elif dimension > our_dimension:
            yield Cause("another model", detail)
        # (N,), NaN for a text that was refused.
        lengths = np.linalg.norm(self.other_vectors, axis=1)
        have_length_1 = bool(np.nanmax(np.abs(lengths - 1)) < _LENGTH_TOLERANCE)
        if have_length_1 and not self.reference.encoder.normalize:
            yield Cause("normalisation", "lengths are 1, ours are not")
        elif not have_length_1 and self.reference.encoder.normalize:
            shortest, longest = np.nanmin(lengths), np.nanmax(lengths)
            detail = f"lengths from {shortest:.3g} to {longest:.3g}, ours are 1"
            yield Cause("normalisation", detail)
        refused = self._names(np.isnan(lengths))
        if refused:
            yield Cause("refused texts", refused)

    def _names(self, selected: NDArray[np.bool_]) -> str:
        """Return the names of probes, without the empty one."""
        names = []
        for probe, is_selected in zip(self.probes, selected.tolist(), strict=True):
            if is_selected and probe.text:
                names.append(probe.name)
        return ", ".join(dict.fromkeys(names))

    def _search(self) -> tuple[Setup, list[Change]]:
        """Return the setup that explains most, and its changes from ours.

        One change is added at a time. If plain texts stay unexplained, none counts: then it is
        another model.
        """
        setup = self.reference.our_setup
        changes: list[Change] = []
        # Greedy: each change is the best one on top of those before.
        while np.nanmax(self.errors(setup)) > _EXPLAINED_ERROR and len(changes) < _MAX_CAUSES:
            change = self._best_change(setup)
            if change is None:
                break
            setup = change.applied(setup)
            changes.append(change)
        typical_errors = self.typical_errors(self.errors(setup))
        # Not even plain texts are explained, so no change tells anything.
        if min(typical_errors.values()) > _LOW_PRECISION_ERROR:
            return self.reference.our_setup, []
        return self._without_needless(setup, changes)

    def _without_needless(self, setup: Setup, changes: list[Change]) -> tuple[Setup, list[Change]]:
        """Drop each change that a later one makes needless."""
        # The last one was chosen on top of all others, so it is needed.
        for change in changes[:-1]:
            other_changes = [other_change for other_change in changes if other_change is not change]
            setup_without = self.reference.our_setup
            for other_change in other_changes:
                setup_without = other_change.applied(setup_without)
            digits_gained = self._gains(setup_without, setup).sum()
            # Less than `_best_change` asks for: the others explain as much.
            if digits_gained < 1:
                setup, changes = setup_without, other_changes
        return setup, changes

    def _best_change(self, setup: Setup) -> Change | None:
        """Return the change that explains most; None if none does.

        It must gain a decimal digit in all, and halve the error of half of the probes that it
        moves.
        """
        best = None
        most_digits = 1.0  # the least that counts
        for change in self._changes(setup):
            digits = self._gains(setup, change.applied(setup))
            is_moved = np.abs(digits) > 1e-3  # (N,): probes on which the change has any effect
            if digits.sum() > most_digits and np.median(digits[is_moved]) > _DIGITS_IF_HALVED:
                best = change
                most_digits = float(digits.sum())
        return best

    def _gains(self, first: Setup, second: Setup) -> Array:
        """Return the decimal digits (N,) that the errors of a setup gain by another."""
        return _digits(self.errors(first)) - _digits(self.errors(second))

    def _changes(self, setup: Setup) -> Iterator[Change]:
        """Yield the hypotheses about all that is not changed yet."""
        our_setup = self.reference.our_setup
        yield from _prompt_changes("query", setup, our_setup.query, our_setup.passage)
        yield from _prompt_changes("passage", setup, our_setup.passage, our_setup.query)
        prompts = our_setup.query + our_setup.passage
        for detail, change in _TEXT_CHANGES.items():
            # A program may change texts alone, or their prompts, too.
            yield Change(change.cause, detail, text=detail)
            changes_prompts = change.apply(prompts) != prompts
            if changes_prompts:
                detail_too = detail + _IN_PROMPTS_TOO
                yield Change(change.cause, detail_too, text=detail_too)
        if self.reference.has_runner:
            yield Change("special tokens", _READ_AS_TEXT, text=_READ_AS_TEXT)
            yield from self._pooling_changes(setup)
            yield from self._token_changes(setup)
            yield from self._length_changes(setup)

    def _pooling_changes(self, setup: Setup) -> Iterator[Change]:
        """Yield other poolings, and the other direction of attention."""
        our_setup = self.reference.our_setup
        # What an earlier change has set is not changed again.
        if setup.pooling == our_setup.pooling:
            for pooling in POOLINGS:
                if pooling != our_setup.pooling:
                    detail = f"{pooling}, ours is {our_setup.pooling}"
                    yield Change("pooling", detail, {"pooling": pooling})
        if our_setup.causal is not None and setup.causal == our_setup.causal:
            detail = "causal, ours is bidirectional"
            if our_setup.causal:
                detail = "bidirectional, ours is causal"
            yield Change("attention", detail, {"causal": not our_setup.causal})

    def _token_changes(self, setup: Setup) -> Iterator[Change]:
        """Yield start and end tokens that are missing, doubled or added."""
        tokenizer = self.reference.encoder.tokenizer
        if setup.before == self.reference.our_setup.before:
            usual_token = tokenizer.bos_token_id or tokenizer.cls_token_id
            yield from self._changes_of_tokens("start token", "before", usual_token)
        if setup.after == self.reference.our_setup.after:
            yield from self._changes_of_tokens("end token", "after", tokenizer.eos_token_id)

    def _changes_of_tokens(self, name: str, side: str, usual_token: int | None) -> Iterator[Change]:
        """Yield the changes of the tokens on one side of a text: ``before`` or ``after`` it."""
        tokenizer = self.reference.encoder.tokenizer
        tokens = getattr(self.reference.our_setup, side)
        if tokens:
            text = repr(tokenizer.decode(list(tokens)))
            yield Change(name, f"{text} is missing", {side: ()})
            yield Change(name, f"{text} is doubled", {side: tokens + tokens})
        elif usual_token is not None:
            text = repr(tokenizer.decode(usual_token))
            yield Change(name, f"{text} is added", {side: (usual_token,)})

    def _length_changes(self, setup: Setup) -> Iterator[Change]:
        """Yield other maximum lengths, if long texts differ more than short ones."""
        our_length, max_tokens = self.reference.our_setup.length, self.reference.max_tokens
        # An earlier change has set it.
        if setup.length != our_length:
            return
        errors = self.errors(setup)
        error_of_short = np.nanmedian(errors[~self.is_long])
        # Truncation moves long texts only.
        differs = errors[self.is_long] > 2 * error_of_short + _EXPLAINED_ERROR
        if not differs.any():
            return
        # A program may count one or two special tokens in or out.
        near_ours = range(our_length - 2, our_length + 3)
        lengths = {*_LENGTHS, *near_ours, max_tokens} - {our_length}
        possible = [length for length in lengths if _MIN_TOKENS <= length <= max_tokens]
        # Of lengths that explain as much, the first is chosen: that which cuts least.
        for length in sorted(possible, reverse=True):
            for cut, what_is_cut in _CUTS.items():
                detail = f"at {length} tokens{what_is_cut}, ours at {our_length}"
                if length == max_tokens:  # no probe is cut
                    detail = f"none up to {max_tokens} tokens, ours at {our_length}"
                yield Change("truncation", detail, {"length": length, "cut": cut})

    def _unexplained(
        self, setup: Setup, load_in_bfloat16: Callable[[], _Reference]
    ) -> Iterator[Cause]:
        """Yield a cause for what no hypothesis explains, if anything is left."""
        errors = self.errors(setup)
        error_by_role = self.typical_errors(errors)
        typical_error = min(error_by_role.values())
        # Fewer bits would not move plain texts this far.
        if typical_error > _LOW_PRECISION_ERROR:
            detail = f"cosine {1 - typical_error:.2f} at best, or too many causes"
            yield Cause("another model", detail)
            return
        # (N,): probes that no cause is named for yet.
        is_unexplained = np.ones_like(self.is_long)
        worse_role = max(error_by_role, key=error_by_role.__getitem__)
        # One role is as ours, and the other far from it.
        only_one_role_differs = (
            typical_error < _EXPLAINED_ERROR < error_by_role[worse_role] / _SPREAD
        )
        if only_one_role_differs:
            yield Cause(f"{worse_role} prompt", "another text, which is not found")
            is_unexplained = self.roles != worse_role
        # All texts differ a little, as with fewer bits.
        if typical_error > _FLOAT32_ERROR:
            short_errors = errors[is_unexplained & ~self.is_long]
            cause = self._uneven_error(short_errors, typical_error)
            if cause is not None:
                yield cause
                return
            yield self._precision(setup, typical_error, load_in_bfloat16())
        far_more_than_typical = errors > max(_EXPLAINED_ERROR, _FAR_MORE * typical_error)
        yield from self._untried_causes(is_unexplained & far_more_than_typical)

    def _untried_causes(self, is_unexplained: NDArray[np.bool_]) -> Iterator[Cause]:
        """Yield the tokenizer as a cause, or truncation if only long probes differ."""
        names = self._names(is_unexplained)
        if not names:
            return
        # Truncation changes no short text.
        short_ones_differ = is_unexplained[~self.is_long].any()
        name = "truncation"
        if short_ones_differ:
            name = "tokenizer"
        yield Cause(name, f"in a way that was not tried; seen on: {names}")

    def _uneven_error(self, errors: Array, typical_error: float) -> Cause | None:
        """Return why texts differ a little, and unevenly; None if it may be precision."""
        # Deciles, so that no single text decides.
        low, high = np.nanpercentile(errors, (10, 90))
        what_is_left = f"1 - cosine is left at {low:.0e} to {high:.0e}"
        rounding = _rounding_nodes(self.other)
        if rounding:
            return Cause("quantised activations", f"{rounding}, of fixed ranges; {what_is_left}")
        if high > _SPREAD * low:
            return Cause("several causes", f"or int8 of fixed ranges; {what_is_left}")
        # So few bits would move all texts alike.
        if typical_error > _COARSE_ERROR and high > _SPREAD_IF_COARSE * low:
            return Cause("another model", f"or a part of ours; {what_is_left}")
        return None

    def _precision(
        self, setup: Setup, typical_error: float, reference_in_bfloat16: _Reference
    ) -> Cause:
        """Return how many bits an error is like, by what our model in bfloat16 would have."""
        in_bfloat16 = reference_in_bfloat16.vectors(setup, self.probes)
        errors_of_bfloat16 = _errors(in_bfloat16, self.reference.vectors(setup, self.probes))
        error_of_bfloat16 = np.median(errors_of_bfloat16[self.is_plain])
        error_to_bfloat16 = np.nanmedian(_errors(in_bfloat16, self.other_vectors)[self.is_plain])
        precision = "bfloat16"
        # float16 has 3 more bits of precision than bfloat16.
        if typical_error < error_of_bfloat16 / 10:
            precision = "float16"
        # Neither the vectors that bfloat16 gives, nor an error of its size.
        if error_to_bfloat16 > typical_error / 2 and typical_error > 2 * error_of_bfloat16:
            precision = "int8 or fewer bits, a near checkpoint, or an unknown change of all texts"
        detail = f"1 - cosine is {typical_error:.0e} for any text, as with {precision}"
        return Cause("precision", detail)


def _prompt_changes(role: str, setup: Setup, prompt: str, other: str) -> Iterator[Change]:
    """Yield what may have happened to the prompt of a role; ``other`` is the other role's."""
    is_changed_already = getattr(setup, role) != prompt
    if is_changed_already:
        return
    possible_prompts = {
        f"{prompt!r} is missing": "",
        f"{prompt!r} is doubled": prompt + prompt,
        f"{prompt!r} without white space at its ends": prompt.strip(),
        f"{other!r}, that of the other role": other,
    }
    for detail, possible_prompt in possible_prompts.items():
        if possible_prompt != prompt:
            yield Change(f"{role} prompt", detail, {role: possible_prompt})


def _rounding_nodes(other: Any) -> str:
    """Return how many nodes of a graph's file round activations; empty for none, or no file."""
    file = Path(str(other))
    node = _ROUNDING_NODES.get(file.suffix)
    if node is None or not file.is_file():
        return ""
    # Each node has its type once in the file.
    count = file.read_bytes().count(node.spelling)
    if count == 0:
        return ""
    return f"{count} {node.name} nodes in {other}"


def _errors(first: NDArray[Any], second: NDArray[Any]) -> Array:
    """Return 1 - cosine (N,) of rows, over the dimensions that both have; NaN for a NaN."""
    width = min(first.shape[1], second.shape[1])
    first, second = first[:, :width].astype(np.float64), second[:, :width].astype(np.float64)
    products = (first * second).sum(axis=1)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray(1 - products / np.where(lengths == 0, 1, lengths))


def _digits(errors: Array) -> Array:
    """Return decimal logarithms, no lower than float32 can tell; 0 for NaN."""
    return np.log10(np.maximum(np.nan_to_num(errors, nan=1.0), 1e-7))


def _other_encoder(other: Any, reference: _Reference, *, adds_prompts: bool) -> tuple[Encode, str]:
    """Return what encodes texts of a role in the other program, and its name."""
    if isinstance(other, str | Path):
        return _other_encoder_by_spec(str(other), reference, adds_prompts=adds_prompts)
    model = loaded(other)
    if encodes(model):
        return _with_role(model), model.label
    name = type(model).__name__
    if hasattr(model, "encode_query"):  # as in sentence-transformers
        return _by_methods(model.encode_query, model.encode_document), name
    if hasattr(model, "embed_query"):  # as in LangChain, one text at a time

        def embed_queries(texts: list[str]) -> list[Any]:
            return [model.embed_query(text) for text in texts]

        return _by_methods(embed_queries, model.embed_documents), name
    encode = WrappedEncoder(model).prompted({}).encode
    return _with_prompts(encode, reference, adds_prompts=adds_prompts), name


def _other_encoder_by_spec(
    spec: str, reference: _Reference, *, adds_prompts: bool
) -> tuple[Encode, str]:
    """Return what encodes texts at an address, with a graph's file, or by a model of ours."""
    if spec.startswith(("http://", "https://", "api:")):
        address = spec.removeprefix("api:")
        encoder = load_encoder(f"api:{address}", prompts={}, cache=False, show_progress=False)
        name = encoder.source.spec.removeprefix("api:")
        return _with_prompts(encoder.encode, reference, adds_prompts=adds_prompts), name
    if spec.endswith(".gguf"):
        raise SpecError(
            f"{spec}: serve it, `llama-server -m {spec} --embeddings`, and give its address, such "
            "as http://localhost:8080/v1#model"
        )
    if spec.endswith((".onnx", ".xml")):
        encode = _graph(Path(spec), reference)
        return _with_prompts(encode, reference, adds_prompts=adds_prompts), spec
    return _with_role(load_encoder(spec, cache=False, show_progress=False)), spec


def _with_prompts(
    encode: Callable[[list[str]], Vectors], reference: _Reference, *, adds_prompts: bool
) -> Encode:
    """Return what encodes texts with our prompts; ``adds_prompts`` if it adds its own."""
    prompts = {"query": reference.our_setup.query, "passage": reference.our_setup.passage}
    if adds_prompts:
        prompts = {"query": "", "passage": ""}
    return lambda texts, role: encode([prompts[role] + text for text in texts])


def _with_role(encoder: Encoder) -> Encode:
    return lambda texts, role: encoder.encode(texts, role=role)


def _by_methods(encode_queries: Callable[..., Any], encode_passages: Callable[..., Any]) -> Encode:
    """Return what encodes texts by an object's method for their role."""
    encoders = {
        "query": WrappedEncoder(SimpleNamespace(encode=encode_queries)),
        "passage": WrappedEncoder(SimpleNamespace(encode=encode_passages)),
    }
    return lambda texts, role: encoders[role].encode(texts)


def _graph(file: Path, reference: _Reference) -> Callable[[list[str]], Vectors]:
    """Return what encodes texts by a graph, on our tokens; states are pooled as ours are."""
    import torch

    from qwen3nb.extraction.onnx_graph import graph_states

    if not (file.is_file() and reference.has_runner):
        raise SpecError(f"{file}: expected a graph of {reference.encoder.label}, a transformer")
    try:
        states_of = graph_states(file)
    except ImportError as error:
        raise SpecError(f"{file}: needs {error.name}: pip install {error.name}") from None

    def vector(text: str) -> Vectors:
        tokens = torch.tensor([reference.row(reference.our_setup, text)], dtype=torch.int64)
        if tokens.numel() == 0:  # zero, as ours is
            return np.zeros(reference.encoder.width, dtype=np.float32)
        states = states_of(tokens, torch.ones_like(tokens)).float()
        is_pooled = states.ndim == 2  # by the graph itself
        if not is_pooled:
            states = pool(states, torch.ones(states.shape[:2]), pooling=reference.our_setup.pooling)
        return states[0].numpy()

    def encode(texts: list[str]) -> Vectors:
        vectors = np.stack([vector(text) for text in texts])
        # All dimensions are kept: this only scales to length 1, if ours are.
        return truncate_dimensions(vectors, vectors.shape[1], unit=reference.encoder.normalize)

    return encode


def _rankings(encoder: Encoder, encode_there: Encode, queries: int) -> Rankings:
    """Search PyDocs, or a sample with so many queries, with both."""
    whole_pydocs = load_pydocs()
    pydocs = whole_pydocs
    if queries:
        # Four documents per query.
        pydocs = whole_pydocs.sample(documents=4 * queries, queries=queries)
    hits_here = _search_pydocs(pydocs, _with_role(encoder), encoder)
    hits_there = _search_pydocs(pydocs, encode_there, encoder)
    scores = {}
    for side, hits in (("here", hits_here), ("there", hits_there)):
        run = hits.run(pydocs.queries, list(pydocs.corpus))
        scores[side] = score_run(pydocs.qrels, run)["nDCG@10"]
    matrix = join(scores, task="PyDocs", metric="nDCG@10", clusters=pydocs.clusters)
    (difference,) = paired_differences(matrix, pairs=[("there", "here")], seed=0)  # a single pair
    theirs_mean, ours_mean = difference.means
    has_other_first = hits_here.ids[:, 0] != hits_there.ids[:, 0]
    shares = []
    for documents_here, documents_there in zip(hits_here.ids, hits_there.ids, strict=True):
        shared = set(documents_here) & set(documents_there)
        shares.append(len(shared) / len(documents_here))
    return Rankings(
        queries=difference.n,
        of=len(whole_pydocs.query_names),
        documents=len(pydocs.corpus),
        ours=ours_mean,
        theirs=theirs_mean,
        difference=difference.difference,
        interval=difference.interval,
        other_first=int(has_other_first.sum()),
        shared=float(np.mean(shares)),
    )


def _search_pydocs(pydocs: PyDocs, encode: Encode, encoder: Encoder) -> Hits:
    """Return the first ten documents of each query, compared as our model compares vectors."""
    queries = encode(list(pydocs.queries.values()), "query")
    documents = encode(list(pydocs.corpus.values()), "passage")
    return search(queries, documents, k=10, **search_options(encoder))

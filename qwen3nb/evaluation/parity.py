"""Whether a model that is served is the model that was measured, and if not, why.

Probes are texts of which each reacts to some causes and not to others. Where another program's
vectors for them differ from ours, our model encodes them again under each hypothesis of what went
wrong, and the hypothesis whose vectors match is the cause. A second cause is looked for in what the
first leaves, and so on; one that a later one makes needless is dropped.

A lost prompt moves all probes of its role; tokens, pooling, attention or another model move all,
and truncation the long ones only; newlines, case, Unicode forms or special tokens those that have
some; fewer bits all of them a little. Normalisation and dimensions show in the numbers themselves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray
from regex import sub

from qwen3nb.analysis.comparison.differences import paired_differences
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.datasets.pydocs.build import load_pydocs
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
from qwen3nb.models.search.dense import search_options
from qwen3nb.models.search.exact import search
from qwen3nb.models.types import SpecError, Vectors
from qwen3nb.utils.choices import check_choice

Encode = Callable[[list[str], str], Vectors]  # texts and their role to vectors (N, D)

_EXACT = 1e-6  # 1 - cosine that programs in float32 do not reach
_EQUAL = 1e-5  # 1 - cosine of a text that is explained
_NEAR = 0.05  # 1 - cosine up to which numbers of fewer bits may be the reason
_UNIT = 0.02  # by how much a length may differ from 1, in 16 bits
_MOST = 8  # causes that are looked for
_ALIKE = 10  # times that fewer bits may move one text more than another
# 1 - cosine above which they are so few that they move all texts alike: 4 bits by a factor of 2.4,
# a missing layer of all-MiniLM-L6-v2 by 4.4 to 4.8.
_COARSE, _EVEN = 0.02, 3.5
_LONGEST = 1200  # tokens of a probe
# Nodes that round activations to ranges fixed beforehand, and how a graph's file spells them.
_ROUNDING = {
    ".xml": ("FakeQuantize", b'type="FakeQuantize"'),
    ".onnx": ("QuantizeLinear", b'"\x0eQuantizeLinear'),
}
_LENGTHS = (64, 100, 128, 200, 254, 256, 300, 384, 400, 500, 510, 512, 768, 1000, 1024)
_CUTS = {"text": "", "end": ", end token and all", "beginning": ", of the end only"}
# What programs do to a text before the tokenizer.
_TEXTS: dict[str, tuple[str, Callable[[str], str]]] = {
    "replaced by spaces": ("newlines", lambda text: text.replace("\n", " ")),
    "collapsed": ("white space", lambda text: " ".join(text.split())),
    "stripped at the ends": ("white space", str.strip),
    "lower-cased": ("case", str.lower),
    "NFKC": ("Unicode form", lambda text: normalize("NFKC", text)),
    "NFD": ("Unicode form", lambda text: normalize("NFD", text)),
    "ASCII only": ("Unicode form", lambda text: text.encode("ascii", "ignore").decode()),
    "marks stripped": ("Unicode form", lambda text: sub(r"\p{M}", "", normalize("NFD", text))),
}
_TOO = ", in prompts too"
_PLAIN = "read as text"


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
    length: int = _LONGEST  # tokens, those included
    cut: str = "text"  # what is cut, of `_CUTS`
    texts: tuple[str, ...] = ()  # of `_TEXTS`, perhaps with `_TOO`; or `_PLAIN`


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
        ends = "" if self.interval is None else " [{:+.3f}, {:+.3f}]".format(*self.interval)
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
        lines = [f"{self.where} is {'' if self.same else 'NOT '}the same as {self.model}"]
        lines += [f"  cause: {cause}" for cause in self.causes]
        if self.causes:
            lines.append(f"  with that allowed for, cosines are {self.explained:.6f} or more")
        for name, cosine in self.cosines.items():
            if cosine is None or cosine < self.least:
                lines.append(f"  {name}: {'no vector' if cosine is None else f'{cosine:.6f}'}")
        least = min(each for each in self.cosines.values() if each is not None)
        lines.append(f"  {len(self.cosines)} texts, least cosine {least:.6f}")
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
    **options: Any,
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
    ours = _Reference(measured.load_encoder())
    theirs, name = _other(where, ours, raw=prompts_by == "server")
    probes = list(_probes(ours))
    vectors = [theirs([probes[0].text], probes[0].role)[0]]
    for probe in probes[1:]:
        try:
            vector = theirs([probe.text], probe.role)[0]
            known = bool(probe.text) or vector.any()  # zero for an empty text is as good as none
        except RefusedError:
            known = False
        vectors.append(vector if known else np.full_like(vectors[0], np.nan))
    rounded = replace(measured, dtype="bfloat16")
    found = _Findings(ours, probes, np.stack(vectors), where)
    causes, setup = found.causes(lambda: _Reference(rounded.load_encoder()))
    errors = found.errors(ours.base)
    others = ("normalisation", "dimensions", "refused texts")  # which no cosine shows
    return Parity(
        ours.encoder.label,
        name,
        same=bool(np.nanmax(errors) <= 1 - least) and not any(c.name in others for c in causes),
        causes=causes,
        cosines={
            f"{probe.name} ({probe.role})": None if np.isnan(error) else 1 - float(error)
            for probe, error in zip(probes, errors, strict=True)
        },
        explained=1 - float(np.nanmax(found.errors(setup))),
        least=least,
        rankings=_rankings(ours.encoder, theirs, queries) if rankings else None,
    )


class _Reference:
    """Our model, under any setup. Equal tokens are encoded once per pooling and attention."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._known: dict[Any, Any] = {}
        own, instruction = encoder.prompts, encoder.source.instruction
        query, passage = (
            prompt_for(own, role=role, instruction=instruction) for role in ("query", "passage")
        )
        self.base, self.room = Setup(query, passage), _LONGEST
        runner = encoder.runner
        self.varies = runner is not None  # or only texts can be changed, not how they are read
        if not self.varies:
            return
        self.room = min(getattr(runner.model.config, "max_position_embeddings", _LONGEST), _LONGEST)
        whole, bare = self.ids("water", add_special_tokens=True), self.ids("water")
        start = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
        self.base = replace(
            self.base,
            pooling=runner.pooling,
            causal=runner.causal,
            before=tuple(whole[:start]),
            after=tuple(whole[start + len(bare) :]),
            length=getattr(encoder, "max_length", None) or self.room,
        )

    def ids(self, text: str, **options: Any) -> list[Any]:
        """Return the tokens of a text, without those that are added; else its words."""
        if not self.varies:
            return text.split()
        options = {"add_special_tokens": False, "verbose": False, **options}
        return list(self.encoder.tokenizer(text, **options)["input_ids"])

    def vectors(self, setup: Setup, probes: Sequence[Probe]) -> Vectors:
        """Return the vectors (N, D) of probes; their lengths mean nothing."""
        keys: list[Any] = [self._text(setup, probe) for probe in probes]
        if self.varies:
            keys = [(self.row(setup, text), setup.pooling, setup.causal) for text in keys]
        if missing := list(dict.fromkeys(key for key in keys if key not in self._known)):
            if self.varies:
                runner = self.encoder.runner.variant(pooling=setup.pooling, causal=setup.causal)
                new = runner.vectors([key[0] for key in missing])[:, : self.encoder.dimension]
            else:
                new = self.encoder.prompted({}).encode(missing)
            self._known.update(zip(missing, new, strict=True))
        return np.array([self._known[key] for key in keys])

    def _text(self, setup: Setup, probe: Probe) -> str:
        prompt, text = getattr(setup, probe.role), probe.text
        for name in setup.texts:
            if name.endswith(_TOO):
                prompt, text = "", _TEXTS[name.removesuffix(_TOO)][1](prompt + text)
            elif name in _TEXTS:
                text = _TEXTS[name][1](text)
        return str(prompt + text)

    def row(self, setup: Setup, text: str) -> tuple[int, ...]:
        """Return the token ids of a text, cut as the setup says."""
        ids = self.ids(text, split_special_tokens=_PLAIN in setup.texts)
        limit = min(setup.length, self.room)
        if setup.cut == "text":
            ids = ids[: max(limit - len(setup.before) - len(setup.after), 0)]
        whole = (*setup.before, *ids, *setup.after)
        return whole[-limit:] if setup.cut == "beginning" else whole[:limit]


def _probes(ours: _Reference) -> Iterator[Probe]:
    """Yield the probes; the long ones are longer than the maximum length, if there is room."""
    tokenizer = ours.encoder.tokenizer if ours.varies else None
    special = (tokenizer and (tokenizer.eos_token or tokenizer.sep_token)) or "<|endoftext|>"
    for role in ("passage", "query"):
        yield Probe("sentence", role, "The river rises in the mountains and ends in a delta.")
        yield Probe("word", role, "water")
        yield Probe("question", role, "Which enzyme copies the DNA before a cell divides?")
    for name, text in {
        "capitals": "NASA Launched Apollo 11 From Florida; The U.S. Cheered.",
        "newlines": "def area(r):\n    return 3 * r\n\n\nprint(area(2))",
        "white space": "  two  blanks,\ta tab, and blanks at both ends  ",
        "special token": f"before {special} after",
        "German": "Größere Fähren überqueren die Förde täglich außer montags.",
        "compatibility forms": "the ﬁrst ﬂat: ½ of ① and Ⅻ, ＡＢＣ",
        "Chinese": "水在标准大气压下于一百摄氏度沸腾。",
        "Arabic and Hindi": "الماء يغلي عند مئة درجة. पानी सौ डिग्री पर उबलता है।",
        "emoji": "a cat 🐈 and a family 👩‍👩‍👧",
        "empty": "",
    }.items():
        yield Probe(name, "passage", text)
    long, limit = "", min(max(2 * ours.base.length, 300), ours.room - 100)  # with room for a prompt
    for n in range(1, 200):
        long += f"Part {n}: station {n * 7 % 31} counted {n * 37 % 101} birds on day {n * n % 17}. "
        if len(ours.ids(long)) >= limit:
            break
    yield Probe("medium", "passage", long[: len(long) // 5])
    yield Probe("long", "passage", long)
    yield Probe("long", "query", long[: len(long) * 3 // 4])


class _Findings:
    """What the other program returned, (N, D'), NaN for nothing; and what explains it."""

    def __init__(
        self, ours: _Reference, probes: Sequence[Probe], theirs: Vectors, where: Any
    ) -> None:
        self.ours, self.probes, self.theirs, self.where = ours, probes, theirs, where
        names = [probe.name for probe in probes]
        self.plain = np.isin(names, ("sentence", "word", "question"))
        self.long = np.isin(names, "long")
        self.queries = np.array([probe.role == "query" for probe in probes])

    def errors(self, setup: Setup) -> Array:
        """Return 1 - cosine (N,) to ours under a setup."""
        return _errors(self.ours.vectors(setup, self.probes), self.theirs)

    def typical(self, errors: Array) -> list[float]:
        """Return the median error of plain passages, and of plain queries."""
        return [float(np.nanmedian(errors[self.plain & (self.queries == i)])) for i in (0, 1)]

    def causes(self, rounded: Callable[[], _Reference]) -> tuple[tuple[Cause, ...], Setup]:
        """Return the causes, and the setup that they amount to.

        ``rounded`` loads our model in bfloat16.
        """
        setup, taken = self._search()
        causes = [Cause(*each[:2]) for each in taken]
        wide, here = self.theirs.shape[1], self.ours.encoder.dimension
        if wide != here:
            name = "dimensions" if wide < here else "another model"
            causes.append(Cause(name, f"vectors of {wide} numbers, ours of {here}"))
        lengths = np.linalg.norm(self.theirs, axis=1)
        unit = bool(np.nanmax(np.abs(lengths - 1)) < _UNIT)
        if unit != self.ours.encoder.normalize:
            shown = f"lengths from {np.nanmin(lengths):.3g} to {np.nanmax(lengths):.3g}"
            detail = "lengths are 1, ours are not" if unit else f"{shown}, ours are 1"
            causes.append(Cause("normalisation", detail))
        if refused := _names(self.probes, np.isnan(lengths)):
            causes.append(Cause("refused texts", refused))
        return (*causes, *self._unexplained(setup, rounded)), setup

    def _search(self) -> tuple[Setup, list[Change]]:
        """Return the setup that explains most, and its changes from ours.

        One change is added at a time. If plain texts stay unexplained, none counts: then it is
        another model.
        """
        base = self.ours.base
        setup, changes = base, list[Change]()
        while np.nanmax(self.errors(setup)) > _EQUAL and len(changes) < _MOST:
            change = self._best_change(setup)
            if change is None:
                break
            setup = change.applied(setup)
            changes.append(change)
        if min(self.typical(self.errors(setup))) > _NEAR:
            return base, []
        for change in changes[:-1]:
            others = [other for other in changes if other is not change]
            setup_without = base
            for other in others:
                setup_without = other.applied(setup_without)
            if self._gains(setup_without, setup).sum() < 1:  # a later one makes it needless
                setup, changes = setup_without, others
        return setup, changes

    def _best_change(self, setup: Setup) -> Change | None:
        """Return the change that explains most; None if none does.

        It must gain a decimal digit in all, and halve the error of half of the probes that it
        moves.
        """
        most, best = 1.0, None
        for change in self._changes(setup):
            gains = self._gains(setup, change.applied(setup))
            moved = gains[np.abs(gains) > 1e-3]
            if gains.sum() > most and np.median(moved) > 0.3:
                most, best = float(gains.sum()), change
        return best

    def _gains(self, first: Setup, second: Setup) -> Array:
        """Return the decimal digits (N,) that the errors of a setup gain by another."""
        return _digits(self.errors(first)) - _digits(self.errors(second))

    def _changes(self, setup: Setup) -> Iterator[Change]:
        """Yield the hypotheses about all that is not changed yet."""
        base = self.ours.base
        yield from _prompt_changes("query", setup, base.query, base.passage)
        yield from _prompt_changes("passage", setup, base.passage, base.query)
        prompts = base.query + base.passage
        for text, (name, change) in _TEXTS.items():
            yield Change(name, text, text=text)
            if change(prompts) != prompts:
                yield Change(name, text + _TOO, text=text + _TOO)
        if self.ours.varies:
            yield Change("special tokens", _PLAIN, text=_PLAIN)
            yield from self._pooling_changes(setup)
            yield from self._token_changes(setup)
            yield from self._length_changes(setup)

    def _pooling_changes(self, setup: Setup) -> Iterator[Change]:
        """Yield other poolings, and the other direction of attention."""
        base = self.ours.base
        if setup.pooling == base.pooling:
            for pooling in POOLINGS:
                if pooling != base.pooling:
                    detail = f"{pooling}, ours is {base.pooling}"
                    yield Change("pooling", detail, {"pooling": pooling})
        if base.causal is not None and setup.causal == base.causal:
            detail = "causal, ours is bidirectional"
            if base.causal:
                detail = "bidirectional, ours is causal"
            yield Change("attention", detail, {"causal": not base.causal})

    def _token_changes(self, setup: Setup) -> Iterator[Change]:
        """Yield start and end tokens that are missing, doubled or added."""
        tokenizer = self.ours.encoder.tokenizer
        start = tokenizer.bos_token_id or tokenizer.cls_token_id
        sides = {"before": ("start token", start), "after": ("end token", tokenizer.eos_token_id)}
        for side, (name, usual) in sides.items():
            tokens = getattr(self.ours.base, side)
            if getattr(setup, side) != tokens:
                continue
            if tokens:
                text = repr(tokenizer.decode(list(tokens)))
                yield Change(name, f"{text} is missing", {side: ()})
                yield Change(name, f"{text} is doubled", {side: tokens + tokens})
            elif usual is not None:
                text = repr(tokenizer.decode(usual))
                yield Change(name, f"{text} is added", {side: (usual,)})

    def _length_changes(self, setup: Setup) -> Iterator[Change]:
        """Yield other maximum lengths, if long texts differ more than short ones."""
        ours, room = self.ours.base.length, self.ours.room
        errors = self.errors(setup)
        short = np.nanmedian(errors[~self.long])
        if setup.length != ours or not (errors[self.long] > 2 * short + _EQUAL).any():
            return
        lengths = {*_LENGTHS, *range(ours - 2, ours + 3), room} - {ours}
        for length in sorted(lengths, reverse=True):
            if not 8 <= length <= room:
                continue
            for cut, what in _CUTS.items():
                detail = f"at {length} tokens{what}, ours at {ours}"
                if length == room:
                    detail = f"none up to {room} tokens, ours at {ours}"
                yield Change("truncation", detail, {"length": length, "cut": cut})

    def _unexplained(self, setup: Setup, rounded: Callable[[], _Reference]) -> Iterator[Cause]:
        """Yield a cause for what no hypothesis explains, if anything is left."""
        errors = self.errors(setup)
        typical_errors = self.typical(errors)
        typical, worse_role = min(typical_errors), int(np.argmax(typical_errors))
        if typical > _NEAR:
            yield Cause("another model", f"cosine {1 - typical:.2f} at best, or too many causes")
            return
        probes = np.ones_like(self.long)
        if typical < _EQUAL < typical_errors[worse_role] / _ALIKE:
            probes = self.queries != worse_role
            role = ("passage", "query")[worse_role]
            yield Cause(f"{role} prompt", "another text, which is not found")
        if typical > _EXACT:
            cause = self._small_error(errors[probes & ~self.long], typical)
            if cause is not None:
                yield cause
                return
            yield self._precision(setup, typical, rounded())
        odd = probes & (errors > max(_EQUAL, 30 * typical))
        names = _names(self.probes, odd)
        if names:
            name = "tokenizer" if odd[~self.long].any() else "truncation"
            yield Cause(name, f"in a way that was not tried; seen on: {names}")

    def _small_error(self, errors: Array, typical: float) -> Cause | None:
        """Return why texts differ a little, and unevenly; None if it may be precision."""
        low, high = np.nanpercentile(errors, (10, 90))
        rest = f"1 - cosine is left at {low:.0e} to {high:.0e}"
        nodes = _rounding_nodes(self.where)
        if nodes:
            return Cause("quantised activations", f"{nodes}, of fixed ranges; {rest}")
        if high > _ALIKE * low:
            return Cause("several causes", f"or int8 of fixed ranges; {rest}")
        if typical > _COARSE and high > _EVEN * low:
            return Cause("another model", f"or a part of ours; {rest}")
        return None

    def _precision(self, setup: Setup, typical: float, rounded: _Reference) -> Cause:
        """Return how many bits an error is like, by what our model in bfloat16 would have."""
        vectors = rounded.vectors(setup, self.probes)
        bits = np.median(_errors(vectors, self.ours.vectors(setup, self.probes))[self.plain])
        left = np.nanmedian(_errors(vectors, self.theirs)[self.plain])
        like = "float16" if typical < bits / 10 else "bfloat16"
        if left > typical / 2 and typical > 2 * bits:
            like = "int8 or fewer bits, a near checkpoint, or an unknown change of all texts"
        return Cause("precision", f"1 - cosine is {typical:.0e} for any text, as with {like}")


def _prompt_changes(role: str, setup: Setup, prompt: str, other: str) -> Iterator[Change]:
    """Yield what may have happened to the prompt of a role; ``other`` is the other role's."""
    if getattr(setup, role) != prompt:
        return
    prompts = {
        f"{prompt!r} is missing": "",
        f"{prompt!r} is doubled": prompt + prompt,
        f"{prompt!r} without white space at its ends": prompt.strip(),
        f"{other!r}, that of the other role": other,
    }
    for detail, changed in prompts.items():
        if changed != prompt:
            yield Change(f"{role} prompt", detail, {role: changed})


def _rounding_nodes(where: Any) -> str:
    """Return how many nodes of a graph's file round activations; empty for none, or no file."""
    file = Path(str(where))
    if file.suffix not in _ROUNDING or not file.is_file():
        return ""
    name, spelling = _ROUNDING[file.suffix]
    count = file.read_bytes().count(spelling)
    if not count:
        return ""
    return f"{count} {name} nodes in {where}"


def _names(probes: Sequence[Probe], chosen: NDArray[np.bool_]) -> str:
    names = (probes[i].name for i in np.flatnonzero(chosen).tolist() if probes[i].text)
    return ", ".join(dict.fromkeys(names))


def _errors(first: NDArray[Any], second: NDArray[Any]) -> Array:
    """Return 1 - cosine (N,) of rows, over the dimensions that both have; NaN for a NaN."""
    width = min(first.shape[1], second.shape[1])
    a, b = (each[:, :width].astype(np.float64) for each in (first, second))
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray(1 - (a * b).sum(axis=1) / np.where(lengths == 0, 1, lengths))


def _digits(errors: Array) -> Array:
    """Return decimal logarithms, no lower than float32 can tell; 0 for NaN."""
    return np.log10(np.maximum(np.nan_to_num(errors, nan=1.0), 1e-7))


def _other(where: Any, ours: _Reference, *, raw: bool) -> tuple[Encode, str]:
    """Return what encodes texts of a role in the other program, and its name."""

    def prompted(encode: Callable[[list[str]], Vectors]) -> Encode:
        prompts = {role: "" if raw else getattr(ours.base, role) for role in ("query", "passage")}
        return lambda texts, role: encode([prompts[role] + text for text in texts])

    options: Any = {"cache": False, "show_progress": False}
    if not isinstance(where, str | Path):
        where = loaded(where)
    if not isinstance(where, str | Path) and not encodes(where):
        name = type(where).__name__
        if hasattr(where, "encode_query"):
            methods = where.encode_query, where.encode_document
        elif hasattr(where, "embed_query"):  # of one text
            methods = lambda texts: list(map(where.embed_query, texts)), where.embed_documents
        else:
            return prompted(WrappedEncoder(where).prompted({}).encode), name
        query, passage = (WrappedEncoder(SimpleNamespace(encode=each)) for each in methods)
        return lambda texts, role: (query if role == "query" else passage).encode(texts), name
    spec = str(where)
    if spec.startswith(("http://", "https://", "api:")):
        encoder = load_encoder(f"api:{spec.removeprefix('api:')}", prompts={}, **options)
        return prompted(encoder.encode), encoder.source.spec.removeprefix("api:")
    if spec.endswith(".gguf"):
        raise SpecError(
            f"{spec}: serve it, `llama-server -m {spec} --embeddings`, and give its address, such "
            "as http://localhost:8080/v1#model"
        )
    if spec.endswith((".onnx", ".xml")):
        return prompted(_graph(Path(spec), ours)), spec
    if isinstance(where, str | Path):
        other, name = load_encoder(spec, **options), spec
    else:
        other, name = where, where.label
    return lambda texts, role: other.encode(texts, role=role), name


def _graph(file: Path, ours: _Reference) -> Callable[[list[str]], Vectors]:
    """Return what encodes texts by a graph, on our tokens; states are pooled as ours are."""
    import torch

    from qwen3nb.extraction.onnx_graph import graph_states

    if not (file.is_file() and ours.varies):
        raise SpecError(f"{file}: expected a graph of {ours.encoder.label}, a transformer")
    try:
        run = graph_states(file)
    except ImportError as error:
        raise SpecError(f"{file}: needs {error.name}: pip install {error.name}") from None

    def vector(text: str) -> Vectors:
        ids = torch.tensor([ours.row(ours.base, text)], dtype=torch.int64)
        if not ids.numel():  # zero, as ours is
            return np.zeros(ours.encoder.width, dtype=np.float32)
        states = run(ids, torch.ones_like(ids)).float()
        if states.ndim == 3:
            states = pool(states, torch.ones(states.shape[:2]), how=ours.base.pooling)
        return states[0].numpy()

    def encode(texts: list[str]) -> Vectors:
        rows = np.stack([vector(text) for text in texts])
        return truncate_dimensions(rows, rows.shape[1], unit=ours.encoder.normalize)

    return encode


def _rankings(encoder: Encoder, theirs: Encode, queries: int) -> Rankings:
    whole = load_pydocs()
    pydocs = whole.sample(documents=4 * queries, queries=queries) if queries else whole
    names, texts = list(pydocs.corpus), list(pydocs.corpus.values())
    scores, tops = {}, []
    both = {"here": lambda texts, role: encoder.encode(texts, role=role), "there": theirs}
    for side, encode in both.items():
        hits = search(
            encode(list(pydocs.queries.values()), "query"),
            encode(texts, "passage"),
            k=10,
            **search_options(encoder),
        )
        run = hits.run(pydocs.queries, names)
        scores[side] = score_run(pydocs.qrels, run)["nDCG@10"]
        tops.append(hits.ids)
    matrix = join(scores, task="PyDocs", metric="nDCG@10", clusters=pydocs.clusters)
    (difference,) = paired_differences(matrix, pairs=[("there", "here")], seed=0)
    return Rankings(
        queries=difference.n,
        of=len(whole.query_names),
        documents=len(names),
        ours=difference.means[1],
        theirs=difference.means[0],
        difference=difference.difference,
        interval=difference.interval,
        other_first=int((tops[0][:, 0] != tops[1][:, 0]).sum()),
        shared=float(np.mean([len({*a} & {*b}) / len(a) for a, b in zip(*tops, strict=True)])),
    )

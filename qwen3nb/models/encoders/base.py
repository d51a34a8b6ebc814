"""The base class of encoders.

An `Encoder`, as returned by `qwen3nb.models.load`, encodes lists of strings. It implements MTEB's
``EncoderProtocol``, so every MTEB task accepts it.

Rules for all models:

- equal texts are encoded once, and a vector does not depend on the rest of its batch;
- a text without tokens has a zero vector, as in sentence-transformers, and thus similarity 0 to
  every text; empty, blank and truncated texts are counted;
- a text that is not valid Unicode (a lone surrogate) is refused with its index;
- a vector that is not finite, or zero for a text that is not blank, is an error that names
  the text's index;
- a special token inside a text, such as ``<|endoftext|>``, is tokenised as that token, as in
  sentence-transformers and servers. Such texts are counted;
- with ``dimensions``, vectors are truncated, and normalised again if the model normalises; the
  cache stores whole vectors, shared by all dimensions.

Shapes: N texts, D dimensions.
"""

from __future__ import annotations

import copy
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from qwen3nb import paths
from qwen3nb.models.batching import check_texts, deduplicate, texts_of
from qwen3nb.models.inference.freed_memory import FreedMemory
from qwen3nb.models.kinds.prompts import FILE, ROLES, named_prompts, prompt_for
from qwen3nb.models.kinds.source import Source, mteb_meta, unchanged
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.types import EncoderError, Identified, Settings, SpecError, Stats, Vectors
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.progress import tqdm
from qwen3nb.vectors.cache import EmbeddingCache, text_key

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

ENCODING = 4  # increase when vectors change for the same model: part of every identity
_CHUNK = 512  # texts encoded and stored together: the most that a kill loses
_GPU_CHUNK = 16_384  # the same on a GPU, where this many take as long
ADDED = 8  # tokens that a tokenizer may add to a text
_DELAY = 2.0  # seconds until a progress bar appears
_NOT_BLANK = "a text"
_MTEB_ROLES = {"query": "query", "document": "passage"}


class Encoder(Identified, ABC):
    """Texts to vectors.

    Attributes:
        label: a short name that is safe in file names.
        settings: everything its vectors depend on, as JSON; see `identity`.
        dimensions: number of leading dimensions that are kept; None for all.
        prompts: text prepended to an input, per role.
        stats: work done so far.
        cache: of vectors, or None.
        batch_size: texts per batch if they must be padded; changes no vector.
        show_progress: whether long encodings show a progress bar.
        device: the device that the model runs on.
        width: length of a vector before truncation to `dimensions`; set by each kind.
        normalize: whether vectors have length 1; set by each kind.
        runner: runs the model; None if something else does.
        tokenizer: its tokenizer, of transformers where there is a runner.
    """

    supports_prompts = True  # not where the tokens of a prompt are left out of the pooling
    device: str = "cpu"
    width: int
    normalize = True
    runner: Any = None
    tokenizer: Any = None
    # Whether a text has no token; for tokenizers that may find none in texts that are not blank.
    _tokenless: Callable[[str], bool] | None = None
    _special: re.Pattern[str] | None = None  # finds special tokens in a text

    def __init__(self, source: Source, options: ModelOptions, *, settings: Settings) -> None:
        """Set the attributes of all encoders.

        Args:
            source: the model, with its content before loading.
            options: the user's options.
            settings: everything its vectors depend on, apart from its content.

        Raises:
            SpecError: more ``dimensions`` than those of the model, or files that have changed.
        """
        self.dimensions = self._checked_dimensions(source, options)
        self.label = source.label
        if self.dimensions:
            self.label = f"{source.label}-{self.dimensions}d"
        self.source = source
        self.prompts = source.prompts
        # What vectors depend on before their dimensions are cut: the cache has whole ones.
        cache_settings = {
            "encoding": ENCODING,
            "model": unchanged(source),  # its fingerprint; raises if a file has changed
            "prompts": source.prompts,
        }
        if source.instruction:
            cache_settings["instruction"] = source.instruction
        cache_settings.update(settings)
        if options.cache_dtype == "float16":
            cache_settings["vectors"] = "float16"
        self.normalize = bool(cache_settings.get("normalize", self.normalize))
        self.settings = dict(cache_settings)
        if self.dimensions:
            self.settings["dimensions"] = self.dimensions
        self.cache: EmbeddingCache | None = None
        if options.cache:
            self.cache = _cache_of(source.label, cache_settings)
        self.stats = Stats()
        self.batch_size = options.batch_size
        self.show_progress = options.show_progress
        self._freed_memory = FreedMemory()
        # Called with the number of texts that a chunk has done since the last call.
        self._report_done: Callable[[int], None] | None = None

    def _checked_dimensions(self, source: Source, options: ModelOptions) -> int | None:
        """Return the number of leading dimensions to keep; None for all."""
        dimensions = options.dimensions or self.width
        if type(dimensions) is not int or not 1 <= dimensions <= self.width:
            raise SpecError(
                f"{source.label}: dimensions is {dimensions!r}; expected 1 to {self.width}, the "
                "width of its vectors"
            )
        return None if dimensions == self.width else dimensions

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.label}: {self.dimension} dimensions, on {self.device}, "
            f"identity {self.identity[:8]}>"
        )

    def prompted(self, prompts: Mapping[str, str]) -> Self:
        """Return the same loaded model with other prompts; both share their cache.

        Raises:
            SpecError: the model excludes tokens of prompts from pooling.
        """
        checked_prompts = named_prompts(prompts)
        has_prompt = any(checked_prompts.values())
        if has_prompt and not self.supports_prompts:  # they would be pooled here
            raise SpecError(
                f"{self.source.label} excludes the tokens of a prompt from its pooling "
                "(include_prompt), which is not supported; prompts={} runs it without prompts"
            )
        prompted_model = copy.copy(self)
        prompted_model.source = replace(self.source, prompts=checked_prompts)
        prompted_model.prompts = checked_prompts
        prompted_model.stats = Stats()
        prompted_model.settings = self.settings | {"prompts": checked_prompts}
        return prompted_model

    @contextmanager
    def uncached(self) -> Iterator[None]:
        """Disable the cache within the block."""
        cache = self.cache
        self.cache = None
        try:
            yield
        finally:
            self.cache = cache

    @property
    def dimension(self) -> int:
        """D, the length of a vector."""
        return self.dimensions or self.width

    @abstractmethod
    def _embed(self, texts: Sequence[str]) -> Vectors:
        """Return vectors (N, width) of distinct texts, prompts included."""

    def encode(
        self,
        inputs: str | Sequence[str] | Iterable[dict[str, Any]],
        *,
        role: str | None = None,
        prompt_type: Any = None,
        task_metadata: Any = None,
        hf_split: str | None = None,
        hf_subset: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        precision: str | None = None,
    ) -> Any:
        """Encode ``inputs`` into vectors (N, D), float32, in input order; (D,) for one string.

        Args:
            inputs: a string, a list of strings, or MTEB's batches.
            role: ``query`` or ``passage``; with the task, it selects the prompt.
            prompt_type: MTEB's name for the role.
            task_metadata: MTEB's description of the task.
            hf_split: MTEB's name of the split; not used.
            hf_subset: MTEB's name of the subset, likewise.
            batch_size: texts per batch if they must be padded; None for the value given to
                `load_encoder`. Affects speed, not vectors.
            show_progress_bar: whether a long encoding shows a progress bar; None, and every
                call of an MTEB task, for the value given to `load_encoder`.
            prompt_name: name of one of the model's prompts, in place of the role's.
            prompt: text put before each input, in place of the model's prompts.
            convert_to_numpy: whether to return an array; otherwise a tensor on the CPU.
            convert_to_tensor: whether to return such a tensor in any case.
            normalize_embeddings: True for vectors of length 1; False keeps the model's setting.
            truncate_dim: keep this many leading dimensions, as ``dimensions`` of `load_encoder`.
            precision: of the vectors returned, as in sentence-transformers: ``int8``, ``ubinary`` …

        Raises:
            EncoderError: an input that is not a string, a vector that is not finite, or a zero
                vector of a text that is not blank.
            ValueError: an unknown role or prompt, or a ``batch_size`` below 1.
        """
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"expected a batch_size of at least 1; got {batch_size}")
        if prompt_name is not None:
            prompt = self.prompts[check_choice("prompt_name", prompt_name, self.prompts)]
        role = _role_of(role, prompt_type)
        if prompt is None:
            instruction = self.source.instruction
            prompt = prompt_for(
                self.prompts, role=role, task=task_metadata, instruction=instruction
            )
        texts = [inputs] if isinstance(inputs, str) else texts_of(inputs)
        self._count_texts(texts)
        if task_metadata is not None:  # MTEB sets it in every call, whatever the user wants
            show_progress_bar = None
        with self._with_settings(batch_size, show_progress_bar):
            vectors = self._encode([prompt + text for text in texts])
        # Nothing is cut here: vectors are rescaled to length 1.
        if normalize_embeddings and not self.normalize:
            vectors = truncate_dimensions(vectors, self.dimension)
        if truncate_dim is not None:
            vectors = truncate_dimensions(vectors, truncate_dim, unit=self.normalize)
        if precision not in (None, "float32"):
            from sentence_transformers.util import quantize_embeddings

            vectors = quantize_embeddings(vectors, precision=precision)
        result: Any = vectors[0] if isinstance(inputs, str) else vectors
        if convert_to_numpy and not convert_to_tensor:
            return result
        import torch

        return torch.from_numpy(result)

    def _count_texts(self, texts: Sequence[Any]) -> None:
        """Count empty texts and those with a special token; refuse what is no text."""
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise EncoderError(f"text {index} is {type(text).__name__}, expected a string")
            if not text.strip():
                self.stats.empty += 1
            if self._special is not None and self._special.search(text):
                self.stats.special += 1

    @contextmanager
    def _with_settings(self, batch_size: int | None, show_progress: bool | None) -> Iterator[None]:
        """Use another batch size or progress bar within the block; None for the encoder's."""
        old_batch_size = self.batch_size
        old_show_progress = self.show_progress
        if batch_size is not None:
            self.batch_size = batch_size
        if show_progress is not None:
            self.show_progress = show_progress
        try:
            yield
        finally:
            self.batch_size = old_batch_size
            self.show_progress = old_show_progress

    def _encode(self, texts: list[str]) -> Vectors:
        check_texts(texts)
        distinct_texts, positions = deduplicate(texts)
        self.stats.texts += len(texts)
        cache = nullcontext() if self.cache is None else self.cache
        with cache:
            distinct_vectors = self._cached_or_computed(distinct_texts, positions)
        # Texts that are not blank may have no token either: their vector is zero.
        if self._tokenless is not None:
            is_filled = np.array([bool(text.strip()) for text in distinct_texts], dtype=bool)
            has_no_token = is_filled & _is_zero(distinct_vectors)
            self.stats.empty += int(has_no_token[positions].sum())
        if self.dimensions:
            distinct_vectors = truncate_dimensions(
                distinct_vectors, self.dimensions, unit=self.normalize
            )
        return distinct_vectors[positions]

    def _cached_or_computed(self, texts: Sequence[str], positions: Sequence[int]) -> Vectors:
        """Return whole vectors of distinct texts, computing those missing from the cache.

        ``positions`` has the position of each input's text among them, for errors.
        """
        vectors = np.empty((len(texts), self.width), dtype=np.float32)
        missing_indices = list(range(len(texts)))
        if self.cache is not None:
            missing_indices = self._fill_from(self.cache, texts, vectors)
        # Texts of similar length share a chunk, and thus a forward pass.
        missing_indices.sort(key=lambda index: -len(texts[index]))
        chunk_size = _GPU_CHUNK if self.device.startswith("cuda") else _CHUNK
        with self._progress([len(texts[index]) for index in missing_indices]) as progress:
            for start in range(0, len(missing_indices), chunk_size):
                chunk = missing_indices[start : start + chunk_size]
                vectors[chunk] = self._checked(chunk, texts, positions)
                if self.cache is not None:
                    self.cache.put({text_key(texts[index]): vectors[index] for index in chunk})
                progress.reach(start + len(chunk))
                self._freed_memory.give_back()
        return vectors

    def _fill_from(
        self, cache: EmbeddingCache, texts: Sequence[str], vectors: Vectors
    ) -> list[int]:
        """Fill in the vectors that the cache has; return the positions of the others."""
        damaged_before = cache.damaged
        is_cached = cache.fill([text_key(text) for text in texts], vectors)
        self.stats.cached += int(is_cached.sum())
        self.stats.damaged += cache.damaged - damaged_before
        # Cut texts are counted in every run, also where no text is tokenised for its vector.
        cached_texts = [texts[index] for index in np.flatnonzero(is_cached).tolist()]
        long_texts = [text for text in cached_texts if self._may_be_cut(text)]
        for start in range(0, len(long_texts), _CHUNK):
            self.stats.cut += self._truncated(long_texts[start : start + _CHUNK])
        cache.touch()
        missing_indices: list[int] = np.flatnonzero(~is_cached).tolist()
        return missing_indices

    @contextmanager
    def _progress(self, lengths: Sequence[int]) -> Iterator[_Progress]:
        """Show the progress of encoding texts of these ``lengths``, in characters."""
        with tqdm(
            total=sum(lengths),
            desc=f"{self.label}: encoding",
            unit=" characters",
            unit_scale=True,
            delay=_DELAY,
            leave=False,
            disable=not self.show_progress,
        ) as bar:
            progress = _Progress(bar, lengths)
            self._report_done = progress.add
            yield progress

    @property
    def longest(self) -> int | None:
        """Most tokens of a text, with its prompt; None for any, or if they are not known."""
        length: int | None = getattr(self, "max_length", None)
        return length

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """Return how many tokens each text has, however long it is; for models with `longest`."""
        raise NotImplementedError

    def _truncated(self, texts: Sequence[str]) -> int:
        """Return how many texts are longer than the maximum length, which some models have."""
        return 0

    def _may_be_cut(self, text: str) -> bool:
        """Return whether a text may be truncated; a token has at least one byte."""
        limit = getattr(self, "max_length", None)
        if limit is None:
            return False
        prefix_bytes = len(self.settings.get("prefix", "").encode())
        return len(text.encode()) > limit - ADDED - prefix_bytes

    def _checked(
        self, chunk: Sequence[int], distinct: Sequence[str], positions: Sequence[int]
    ) -> Vectors:
        """Return the vectors of the texts at ``chunk`` in ``distinct``; refuse invalid ones."""
        texts = [distinct[index] for index in chunk]
        started = time.perf_counter()
        vectors = self._embed(texts)
        if "vectors" in self.settings:  # "float16", as they are stored
            with np.errstate(over="ignore"):  # an overflow is infinite, and refused below
                vectors = vectors.astype(np.float16).astype(np.float32)
        self.stats.seconds += time.perf_counter() - started
        self.stats.encoded += len(texts)
        if vectors.shape != (len(texts), self.width):
            raise EncoderError(
                f"{self.label}: expected vectors ({len(texts)}, {self.width}); got {vectors.shape}"
            )
        is_finite: NDArray[np.bool_] = np.asarray(np.isfinite(vectors).all(axis=1))
        for row in np.flatnonzero(~is_finite | _is_zero(vectors)).tolist():
            if is_finite[row] and self._may_be_zero(texts[row]):
                continue
            problem = "zero" if is_finite[row] else "not finite"
            first_input = positions.index(chunk[row])  # among the texts as they were given
            raise EncoderError(
                f"{self.label}: the vector of text {first_input} is {problem}: {texts[row]!r:.80}"
            )
        return vectors

    def _may_be_zero(self, text: str) -> bool:
        """Return whether a text may have the vector zero, as one without tokens."""
        if not text.strip():
            return True
        return self._tokenless is not None and self._tokenless(text)

    @property
    def similarity_name(self) -> str:
        """``cosine`` or ``dot``, as stored with the model, else ``cosine`` if it normalises."""
        return str(self.settings.get("similarity", "cosine" if self.normalize else "dot"))

    def _comparison(self, source: Source, options: ModelOptions) -> Settings:
        """Return the settings for comparing the vectors of a model in a folder, and its dtype.

        The similarity is that of ``config_sentence_transformers.json``, by default cosine. If the
        user sets ``normalize``, or the model has no such file, vectors of length 1 are compared by
        cosine and others by dot product.

        Raises:
            SpecError: another similarity.
        """
        settings: Settings = {"normalize": self.normalize, "dtype": options.dtype}
        if options.normalize is not None:
            return settings
        default = "cosine" if self.normalize else "dot"
        fields = source.own_folder.object(FILE)
        similarity = fields.get("similarity_fn_name")
        if not similarity:
            is_cosine = bool(fields) or source.kind.cosine
            similarity = "cosine" if is_cosine else default
        if similarity not in ("cosine", "dot"):
            raise SpecError(
                f"{source.label} is compared by {similarity!r} (config_sentence_transformers.json)"
                "; supported are: cosine, dot"
            )
        # Stored where it differs from the default; both are the same for vectors of length 1.
        if similarity != default and not self.normalize:
            settings["similarity"] = similarity
        return settings

    def similarity(self, first: Any, second: Any) -> Tensor:
        """Return similarities (N, M) of vectors (N, D) and (M, D); a vector (D,) is one row.

        The result is a tensor, as MTEB and sentence-transformers expect.

        Raises:
            TypeError: texts instead of vectors.
        """
        first_vectors = self._comparable(first)
        second_vectors = self._comparable(second)
        return (
            first_vectors.reshape(-1, first_vectors.shape[-1])
            @ second_vectors.reshape(-1, second_vectors.shape[-1]).T
        )

    def similarity_pairwise(self, first: Any, second: Any) -> Tensor:
        """Return similarities (N,) of the rows of (N, D) and (N, D)."""
        return (self._comparable(first) * self._comparable(second)).sum(dim=-1)

    def _comparable(self, vectors: ArrayLike) -> Tensor:
        """Return vectors as a tensor whose products are similarities."""
        import torch

        array = np.asarray(vectors)
        if array.dtype.kind in "OSU":  # objects, bytes or texts
            raise TypeError(
                f"expected vectors, got {vectors!r:.60}; write "
                "encoder.similarity(encoder.encode(queries), encoder.encode(texts))"
            )
        tensor = torch.as_tensor(array, dtype=torch.float32)
        if self.similarity_name == "cosine":
            tensor = torch.nn.functional.normalize(tensor, dim=-1)
        return tensor

    # What sentence-transformers' evaluators and langchain call:

    def encode_query(self, inputs: str | Sequence[str], **options: Any) -> Any:
        """Encode queries: ``encode`` with ``role="query"``."""
        return self.encode(inputs, role="query", **options)

    def encode_document(self, inputs: str | Sequence[str], **options: Any) -> Any:
        """Encode documents: ``encode`` with ``role="passage"``."""
        return self.encode(inputs, role="passage", **options)

    def embed_query(self, text: str) -> list[float]:
        """Encode one query, for langchain."""
        vector: list[float] = self.encode_query(text).tolist()
        return vector

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Encode documents, for langchain."""
        vectors: list[list[float]] = self.encode_document(texts).tolist()
        return vectors

    @property
    def similarity_fn_name(self) -> str:
        """sentence-transformers' name of the similarity: ``cosine`` or ``dot``."""
        return self.similarity_name

    @property
    def model_card_data(self) -> Any:
        """A card for the scores of an evaluator, which are in what it returns, too."""
        from sentence_transformers import SentenceTransformerModelCardData

        return SentenceTransformerModelCardData()

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """MTEB's description, with a name and revision unique to this encoder."""
        return mteb_meta(
            self, dimension=self.dimension, kinds=["dense"], similarity=self.similarity_name
        )


class _Progress:
    """A progress bar that counts characters.

    Texts per second would increase, as the longest come first.
    """

    def __init__(self, bar: tqdm, lengths: Sequence[int]) -> None:
        self._bar = bar
        self._lengths = lengths  # of the texts, in the order in which they are encoded
        self._done = 0

    def add(self, texts: int) -> None:
        """Show that the next ``texts`` are encoded."""
        end = self._done + texts
        self._bar.update(sum(self._lengths[self._done : end]))
        self._done = end

    def reach(self, texts: int) -> None:
        """Show that ``texts`` are encoded in all."""
        self.add(texts - self._done)


class RandomEncoder(Encoder):
    """A random unit vector per text: chance level for every score.

    A text's vector comes from a generator seeded with ``seed`` and the text, so it does not depend
    on other texts.
    """

    def __init__(self, source: Source, options: ModelOptions) -> None:
        self._seed = options.seed
        self.width = int(source.spec.partition(":")[2] or 128)
        settings = {"seed": self._seed, "dimension": self.width}
        super().__init__(source, options, settings=settings)

    def _embed(self, texts: Sequence[str]) -> Vectors:
        rows = []
        for text in texts:
            entropy = int.from_bytes(text_key(text)[:16], "little")
            rows.append(np.random.default_rng([self._seed, entropy]).normal(size=self.width))
        vectors = np.asarray(rows, dtype=np.float32).reshape(len(rows), self.width)
        unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit


def _role_of(role: str | None, prompt_type: Any) -> str | None:
    """Return the role of texts, given by its name or by MTEB's type of prompt."""
    if role is None and prompt_type is not None:
        role = _MTEB_ROLES[getattr(prompt_type, "value", prompt_type)]
    if role is not None:
        check_choice("role", role, ROLES)
    return role


def _cache_of(label: str, settings: Settings) -> EmbeddingCache:
    """Return the cache of whole vectors, which are found by texts including their prompts."""
    prompted = settings | {"prompts": {}}
    prompted.pop("instruction", None)
    key = sha256_json(prompted)
    folder = paths.cache() / "embeddings" / key[:32]
    about = {"label": label, "identity": key, "settings": prompted}
    return EmbeddingCache(folder, about=about, half="vectors" in settings)


def _is_zero(vectors: Vectors) -> NDArray[np.bool_]:
    """Return which rows are zero, (N,)."""
    return np.logical_not(vectors.any(axis=1))


def truncate_dimensions(vectors: Vectors, dimension: int, *, unit: bool = True) -> Vectors:
    """Keep the first ``dimension`` dimensions of (N, D), rescaled to length 1 if ``unit``.

    A vector whose prefix is zero stays zero.

    Raises:
        ValueError: ``dimension`` is not 1 to D.
    """
    if not 1 <= dimension <= vectors.shape[1]:
        raise ValueError(f"dimension is {dimension}; expected 1 to {vectors.shape[1]}")
    leading = np.array(vectors[:, :dimension], dtype=np.float32, order="C")
    if unit:
        lengths = np.linalg.norm(leading, axis=1, keepdims=True)
        leading /= np.where(lengths > 0, lengths, 1)
    return leading


def beside_blanks(encode: Callable[[Sequence[str]], Vectors], texts: Sequence[str]) -> Vectors:
    """Return ``encode(texts)``, with each blank text encoded together with one that has tokens.

    The library sentence-transformers fails on a batch without any token. The result is the vector
    of a blank text in a larger batch; for most poolings, zero if the tokenizer adds no token. The
    infinite maximum over no tokens is replaced by zero.
    """
    filled_rows = []
    blank_rows = []
    for row, text in enumerate(texts):
        if text.strip():
            filled_rows.append(row)
        else:
            blank_rows.append(row)
    filled_texts = [texts[row] for row in filled_rows]
    filled_vectors = encode(filled_texts or [_NOT_BLANK])  # one text shows the width
    vectors = np.zeros((len(texts), filled_vectors.shape[1]), dtype=np.float32)
    vectors[filled_rows] = filled_vectors[: len(filled_rows)]
    for row in blank_rows:
        # The library fails on a batch without any token.
        blank_vector, _ = encode([texts[row], _NOT_BLANK])
        if np.isfinite(blank_vector).all():
            vectors[row] = blank_vector
    return vectors

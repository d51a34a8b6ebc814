"""Search models of sentence-transformers, which have no single vector per text.

sentence-transformers loads and runs them. Their prompts are those of the folder's
``config_sentence_transformers.json`` or the user's, by role or task, as for encoders. Vectors are
neither cached nor kept: sparse ones and those of tokens are many times as large as dense ones.
"""

from __future__ import annotations

import copy
import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.gate.declared import PYLATE, SETTINGS
from qwen3nb.models.gate.tokenizer import check_loaded, check_tokenizer
from qwen3nb.models.gate.weights import check_finite, check_length, own_weights, warn_of_constants
from qwen3nb.models.kinds.prompts import named_prompts, prompt_for, used_prompts
from qwen3nb.models.kinds.source import Source, unchanged
from qwen3nb.models.modeling import runtime
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.search.searcher import PairSearcher
from qwen3nb.models.types import CheckpointError, SpecError, Stats, refusing, torch_dtype

ENCODING = 1  # increase when scores change for the same model: part of every identity
_ADDED = 8  # tokens that a tokenizer may add to a text


class LibrarySearcher(PairSearcher):
    """A search model that a class of sentence-transformers loads and runs.

    Attributes:
        prompts: text before an input, by role or task.
        batch_size: texts per batch; changes no score beyond rounding.
        max_length: tokens after which a text is truncated.
        parameters: number of parameters, embeddings included.
        document_bytes: of the vectors of all documents that were encoded so far.
        documents: their number.
    """

    library_class: ClassVar[str]  # its name in sentence_transformers
    similarities: ClassVar[Sequence[str]]  # those that are supported

    def __init__(self, source: Source, options: ModelOptions) -> None:
        check_options(source, options)
        self.device = runtime.pick_device(options.device)
        self._model = load_library_model(self.library_class, source, options, self.device)
        if options.max_length is not None:
            self._model.max_seq_length = options.max_length
        self.max_length: int | None = self._model.max_seq_length
        self.batch_size = options.batch_size
        self.prompts = source.prompts
        if not self.prompts and options.prompts is None:  # of PyLate, which has its own fields
            default = self._model.default_prompt_name
            self.prompts = used_prompts(self._model.prompts, default=default)
        self.parameters = sum(weight.numel() for weight in self._model.parameters())
        self.similarity = str(self._model.similarity_fn_name)
        if self.similarity not in self.similarities:
            raise SpecError(
                f"{source.label} is compared by {self.similarity!r} ({SETTINGS}); supported are: "
                f"{', '.join(self.similarities)}"
            )
        release = importlib.metadata.version("sentence-transformers").split(".")[0]
        settings = {
            "encoding": ENCODING,
            "model": unchanged(source),
            "prompts": self.prompts,
            "similarity": self.similarity,
            "max_length": self.max_length,
            "dtype": options.dtype,
            "versions": {**runtime.library_versions(), "sentence-transformers": release},
        }
        if source.instruction:
            settings["instruction"] = source.instruction
        super().__init__(source, settings=settings)
        self.show_progress = options.show_progress
        self.document_bytes = 0
        self.documents = 0

    @property
    def bytes_per_document(self) -> float | None:
        """The bytes of an index for a document, in single precision; None before a search."""
        if not self.documents:
            return None
        return self.document_bytes / self.documents

    def prompted(self, prompts: Mapping[str, str]) -> Self:
        """Return the same loaded model with other prompts."""
        prompted_model = copy.copy(self)
        prompted_model.prompts = named_prompts(prompts)
        prompted_model.source = replace(self.source, prompts=prompted_model.prompts)
        prompted_model.settings = self.settings | {"prompts": prompted_model.prompts}
        prompted_model.stats = Stats()
        prompted_model.document_bytes = prompted_model.documents = 0
        return prompted_model

    @property
    def longest(self) -> int | None:  # type: ignore[override]
        """Most tokens of a document that it reads; None for any."""
        return self.max_length

    def document_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the tokens of documents with their prompt, however many."""
        prompt = self.prompt("passage")
        prompted_texts = [prompt + text for text in texts]
        return runtime.token_counts(self._model.tokenizer, prompted_texts)

    def prompt(self, role: str) -> str:
        """Return the prompt of texts with the role ``query`` or ``passage``."""
        instruction = self.source.instruction
        return prompt_for(self.prompts, role=role, task=self._task, instruction=instruction)

    def encoded(self, texts: Sequence[str], role: str, **options: Any) -> Any:
        """Return what the library makes of texts, and count them.

        One row more follows if all texts are blank: the library fails on a batch without a token.
        """
        self.stats.empty += sum(not text.strip() for text in texts)
        self.stats.cut += self._count_cut(texts, self.prompt(role))
        encode = self._model.encode_query if role == "query" else self._model.encode_document
        inputs = list(texts)
        if not any(text.strip() for text in texts):
            inputs.append("a text")
        return encode(inputs, prompt=self.prompt(role), show_progress_bar=False, **options)

    def _count_cut(self, texts: Sequence[str], prompt: str) -> int:
        """Return how many texts are truncated; a token has at least one byte."""
        if self.max_length is None:
            return 0
        whole_texts = [prompt + text for text in texts]
        shortest_cut = self.max_length - _ADDED  # bytes
        # A token has a byte or more, so shorter texts need not be tokenised to be counted.
        long_texts = [text for text in whole_texts if len(text.encode()) > shortest_cut]
        if not long_texts:
            return 0
        _, cut = runtime.token_rows(self._model.tokenizer, long_texts, max_length=self.max_length)
        return cut


def check_options(source: Source, options: ModelOptions) -> None:
    """Refuse options that a model of sentence-transformers without dense vectors lacks."""
    is_given_by_name = {
        "pooling": options.pooling is not None,
        "prefix": bool(options.prefix),
        "append_eos": options.append_eos,
        "normalize": options.normalize is not None,
        "dimensions": bool(options.dimensions),
        "dtype int8": options.dtype == "int8",
        "cache_dtype": options.cache_dtype != "float32",
    }
    without_effect = [name for name, is_given in is_given_by_name.items() if is_given]
    if without_effect:
        raise SpecError(
            f"{source.label} runs as its sentence-transformers files define; "
            f"{' and '.join(without_effect)} cannot be set"
        )


def load_library_model(class_name: str, source: Source, options: ModelOptions, device: str) -> Any:
    """Load a checked folder by a class of sentence-transformers."""
    import sentence_transformers

    folder = source.own_folder
    first_folder = folder.modules[0].folder
    check_tokenizer(first_folder)
    are_safe = all(file.suffix == ".safetensors" for file in first_folder.weights.files)
    model_class = getattr(sentence_transformers, class_name)
    with refusing(folder, "sentence-transformers cannot load it"):
        model = model_class(
            str(folder),
            device=device,
            model_kwargs={"dtype": torch_dtype(options.dtype), "use_safetensors": are_safe},
            local_files_only=True,
        ).eval()
    config = model[0].model.config
    vocabulary_size = config.get_text_config().vocab_size
    check_loaded(model.tokenizer, rows=vocabulary_size, folder=first_folder)
    check_length(model, options.max_length, f"{source.label}: max_length")
    own_weights(model)
    check_finite(model, folder)
    warn_of_constants(model, folder)
    return model


def declared_class(folder: ModelFolder) -> str:
    """Return the class of sentence-transformers that a folder declares; empty if none.

    PyLate's folders declare ``ColBERT``, or nothing but its own settings.
    """
    if not folder.modules:
        return ""
    fields = folder.object(SETTINGS)
    if fields.get("model_type") == "ColBERT" or any(key in fields for key in PYLATE):
        return "MultiVectorEncoder"
    return str(fields.get("model_type") or "")


def check_modules(folder: ModelFolder, expected: Sequence[str]) -> None:
    """Refuse a folder with modules of sentence-transformers that are not among ``expected``."""
    for module in folder.modules:
        if module.name not in expected:
            raise CheckpointError(
                f"{folder.path / 'modules.json'}: type is {module.type!r:.80}; expected modules "
                f"such as {', '.join(expected)}"
            )

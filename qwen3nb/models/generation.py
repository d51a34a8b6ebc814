"""Language models that write an answer to a prompt: behind a server, or in a folder.

A server speaks OpenAI's chat completions: vLLM, llama.cpp's server, Ollama and OpenAI do. Texts
leave this machine only for a model ``api:URL#MODEL`` that the user names. A folder or hub id is a
causal language model, which runs here without any code of its own.

Answers are the most likely ones (temperature 0), so that a model that runs here repeats them.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from qwen3nb.models.kinds.api import API, ApiClient, ApiError, Endpoint, RefusedError
from qwen3nb.models.kinds.resolve import fetch_model, find_source
from qwen3nb.models.kinds.source import Source, fingerprint, unchanged
from qwen3nb.models.types import EncoderError, Identified, Stats, refusing, torch_dtype
from qwen3nb.utils.bounded_call import bounded_text
from qwen3nb.utils.imports import load_library

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_LARGEST_ANSWER = 4 << 20  # bytes of a chat completion
# Of a chat template: seconds of the processor, bytes of memory, and bytes of what it writes.
_TEMPLATE_SECONDS, _TEMPLATE_MEMORY, _LARGEST_FRAME = 10, 512 << 20, 64 << 10
_MARK = "qwen3nb-prompt"  # stands for the prompt in a chat template
# What a model thinks before it answers; without an end if the answer was cut.
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


class PromptRefusedError(EncoderError):
    """A model does not take a prompt, such as one that is too long for it."""


class Generator(Protocol):
    """A language model that answers prompts.

    Attributes:
        label: a name that is safe in file names and tables.
        stats: work done so far.
    """

    label: str
    stats: Stats

    @property
    def identity(self) -> str:
        """SHA-256 of all that its answers depend on.

        A server's model without a version has another one in every run.
        """
        ...

    def generate(self, prompt: str, *, max_tokens: int) -> str:
        """Return the answer to a prompt, without what the model thinks before it.

        Raises:
            PromptRefusedError: the model does not take this prompt; another one may do.
            EncoderError: the model cannot be used.
        """
        ...


def load_generator(name: str, *, device: str = "auto", dtype: str = "float32") -> Generator:
    """Load the language model that ``name`` names.

    Args:
        name: ``api:URL#MODEL``, the folder or hub id of a causal language model, or the folder of
            a LoRA adapter.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``; for a model that runs here.
        dtype: such as ``float32`` or ``bfloat16``; likewise.

    Raises:
        SpecError: no such model, or one that writes no text.
        ValueError: an unknown dtype or device.
    """
    source = find_source(name)
    if source.kind is API:
        return ApiGenerator(source)
    if source.on_hub:
        source = fetch_model(source)
    load_library("transformers.modeling_utils")
    source.kind.check_causal(source)  # raises before any weight is loaded
    return LocalGenerator(source, device=device, dtype=dtype)


class ApiGenerator(Identified):
    """A language model behind an OpenAI-compatible endpoint."""

    def __init__(self, source: Source) -> None:
        self.label = source.label
        self.stats = Stats()
        self._endpoint = Endpoint.parse(source.spec)
        self._client = ApiClient(
            self._endpoint,
            "chat/completions",
            if_silent="try a smaller or faster model",
        )
        self._is_greeted = False  # whether the server has answered anything
        self._limit_name = "max_tokens"
        self.settings = {"generator": "api", "model": fingerprint(source), "temperature": 0}

    def generate(self, prompt: str, *, max_tokens: int) -> str:
        """Return the answer to a prompt; see `Generator`."""
        if not self._is_greeted:  # a silent server is soon known, unlike a slow model
            self._client.greet()
            self._is_greeted = True
        started = time.perf_counter()
        try:
            answer = self._answer(prompt, max_tokens)
        except RefusedError as error:
            raise PromptRefusedError(str(error)) from None
        finally:
            self.stats.seconds += time.perf_counter() - started
        self.stats.texts += 1
        return without_thoughts(answer)

    def _answer(self, prompt: str, max_tokens: int) -> str:
        try:
            return self._request(prompt, max_tokens)
        except RefusedError as error:
            # OpenAI's newer models have another name for the limit, and name it.
            other_name = "max_completion_tokens"
            if self._limit_name == other_name or other_name not in str(error):
                raise
            self._limit_name = other_name
            return self._request(prompt, max_tokens)

    def _request(self, prompt: str, max_tokens: int) -> str:
        body = {
            "model": self._endpoint.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            self._limit_name: max_tokens,
        }
        answer = self._client.post(body, about="the prompt is", most_bytes=_LARGEST_ANSWER)
        try:
            content = answer.json()
            text = content["choices"][0]["message"]["content"]
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            text = 0
        if text is None:  # a model that only thought, or refused
            return ""
        if not isinstance(text, str):
            raise ApiError(
                f"{self._client.url}: expected JSON with choices, each with a message, got "
                f"{answer.excerpt!r}; is this an OpenAI-compatible server for chats?"
            )
        return text


class LocalGenerator(Identified):
    """A causal language model that runs here."""

    def __init__(self, source: Source, *, device: str = "auto", dtype: str = "float32") -> None:
        from transformers import GenerationConfig

        from qwen3nb.models.modeling.runtime import library_versions, load_tokenizer, pick_device

        source = replace(source, content=fingerprint(source))
        self.label = source.label
        self.stats = Stats()
        self._model: Any = source.kind.causal(source, torch_dtype(dtype))
        self._model = self._model.to(pick_device(device)).eval()
        self._tokenizer = load_tokenizer(source.tokenizer_folder, self._model.config)
        with refusing(source.tokenizer_folder, "its chat template cannot be used"):
            self._before, self._after = _frame(self._tokenizer)
        end = self._model.generation_config.eos_token_id
        self._model.generation_config = GenerationConfig(  # without penalties, beams, sampling
            do_sample=False, eos_token_id=end, pad_token_id=self._padding()
        )
        self.settings = {
            "generator": "local",
            "model": unchanged(source),
            "frame": [self._before, self._after],
            "end": end,
            "dtype": dtype,
            "versions": library_versions(),
        }

    def generate(self, prompt: str, *, max_tokens: int) -> str:
        """Return the answer to a prompt; see `Generator`."""
        import torch

        tokens = self._tokens(prompt)
        room = int(self._model.config.max_position_embeddings) - max_tokens
        if len(tokens) > room:
            raise PromptRefusedError(
                f"{self.label}: the prompt has {len(tokens):,} tokens, and {max_tokens:,} are for "
                f"the answer; the model takes {room + max_tokens:,} in all"
            )
        started = time.perf_counter()
        row = torch.tensor([tokens], device=self._model.device)
        with torch.inference_mode():
            (output,) = self._model.generate(
                row, attention_mask=torch.ones_like(row), max_new_tokens=max_tokens
            )
        self.stats.seconds += time.perf_counter() - started
        self.stats.texts += 1
        answer = self._tokenizer.decode(output[len(tokens) :], skip_special_tokens=True)
        return without_thoughts(str(answer))

    def _tokens(self, prompt: str) -> list[int]:
        """Return the tokens of a prompt in its frame.

        Special tokens in the prompt are plain text: no document can end the user's turn.
        """
        if not self._before and not self._after:
            return _token_ids(self._tokenizer, prompt, is_plain=True, adds_special=True)
        return [
            *_token_ids(self._tokenizer, self._before, is_plain=False),
            *_token_ids(self._tokenizer, prompt, is_plain=True),
            *_token_ids(self._tokenizer, self._after, is_plain=False),
        ]

    def _padding(self) -> int:
        """Return a token for padding, which a single prompt never needs."""
        token = self._tokenizer.pad_token_id
        if token is None:
            token = self._tokenizer.eos_token_id
        return int(token or 0)


def without_thoughts(answer: str) -> str:
    """Return an answer without what the model thinks, which stands in ``<think>``."""
    return _THOUGHT.sub("", answer).strip()


def _frame(tokenizer: PreTrainedTokenizerBase) -> tuple[str, str]:
    """Return the text before and after the prompt by the model's chat template; else two empty."""
    if not tokenizer.chat_template:
        return "", ""

    def chat() -> str:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": _MARK}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,  # of Qwen3; other templates ignore it
        )
        return str(text)

    # A template is a program of its author, which may have no end.
    text = bounded_text(
        chat, seconds=_TEMPLATE_SECONDS, memory=_TEMPLATE_MEMORY, most_bytes=_LARGEST_FRAME
    )
    before, mark, after = text.partition(_MARK)
    if not mark:  # a template without a user's turn
        return "", ""
    return before, after


def _token_ids(
    tokenizer: PreTrainedTokenizerBase, text: str, *, is_plain: bool, adds_special: bool = False
) -> list[int]:
    """Return the tokens of a text, in which special tokens are plain text or control tokens."""
    encoded = tokenizer(text, add_special_tokens=adds_special, split_special_tokens=is_plain)
    ids: list[int] = encoded["input_ids"]
    return ids

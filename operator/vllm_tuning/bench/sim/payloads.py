"""Requests and responses of the completions and chat endpoints, as vLLM 0.32 shapes them."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from vllm_tuning.bench.sim.memory import EngineSettings

TOKENS: Final = (
    " the", " of", " and", " to", " in", " is", " that", " it", " was", " for", " on", " are",
)  # fmt: skip
"""Texts of generated tokens; the n-th token of a request is ``TOKENS[n % len(TOKENS)]``."""

DEFAULT_COMPLETION_TOKENS: Final = 16
NATURAL_STOP_TOKENS: Final = 256
"""Without ``ignore_eos`` the simulated model stops by itself after about this many tokens."""


class ApiError(Exception):
    """A response other than 200."""

    def __init__(
        self, status: HTTPStatus, kind: str, message: str, parameter: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "error": {
                "message": message,
                "type": kind,
                "param": parameter,
                "code": status.value,
            }
        }


@dataclass(frozen=True, slots=True)
class Generation:
    """What a client asked for, checked."""

    id: str
    chat: bool
    created: int
    model: str
    prompt: Sequence[int]
    """Token ids; for text, one made-up id per piece."""
    max_tokens: int
    output_tokens: int
    """How many will be generated."""
    stop_reason: str
    stream: bool
    include_usage: bool
    continuous_usage: bool
    cached_details: bool

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.prompt)


def read_generation(
    body: Any,  # noqa: ANN401 - it is whatever the client sent
    *,
    chat: bool,
    models: Sequence[str],
    settings: EngineSettings,
    stop_after: int,
    force_usage: bool = False,
    cached_details: bool = False,
) -> Generation:
    """Check a request's JSON body; ``stop_after`` is where the model stops by itself.

    Raises:
        ApiError: with the status and the words that vLLM answers with.
    """
    if not isinstance(body, Mapping):
        raise _bad("Input should be a valid dictionary or object to extract fields from")
    model = body.get("model") or models[0]
    if model not in models:
        raise ApiError(
            HTTPStatus.NOT_FOUND, "NotFoundError", f"The model `{model}` does not exist.", "model"
        )
    if body.get("n", 1) not in (1, None):
        raise _bad("the simulated engine generates one choice: n must be 1", "n")
    prompt = _chat_prompt(body) if chat else _prompt(body)
    longest = settings.max_model_len
    asked = body.get("max_completion_tokens") if chat else None
    asked = body.get("max_tokens") if asked is None else asked
    if asked is None:
        asked = max(1, longest - len(prompt)) if chat else DEFAULT_COMPLETION_TOKENS
    if not isinstance(asked, int) or asked < 1:
        raise _bad(f"max_tokens must be at least 1, got {asked}.", "max_tokens")
    _check_length(len(prompt), asked, longest)
    natural = max(stop_after, int(body.get("min_tokens") or 0))
    stops = not body.get("ignore_eos", False) and natural < asked
    options = body.get("stream_options") or {}
    if options and not body.get("stream"):
        raise _bad("Stream options can only be defined when `stream=True`.", "stream_options")
    prefix = "chatcmpl" if chat else "cmpl"
    return Generation(
        id=f"{prefix}-{uuid.uuid4().hex}",
        chat=chat,
        created=int(time.time()),
        model=model,
        prompt=prompt,
        max_tokens=asked,
        output_tokens=natural if stops else asked,
        stop_reason="stop" if stops else "length",
        stream=bool(body.get("stream")),
        include_usage=force_usage or bool(options.get("include_usage")),
        continuous_usage=force_usage or bool(options.get("continuous_usage_stats")),
        cached_details=cached_details,
    )


def _bad(message: str, parameter: str | None = None) -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, "BadRequestError", message, parameter)


def _check_length(prompt: int, asked: int, longest: int) -> None:
    head = f"This model's maximum context length is {longest} tokens. However, "
    if prompt >= longest:
        raise _bad(
            f"{head}your prompt contains {prompt} input tokens, which exceeds this limit "
            "even without any output tokens. Please reduce the length of the input prompt.",
            "input_tokens",
        )
    if prompt + asked > longest:
        raise _bad(
            f"{head}you requested {asked} output tokens and your prompt contains {prompt} "
            f"input tokens, for a total of {prompt + asked} tokens. Please reduce the length of "
            "the input prompt or the number of requested output tokens.",
            "input_tokens",
        )


def _prompt(body: Mapping[str, Any]) -> Sequence[int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (list, str)):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return tokenize(prompt)
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return prompt
    raise _bad("prompt must be one text or one list of token ids, and not empty", "prompt")


def _chat_prompt(body: Mapping[str, Any]) -> Sequence[int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _bad("messages must be a list with at least one message", "messages")
    text = ""
    for message in messages:
        content = message.get("content") or ""
        if isinstance(content, list):
            content = " ".join(part.get("text", "") for part in content)
        text += f"<|{message.get('role', 'user')}|> {content} <|end|> "
    return tokenize(text + "<|assistant|>")


def tokenize(text: str) -> list[int]:
    """Give one id per word piece or sign: about as many as a real tokenizer finds."""
    pieces = re.findall(r"\w{1,6}|[^\w\s]", text) or [text]
    return [_piece_id(piece) for piece in pieces]


def _piece_id(piece: str) -> int:
    value = 0
    for character in piece:
        value = (value * 131 + ord(character)) % 127_000
    return 1_000 + value


def block_hashes(prompt: Sequence[int], block_size: int) -> list[Hashable]:
    """Chained content hashes of the prompt's full blocks, as the prefix cache keys them."""
    hashes: list[Hashable] = []
    parent = 0
    for start in range(0, len(prompt) - block_size + 1, block_size):
        parent = hash((parent, *prompt[start : start + block_size]))
        hashes.append(parent)
    return hashes


def usage(generation: Generation, generated: int, cached: int) -> dict[str, Any]:
    """Fill the ``usage`` object."""
    counts: dict[str, Any] = {
        "prompt_tokens": generation.prompt_tokens,
        "total_tokens": generation.prompt_tokens + generated,
        "completion_tokens": generated,
    }
    if generation.cached_details:
        counts["prompt_tokens_details"] = {"cached_tokens": cached}
    return counts


class Chunks:
    """Server-sent events of one streamed response; the constant part of each is rendered once."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        kind = "chat.completion.chunk" if generation.chat else "text_completion"
        head = {
            "id": generation.id,
            "object": kind,
            "created": generation.created,
            "model": generation.model,
        }
        self._head = json.dumps(head, separators=(",", ":"))[:-1]
        self._sent = 0

    def opening(self) -> bytes:
        """The first event of a chat: the role, with no content."""
        if not self._generation.chat:
            return b""
        choice = '{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}'
        return self._event(choice, 0)

    def tokens(self, count: int, finish_reason: str | None) -> bytes:
        """One event with the next ``count`` tokens."""
        first = self._sent
        self._sent = first + count
        text = "".join(TOKENS[index % len(TOKENS)] for index in range(first, first + count))
        reason = "null" if finish_reason is None else f'"{finish_reason}"'
        if self._generation.chat:
            body = f'"delta":{{"content":"{text}"}},"finish_reason":{reason}'
            if finish_reason is not None:
                body += ',"stop_reason":null'
        else:
            body = f'"text":"{text}","logprobs":null,"finish_reason":{reason},"stop_reason":null'
        return self._event(f'{{"index":0,{body}}}', self._sent)

    def closing(self, cached: int) -> bytes:
        """The usage event, if it was asked for, and the terminal one."""
        end = b"data: [DONE]\n\n"
        if not self._generation.include_usage:
            return end
        counts = json.dumps(usage(self._generation, self._sent, cached), separators=(",", ":"))
        return f'data: {self._head},"choices":[],"usage":{counts}}}\n\n'.encode() + end

    def _event(self, choice: str, generated: int) -> bytes:
        tail = ""
        if self._generation.continuous_usage:
            counts = usage(self._generation, generated, 0)
            counts.pop("prompt_tokens_details", None)
            tail = ',"usage":' + json.dumps(counts, separators=(",", ":"))
        return f'data: {self._head},"choices":[{choice}]{tail}}}\n\n'.encode()


def whole_response(generation: Generation, cached: int) -> dict[str, Any]:
    """Build the body of a response that is not streamed."""
    text = "".join(TOKENS[index % len(TOKENS)] for index in range(generation.output_tokens))
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": generation.stop_reason}
    if generation.chat:
        choice["message"] = {"role": "assistant", "content": text, "tool_calls": []}
    else:
        choice["text"] = text
    choice |= {"stop_reason": None, "token_ids": None}
    return {
        "id": generation.id,
        "object": "chat.completion" if generation.chat else "text_completion",
        "created": generation.created,
        "model": generation.model,
        "choices": [choice],
        "system_fingerprint": None,
        "usage": usage(generation, generation.output_tokens, cached),
        "kv_transfer_params": None,
    }

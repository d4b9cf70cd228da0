"""Requests to a language model at an OpenAI-compatible endpoint, whose answers are recorded in a cassette.

Source: OpenAI's API reference, "Create chat completion" (``POST /chat/completions``), which vLLM, llama.cpp, Ollama and
many hosted services implement. RFC 9110, section 10.2.3, for ``Retry-After``.

The endpoint, its key and the place of the cassette are environment variables rather than options of a policy, because
options belong to the identity of a strategy, and come from study files and logs, which a stranger may have written:

- A run can be resumed with another key, from another server, or after the cassette was moved.
- No file can send the user's key elsewhere, or choose a file to write.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from searchlab.errors import SearchlabError, encodable, shorten_text
from searchlab.log.journal import Journal, read_journal
from searchlab.log.lease import LogBusy

URL_VARIABLE = "SEARCHLAB_LLM_URL"
"""The environment variable with the endpoint's base URL."""

KEY_VARIABLE = "SEARCHLAB_LLM_KEY"
"""The environment variable with the endpoint's key. The key is sent to the endpoint, and never written."""

TIMEOUT_VARIABLE = "SEARCHLAB_LLM_TIMEOUT"
"""The environment variable with the number of seconds to wait for the endpoint; by default, 300."""

CASSETTE_VARIABLE = "SEARCHLAB_LLM_CASSETTE"
"""The environment variable with the directory of the recorded exchanges; by default, ``llm-cassette``."""

MAX_ATTEMPTS = 6
"""How often a request is sent if the endpoint is unreachable, overloaded, or answers with something else."""

MAX_WAIT_SECONDS = 120.0
"""The maximum time between two attempts, in seconds, whatever the endpoint asks for."""

MAX_RESPONSE_BYTES = 4 << 20
"""The maximum size of a response, in bytes."""

TEMPORARY_STATUSES = (408, 409, 425, 429, 500, 502, 503, 504, 529)
"""The HTTP statuses after which the same request may succeed."""


class Conversation(msgspec.Struct, frozen=True):
    """The first line of a cassette: the run whose exchanges it contains.

    Attributes:
        space: The fingerprint of the space.
    """

    workload: str
    target: str
    space: str
    seed: int
    options: dict[str, Any]


class Exchange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request and its answer: a line of a cassette."""

    request: dict[str, Any]
    answer: str
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Message(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    message: Message


class Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Completion(msgspec.Struct):
    """The part of a response that is used."""

    choices: list[Choice]
    usage: Usage | None = None


class Chat:
    """A language model whose answers are recorded. A request that has been recorded is answered from the cassette.

    Each run has its own file in the directory of cassettes, because runs of a study are executed at the same time.

    Args:
        conversation: The run that asks.

    Raises:
        SearchlabError: If there is neither an endpoint nor a cassette of this run, or a setting is invalid.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        digest = hashlib.sha256(msgspec.json.encode(conversation, order="sorted")).hexdigest()
        self.cassette_path = Path(os.environ.get(CASSETTE_VARIABLE) or "llm-cassette", f"{digest[:16]}.jsonl")
        self._endpoint = read_endpoint()
        self._answers: dict[bytes, str] = {}
        if self._endpoint is None and not self.cassette_path.exists():
            raise SearchlabError(
                f"there is no language model to ask, and {self.cassette_path} was not recorded: set {URL_VARIABLE} to "
                f"the base URL of an OpenAI-compatible endpoint, such as http://localhost:8000/v1, or "
                f"{CASSETTE_VARIABLE} to the directory with the cassettes of earlier runs"
            )

    def answer(self, request: dict[str, Any]) -> str:
        """Return the answer to a request: the recorded one, or else a new one, which is recorded first."""
        digest = hash_request(request)
        if digest not in self._answers:
            self._add_answers(read_journal(self.cassette_path, Exchange, Conversation)[1])
        if digest not in self._answers:
            if self._endpoint is None:
                raise SearchlabError(
                    f"{self.cassette_path} contains no answer to the next request, which depends on the trials and the "
                    f"version of searchlab; set {URL_VARIABLE} to ask the language model"
                )
            self._record(self._endpoint.complete(request))
        return self._answers[digest]

    def _record(self, exchange: Exchange) -> None:
        """Append an exchange, unless a process that executes the same run has recorded the same request."""
        journal = self._open_journal()
        try:
            self._add_answers(journal.entries)
            if hash_request(exchange.request) not in self._answers:
                journal.append(exchange)
                self._add_answers([exchange])
        finally:
            journal.close()

    def _open_journal(self) -> Journal[Exchange]:
        try:
            self.cassette_path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SearchlabError(f"cannot create the directory {self.cassette_path.parent}: {error.strerror}") from None
        for _ in range(50):
            try:
                return Journal(self.cassette_path, Exchange, self._conversation)
            except LogBusy:
                time.sleep(0.1)
        return Journal(self.cassette_path, Exchange, self._conversation)

    def _add_answers(self, exchanges: Iterable[Exchange]) -> None:
        for exchange in exchanges:
            self._answers.setdefault(hash_request(exchange.request), exchange.answer)


def hash_request(request: dict[str, Any]) -> bytes:
    """Return the digest by which a request is found in a cassette."""
    return hashlib.sha256(msgspec.json.encode(request, order="sorted")).digest()


def read_endpoint() -> Endpoint | None:
    """Return the endpoint that the user has set, or None. Raises SearchlabError if a setting is invalid."""
    url, key, timeout = (os.environ.get(name, "").strip() for name in (URL_VARIABLE, KEY_VARIABLE, TIMEOUT_VARIABLE))
    if not url:
        return None
    try:
        url_parts = urlsplit(url)
        is_valid_url = (
            url_parts.scheme in ("http", "https")
            and bool(url_parts.hostname)
            and url.isprintable()
            and url_parts.port != 0
        )
    except ValueError:
        is_valid_url = False
    if not is_valid_url:
        raise SearchlabError(f"{URL_VARIABLE} must be the base URL of an endpoint, such as http://localhost:8000/v1")
    if not key.isascii() or not key.isprintable():  # http.client's error would contain the key
        raise SearchlabError(
            f"{KEY_VARIABLE} contains characters that a header cannot contain; set it to the endpoint's key"
        )
    try:
        seconds = float(timeout or 300)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 1e6:
        raise SearchlabError(f"{TIMEOUT_VARIABLE} must be a number of seconds, not {timeout!r}")
    return Endpoint(url, key, seconds)


class NoRedirects(HTTPRedirectHandler):
    """Redirects are errors, because urllib would send the key to wherever they lead."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class Endpoint:
    """An OpenAI-compatible endpoint.

    Args:
        url: The base URL, to which ``/chat/completions`` is appended.
        key: The key, or "" if the endpoint requires none.
        timeout_seconds: The number of seconds to wait for a response.
    """

    def __init__(self, url: str, key: str, timeout_seconds: float) -> None:
        self._url = url.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
        self._name = urlsplit(url).hostname  # the URL may contain a password
        self._key = key
        self._timeout_seconds = timeout_seconds
        self._opener = build_opener(NoRedirects)

    def complete(self, request: dict[str, Any]) -> Exchange:
        """Send a request, several times if the endpoint is unreachable or overloaded, and return the exchange.

        Raises:
            SearchlabError: If the endpoint rejects the request, or all attempts fail.
        """
        problem = ""
        for attempt in range(MAX_ATTEMPTS):
            try:
                with self._opener.open(self._make_request(request), timeout=self._timeout_seconds) as response:
                    return self._read_exchange(request, response.read(MAX_RESPONSE_BYTES))
            except HTTPError as error:
                problem, headers = f"answered with HTTP status {error.code}: {self._quote_body(error)}", error.headers
                if error.code not in TEMPORARY_STATUSES:
                    break
                delay_seconds = compute_wait_seconds(headers.get("Retry-After", ""), attempt)
            except (OSError, HTTPException) as error:  # OSError includes URLError and time-outs
                reason = error.reason if isinstance(error, URLError) else error
                problem = f"cannot be reached: {self._quote(str(reason) or type(reason).__name__)}"
                delay_seconds = 2.0**attempt
            except msgspec.DecodeError as error:
                problem, delay_seconds = f"answered with what is not a chat completion: {error}", 2.0**attempt
            if attempt + 1 < MAX_ATTEMPTS:
                time.sleep(min(delay_seconds, MAX_WAIT_SECONDS))
        raise SearchlabError(
            f"the language model at {self._name} {problem.rstrip(': .')}; all earlier exchanges and trials are "
            f"recorded, so correct the cause and run the command again"
        )

    def _make_request(self, request: dict[str, Any]) -> Request:
        headers = {"Content-Type": "application/json", "User-Agent": "searchlab"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return Request(self._url, msgspec.json.encode(request), headers, method="POST")

    def _read_exchange(self, request: dict[str, Any], response: bytes) -> Exchange:
        completion = msgspec.json.decode(response, type=Completion)
        if not completion.choices:
            raise msgspec.DecodeError("it contains no choices")
        usage = completion.usage or Usage()
        answer = self._redact_key(completion.choices[0].message.content or "")
        return Exchange(request, encodable(answer), usage.prompt_tokens or 0, usage.completion_tokens or 0)

    def _quote_body(self, error: HTTPError) -> str:
        try:
            return self._quote(error.read(4000).decode("utf-8", "replace"))
        except (OSError, HTTPException):
            return ""

    def _quote(self, text: str) -> str:
        """Return a text by the endpoint on one line, without control characters and the key."""
        printable = "".join(character if character.isprintable() else " " for character in self._redact_key(text))
        return shorten_text(" ".join(printable.split()), 300)

    def _redact_key(self, text: str) -> str:
        return text.replace(self._key, "(key)") if self._key else text


def compute_wait_seconds(retry_after: str, attempt: int) -> float:
    """Return how long ``Retry-After``, in seconds or as a date, asks to wait, or else 1, 2, 4, ... seconds."""
    if retry_after.isdecimal():
        return float(retry_after)
    try:
        date = parsedate_to_datetime(retry_after)
        return max(0.0, (date - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):  # TypeError for a date without a time zone
        return 2.0**attempt

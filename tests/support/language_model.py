"""A server that speaks the protocol of an OpenAI-compatible endpoint, and answers from the prompt alone."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Response = tuple[int, dict[str, str], str]
"""The status, the headers and the body."""


class LanguageModel:
    """The server. It proposes random values of the knobs in the request's schema, unless ``respond`` is replaced.

    Attributes:
        requests: All requests, decoded.
        keys: The ``Authorization`` header of each request.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.respond: Callable[[dict[str, Any]], Response] = lambda request: completion(propose(request))


def propose(request: dict[str, Any]) -> str:
    """Return random configs by the request's schema, which depend on nothing but the request."""
    prompt = request["messages"][-1]["content"]
    schema = json.loads(prompt[prompt.rindex("\n") :])
    knobs = schema["properties"]["configs"]["items"]["properties"]
    values = {name: knob.get("enum") or knob["examples"] for name, knob in knobs.items()}
    draws = random.Random(json.dumps(request, sort_keys=True))
    configs = [{name: draws.choice(choices) for name, choices in values.items()} for _ in range(12)]
    return json.dumps({"configs": configs})


def completion(answer: str) -> Response:
    """Return a response whose message is ``answer``."""
    choices = [{"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}]
    return 200, {}, json.dumps({"choices": choices, "usage": {"prompt_tokens": 7, "completion_tokens": 5}})


@contextmanager
def serve() -> Iterator[LanguageModel]:
    """Serve a language model on the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            model.requests.append({"path": self.path, **request})
            model.keys.append(self.headers.get("Authorization"))
            status, headers, body = model.respond(request)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body.encode())), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    model = LanguageModel(server.server_port)
    thread = Thread(target=lambda: server.serve_forever(0.01), daemon=True)
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

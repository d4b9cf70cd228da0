"""A headless Chromium, controlled by its DevTools protocol over a pipe: no driver, no package, no port."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "google-chrome", "google-chrome-stable", "chrome", "chromium-browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
PATIENCE = 60.0  # seconds for any one answer, on a busy machine


def find_browser() -> str | None:
    """Return the program that CHROMIUM names, or else the first of ``NAMES`` that exists."""
    return os.environ.get("CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of one browser. messages: what its console said, and what went wrong. requests: every URL asked for."""

    def __init__(self, program: str, profile: Path) -> None:
        self.messages: list[str] = []
        self.requests: list[str] = []
        self._events: list[str] = []
        self._number = 0
        self._rest = b""
        reads, self._write = os.pipe()
        self._read, writes = os.pipe()
        # The browser reads commands from descriptor 3 and writes answers to 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{reads} 4>&{writes}', "-", program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(reads, writes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        with suppress(RuntimeError, TimeoutError, OSError, subprocess.TimeoutExpired):
            self.send("Browser.close")  # so that it leaves its profile alone afterwards
            self._process.wait(PATIENCE)
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer. Raises RuntimeError if the answer is an error."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") != self._number:
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            result: dict[str, Any] = answer["result"]
            return result

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._read, 1 << 16)
            if not data:
                raise RuntimeError("the browser has ended")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, reply: dict[str, Any]) -> None:
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(reply["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(json.dumps(reply["args"]))
        elif method == "Log.entryAdded":
            self.messages.append(reply["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(reply["request"]["url"])

    def open(self, page: Path | str) -> None:
        """Open a file or a URL."""
        self._events.clear()
        self.send("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._next()
        self.settle()

    def settle(self) -> None:
        """Wait until the page has been laid out and drawn again."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def run(self, script: str) -> Any:
        """Evaluate a JavaScript expression in the page."""
        try:
            answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        except RuntimeError as error:
            if "navigated" in str(error):  # the page has just loaded itself again
                return None
            raise
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def size(self, width: int, height: int = 900, *, mobile: bool = False) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.settle()

    def media(self, *, scheme: str = "light", kind: str = "") -> None:
        """scheme: "light" or "dark"; kind: "print", or "" for a screen."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", media=kind, features=features)
        self.settle()

    def see(self, selector: str) -> None:
        """Scroll to the element that ``selector`` matches."""
        self.middle(selector)
        self.settle()

    def click(self, selector: str) -> None:
        """Scroll to the element that ``selector`` matches, and click in its middle."""
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a select element."""
        self.run(
            f"(() => {{ const select = document.querySelector({json.dumps(selector)});"
            f"select.value = {json.dumps(value)};"
            "for (const kind of ['input', 'change']) select.dispatchEvent(new Event(kind, { bubbles: true })); })()"
        )
        self.settle()

    def hover(self, selector: str) -> None:
        x, y = self.middle(selector)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def middle(self, selector: str) -> tuple[float, float]:
        x, y = self.run(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
            "found.scrollIntoView({ block: 'center', behavior: 'instant' }); const box = found.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        return x, y

    def press(self, key: str) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def screenshot(self, path: Path) -> None:
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"])

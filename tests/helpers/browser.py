"""A real Chromium without a display, driven over a pipe by its own protocol: keys are pressed, not simulated."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    "--host-resolver-rules=MAP * ~NOTFOUND",
]
KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "End": 35, "Home": 36, "Tab": 9, "Enter": 13}


class Browser:
    """One page in a browser of its own."""

    def __init__(self, page: Path, profile: Path, width: int = 1280, height: int = 900) -> None:
        to_browser, write_end = os.pipe()
        read_end, from_browser = os.pipe()
        command = [str(BROWSER), *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        command += [f"--window-size={width},{height}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}', *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.sink, self.source = os.fdopen(write_end, "wb", buffering=0), os.fdopen(read_end, "rb")
        self.session, self.last, self.errors = "", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=page.as_uri())
        self.wait("Page.loadEventFired")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(20)
        self.sink.close()
        self.source.close()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        self.sink.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.last:
                assert "error" not in answer, answer
                return answer["result"]

    def wait(self, event: str) -> None:
        while self.read().get("method") != event:
            pass

    def read(self) -> dict[str, Any]:
        message = bytearray()
        while (byte := self.source.read(1)) != b"\0":
            assert byte, "the browser has gone"
            message += byte
        answer = json.loads(message)
        if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.errors.append(answer["params"])
        return answer

    def evaluate(self, script: str) -> Any:
        """The value of an expression, or of the promise that it is."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        down = {"type": "keyDown", "text": "\r"} if key == "Enter" else {"type": "rawKeyDown"}
        self.call("Input.dispatchKeyEvent", **down, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

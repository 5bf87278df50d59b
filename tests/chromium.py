"""A real browser for tests: headless Chromium, spoken to over a pair of pipes (DevTools protocol), without any driver."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome")) if p), None)


class Browser:
    """One browser with one page. `errors` collects what its console says, `requests` every address that it asks for."""

    def __init__(self, width: int = 1400, height: int = 900, dark: bool = False):
        self.home = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        read, theirs_out = os.pipe()
        theirs_in, write = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4.
        command = [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-extensions", "--hide-scrollbars", "--force-device-scale-factor=1", "--remote-debugging-pipe",
                   f"--user-data-dir={self.home.name}", f"--window-size={width},{height}", "about:blank"]
        wrapped = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "chromium", *command]
        self.process = subprocess.Popen(wrapped, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, start_new_session=True,
                                        env={**os.environ, "HOME": self.home.name})
        os.close(theirs_in), os.close(theirs_out)
        self.input, self.output, self.buffer, self.number = write, read, b"", 0
        self.session, self.events, self.errors, self.requests = None, [], [], []
        try:
            self._attach(width, height, dark)
        except BaseException:
            self.__exit__()
            raise

    def _attach(self, width: int, height: int, dark: bool) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.theme(dark)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exc) -> None:
        self.session = None
        try:
            self.call("Browser.close")
            self.process.wait(20)
        except (OSError, TimeoutError, EOFError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)  # a group of its own: start_new_session
            self.process.wait()
        os.close(self.input), os.close(self.output)
        self.home.cleanup()

    # ------------------------------------------------------------------------------------------------- the protocol
    def call(self, method: str, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.input, json.dumps(message).encode() + b"\0")
        while True:
            got = self._message()
            if got.get("id") == self.number:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]

    def _message(self, timeout: float = 60):
        end = time.monotonic() + timeout
        while b"\0" not in self.buffer:
            if not select.select([self.output], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(f"the browser did not answer within {timeout} s")
            got = os.read(self.output, 1 << 20)
            if not got:
                raise EOFError("the browser ended")
            self.buffer += got
        raw, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(raw)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method, params) -> None:
        if method == "Runtime.exceptionThrown":
            detail = params["exceptionDetails"]
            self.errors.append(detail.get("exception", {}).get("description") or detail["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str([a.get("value") for a in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method is not None:
            self.events.append(method)

    # ---------------------------------------------------------------------------------------------------- the page
    def open(self, path) -> None:
        self.events.clear()
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        while "Page.loadEventFired" not in self.events:
            self._message()

    def js(self, expression: str):
        """The value of an expression in the page; promises are waited for."""
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise RuntimeError(got["exceptionDetails"].get("exception", {}).get("description", str(got)))
        return got["result"].get("value")

    def until(self, expression: str, timeout: float = 30) -> None:
        end = time.monotonic() + timeout
        while not self.js(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(0.02)

    def click(self, x: float, y: float, count: int = 1) -> None:
        for n in range(1, count + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=n)

    def drag(self, x: float, y: float, to_x: float, to_y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", buttons=1, clickCount=1)
        for part in (0.3, 0.7, 1):
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + (to_x - x) * part, y=y + (to_y - y) * part,
                      button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=to_x, y=to_y, button="left", clickCount=1)

    def wheel(self, x: float, y: float, delta: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=delta)

    def key(self, name: str, **more) -> None:
        text = {"Space": " ", "Enter": "\r"}.get(name, name if len(name) == 1 else "")
        key = " " if name == "Space" else name
        code = {"Space": "Space", "/": "Slash"}.get(name, name if len(name) > 1 else f"Key{name.upper()}")
        number = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Space": 32, "Escape": 27, "Enter": 13,
                  "Home": 36, "End": 35}.get(name, ord(name[0].upper()))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=code, text=text, windowsVirtualKeyCode=number, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code, windowsVirtualKeyCode=number, **more)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def theme(self, dark: bool) -> None:
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, path=None) -> bytes:
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
        png = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        if path is not None:
            Path(path).write_bytes(png)
        return png

"""A headless Chromium, driven through the pipe of its DevTools protocol: nothing to install but it.

    with Browser() as browser:
        browser.open("look.html", width=1280)
        browser.click("#tab-source")
        assert browser.js("state.tab") == "source" and not browser.errors
"""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# What Chromium wants to know of a key: its code, and the text that it types.
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35,
        "Enter": 13, "Escape": 27, "Tab": 9, " ": 32}


def executable():
    """The path of a Chromium that starts, None where there is none."""
    for name in NAMES:
        path = shutil.which(name)
        # (Ubuntu's package of that name only says that there is a snap.)
        if path and subprocess.run([path, "--version"], capture_output=True, check=False,
                                   timeout=60).returncode == 0:
            return path
    return None


class Browser:
    """One page of one browser. `errors` has what its console and its scripts complained of."""

    def __init__(self, path=None):
        self.errors, self.requests = [], []
        self._id, self._events, self._rest = 0, [], b""
        self._profile = tempfile.mkdtemp(prefix="look_browser_")
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The protocol is spoken on descriptors 3 and 4.
        start = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", start, path or executable(), "--headless=new", "--remote-debugging-pipe",
             f"--user-data-dir={self._profile}", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-extensions",
             "--disable-background-networking", "--disable-component-update", "about:blank"],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        target = self._call("Target.createTarget", {"url": "about:blank"}, None)["targetId"]
        self._session = None
        self._session = self._call("Target.attachToTarget",
                                   {"targetId": target, "flatten": True}, None)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(30)
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    # ---- the protocol -------------------------------------------------------------------------

    def call(self, method, parameters=None):
        return self._call(method, parameters, self._session)

    def _send(self, method, parameters, session):
        self._id += 1
        message = {"id": self._id, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return self._id

    def _call(self, method, parameters, session):
        number = self._send(method, parameters, session)
        while True:
            answer = self._receive()
            if answer.get("id") != number:
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            return answer["result"]

    def _receive(self, seconds=60):
        """The next message. Events are remembered and looked through for errors."""
        end = time.monotonic() + seconds
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
            more = os.read(self._read, 1 << 20) if ready else b""
            if not more:
                raise RuntimeError(f"the browser did not answer within {seconds} seconds")
            self._rest += more
        line, self._rest = self._rest.split(b"\0", 1)
        message = json.loads(line)
        self._look_at(message.get("method"), message.get("params"))
        return message

    def _look_at(self, method, event):
        if method:
            self._events.append(method)
        if method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.errors.append(event["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":  # it would hold up everything
            self.errors.append("a dialog: " + event["message"])
            self._send("Page.handleJavaScriptDialog", {"accept": False}, self._session)
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])

    # ---- the page -----------------------------------------------------------------------------

    def open(self, path, width=1280, height=900, dark=False, address=""):
        """Opens a file in a window of that size; `address` is what follows #."""
        self.size(width, height)
        self.call("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
        url = pathlib.Path(path).resolve().as_uri() + (f"#{address}" if address else "")
        self._events.clear()
        self.call("Page.navigate", {"url": "about:blank"})
        self._wait_for("Page.loadEventFired")
        self.errors.clear()
        self.requests.clear()
        self._events.clear()
        self.call("Page.navigate", {"url": url})
        self._wait_for("Page.loadEventFired")
        self.settle()

    def _wait_for(self, event):
        while event not in self._events:
            self._receive()

    def settle(self):
        """Waits until what was asked for is drawn."""
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride",
                  {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def js(self, expression):
        """The value of a JavaScript expression; raises what it throws."""
        answer = self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True,
                                                "awaitPromise": True})
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def text(self, selector):
        return self.js(f"document.querySelector({json.dumps(selector)}).textContent")

    def texts(self, selector):
        return self.js(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)")

    def place(self, selector):
        """The middle of an element, scrolled into sight."""
        return self.js(f"""(() => {{
            const e = document.querySelector({json.dumps(selector)});
            if (!e) throw new Error('no element is ' + {json.dumps(selector)});
            e.scrollIntoView({{block: 'center', inline: 'nearest'}});
            const box = e.getBoundingClientRect();
            if (!box.width) throw new Error('not to be seen: ' + {json.dumps(selector)});
            return [box.x + Math.min(box.width, 400) / 2, box.y + box.height / 2];
        }})()""")

    def click(self, selector):
        self.click_at(*self.place(selector))

    def click_at(self, x, y):
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", {
                "type": kind, "x": x, "y": y, "button": "none" if kind == "mouseMoved" else "left",
                "clickCount": 0 if kind == "mouseMoved" else 1})
        self.settle()

    def hover(self, selector):
        x, y = self.place(selector)
        self.call("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})
        self.settle()

    def key(self, name):
        event = {"key": name, "windowsVirtualKeyCode": KEYS.get(name, ord(name[0].upper()))}
        if len(name) == 1 or name == "Enter":
            event["text"] = "\r" if name == "Enter" else name
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", {"type": kind, **event})
        self.settle()

    def choose(self, selector, value):
        """Chooses an option, or the place of a slider, as a user's hand would."""
        self.js(f"""(() => {{
            const e = document.querySelector({json.dumps(selector)});
            e.value = {json.dumps(str(value))};
            e.dispatchEvent(new Event('input', {{bubbles: true}}));
            e.dispatchEvent(new Event('change', {{bubbles: true}}));
        }})()""")
        self.settle()

    def screenshot(self, path, whole=False):
        answer = self.call("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        pathlib.Path(path).write_bytes(base64.b64decode(answer["data"]))

    def pdf(self):
        return base64.b64decode(self.call("Page.printToPDF")["data"])


if __name__ == "__main__":  # Says whether there is one.
    print(executable() or "no Chromium here (Debian's package chromium)")
    raise SystemExit(executable() is None)

"""A process that behaves like an engine's server, well or badly, for the launcher's tests.

usage: stand_in.py MODE --port N --served-model-name NAME... [ignored flags]
"""

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

mode, *rest = sys.argv[1:]
port = int(rest[rest.index("--port") + 1])
first = rest.index("--served-model-name") + 1
names = []
for item in rest[first:]:
    if item.startswith("-"):
        break
    names.append(item)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"data": [{"id": name} for name in names]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):  # POST /crash ends the process as a crash of the engine core would
        print("EngineDeadError: engine core died", flush=True)
        os._exit(1)

    def log_message(self, *args):
        pass


print("environment", json.dumps({k: v for k, v in os.environ.items() if k != "PATH"}), flush=True)
if mode == "usage":
    print("usage: vllm serve\nvllm: error: unrecognized arguments: --wrong 1", file=sys.stderr)
    sys.exit(2)
if mode == "silent":
    threading.Event().wait()
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "worker":  # a child in a session of its own, which outlives its server
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    print("worker", child.pid, flush=True)
if mode == "chatty":
    sys.stdout.write("x" * (3 << 20) + "\nlast words\n")
    sys.stdout.flush()
HTTPServer(("127.0.0.1", port), Handler).serve_forever()

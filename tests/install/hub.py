"""hub.py FILE REPOSITORY NAME: serves FILE as NAME in a repository, as Hugging Face's hub does, on a
free port of this machine; prints the address. Runs until its standard input ends."""

import hashlib
import http.server
import json
import os
import sys
import threading

path, repository, name = sys.argv[1:4]
data = open(path, "rb").read()
sha256 = hashlib.sha256(data).hexdigest()
commit = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    def answer(self, status, headers, body):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_GET(self):
        place = self.path.split("?")[0]
        if place == f"/api/models/{repository}/revision/main":
            listing = {"sha": commit, "siblings": [{"rfilename": name}]}
            self.answer(200, {"Content-Type": "application/json"}, json.dumps(listing).encode())
        elif place.startswith(f"/{repository}/resolve/") and place.endswith(f"/{name}"):
            self.answer(302, {"Location": f"/cdn/{name}", "X-Repo-Commit": commit,
                              "X-Linked-Size": str(len(data)), "X-Linked-Etag": f'"{sha256}"'}, b"")
        elif place == f"/cdn/{name}":
            self.answer(200, {"ETag": f'"{sha256[:16]}"'}, data)
        else:
            self.answer(404, {"X-Error-Code": "EntryNotFound"}, b"no")

    do_HEAD = do_GET

    def log_message(self, *arguments):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"http://127.0.0.1:{server.server_port}", flush=True)
sys.stdin.read()
os._exit(0)

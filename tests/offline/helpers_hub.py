"""A stand-in for the Hugging Face Hub: repositories in memory, over HTTP on this machine."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Files = dict[str, bytes]


class Hub:
    """`repositories` by `models/owner/name`: their files of every commit, oldest first."""

    def __init__(self) -> None:
        self.repositories: dict[str, list[Files]] = {}
        self.asked: list[str] = []
        self.private: dict[str, bool] = {}


def commit_of(number: int) -> str:
    return f"{number:040x}"


@contextmanager
def serving() -> Iterator[tuple[Hub, str]]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def answer(self, body: bytes, status: int = 200, **headers: str) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def json(self, data: Any, status: int = 200) -> None:
            self.answer(json.dumps(data).encode(), status, Content_Type="application/json")

        def address(self, name: str) -> str:
            return f"http://{self.headers['Host']}/{name.removeprefix('models/')}"

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            whole = b""
            while size := int(self.rfile.readline(), 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole

        def do_POST(self) -> None:
            path, body = self.path.partition("?")[0], self.body()
            hub.asked.append(f"POST {path}")
            if path == "/api/validate-yaml":
                self.json({"errors": [], "warnings": []})
                return
            if path == "/api/repos/create":
                asked = json.loads(body)
                name = f"{asked.get('type', 'model')}s/{asked.get('organization')}/{asked['name']}"
                hub.private[name] = (
                    bool(asked.get("private")) or asked.get("visibility") == "private"
                )
                hub.repositories.setdefault(name, [{}])
                self.json({"url": self.address(name), "name": name})
                return
            kind = re.fullmatch(r"/api/(\w+/[^/]+/[^/]+)/(preupload|commit)/\w+", path)
            if kind is None or kind[1] not in hub.repositories:
                self.json({"error": "Repository not found"}, 404)
            elif kind[2] == "preupload":
                files = json.loads(body)["files"]
                asked = {"uploadMode": "regular", "shouldIgnore": False}
                self.json({"files": [{"path": file["path"], **asked} for file in files]})
            else:
                commits = hub.repositories[kind[1]]
                files = dict(commits[-1])
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        content = base64.b64decode(line["value"]["content"])
                        files[line["value"]["path"]] = content
                commits.append(files)
                oid = commit_of(len(commits) - 1)
                self.json({"commitUrl": f"{self.address(kind[1])}/commit/{oid}", "commitOid": oid})

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            hub.asked.append(f"{self.command} {path}")
            info = re.fullmatch(r"/api/(\w+/[^/]+/[^/]+)/(revision|tree)/(\w+)", path)
            file = re.fullmatch(r"/((?:datasets/)?[^/]+/[^/]+)/resolve/(\w+)/(.+)", path)
            if info is not None and info[1] in hub.repositories:
                number, files = at(hub.repositories[info[1]], info[3])
                names = [{"rfilename": name} for name in files]
                tree = [
                    {"type": "file", "path": n, "size": len(b), "oid": sha(b)}
                    for n, b in files.items()
                ]
                whole = {
                    "id": info[1].partition("/")[2],
                    "sha": commit_of(number),
                    "siblings": names,
                }
                self.json(tree if info[2] == "tree" else whole)
                return
            name = "" if file is None else file[1]
            name = name if name.startswith("datasets/") else f"models/{name}"
            if file is None or name not in hub.repositories:
                self.answer(
                    b"", 404, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found"
                )
                return
            number, files = at(hub.repositories[name], file[2])
            content = files[file[3]]
            kept = {"X_Repo_Commit": commit_of(number), "ETag": f'"{sha(content)}"'}
            self.answer(content, **kept)

        do_HEAD = do_GET

    def at(commits: list[Files], revision: str) -> tuple[int, Files]:
        number = len(commits) - 1 if revision == "main" else int(revision, 16)
        return number, commits[number]

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def sha(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()

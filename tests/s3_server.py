"""An S3 server process on loopback, and a door before it that records, damages, refuses, delays and cuts.

The server is moto's. It checks no signature, so any key will do. DVC runs in its own process: all goes over sockets.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

from servers import free_port, wait_until

KEYS = {"AWS_ACCESS_KEY_ID": "the-key-of-a-test", "AWS_SECRET_ACCESS_KEY": "the-secret-of-a-test"}
BUCKET = "plates"
_HOP = frozenset({"connection", "transfer-encoding", "content-length", "host", "date", "server"})
_CHECKSUM_HEADERS = ("x-amz-checksum-", "x-amz-sdk-checksum-algorithm", "x-amz-trailer")


@dataclass
class Fault:
    """What happens to requests of `method` whose path holds `part`, `times` times, after the first `after`."""

    kind: Literal["status", "damage", "cut", "stall", "no checksums"]
    method: str = "GET"
    part: str = "/md5/"
    times: int = 1_000_000
    after: int = 0
    status: int = 503
    code: str = "SlowDown"
    message: str = "told by the door"
    stall_s: float = 0.0

    def strikes(self, method: str, path: str, headers: Mapping[str, str]) -> bool:
        """Whether it is this request's turn; counts it."""
        if method != self.method or self.part not in path:
            return False
        if self.kind == "no checksums" and not sends_checksums(headers):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        self.times -= 1
        return self.times >= 0


@dataclass(frozen=True)
class Seen:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


def sends_checksums(headers: Mapping[str, str]) -> bool:
    """Whether a request has what new clients send by default and some stores refuse."""
    return "aws-chunked" in headers.get("Content-Encoding", "") or any(
        name.lower().startswith(_CHECKSUM_HEADERS) for name in headers
    )


@dataclass
class Door:
    """A proxy before a store. `faults` may be changed at any time."""

    upstream: str
    faults: list[Fault] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    url: str = ""

    def of(self, method: str) -> list[Seen]:
        """The requests for objects by one method."""
        return [seen for seen in self.seen if seen.method == method and "/md5/" in seen.path]


@dataclass(frozen=True)
class Store:
    """A bucket on a running server, seen through the door and without it."""

    door: Door
    client: Any

    def keys(self) -> list[str]:
        """The keys of all objects."""
        found = self.client.list_objects_v2(Bucket=BUCKET)
        return [entry["Key"] for entry in found.get("Contents", ())]

    def read(self, key: str) -> bytes:
        """The content of an object."""
        content: bytes = self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return content


@contextmanager
def s3_store(folder: Path) -> Iterator[Store]:
    """A fresh server with one empty bucket, and an open door before it; both end with the context."""
    with _moto(folder / "moto.log") as url, _open_door(Door(url)) as door:
        client = boto3.client(
            "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="k", aws_secret_access_key="s",
            config=Config(retries={"max_attempts": 1}),
        )  # fmt: skip
        client.create_bucket(Bucket=BUCKET)
        try:
            yield Store(door, client)
        finally:
            client.close()


@contextmanager
def _moto(log: Path) -> Iterator[str]:
    port = free_port()
    environment = {"PATH": os.environ["PATH"], "HOME": str(log.parent)} | KEYS
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=output, stderr=output, env=environment,
        )  # fmt: skip
        try:
            wait_until(lambda: server.poll() is not None or _answers(port), 60.0, "the S3 server")
            assert server.poll() is None, log.read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(15)


def _answers(port: int) -> bool:
    with suppress(OSError):
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/moto-api/")
        connection.getresponse().read()
        connection.close()
        return True
    return False


@contextmanager
def _open_door(door: Door) -> Iterator[Door]:
    class Handler(_Passage):
        way = door

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        door.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield door
        finally:
            server.shutdown()
            thread.join()


class _Passage(BaseHTTPRequestHandler):
    """One connection through the door."""

    protocol_version = "HTTP/1.1"
    way: Door

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def pass_on(self) -> None:
        body = self._body()
        self.way.seen.append(Seen(self.command, self.path, dict(self.headers), body))
        fault = next((one for one in self.way.faults if one.strikes(self.command, self.path, dict(self.headers))), None)
        if fault and fault.kind in ("status", "no checksums"):
            self._refuse(fault)
            return
        if fault and fault.kind == "stall":
            time.sleep(fault.stall_s)
        damaged = fault is not None and fault.kind == "damage"
        answer, content = self._ask(_damaged(body) if damaged and self.command == "PUT" else body)
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") or "0" if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length)
        self.end_headers()
        if damaged and self.command == "GET":
            content = _damaged(content)
        if fault and fault.kind == "cut":
            self.close_connection = True
            content = content[: len(content) // 2]
        with suppress(ConnectionError):
            self.wfile.write(content)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = pass_on  # noqa: N815  The names are http.server's.

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def _refuse(self, fault: Fault) -> None:
        status, code = (501, "NotImplemented") if fault.kind == "no checksums" else (fault.status, fault.code)
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{fault.message}</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def _ask(self, body: bytes) -> tuple[HTTPResponse, bytes]:
        parts = urlsplit(self.way.upstream)
        connection = HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            connection.request(self.command, self.path, body, headers | {"Content-Length": str(len(body))})
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()


def _damaged(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1]) if content else b"x"

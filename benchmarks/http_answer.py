"""Answers as bytes: where one ends, and what it says.

It reads what our service and its peers write: a status line, headers, and a body of a known length or in chunks. An
answer of neither kind, or a connection that breaks, counts with status 0.
"""

from __future__ import annotations

BROKEN = 0
LENGTH, CHUNKED, LAST_CHUNK = b"\r\ncontent-length:", b"\r\ntransfer-encoding: chunked", b"\r\n0\r\n\r\n"


def whole_length(data: bytes | bytearray) -> int:
    """Bytes of the answer that begins here; -1 while that cannot be known.

    >>> whole_length(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nab")
    40
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return -1
    head = bytes(data[:end]).lower()
    if (at := head.find(LENGTH)) >= 0:
        return end + 4 + int(head[at + len(LENGTH) :].split(b"\r\n", 1)[0])
    if CHUNKED in head:
        last = data.find(LAST_CHUNK, end + 2)
        return last + len(LAST_CHUNK) if last >= 0 else -1
    return end + 4


def status_and_body(answer: bytes) -> tuple[int, bytes]:
    """Of a whole answer.

    >>> status_and_body(b"HTTP/1.1 404 Not Found\\r\\nContent-Length: 2\\r\\n\\r\\nno")
    (404, b'no')
    """
    head, _, body = answer.partition(b"\r\n\r\n")
    lower = head.lower()
    if CHUNKED in lower:
        body = _joined(body)
    elif LENGTH not in lower:
        return BROKEN, body
    words = head.split(b" ", 2)
    return (int(words[1]) if len(words) > 1 and words[1].isdigit() else BROKEN), body


def _joined(chunks: bytes) -> bytes:
    """A chunked body in one piece."""
    body = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        length = int(size.partition(b";")[0] or b"0", 16)
        body, chunks = body + rest[:length], rest[length + 2 :] if length else b""
    return body

"""Files that several processes share: replaced as a whole, read with a limit."""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path

READ_LIMIT_BYTES = 2**20


def write_atomically(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Replace `path` by a file with `content`: readers see the old or the new one, also after a crash.

    `durable` forces it to the disk before it gets its name.
    """
    data = content.encode() if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with draft.open("xb") as handle:
            handle.write(data)
            handle.flush()
            if durable:
                os.fsync(handle.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_capped(path: Path, limit_bytes: int = READ_LIMIT_BYTES) -> bytes:
    """The bytes of a plain file that is not larger than `limit_bytes`.

    Raises OSError for anything else; a link, a pipe or a device in its place is neither followed nor waited for.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(f"{path.name}: expected a plain file")
        if facts.st_size > limit_bytes:
            raise OSError(f"{path.name}: expected at most {limit_bytes} bytes, got {facts.st_size}")
        return os.read(handle, limit_bytes)
    finally:
        os.close(handle)

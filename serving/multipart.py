"""The pictures in a multipart form, told by what the parts hold."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser

from data_contracts.errors import InvalidInput, Problem
from serving.frames import FRAME_HEADER
from serving.image_headers import is_picture

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_PARTS = 64
"""Parts besides the pictures that a form may have."""

_PREAMBLE_BYTES = 2**16
_FIRST_LINE = re.compile(rb"(?:\r\n)?--([0-9A-Za-z'()+_,./:=?-][ 0-9A-Za-z'()+_,./:=?-]{0,69})\r\n[A-Za-z-]+:")
_FILE_NAME = re.compile(rb";\s*filename\*?\s*=", re.IGNORECASE)


class BadForm(InvalidInput):
    """A form that is malformed or holds no picture."""


class TooManyPictures(InvalidInput):
    """More pictures in one request than are allowed."""


@dataclass(frozen=True, eq=False)
class Part:
    """One picture of a form, and what its part says about a raw frame: "" for a picture file."""

    content: bytes
    frame: str
    base64: bool


def find_form(body: bytes, declared: bytes) -> tuple[bytes, int]:
    """The boundary of a form and where the form begins; b"" where the body is none.

    The declared boundary counts where the body has it, else the one that the body begins with: a client that sets the
    content type by hand often leaves the boundary out or invents another.
    """
    if declared:
        line = b"--" + declared
        start = 0 if body.startswith(line) else body.find(b"\r\n" + line, 0, _PREAMBLE_BYTES) + 2
        if start != 1:
            return declared, start
    found = _FIRST_LINE.match(body)
    return (found[1].rstrip(), found.start(1) - 2) if found else (b"", 0)


def parts_of(form: bytes, boundary: bytes, most: int) -> tuple[Part, ...]:
    """The pictures of a form, in order: parts with a file name, a frame header, or content that is a picture.

    Raises BadForm, or TooManyPictures over `most` pictures.
    """
    reader = _Reader(most)
    try:
        MultipartParser(boundary, callbacks=reader.callbacks()).write(form)
    except FormParserError as error:
        raise bad_form(str(error)) from None
    if not reader.ended:
        raise bad_form("a form without its last boundary: it is cut off")
    if not reader.parts:
        raise bad_form("no part with a picture")
    return tuple(reader.parts)


def check_count(pictures: int, most: int) -> None:
    """Raise TooManyPictures over `most` pictures."""
    if pictures > most:
        raise TooManyPictures(Problem("request", f"at most {most} pictures", "more", "Send them in several requests."))


def bad_form(got: str) -> BadForm:
    """The error for a form in which no picture can be found."""
    return BadForm(Problem("multipart body", "a part with a file name that holds the picture", got, "Mend the form."))


@dataclass
class _Reader:
    """Collects the parts while the parser runs."""

    most: int
    parts: list[Part] = field(default_factory=list)
    ended: bool = False
    _others: int = 0
    _name: bytes = b""
    _value: bytes = b""
    _headers: dict[bytes, bytes] = field(default_factory=dict)
    _content: list[memoryview] = field(default_factory=list)

    def callbacks(self) -> MultipartCallbacks:
        """What the parser calls."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._take_name,
            "on_header_value": self._take_value,
            "on_header_end": self._end_header,
            "on_part_data": self._take,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._headers, self._content = {}, []

    def _take_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _take_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _take(self, data: bytes, start: int, end: int) -> None:
        self._content.append(memoryview(data)[start:end])

    def _end_part(self) -> None:
        part = self._picture()
        if part is None:
            self._others += 1
            if self._others > MAX_PARTS:
                raise bad_form(f"more than {MAX_PARTS} parts without a picture")
        else:
            check_count(len(self.parts) + 1, self.most)
            self.parts.append(part)

    def _end(self) -> None:
        self.ended = True

    def _picture(self) -> Part | None:
        content = b"".join(self._content)
        frame = self._headers.get(FRAME_HEADER.lower().encode(), b"").decode("latin-1")
        named = _FILE_NAME.search(self._headers.get(b"content-disposition", b""))
        if not (named or frame or is_picture(content)):
            return None
        base64 = self._headers.get(b"content-transfer-encoding", b"").strip().lower() == b"base64"
        return Part(content, frame, base64)

"""From a request body to the bytes of a picture: raw, multipart or JSON."""

from __future__ import annotations

import binascii
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from pydantic import ValidationError
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from data_contracts.errors import EmptyImage, ImageTooLarge, InvalidInput, Problem
from data_contracts.inspection import JsonPicture

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_PARTS = 64
_FEED_BYTES = 2**16
_URL_SAFE = bytes.maketrans(b"-_", b"+/")


class BadBody(InvalidInput):
    """The body is not what its content type says."""


class BodyTooLarge(ImageTooLarge):
    """The body is over the limit, and was not read to its end."""


async def read_body(chunks: AsyncIterator[bytes], declared_bytes: int | None, limit_bytes: int) -> bytes:
    """The whole body. Raises BodyTooLarge as soon as it is known to be over the limit, declared or not."""
    if declared_bytes is not None and declared_bytes > limit_bytes:
        raise _too_large(limit_bytes, f"{declared_bytes} bytes announced")
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit_bytes:
            raise _too_large(limit_bytes, "more")
    return bytes(body)


def picture_of(body: bytes, content_type: str) -> bytes:
    """The picture's bytes. A body of any or no type that is neither JSON nor multipart is the picture itself.

    Raises EmptyImage, or BadBody when the body is not what its type says.
    """
    if not body:
        raise EmptyImage(Problem("body", "a picture", "no bytes", "Send the picture's bytes."))
    kind, options = parse_options_header(content_type)
    if kind == b"multipart/form-data":
        return _from_multipart(body, options.get(b"boundary", b""))
    if kind == b"application/json" or kind.endswith(b"+json"):
        return _from_json(body)
    return body


def _too_large(limit_bytes: int, got: str) -> BodyTooLarge:
    return BodyTooLarge(Problem("body", f"at most {limit_bytes} bytes", got, "Send a smaller picture."))


def _from_json(body: bytes) -> bytes:
    try:
        text = JsonPicture.model_validate_json(body).image
    except ValidationError as error:
        problems = (
            Problem("JSON body " + ".".join(map(str, item["loc"])), '{"image": "<base64>"}', item["msg"], "Mend it.")
            for item in error.errors(include_input=False)
        )
        raise BadBody(*problems) from None
    return from_base64(text)


def from_base64(text: str) -> bytes:
    """Bytes from base64: data URL in front or not, either alphabet, wrapped lines, padding or none. Raises BadBody."""
    if text[:5].lower() == "data:":
        head, comma, text = text.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise _bad_base64("a data URL without ;base64,")
    try:
        packed = "".join(text.split()).encode("ascii").translate(_URL_SAFE).rstrip(b"=")
        picture = binascii.a2b_base64(packed + b"=" * (-len(packed) % 4), strict_mode=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise _bad_base64(str(error)) from None
    if not picture:
        raise EmptyImage(Problem("image", "a picture in base64", "no bytes", "Send the picture's bytes."))
    return picture


def _bad_base64(got: str) -> BadBody:
    return BadBody(Problem("image", "base64, with or without a data URL in front", got, "Encode the picture again."))


def _from_multipart(body: bytes, boundary: bytes) -> bytes:
    """The first part that has a file name."""
    if not boundary:
        raise _bad_multipart("no boundary in the content type")
    reader = _FirstFile()
    try:
        parser = MultipartParser(boundary, callbacks=reader.callbacks())
        for start in range(0, len(body), _FEED_BYTES):
            parser.write(body[start : start + _FEED_BYTES])
            if reader.done:
                break
    except FormParserError as error:
        raise _bad_multipart(str(error)) from None
    if not reader.done:
        raise _bad_multipart("no complete part with a file name")
    if not reader.content:
        raise EmptyImage(Problem("file part", "a picture", "no bytes", "Send the picture's bytes."))
    return bytes(reader.content)


def _bad_multipart(got: str) -> BadBody:
    return BadBody(Problem("multipart body", "a part with a file name that holds the picture", got, "Mend the form."))


class _FirstFile:
    """Collects the content of the first file part while the parser runs."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.done = False
        self._parts = 0
        self._inside = False
        self._field = bytearray()
        self._value = bytearray()

    def callbacks(self) -> MultipartCallbacks:
        """What the parser calls."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._field.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_part_data": self._take,
            "on_part_end": self._end,
        }

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise _bad_multipart(f"more than {MAX_PARTS} parts before a file")

    def _end_header(self) -> None:
        if bytes(self._field).lower() == b"content-disposition" and not self.done:
            self._inside = b"filename" in parse_options_header(bytes(self._value))[1]
        self._field.clear()
        self._value.clear()

    def _take(self, data: bytes, start: int, end: int) -> None:
        if self._inside:
            self.content += data[start:end]

    def _end(self) -> None:
        self.done = self.done or self._inside
        self._inside = False

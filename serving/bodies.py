"""From a request body to the pictures in it, told by what the body holds: its declared type is at most a hint."""

from __future__ import annotations

import binascii
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json
from python_multipart.multipart import parse_options_header

from data_contracts.errors import EmptyImage, ImageTooLarge, InvalidInput, Problem
from data_contracts.inspection import JsonFrame
from serving.frames import Frame, parse_frame
from serving.image_headers import is_picture
from serving.multipart import Part, bad_form, check_count, find_form, parts_of

VALUES_PER_PICTURE = 64
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WHITESPACE = b" \t\n\r\v\f"
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_JSON_FORM = '{"image": "<base64>"} or {"images": ["<base64>", ...]}'


class BadBody(InvalidInput):
    """The body is not what it seems to be."""


class BodyTooLarge(ImageTooLarge):
    """The body is over the limit, and was not read to its end."""


@dataclass(frozen=True, eq=False)
class Body:
    """A request body as it was received, and what its headers say: content type, and frame ("" for none)."""

    data: bytes
    content_type: str = ""
    frame: str = ""


@dataclass(frozen=True, eq=False)
class Sent:
    """One picture as it was sent: the bytes of a picture file, or the samples of `frame`."""

    data: bytes
    frame: Frame | None = None


@dataclass(frozen=True, eq=False)
class SentPictures:
    """What a body holds, in order. An error stands in the place of a picture that cannot be taken out of the body.

    `listed`: the body is a list by its form, and is answered by a list also where it holds one picture.
    """

    items: tuple[Sent | InvalidInput, ...]
    listed: bool


async def read_body(chunks: AsyncIterator[bytes], declared_bytes: int | None, limit_bytes: int) -> bytes:
    """The whole body. Raises BodyTooLarge as soon as it is known to be over the limit, declared or not."""
    if declared_bytes is not None and declared_bytes > limit_bytes:
        raise _too_large(limit_bytes, f"{declared_bytes} bytes announced")
    received: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit_bytes:
            raise _too_large(limit_bytes, "more")
        received.append(chunk)
    return b"".join(received)


def is_plain(body: Body) -> bool:
    """Whether the body is the picture itself, so that taking it out of the body costs nothing."""
    return bool(body.frame) or is_picture(body.data)


def pictures_of(body: Body, most: int) -> SentPictures:
    """The pictures in a body: a raw frame where a header says so, a picture file, a form, or JSON.

    What is none of these is taken for a picture file, for the decoder to refuse by name. Raises EmptyImage,
    TooManyPictures over `most` pictures, and BadBody, BadForm or BadFrame for a body that is broken.
    """
    if not body.data:
        raise EmptyImage(Problem("body", "a picture", "no bytes", "Send the picture's bytes."))
    if body.frame:
        return SentPictures((Sent(body.data, parse_frame(body.frame)),), listed=False)
    if is_picture(body.data):
        return SentPictures((Sent(body.data),), listed=False)
    kind, options = parse_options_header(body.content_type)
    boundary, start = find_form(body.data, options.get(b"boundary", b""))
    if boundary:
        parts = parts_of(body.data[start:], boundary, most)
        return SentPictures(tuple(_or_error(_from_part, part) for part in parts), listed=len(parts) > 1)
    if _is_json(body.data, kind):
        return _from_json(body.data, most)
    if kind == b"multipart/form-data":
        raise bad_form("no boundary")
    return SentPictures((Sent(body.data),), listed=False)


def _is_json(data: bytes, kind: bytes) -> bool:
    begins = data[:64].removeprefix(_BYTE_ORDER_MARK).lstrip()[:1] == b"{"
    return begins or kind == b"application/json" or kind.endswith(b"+json")


def _too_large(limit_bytes: int, got: str) -> BodyTooLarge:
    return BodyTooLarge(Problem("body", f"at most {limit_bytes} bytes", got, "Send a smaller picture."))


def _or_error(take: Any, item: Any) -> Sent | InvalidInput:
    """The picture, or the error in its place: it concerns that picture alone."""
    try:
        sent: Sent = take(item)
    except InvalidInput as error:
        return error
    return sent


def _from_part(part: Part) -> Sent:
    content = from_base64(part.content.decode("latin-1")) if part.base64 else part.content
    if not content:
        raise EmptyImage(Problem("file part", "a picture", "no bytes", "Send the picture's bytes."))
    return Sent(content, parse_frame(part.frame) if part.frame else None)


def _from_json(body: bytes, most: int) -> SentPictures:
    # What base64 never holds: more of it than pictures can need would become millions of objects.
    if sum(map(body.count, (b",", b"[", b"{"))) > VALUES_PER_PICTURE * (most + 1):
        raise _bad_json("JSON body", "very many values")
    try:
        content = from_json(body.removeprefix(_BYTE_ORDER_MARK), cache_strings="none")
    except ValueError as error:
        raise _bad_json("JSON body", str(error)) from None
    if not isinstance(content, dict) or len(content) != 1 or not content.keys() <= {"image", "images"}:
        got = f"the fields {', '.join(map(repr, content))[:80] or 'none'}" if isinstance(content, dict) else "no object"
        raise _bad_json("JSON body", got)
    if "image" in content:
        return SentPictures((_or_error(_from_item, content["image"]),), listed=False)
    images = content["images"]
    if not isinstance(images, list) or not images:
        raise _bad_json("JSON body images", "no list of pictures")
    check_count(len(images), most)
    return SentPictures(tuple(_or_error(_from_item, item) for item in images), listed=True)


def _from_item(item: object) -> Sent:
    if isinstance(item, str):
        return Sent(from_base64(item))
    try:
        given = JsonFrame.model_validate(item)
    except ValidationError as error:
        where = ".".join(("image", *map(str, error.errors(include_input=False)[0]["loc"])))
        raise _bad_json(where, error.errors(include_input=False)[0]["msg"]) from None
    return Sent(from_base64(given.data), Frame.of(given.shape, given.order))


def _bad_json(subject: str, got: str) -> BadBody:
    return BadBody(Problem(subject, _JSON_FORM, got, "Mend the JSON."))


def from_base64(text: str) -> bytes:
    """Bytes from base64: data URL in front or not, either alphabet, wrapped lines, padding or none.

    Raises BadBody, or EmptyImage for no bytes.
    """
    if text[:5].lower() == "data:":
        head, comma, text = text.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise _bad_base64("a data URL without ;base64,")
    try:
        packed = text.encode("ascii").translate(_URL_SAFE, _WHITESPACE).rstrip(b"=")
        picture = binascii.a2b_base64(packed + b"=" * (-len(packed) % 4), strict_mode=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise _bad_base64(str(error)) from None
    if not picture:
        raise EmptyImage(Problem("image", "a picture in base64", "no bytes", "Send the picture's bytes."))
    return picture


def _bad_base64(got: str) -> BadBody:
    return BadBody(Problem("image", "base64, with or without a data URL in front", got, "Encode the picture again."))

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_contracts.errors import EmptyImage, ImageTooLarge, InvalidInput
from serving.bodies import MAX_PARTS, BadBody, from_base64, picture_of, read_body

DATA = bytes(range(256)) + b"\xfb\xef\xff"  # base64 of it has +, / and padding
PLAIN = base64.b64encode(DATA).decode()


def multipart(*parts: tuple[str, bytes], boundary: str = "edge", end: bool = True) -> tuple[bytes, str]:
    body = b"".join(
        f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode() + content + b"\r\n"
        for disposition, content in parts
    )
    return body + (f"--{boundary}--\r\n".encode() if end else b""), f"multipart/form-data; boundary={boundary}"


FILE = 'name="image"; filename="a.jpg"'


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "data:image/jpeg;base64," + PLAIN,
        "DATA:;BASE64," + PLAIN,
        base64.encodebytes(DATA).decode(),
        base64.encodebytes(DATA).decode().replace("\n", "\r\n  "),
        base64.urlsafe_b64encode(DATA).decode(),
        PLAIN.rstrip("="),
        base64.urlsafe_b64encode(DATA).decode().rstrip("="),
        PLAIN + "==",
    ],
    ids=["plain", "URL", "odd URL", "wrapped", "CRLF", "URL-safe", "no padding", "URL-safe no padding", "more padding"],
)
def test_base64_in_all_its_forms(text: str) -> None:
    assert from_base64(text) == DATA
    assert picture_of(json.dumps({"image": text}).encode(), "application/json; charset=utf-8") == DATA


@pytest.mark.parametrize(
    "text",
    ["!!!!", PLAIN[:-4] + "A", "data:image/png," + PLAIN, "data:image/png;base64", "äöü", "QUJD=QUJD"],
    ids=["no base64", "impossible length", "data URL without base64", "no comma", "no ASCII", "padding inside"],
)
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(BadBody, match="base64"):
        from_base64(text)


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"{", "JSON body"),
        (b"[]", "JSON body"),
        (b'{"image": 3}', "image"),
        (b'{"picture": "QUJD"}', "image"),
        (b'{"image": "QUJD", "threshold": 1}', "threshold"),
        (b'{"image": ""}', "image"),
        (b"\xff\xfe", "JSON body"),
        (b"[" * 100_000, "JSON body"),
    ],
    ids=["torn", "list", "number", "other name", "unknown field", "empty", "no UTF-8", "deep"],
)
def test_malformed_json_names_the_field(body: bytes, where: str) -> None:
    with pytest.raises(BadBody, match=where):
        picture_of(body, "application/json")


@pytest.mark.parametrize(
    "content_type", ["", "image/jpeg", "image/jpg", "application/x-www-form-urlencoded", "text/plain", "non sense;;;="]
)
def test_any_other_type_is_the_picture_itself(content_type: str) -> None:
    assert picture_of(DATA, content_type) == DATA


@pytest.mark.parametrize(
    "parts",
    [
        [(FILE, DATA)],
        [('name="note"', b"hello"), (FILE, DATA), ('name="image2"; filename="b.jpg"', b"other")],
        [('name="x"; filename=""', DATA)],
    ],
    ids=["one file", "the first file counts", "empty file name"],
)
def test_multipart_takes_the_first_file(parts: list[tuple[str, bytes]]) -> None:
    assert picture_of(*multipart(*parts)) == DATA


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        multipart(('name="image"', b"no file name")),
        multipart((FILE, DATA), end=False),
        (b"no boundary in here", "multipart/form-data; boundary=edge"),
        (multipart((FILE, DATA))[0], "multipart/form-data"),
        multipart(*[('name="x"', b"1")] * (MAX_PARTS + 1), (FILE, DATA)),
    ],
    ids=["no file", "cut off", "no boundary in the body", "no boundary in the type", "too many parts"],
)
def test_malformed_multipart_is_refused(body: bytes, content_type: str) -> None:
    with pytest.raises(BadBody, match="multipart"):
        picture_of(body, content_type)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"", ""), (b"", "application/json"), multipart((FILE, b"")), (b'{"image": "data:;base64,"}', "application/json")],
    ids=["raw", "JSON", "empty part", "empty data URL"],
)
def test_no_picture_is_said_so(body: bytes, content_type: str) -> None:
    with pytest.raises(EmptyImage):
        picture_of(body, content_type)


@settings(max_examples=40, deadline=None)
@given(
    st.binary(max_size=300),
    st.sampled_from(["application/json", "multipart/form-data; boundary=e", "multipart/form-data"]),
)
def test_no_body_breaks_out_of_the_error_tree(body: bytes, content_type: str) -> None:
    with suppress(InvalidInput):
        picture_of(body, content_type)


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(max_codepoint=255), max_size=60))
def test_no_content_type_breaks_out_of_the_error_tree(content_type: str) -> None:
    with suppress(InvalidInput):
        picture_of(b"--e\r\n\r\n", content_type)


class TestReading:
    @staticmethod
    def read(chunks: list[bytes], declared: int | None) -> tuple[bytes | Exception, int]:
        """The body, or the error, and how many chunks were taken."""
        taken = 0

        async def stream() -> AsyncIterator[bytes]:
            nonlocal taken
            for chunk in chunks:
                taken += 1
                yield chunk

        try:
            return asyncio.run(read_body(stream(), declared, 10)), taken
        except ImageTooLarge as error:
            return error, taken

    def test_within_the_limit(self) -> None:
        assert self.read([b"12345", b"67890"], 10) == (b"1234567890", 2)

    def test_an_announced_size_over_the_limit_is_refused_unread(self) -> None:
        error, taken = self.read([b"1"] * 11, 11)
        assert isinstance(error, ImageTooLarge)
        assert taken == 0

    def test_an_unannounced_one_is_refused_where_it_passes_the_limit(self) -> None:
        error, taken = self.read([b"12345"] * 100, None)
        assert isinstance(error, ImageTooLarge)
        assert taken == 3

"""JSON, XML and text files of other people, read with guards.

Nothing outside the file is ever opened: XML with a document type, and so with entities, is refused before anything is
expanded. A file has at most MAX_BYTES.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from xml.parsers import expat

from tasks.importers.native import Findings, Place

MAX_BYTES = 2**29
MAX_DEPTH = 200
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class DocumentError(ValueError):
    """Why a file cannot be read: what was found instead of a sane one, and the line where it is known."""

    def __init__(self, got: str, line: int | None = None) -> None:
        super().__init__(got)
        self.line = line


@dataclass
class XmlNode:
    """An element with the line where it starts."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[XmlNode] = field(default_factory=list)
    text: str = ""

    def all(self, *tags: str) -> Iterator[XmlNode]:
        """The children with one of these tags."""
        return (child for child in self.children if child.tag in tags)

    def first(self, tag: str) -> XmlNode | None:
        """The first child with this tag."""
        return next(self.all(tag), None)

    def value(self, tag: str) -> str:
        """The text of the first child with this tag, stripped; empty where there is none."""
        child = self.first(tag)
        return child.text.strip() if child is not None else ""


def read_bytes(path: Path) -> bytes:
    """A file's bytes. Raises DocumentError over the limit, OSError when it cannot be read."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise DocumentError(f"more than {MAX_BYTES} bytes")
    return data


def parse_text(data: bytes) -> str:
    """Text in UTF-8, or in UTF-16 with its byte order mark. Raises DocumentError."""
    encoding = "utf-16" if data.startswith(UTF_16) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DocumentError(f"byte {data[error.start]:#04x}, which is no UTF-8", line) from None


def parse_json(data: bytes) -> Any:
    """A JSON document. Raises DocumentError, also for NaN and for nesting without end."""
    try:
        return json.loads(parse_text(data), parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise DocumentError(f"broken JSON: {error.msg}, column {error.colno}", error.lineno) from None
    except RecursionError:
        raise DocumentError("JSON nested too deeply") from None
    except ValueError as error:
        raise error if isinstance(error, DocumentError) else DocumentError(str(error)) from None


def _refuse_constant(name: str) -> NoReturn:
    raise DocumentError(f"{name}, which is no number in JSON")


def parse_xml(data: bytes) -> XmlNode:
    """The root of an XML document. Raises DocumentError; a document type is refused, whatever it declares."""
    root = XmlNode("", {}, 0)
    open_nodes = [root]
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def start(tag: str, attributes: dict[str, str]) -> None:
        if len(open_nodes) > MAX_DEPTH:
            raise DocumentError("XML nested too deeply", parser.CurrentLineNumber)
        node = XmlNode(tag, attributes, parser.CurrentLineNumber)
        open_nodes[-1].children.append(node)
        open_nodes.append(node)

    def end(_tag: str) -> None:
        open_nodes.pop()

    def text(characters: str) -> None:
        open_nodes[-1].text += characters

    def refuse(*_declaration: object) -> NoReturn:
        raise DocumentError("a document type (DOCTYPE), which may name files and entities", parser.CurrentLineNumber)

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)  # noqa: FBT003
    except expat.ExpatError as error:
        raise DocumentError(f"broken XML: {expat.ErrorString(error.code)}", error.lineno) from None
    except (LookupError, ValueError) as error:  # An encoding that is not known here.
        raise error if isinstance(error, DocumentError) else DocumentError(f"broken XML: {error}") from None
    return root.children[0]


def add_unreadable(findings: Findings, file: str, error: DocumentError, kind: str) -> None:
    """The finding for a file that is not what it should be."""
    findings.add(
        Place(file, error.line), "file", "error", expected=kind, got=str(error),
        action="Export the annotations again, or remove the file; nothing was read from it.",
    )  # fmt: skip

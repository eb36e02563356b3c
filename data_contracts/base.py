"""The base of every model that is read from disk or network."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in lower-case hexadecimal."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
"""A name that is safe as a file name, a registry name and a part of a URL."""

# A bound of these is not replaced by the same bound in a field's own Field(...): narrower fields start from `float`.
Fraction = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
WidthHeight = tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
"""(width, height) in pixels."""


class Contract(BaseModel):
    """Frozen, checks itself when made, refuses fields that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_json(self) -> str:
        """Indented JSON with a final newline, for files that people read too."""
        return self.model_dump_json(indent=2) + "\n"


def canonical_json(value: Any) -> bytes:
    """The one byte sequence for a JSON value: sorted keys, no spaces, UTF-8, no NaN.

    >>> canonical_json({"b": 1, "a": [1.5, None]})
    b'{"a":[1.5,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256_of(data: bytes) -> str:
    """SHA-256 of `data` in lower-case hexadecimal."""
    return hashlib.sha256(data).hexdigest()

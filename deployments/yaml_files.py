"""YAML files that people write: a mapping, each key once, and a fault told with its line."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from data_contracts.errors import JobError, Problem

WRITE_FIELDS = "Write `field: value` lines."


class _EachKeyOnce(yaml.SafeLoader):
    """A safe loader: YAML itself would take the last of two equal keys without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} a second time in one mapping", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file that holds a mapping. Raises JobError naming the file and line."""
    content = _content(path)
    if content is None:
        raise JobError(Problem(str(path), "a mapping of fields", "an empty file", WRITE_FIELDS))
    if not isinstance(content, dict):
        kind = "a list" if isinstance(content, list) else "a single value"
        raise JobError(Problem(str(path), "a mapping of fields", kind, WRITE_FIELDS))
    return content


def _content(path: Path) -> object:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_EachKeyOnce)  # noqa: S506  a SafeLoader
    except OSError as error:
        raise JobError(Problem(str(path), "a file", error.strerror or str(error), "Name another file.")) from None
    except UnicodeDecodeError:
        raise JobError(Problem(str(path), "a YAML file", "bytes that are no UTF-8", "Save it as UTF-8.")) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}, line {mark.line + 1}, column {mark.column + 1}" if mark else str(path)
        raise JobError(f"{where}: {error.problem or 'no YAML'}. Mend this line.") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise JobError(Problem(str(path), "YAML", " ".join(str(error).split()), "Mend the file.")) from None

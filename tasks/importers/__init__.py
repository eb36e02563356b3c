"""Annotations of other tools, brought into the project's dataset layout.

One module reads one format and knows its quirks. What they share: `source` finds files, `documents` reads JSON and XML
with guards, `geometry` turns shapes into extents, `classes` keeps class ids with their names, `boxes` makes label rows,
`placing` writes.
"""

from tasks.importers.detect import detect_format
from tasks.importers.importing import FORMATS, Imported, import_dataset
from tasks.importers.yolo import read_class_names

__all__ = ["FORMATS", "Imported", "detect_format", "import_dataset", "read_class_names"]

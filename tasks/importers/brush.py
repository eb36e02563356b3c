"""The brush masks of Label Studio: runs of an RGBA picture, packed in bits (its rle-pack)."""

from __future__ import annotations

import numpy as np

from tasks.importers.geometry import Extent

MAX_PIXELS = 2**28
_CHANNELS = 4


class _Bits:
    """Reads numbers of any width from bytes, highest bit first."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def read(self, count: int) -> int:
        """The next `count` bits. Raises ValueError behind the end."""
        end = self._at + count
        if end > 8 * len(self._data):
            raise ValueError("a brush mask that is cut off")
        window = int.from_bytes(self._data[self._at // 8 : (end + 7) // 8])
        self._at = end
        return (window >> (-end % 8)) & ((1 << count) - 1)


def brush_extent(runs: bytes, image_wh: tuple[int, int]) -> Extent:
    """The extent of what is painted, pixels. Raises ValueError for a mask that is empty or of another size."""
    width, height = image_wh
    if width * height > MAX_PIXELS:
        raise ValueError(f"a brush mask of {width} x {height} pixels")
    bits = _Bits(runs)
    if (count := bits.read(32)) != _CHANNELS * width * height:
        raise ValueError(f"a brush mask of {count} bytes for a picture of {width} x {height} pixels")
    painted = _values(bits, count).reshape(height, width, _CHANNELS)[..., 3] > 0
    rows, columns = np.flatnonzero(painted.any(axis=1)), np.flatnonzero(painted.any(axis=0))
    if not len(rows):
        raise ValueError("an empty brush mask")
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def _values(bits: _Bits, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    word = bits.read(5) + 1
    lengths = [bits.read(4) + 1 for _ in range(4)]
    values = np.zeros(count, np.uint8)
    at = 0
    while at < count:
        repeated = bits.read(1)
        end = at + 1 + bits.read(lengths[bits.read(2)])
        if end > count:
            raise ValueError("a brush mask with more pixels than its picture")
        if repeated:
            values[at:end] = bits.read(word) & 0xFF
        else:
            values[at:end] = [bits.read(word) & 0xFF for _ in range(end - at)]
        at = end
    return values

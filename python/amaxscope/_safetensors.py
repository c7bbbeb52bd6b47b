"""Writes safetensors files whose tensors come in pieces, in any order, at bounded memory."""

import json
import math
import os

from ._refused import Refused


class SafetensorsFile:
    """A file of known tensors, complete only after close(); then it takes its name. Not thread safe."""

    def __init__(self, path, tensors, metadata):
        """tensors: [(name, dtype in safetensors' words, bytes of an element, shape)]. FileExistsError when there is a file
        of that name."""
        self.path = path
        self._partial = f"{path}.partial"
        self._places = {}
        header = {"__metadata__": metadata}
        at = 0
        for name, dtype, item, shape in tensors:
            end = at + math.prod(shape) * item
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
            self._places[name] = (at, item, shape)
            at = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        if os.path.lexists(path):
            raise FileExistsError(f"{path} exists; it is not overwritten")
        self._descriptor = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._start = 8 + len(text)
        _write_all(self._descriptor, len(text).to_bytes(8, "little") + text, 0)
        os.ftruncate(self._descriptor, self._start + at)

    def write(self, name, offsets, sizes, blocks):
        """The part of a tensor that begins at offsets and has the given sizes; blocks: its bytes, row-major."""
        at, item, shape = self._places[name]
        positions, run = _runs(shape, offsets, sizes, item)
        base = self._start + at
        left, target = 0, 0
        for block in blocks:
            rest = memoryview(block)
            while len(rest):
                if left == 0:
                    left, target = run, base + next(positions)
                take = min(left, len(rest))
                _write_all(self._descriptor, rest[:take], target)
                rest = rest[take:]
                left -= take
                target += take

    def close(self):
        os.close(self._descriptor)
        self._descriptor = -1
        os.rename(self._partial, self.path)

    def discard(self):
        """Leaves nothing behind."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            os.unlink(self._partial)


def _runs(shape, offsets, sizes, item):
    """(iterator of positions, bytes): the part is that many bytes at each of the positions of the whole tensor."""
    split = max((dim for dim in range(len(shape)) if sizes[dim] != shape[dim]), default=0)
    strides = [item] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * shape[dim + 1]
    first = sum(offset * stride for offset, stride in zip(offsets, strides))
    run = math.prod(sizes[split:]) * item

    def positions():
        index = [0] * split
        while True:
            yield first + sum(at * stride for at, stride in zip(index, strides))
            for dim in range(split - 1, -1, -1):
                index[dim] += 1
                if index[dim] < sizes[dim]:
                    break
                index[dim] = 0
            else:
                return

    return positions(), run


def _write_all(descriptor, data, position):
    data = memoryview(data)
    while len(data):
        written = os.pwrite(descriptor, data, position)
        data = data[written:]
        position += written


def check_names(names):
    """Refused when a name cannot be one of safetensors."""
    for name in names:
        if name == "__metadata__" or not name:
            raise Refused(f"a tensor named {name!r}, which a safetensors file has another use for")

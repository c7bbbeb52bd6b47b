"""The zip archives that torch.save writes of one tensor, as a window of a file, without torch."""

import math
import struct
import zipfile
import zlib

from . import _inert_pickle
from ._refused import Refused

_MOST_PICKLE_BYTES = 1 << 20
_MOST_ENTRIES = 64
_BLOCK = 8 << 20

# torch's dtype: (name in safetensors or None, bytes of an element)
DTYPES = {
    "float64": ("F64", 8),
    "float32": ("F32", 4),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "float8_e8m0fnu": ("F8_E8M0", 1),
    "float8_e4m3fnuz": (None, 1),
    "float8_e5m2fnuz": (None, 1),
    "int64": ("I64", 8),
    "int32": ("I32", 4),
    "int16": ("I16", 2),
    "int8": ("I8", 1),
    "uint64": ("U64", 8),
    "uint32": ("U32", 4),
    "uint16": ("U16", 2),
    "uint8": ("U8", 1),
    "bool": ("BOOL", 1),
    "complex64": (None, 8),
    "complex128": (None, 16),
}

_OF_STORAGE = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}


def _may_name(module, name):
    return (
        (module == "torch" and (name in DTYPES or name in _OF_STORAGE))
        or (module in ("torch.storage", "torch") and name == "UntypedStorage")
        or (module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_tensor_v3"))
        or (module == "collections" and name == "OrderedDict")
    )


class _Window:
    """Bytes offset .. offset+length of an open file, as a file of its own."""

    def __init__(self, file, offset, length):
        self._file = file
        self._offset = offset
        self._length = length
        self._at = 0
        self.most = _MOST_PICKLE_BYTES  # that are read at once; a list of files says itself how long it is

    def seekable(self):
        return True

    def tell(self):
        return self._at

    def seek(self, offset, whence=0):
        self._at = offset + (0, self._at, self._length)[whence]
        if self._at < 0:
            raise OSError("before the start")
        return self._at

    def read(self, count=-1):
        left = max(0, self._length - self._at)
        count = left if count is None or count < 0 else min(count, left)
        if count > self.most:
            raise OSError(f"{count} bytes for what should be a short list of files")
        self._file.seek(self._offset + self._at)
        found = self._file.read(count)
        self._at += len(found)
        return found


class ArchivedTensor:
    """A tensor of an archive: dtype (torch's name), shape, and blocks() for its bytes in row-major order."""

    def __init__(self, file, offset, length, where):
        """file is open for reading; Refused when the window holds anything but a tensor that torch.save wrote."""
        self.where = where
        self._window = _Window(file, offset, length)
        try:
            with zipfile.ZipFile(self._window) as archive:
                self._entries = self._checked(archive.infolist())
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error, OverflowError) as error:
            if isinstance(error, Refused):
                raise
            raise Refused(f"{where}: no archive of torch.save: {error}") from error
        self._read_pickle()
        self._window.most = _BLOCK

    def _checked(self, infos):
        if not 1 <= len(infos) <= _MOST_ENTRIES:
            raise Refused(f"{self.where}: an archive of {len(infos)} files; one tensor has fewer than {_MOST_ENTRIES}")
        entries, folders = {}, set()
        for info in infos:
            folder, _, name = info.filename.partition("/")
            folders.add(folder)
            if name in entries:
                raise Refused(f"{self.where}: {name!r:.80} is in the archive twice")
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 0x1 or info.file_size != info.compress_size:
                raise Refused(f"{self.where}: {name!r:.80} is compressed or encrypted; torch.save stores as it is")
            entries[name] = info
        if len(folders) != 1:
            raise Refused(f"{self.where}: an archive of {len(folders)} folders; torch.save makes one")
        return entries

    def _place(self, name):
        """(start, size) in the window, by the header in front of the data, which is where readers look."""
        info = self._entries.get(name)
        if info is None:
            raise Refused(f"{self.where}: {name!r:.80} is not in the archive")
        self._window.seek(max(info.header_offset, 0))
        header = self._window.read(30) if info.header_offset >= 0 else b""
        if len(header) != 30 or header[:4] != b"PK\x03\x04":
            raise Refused(f"{self.where}: {name!r:.80} is not where the archive's list says")
        name_length, extra_length = struct.unpack("<HH", header[26:30])
        start = info.header_offset + 30 + name_length + extra_length
        if start + info.file_size > self._window._length:
            raise Refused(f"{self.where}: {name!r:.80} is said to be longer than the archive")
        return start, info.file_size

    def _read(self, name, most):
        start, size = self._place(name)
        if size > most:
            raise Refused(f"{self.where}: {name!r:.80} has {size} bytes; at most {most} are read")
        self._window.seek(start)
        return self._window.read(size)

    def _read_pickle(self):
        if "byteorder" in self._entries and self._read("byteorder", 16) != b"little":
            raise Refused(f"{self.where}: written on a machine of another byte order")
        where = f"{self.where}: data.pkl"
        made = _inert_pickle.load(self._read("data.pkl", _MOST_PICKLE_BYTES), where, _may_name, 10_000)
        if type(made) is not _inert_pickle.Made or made.of.module != "torch._utils":
            raise Refused(f"{where}: no tensor")
        arguments = made.arguments
        if len(arguments) < 6 or type(arguments[0]) is not _inert_pickle.StoredElsewhere:
            raise Refused(f"{where}: a tensor without a storage")
        key, dtype = self._storage(arguments[0].what, where)
        if made.of.name == "_rebuild_tensor_v3":
            dtype = _dtype_name(arguments[6] if len(arguments) > 6 else None)
        if dtype is None:
            raise Refused(f"{where}: a tensor of unknown dtype")
        self.dtype = dtype
        self.shape = whole_numbers(arguments[2], where, "shape")
        strides = whole_numbers(arguments[3], where, "strides")
        if type(arguments[1]) is not int or arguments[1] < 0 or len(strides) != len(self.shape):
            raise Refused(f"{where}: a tensor whose offset or strides make no sense")
        self._locate(key, arguments[1], strides, where)

    def _storage(self, what, where):
        if type(what) is not tuple or len(what) != 5 or what[0] != "storage" or type(what[1]) is not _inert_pickle.Global:
            raise Refused(f"{where}: no reference to a storage")
        key = what[2]
        if type(key) is not str or not key.isascii() or not key.isdigit() or len(key) > 9:
            raise Refused(f"{where}: storage {key!r:.80}; storages are numbered")
        return key, _OF_STORAGE.get(what[1].name)

    def _locate(self, key, offset, strides, where):
        """Where the bytes are. Only row-major tensors: a checkpoint holds copies of its shards."""
        expected, contiguous = 1, []
        for size in reversed(self.shape):
            contiguous.insert(0, expected)
            expected *= size
        if expected and any(size != 1 and a != b for size, a, b in zip(self.shape, strides, contiguous)):
            raise Refused(f"{where}: strides {strides} of shape {self.shape}; only row-major tensors are read")
        item = DTYPES[self.dtype][1]
        self.nbytes = math.prod(self.shape) * item
        start, size = self._place(f"data/{key}")
        if offset * item + self.nbytes > size:
            raise Refused(f"{where}: a tensor of {self.nbytes} bytes in a storage of {size}")
        self._start = start + offset * item
        whole = self.nbytes == size
        self._crc = self._entries[f"data/{key}"].CRC if whole else None

    def blocks(self):
        """Yields its bytes, at most 8 MiB at a time. Refused when they are not those that were written (CRC)."""
        left, crc = self.nbytes, 0
        position = self._start
        while left:
            self._window.seek(position)
            block = self._window.read(min(left, _BLOCK))
            if not block:
                raise Refused(f"{self.where}: the file became shorter while it was read")
            crc = zlib.crc32(block, crc)
            left -= len(block)
            position += len(block)
            yield block
        if self._crc is not None and crc != self._crc:
            raise Refused(f"{self.where}: checksum {crc:08x} and not {self._crc:08x}: the file is damaged")


def _dtype_name(value):
    if type(value) is _inert_pickle.Global and value.module == "torch" and value.name in DTYPES:
        return value.name
    return None


def whole_numbers(value, where, what):
    """A tuple or list of at most 16 sizes, each in 0 .. 2^40, with a product below 2^48."""
    if type(value) not in (tuple, list) or len(value) > 16:
        raise Refused(f"{where}: no {what}")
    if not all(type(number) is int and 0 <= number < 1 << 40 for number in value) or math.prod(value) >= 1 << 48:
        raise Refused(f"{where}: {what} {tuple(value)!r:.200} makes no sense")
    return tuple(value)

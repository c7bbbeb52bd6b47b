"""Turns a checkpoint of torch.distributed (a folder with .metadata and *.distcp) into safetensors.

    python3 -m amaxscope.torch_checkpoint CHECKPOINT OUT.safetensors
    python3 -m amaxscope.torch_checkpoint CHECKPOINT FOLDER --shard-bytes 5000000000

Nothing is unpickled: the pickles in such a checkpoint are read as data (_inert_pickle), and a name in them that is none
of torch's own is refused. torch is not needed. Everything is checked before the first byte is written: that files are where
the metadata says, that no two tensors share bytes, that the parts of each tensor cover it exactly once. Memory: the
metadata, and 8 MiB. What is no tensor (step counts, arguments) is listed and left where it is.
"""

import argparse
import itertools
import json
import math
import os
import re
import stat
import sys

from . import _inert_pickle
from ._files import on_a_terminal
from ._inert_pickle import Global, Made
from ._refused import Refused
from ._safetensors import SafetensorsFile, check_names
from ._torch_archive import DTYPES, ArchivedTensor, whole_numbers

__all__ = ["Checkpoint", "Refused", "convert", "main"]

_MOST_METADATA_BYTES = 256 << 20
_MOST_OBJECTS = 20_000_000

_KNOWN = {
    "torch.distributed.checkpoint.metadata": {
        "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "TensorProperties", "ChunkStorageMetadata",
        "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed._shard.sharded_tensor.metadata": {"TensorProperties", "MEM_FORMAT_ENCODING"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size", "strided", "contiguous_format", "preserve_format", *DTYPES},
    "collections": {"OrderedDict"},
    "builtins": {"getattr"},
    "pathlib": {"Path", "PosixPath", "PurePosixPath"},
    "pathlib._local": {"Path", "PosixPath", "PurePosixPath"},
}  # fmt: skip


class Part:
    """A part of a tensor, and where its archive is."""

    __slots__ = ("offsets", "sizes", "file", "start", "length")

    def __init__(self, offsets, sizes):
        self.offsets = offsets
        self.sizes = sizes
        self.file = None


class Tensor:
    """name, dtype (torch's word), shape, parts."""

    __slots__ = ("name", "dtype", "shape", "parts")

    def __init__(self, name, dtype, shape, parts):
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.parts = parts

    @property
    def nbytes(self):
        return math.prod(self.shape) * DTYPES[self.dtype][1]


class Checkpoint:
    """What the metadata of a checkpoint says, checked against its files.

    tensors   {name: Tensor}, in the order of the metadata
    others    {name: bytes in the files} of what is no tensor
    allow     further names (module.name) that may occur in the metadata; they are not imported either
    FileNotFoundError without the folder or its .metadata; Refused for what is in it."""

    def __init__(self, folder, allow=()):
        self.folder = os.fspath(folder)
        self.tensors = {}
        self.others = {}
        self._where = os.path.join(self.folder, ".metadata")
        content = self._read_metadata(allow)
        stored = self._stored(_member(content, "storage_data", self._where))
        entries = _member(content, "state_dict_metadata", self._where)
        if type(entries) is not dict:
            raise Refused(f"{self._where}: state_dict_metadata is no dictionary")
        for name, entry in entries.items():
            if type(name) is not str:
                raise Refused(f"{self._where}: a name that is no text")
            kind = entry.of.full_name if type(entry) is Made else ""
            if kind.endswith(".BytesStorageMetadata"):
                self.others[name] = stored.get((name, None), (None, 0, 0))[2]
            elif kind.endswith(".TensorStorageMetadata"):
                self.tensors[name] = self._tensor(name, entry, stored)
            else:
                raise Refused(f"{self._where}: {name!r:.200} is neither a tensor nor bytes")
        self._check_files()

    def _read_metadata(self, allow):
        allowed = {tuple(name.rpartition(".")[::2]) for name in allow}

        def may_name(module, name):
            return name in _KNOWN.get(module, ()) or (module, name) in allowed

        if not os.path.isdir(self.folder):
            raise FileNotFoundError(f"{self.folder}: no folder")
        with _open_regular(self.folder, ".metadata") as file:
            if os.fstat(file.fileno()).st_size > _MOST_METADATA_BYTES:
                raise Refused(f"{self._where}: more than {_MOST_METADATA_BYTES >> 20} MiB")
            content = _inert_pickle.load(file.read(), self._where, may_name, _MOST_OBJECTS)
        if type(content) is not Made or content.of.name != "Metadata" or type(content.state) is not dict:
            raise Refused(f"{self._where}: no metadata of torch.distributed.checkpoint")
        return content.state

    def _stored(self, storage_data):
        """{(name, offsets or None): (file, start, length)}."""
        if type(storage_data) is not dict:
            raise Refused(f"{self._where}: storage_data is no dictionary")
        stored = {}
        for index, info in storage_data.items():
            index, info = _state(index, "MetadataIndex", self._where), _state(info, "_StorageInfo", self._where)
            name = index.get("fqn")
            offsets = None if index.get("offset") is None else self._size(index["offset"], "offset")
            file, start, length = (info.get(key) for key in ("relative_path", "offset", "length"))
            if type(name) is not str or type(start) is not int or type(length) is not int or min(start, length) < 0:
                raise Refused(f"{self._where}: an entry of storage_data that makes no sense")
            if type(file) is not str or not re.fullmatch(r"[A-Za-z0-9_.-]{1,255}", file) or file in (".", ".."):
                raise Refused(f"{self._where}: {name!r:.200} is said to be in {file!r:.200}; a plain file name of "
                              "the checkpoint's own folder is allowed")  # fmt: skip
            if info.get("transform_descriptors"):
                raise Refused(f"{self._where}: {name!r:.200} was transformed by an extension (compressed); not read")
            if (name, offsets) in stored:
                raise Refused(f"{self._where}: {name!r:.200} at {offsets} is stored twice")
            stored[name, offsets] = (file, start, length)
        return stored

    def _size(self, value, what):
        if type(value) is Made and value.of.name == "Size" and len(value.arguments) == 1:
            value = value.arguments[0]
        return whole_numbers(value, self._where, what)

    def _tensor(self, name, entry, stored):
        where = f"{self._where}: {name!r:.200}"
        state = _state(entry, "TensorStorageMetadata", self._where)
        shape = self._size(state.get("size"), f"size of {name!r:.200}")
        properties = state.get("properties")
        properties = properties.state if type(properties) is Made else None
        dtype = properties[0] if type(properties) is tuple and properties else None
        if type(properties) is dict:
            dtype = properties.get("dtype")
        if type(dtype) is not Global or dtype.module != "torch" or dtype.name not in DTYPES:
            raise Refused(f"{where}: a tensor of unknown dtype")
        chunks = state.get("chunks")
        if type(chunks) is not list:
            raise Refused(f"{where}: a tensor without a list of chunks")
        parts = []
        for chunk in chunks:
            chunk = _state(chunk, "ChunkStorageMetadata", self._where)
            part = Part(self._size(chunk.get("offsets"), "offsets"), self._size(chunk.get("sizes"), "sizes"))
            if len(part.offsets) != len(shape) or len(part.sizes) != len(shape):
                raise Refused(f"{where}: a part of other dimensions than the tensor's")
            found = stored.get((name, part.offsets))
            if found is None:
                raise Refused(f"{where}: the part at {part.offsets} is stored nowhere")
            part.file, part.start, part.length = found
            parts.append(part)
        _check_cover(shape, parts, where)
        return Tensor(name, dtype.name, shape, parts)

    def _check_files(self):
        """That each window is in its file and no two overlap, so that what comes out is no larger than what went in."""
        windows = {}
        for tensor in self.tensors.values():
            item = DTYPES[tensor.dtype][1]
            for part in tensor.parts:
                if math.prod(part.sizes) * item > part.length:
                    raise Refused(f"{self._where}: {tensor.name!r:.200}: a part of shape {part.sizes} in {part.length} bytes")
                windows.setdefault(part.file, []).append((part.start, part.length, tensor.name))
        for name, parts in windows.items():
            with _open_regular(self.folder, name) as file:
                size = os.fstat(file.fileno()).st_size
            end = 0
            for start, length, tensor in sorted(parts):
                if start + length > size:
                    raise Refused(f"{os.path.join(self.folder, name)}: ends at {size}; {tensor!r:.200} is said to be at "
                                  f"{start} to {start + length}")  # fmt: skip
                if start < end:
                    raise Refused(f"{os.path.join(self.folder, name)}: two tensors share bytes at {start}")
                end = start + length


def convert(folder, output, *, tensors=None, shard_bytes=None, allow=()):
    """Writes the tensors of a checkpoint folder to output: a file, or with shard_bytes a folder of files of about that many
    bytes with the index that the tools of Hugging Face and `amaxscope` read.

    tensors  a pattern that is searched for in the names; None: all
    allow    as Checkpoint has it
    Returns (written, left_out): lists of (name, dtype, shape) and of (name, why). Refused, FileNotFoundError,
    FileExistsError; then no output is left."""
    checkpoint = Checkpoint(folder, allow)
    pattern = re.compile(tensors) if tensors is not None else None
    wanted, left_out = [], []
    for tensor in checkpoint.tensors.values():
        if pattern is not None and not pattern.search(tensor.name):
            continue
        if DTYPES[tensor.dtype][0] is None:
            left_out.append((tensor.name, f"safetensors has no {tensor.dtype}"))
        else:
            wanted.append(tensor)
    left_out += [(name, f"no tensor, {size} bytes") for name, size in checkpoint.others.items()]
    check_names(tensor.name for tensor in wanted)
    files = _plan(wanted, os.fspath(output), shard_bytes)
    index = os.path.join(output, "model.safetensors.index.json")
    if shard_bytes is not None:
        os.makedirs(output, exist_ok=True)
        if os.path.lexists(index):
            raise FileExistsError(f"{index} exists; it is not overwritten")
    _write(checkpoint, files)
    if shard_bytes is not None:
        _write_index(index, files)
    return [(tensor.name, tensor.dtype, tensor.shape) for tensor in wanted], left_out


def _plan(tensors, output, shard_bytes):
    """[(path, tensors)]."""
    if shard_bytes is None:
        return [(output, tensors)]
    if shard_bytes < 1:
        raise ValueError(f"shard_bytes={shard_bytes}: a number of bytes is wanted")
    groups, filled = [[]], 0
    for tensor in tensors:
        if groups[-1] and filled + tensor.nbytes > shard_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(tensor)
        filled += tensor.nbytes
    return [
        (os.path.join(output, f"model-{number:05}-of-{len(groups):05}.safetensors"), group)
        for number, group in enumerate(groups, 1)
    ]


def _write(checkpoint, files):
    opened = {}
    try:
        work = []
        for path, tensors in files:
            rows = [(tensor.name, *DTYPES[tensor.dtype], tensor.shape) for tensor in tensors]
            opened[path] = SafetensorsFile(path, rows, {"format": "pt"})
            work += [(part.file, part.start, path, tensor, part) for tensor in tensors for part in tensor.parts]
        work.sort(key=lambda item: item[:2])  # each file once, from its beginning to its end
        for name, items in itertools.groupby(work, key=lambda item: item[0]):
            with _open_regular(checkpoint.folder, name) as file:
                for _, _, path, tensor, part in items:
                    _copy(file, os.path.join(checkpoint.folder, name), tensor, part, opened[path])
        for path in list(opened):
            opened.pop(path).close()
    finally:
        for file in opened.values():
            file.discard()


def _copy(file, file_name, tensor, part, output):
    where = f"{file_name}: {tensor.name!r:.200}"
    if 0 in part.sizes:
        return
    stored = ArchivedTensor(file, part.start, part.length, where)
    if stored.dtype != tensor.dtype or stored.shape != part.sizes:
        raise Refused(f"{where}: holds {stored.dtype} {stored.shape}; the metadata says {tensor.dtype} {part.sizes}")
    output.write(tensor.name, part.offsets, part.sizes, stored.blocks())


def _write_index(path, files):
    weights = {tensor.name: os.path.basename(name) for name, tensors in files for tensor in tensors}
    total = sum(tensor.nbytes for _, tensors in files for tensor in tensors)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": weights}, file, indent=1)


def _check_cover(shape, parts, where):
    """That each element is in exactly one part. The sum of the parts' indicator functions is 1 everywhere in the tensor
    and 0 outside exactly when its mixed differences are, and those are at the corners only: +1 or -1 each, which must
    cancel but for the corners of the whole."""
    if 0 in shape:
        return
    if len(shape) > 8:
        raise Refused(f"{where}: {len(shape)} dimensions; at most 8 are read")
    corners = {}

    def count(offsets, sizes, sign):
        for ends in itertools.product((0, 1), repeat=len(shape)):
            corner = tuple(offset + size * end for offset, size, end in zip(offsets, sizes, ends))
            corners[corner] = corners.get(corner, 0) + (sign if sum(ends) % 2 == 0 else -sign)

    for part in parts:
        count(part.offsets, part.sizes, 1)
    count((0,) * len(shape), shape, -1)
    if any(corners.values()):
        raise Refused(f"{where}: its parts do not cover shape {shape} exactly once")


def _open_regular(folder, name):
    """A file of the folder itself: a link, which may point anywhere, is refused."""
    path = os.path.join(folder, name)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file; a checkpoint has .metadata and the files it names") from None
    except OSError as error:
        if os.path.islink(path):
            raise Refused(f"{path}: a symbolic link; a checkpoint's files lie in its own folder") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Refused(f"{path}: no regular file")
    return os.fdopen(descriptor, "rb", buffering=0)


def _member(content, name, where):
    if content.get(name) is None:
        raise Refused(f"{where}: has no {name}")
    return content[name]


def _state(value, kind, where):
    if type(value) is not Made or value.of.name != kind or type(value.state) is not dict:
        raise Refused(f"{where}: something else than a {kind}")
    return value.state


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python3 -m amaxscope.torch_checkpoint", description="A .distcp checkpoint to safetensors, nothing unpickled."
    )
    parser.add_argument("checkpoint", help="folder with .metadata")
    parser.add_argument("output", nargs="?", help="file, or with --shard-bytes a folder; without it tensors are listed")
    parser.add_argument("--tensor", metavar="PATTERN", help="only tensors in whose name this is found")
    parser.add_argument("--shard-bytes", type=int, metavar="N", help="several files of about so many bytes, and an index")
    parser.add_argument("--allow-name", action="append", default=[], metavar="MODULE.NAME",
                        help="a further name that may occur in the metadata; it is not imported")  # fmt: skip
    given = parser.parse_args(arguments)
    try:
        if given.output is None:
            _list(Checkpoint(given.checkpoint, given.allow_name), given.tensor)
            return 0
        written, left_out = convert(
            given.checkpoint, given.output, tensors=given.tensor, shard_bytes=given.shard_bytes, allow=given.allow_name
        )
    except (Refused, OSError, ValueError, re.error) as error:
        print(f"torch_checkpoint: {on_a_terminal(error)}", file=sys.stderr)
        return 2
    for name, why in left_out:
        print(f"{on_a_terminal(name)}: {why}; left out")
    print(f"{len(written)} tensors written to {given.output}")
    return 0


def _list(checkpoint, pattern):
    for tensor in checkpoint.tensors.values():
        if pattern is None or re.search(pattern, tensor.name):
            print(f"{on_a_terminal(tensor.name)}  {tensor.dtype} {list(tensor.shape)}, in {len(tensor.parts)} parts")
    for name, size in checkpoint.others.items():
        print(f"{on_a_terminal(name)}  no tensor, {size} bytes")


if __name__ == "__main__":
    sys.exit(main())

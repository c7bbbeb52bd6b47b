"""Checkpoints of torch.distributed written by hand, instruction by instruction, so that anything can be wrong in them."""

import io
import os
import struct
import zipfile


def name(module, attribute):
    return f"c{module}\n{attribute}\n".encode()


def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def integer(value):
    data = value.to_bytes(16, "little", signed=True)
    return b"\x8a\x10" + data


def sequence(*items):
    return b"(" + b"".join(items) + b"t"


def listing(*items):
    return b"](" + b"".join(items) + b"e"


def mapping(*pairs):
    return b"}(" + b"".join(key + value for key, value in pairs) + b"u"


def call(function, *arguments):
    return function + sequence(*arguments) + b"R"


def with_state(made, state):
    return made + state + b"b"


def pickled(content):
    return b"\x80\x02" + content + b"."


METADATA = "torch.distributed.checkpoint.metadata"


def of_metadata(kind, **members):
    module = "torch.distributed.checkpoint.filesystem" if kind == "_StorageInfo" else METADATA
    state = mapping(*((text(key), value) for key, value in members.items()))
    return with_state(call(name(module, kind)), state)


def size(*numbers):
    return call(name("torch", "Size"), sequence(*(integer(number) for number in numbers)))


def tensor_entry(dtype, shape, *chunks):
    """chunks: (offsets, sizes)."""
    properties = with_state(call(name(METADATA, "TensorProperties")), sequence(name("torch", dtype), b"\x89"))
    parts = [of_metadata("ChunkStorageMetadata", offsets=size(*at), sizes=size(*sizes)) for at, sizes in chunks]
    return of_metadata("TensorStorageMetadata", properties=properties, size=size(*shape), chunks=listing(*parts))


def stored_at(tensor, offsets, file, start, length):
    """A pair of storage_data."""
    index = of_metadata("MetadataIndex", fqn=text(tensor), offset=size(*offsets) if offsets is not None else b"N", index=b"N")
    return index, of_metadata("_StorageInfo", relative_path=text(file), offset=integer(start), length=integer(length))


def metadata(tensors, storage):
    """tensors: {name: entry}; storage: pairs."""
    entries = mapping(*((text(key), entry) for key, entry in tensors.items()))
    return pickled(of_metadata("Metadata", state_dict_metadata=entries, storage_data=mapping(*storage)))


def tensor_pickle(shape, storage="FloatStorage", key="0", offset=0, strides=None, rebuild=("torch._utils", "_rebuild_tensor_v2")):
    if strides is None:
        strides, step = [], 1
        for number in reversed(shape):
            strides.insert(0, step)
            step *= number
    reference = sequence(text("storage"), name("torch", storage), text(key), text("cpu"), integer(1)) + b"Q"
    arguments = [
        reference, integer(offset), sequence(*map(integer, shape)), sequence(*map(integer, strides)), b"\x89",
        call(name("collections", "OrderedDict")),
    ]  # fmt: skip
    return pickled(call(name(*rebuild), *arguments))


def archive(pickle, data=b"", key="0", compression=zipfile.ZIP_STORED, extra=(), byteorder=b"little"):
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", compression) as file:
        file.writestr("archive/data.pkl", pickle)
        file.writestr("archive/byteorder", byteorder)
        file.writestr(f"archive/data/{key}", data)
        for entry, content in extra:
            file.writestr(entry, content)
    return memory.getvalue()


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def write(folder, metadata_bytes, **files):
    """files: name without .distcp -> bytes."""
    os.makedirs(folder, exist_ok=True)
    for file, content in [(".metadata", metadata_bytes), *((f"{key}.distcp", data) for key, data in files.items())]:
        with open(os.path.join(folder, file), "wb") as out:
            out.write(content)


def write_one(folder, content, shape=(2, 3), **changes):
    """A checkpoint of one tensor `w` in one part, in file a.distcp, which holds content."""
    given = {"dtype": "float32", "file": "a.distcp", "start": 0, "length": len(content), "chunks": None}
    given.update(changes)
    chunks = given["chunks"] or [((0,) * len(shape), shape)]
    entry = tensor_entry(given["dtype"], shape, *chunks)
    pairs = [stored_at("w", at, given["file"], given["start"], given["length"]) for at, _ in chunks]
    write(folder, metadata({"w": entry}, pairs), a=content)


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}."""
    import json

    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return {
        key: (entry["dtype"], tuple(entry["shape"]), data[8 + length :][slice(*entry["data_offsets"])])
        for key, entry in header.items()
    }

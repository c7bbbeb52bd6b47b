"""Checkpoints of torch.distributed without torch: what handmade ones become, and what is refused."""

import contextlib
import io
import os
import pickle
import struct
import subprocess
import tempfile
import unittest
import zipfile

import handmade_checkpoint as made
from handmade_checkpoint import archive, floats, read_safetensors, tensor_pickle, text, write, write_one

from amaxscope import _inert_pickle, _safetensors, torch_checkpoint
from amaxscope._torch_archive import ArchivedTensor
from amaxscope.torch_checkpoint import Refused, convert

SIX = floats(1, 2, 3, 4, 5, 6)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.checkpoint = os.path.join(folder.name, "checkpoint")
        self.out = os.path.join(folder.name, "out.safetensors")

    def refused(self, pattern, error=Refused):
        with self.assertRaisesRegex(error, pattern):
            convert(self.checkpoint, self.out)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("out")], [])


class Converted(Folder):
    def test_one_part(self):
        write_one(self.checkpoint, archive(tensor_pickle((2, 3)), SIX))
        written, left_out = convert(self.checkpoint, self.out)
        self.assertEqual((written, left_out), ([("w", "float32", (2, 3))], []))
        self.assertEqual(read_safetensors(self.out), {"w": ("F32", (2, 3), SIX)})

    def test_parts_of_rows_and_of_columns(self):
        # [[0 1 2 3], [4 5 6 7]] as columns 0-2 (one file) and the rest in two parts (another)
        left = archive(tensor_pickle((2, 3)), floats(0, 1, 2, 4, 5, 6))
        top, bottom = archive(tensor_pickle((1, 1)), floats(3)), archive(tensor_pickle((1, 1)), floats(7))
        entry = made.tensor_entry("float32", (2, 4), ((0, 0), (2, 3)), ((0, 3), (1, 1)), ((1, 3), (1, 1)))
        pairs = [
            made.stored_at("w", (1, 3), "b.distcp", len(top), len(bottom)),
            made.stored_at("w", (0, 0), "a.distcp", 0, len(left)),
            made.stored_at("w", (0, 3), "b.distcp", 0, len(top)),
        ]
        write(self.checkpoint, made.metadata({"w": entry}, pairs), a=left, b=top + bottom)
        convert(self.checkpoint, self.out)
        self.assertEqual(read_safetensors(self.out)["w"][2], floats(*range(8)))

    def test_a_scalar_an_empty_tensor_and_a_view_into_a_storage(self):
        tensors, pairs, data = {}, [], b""
        for key, shape, piece in (
            ("scalar", (), archive(tensor_pickle(()), floats(2.5))),
            ("empty", (0, 4), archive(tensor_pickle((0, 4)))),
            ("view", (2,), archive(tensor_pickle((2,), offset=3), SIX)),
        ):
            tensors[key] = made.tensor_entry("float32", shape, ((0,) * len(shape), shape))
            pairs.append(made.stored_at(key, (0,) * len(shape), "a.distcp", len(data), len(piece)))
            data += piece
        write(self.checkpoint, made.metadata(tensors, pairs), a=data)
        convert(self.checkpoint, self.out)
        self.assertEqual(
            read_safetensors(self.out),
            {"scalar": ("F32", (), floats(2.5)), "empty": ("F32", (0, 4), b""), "view": ("F32", (2,), floats(4, 5))},
        )

    def test_what_is_no_tensor_and_what_safetensors_has_no_name_for(self):
        piece = archive(tensor_pickle((1,), storage="ComplexFloatStorage"), b"12345678")
        tensors = {
            "step": with_no_state("BytesStorageMetadata"),
            "c": made.tensor_entry("complex64", (1,), ((0,), (1,))),
        }
        pairs = [made.stored_at("step", None, "a.distcp", 0, 77), made.stored_at("c", (0,), "a.distcp", 0, len(piece))]
        write(self.checkpoint, made.metadata(tensors, pairs), a=piece)
        written, left_out = convert(self.checkpoint, self.out)
        self.assertEqual(written, [])
        self.assertEqual(left_out, [("c", "safetensors has no complex64"), ("step", "no tensor, 77 bytes")])

    def test_several_files_and_their_index(self):
        tensors, pairs, data = {}, [], b""
        for key in ("a", "b", "c"):
            piece = archive(tensor_pickle((2, 3)), SIX)
            tensors[key] = made.tensor_entry("float32", (2, 3), ((0, 0), (2, 3)))
            pairs.append(made.stored_at(key, (0, 0), "a.distcp", len(data), len(piece)))
            data += piece
        write(self.checkpoint, made.metadata(tensors, pairs), a=data)
        convert(self.checkpoint, self.out, shard_bytes=48)
        self.assertEqual(
            sorted(os.listdir(self.out)),
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"],
        )
        self.assertEqual(list(read_safetensors(os.path.join(self.out, "model-00002-of-00002.safetensors"))), ["c"])
        with self.assertRaisesRegex(FileExistsError, "not overwritten"):
            convert(self.checkpoint, self.out, shard_bytes=48)

    def test_the_program_reads_it(self):
        program = os.path.join(os.environ.get("AMAXSCOPE_BINARY_DIR", ""), "launch", "amaxscope")
        if not os.path.exists(program):
            self.skipTest("the program amaxscope is not built")
        write_one(self.checkpoint, archive(tensor_pickle((2, 3)), SIX))
        convert(self.checkpoint, self.out, tensors="^w$")
        quantized = os.path.join(self.folder, "quantized.safetensors")
        subprocess.run([program, "quantize", self.out, "-o", quantized], check=True, capture_output=True)
        dtype, shape, codes = read_safetensors(quantized)["rowwise"]
        # scale 448 / 6: 6 becomes the largest code, 3 half of it (one exponent less), 1.5 of it half again
        self.assertEqual((dtype, shape), ("F8_E4M3", (2, 3)))
        self.assertEqual((codes[5], codes[2]), (0x7E, 0x76))

    def test_a_further_name_that_is_allowed(self):
        write_one(self.checkpoint, archive(tensor_pickle((2, 3)), SIX))
        path = os.path.join(self.checkpoint, ".metadata")
        with open(path, "rb") as file:
            content = file.read()
        own = text("own") + made.call(made.name("frame.work", "Thing")) + b"s"
        with open(path, "wb") as file:
            file.write(content[:-2] + own + content[-2:])  # one more member of the metadata
        self.refused("names frame.work.Thing, which this reader does not know")
        convert(self.checkpoint, self.out, allow=["frame.work.Thing"])
        self.assertEqual(read_safetensors(self.out)["w"][2], SIX)

    def test_a_member_of_an_enum_as_some_pythons_write_it(self):
        write_one(self.checkpoint, archive(tensor_pickle((2, 3)), SIX))
        path = os.path.join(self.checkpoint, ".metadata")
        with open(path, "rb") as file:
            content = file.read()
        encoding = made.name(made.METADATA, "_MEM_FORMAT_ENCODING")
        look_up = made.name("builtins", "getattr")

        def write_with(own):
            with open(path, "wb") as file:
                file.write(content[:-2] + text("own") + own + b"s" + content[-2:])  # one more member of the metadata

        for arguments in ((encoding,), (made.call(encoding), text("__class__")), (text("a"), text("__class__"))):
            write_with(made.call(look_up, *arguments))
            self.refused("looks up what is no member of a name")
        write_with(made.call(made.call(look_up, encoding, text("__call__"))))
        self.refused("calls what is no name")
        write_with(made.call(look_up, encoding, text("TORCH_CONTIGUOUS_FORMAT")))
        convert(self.checkpoint, self.out)
        self.assertEqual(read_safetensors(self.out)["w"][2], SIX)

    def test_the_command(self):
        write_one(self.checkpoint, archive(tensor_pickle((2, 3)), SIX))
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as error:
            self.assertEqual(torch_checkpoint.main([self.checkpoint]), 0)
            self.assertEqual(torch_checkpoint.main([self.checkpoint, self.out]), 0)
            self.assertEqual(torch_checkpoint.main([self.checkpoint, self.out]), 2)
            self.assertEqual(torch_checkpoint.main([self.checkpoint + "x", self.out]), 2)
        self.assertIn("w  float32 [2, 3], in 1 parts", out.getvalue())
        self.assertRegex(error.getvalue(), "exists; it is not overwritten\n.*no folder\n$")


def with_no_state(kind):
    return made.call(made.name(made.METADATA, kind))


class HostilePickles(Folder):
    def test_a_call_of_the_system(self):
        write(self.checkpoint, pickle.dumps(Command(), protocol=2))
        self.refused(r"names (posix|nt)\.system, which this reader does not know; nothing was imported or called")

    def test_a_call_of_the_system_in_a_tensor(self):
        write_one(self.checkpoint, archive(pickle.dumps(Command(), protocol=2), SIX))
        self.refused(r"data\.pkl: pickle, byte \d+: names (posix|nt)\.system")

    def test_a_known_module_is_no_licence(self):
        hostile = made.call(made.name("torch.serialization", "load"), text("/etc/passwd"))
        write(self.checkpoint, made.pickled(hostile))
        self.refused("names torch.serialization.load")

    def test_names_that_are_built_on_the_stack_are_the_same(self):
        write(self.checkpoint, b"\x80\x04" + b"\x8c\x02os" + b"\x8c\x06system" + b"\x93.")
        self.refused("names os.system")

    def test_bombs(self):
        limit = 10_000
        cases = {
            "memo entry 4294967295": b"\x80\x02]r\xff\xff\xff\xff.",  # Python makes room for 2^32 entries
            "cut off": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"x.",
            "more objects": b"\x80\x02" + b"]" * (limit + 1) + b".",
            "more objects than": b"\x80\x02" + b"(" * (limit + 1) + b".",
            "an integer of 255 bytes": b"\x80\x02\x8a\xff" + b"\x7f" * 255 + b".",
            "instruction": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",  # BYTEARRAY8 is made before it is read
            "key of a kind": b"\x80\x02}" + b")" + b"\x85" * 5000 + b"Ns.",  # its hash would end the process
        }
        for pattern, data in cases.items():
            with self.subTest(pattern), self.assertRaisesRegex(Refused, pattern):
                _inert_pickle.load(data, "here", lambda *_: True, limit)

    def test_every_prefix_and_every_changed_byte_is_read_or_refused(self):
        data = made.metadata(
            {"w": made.tensor_entry("float32", (2, 3), ((0, 0), (2, 3)))},
            [made.stored_at("w", (0, 0), "a.distcp", 0, 100)],
        )
        tried = [data[:end] for end in range(len(data))]
        tried += [data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :] for at in range(len(data)) for flip in (1, 0xAE)]
        write(self.checkpoint, b"")
        for content in tried:
            os.unlink(os.path.join(self.checkpoint, ".metadata"))  # file systems write out what replaces a file's content
            with open(os.path.join(self.checkpoint, ".metadata"), "xb") as file:
                file.write(content)
            try:
                torch_checkpoint.Checkpoint(self.checkpoint)
            except (Refused, FileNotFoundError):
                pass


class Command:
    def __reduce__(self):
        return os.system, ("touch executed",)


class Lies(Folder):
    def test_names_of_files(self):
        content = archive(tensor_pickle((2, 3)), SIX)
        for file in ("../a.distcp", "/etc/passwd", "b/a.distcp", "..", ".", "", "a\0", "ä"):
            write_one(self.checkpoint, content, file=file)
            self.refused("a plain file name of the checkpoint's own folder is allowed")

    def test_links(self):
        content = archive(tensor_pickle((2, 3)), SIX)
        write_one(self.checkpoint, content)
        path = os.path.join(self.checkpoint, "a.distcp")
        os.rename(path, os.path.join(self.folder, "elsewhere"))
        os.symlink(os.path.join(self.folder, "elsewhere"), path)
        self.refused("a symbolic link; a checkpoint's files lie in its own folder")
        os.unlink(path)
        os.mkfifo(path)
        self.refused("no regular file")

    def test_sizes_in_the_metadata(self):
        content = archive(tensor_pickle((2, 3)), SIX)
        big = (1 << 39, 256)
        cases = [
            ({"length": 1 << 50}, r"ends at \d+; 'w' is said to be at 0 to 1125899906842624"),
            ({"start": 10}, r"ends at \d+"),
            ({"start": -1}, "makes no sense"),
            ({"shape": big, "chunks": [((0, 0), big)]}, "in .* bytes"),
            ({"shape": (1 << 40, 1)}, "makes no sense"),
            ({"shape": (3, 3), "chunks": [((0, 0), (2, 3))]}, r"do not cover shape \(3, 3\) exactly once"),
            ({"shape": (2, 3), "chunks": [((0, 0), (2, 3)), ((1, 0), (1, 3))]}, "exactly once"),
            ({"shape": (2, 3), "chunks": [((1, 0), (2, 3))]}, "exactly once"),
            ({"shape": (2, 3), "chunks": [((0, 0), (2, 3)), ((0, 0), (2, 3))]}, "stored twice|exactly once"),
            ({"dtype": "strided"}, "unknown dtype"),
            ({"dtype": "float64"}, "in .* bytes|the metadata says float64"),
            ({"dtype": "int32"}, "holds float32 .* the metadata says int32"),
        ]
        for changes, pattern in cases:
            with self.subTest(str(changes)):
                write_one(self.checkpoint, content, **changes)
                self.refused(pattern)

    def test_two_tensors_in_the_same_bytes(self):
        """Else a small checkpoint becomes a file of any size."""
        content = archive(tensor_pickle((2, 3)), SIX)
        entry = made.tensor_entry("float32", (2, 3), ((0, 0), (2, 3)))
        pairs = [made.stored_at(key, (0, 0), "a.distcp", 0, len(content)) for key in "vw"]
        write(self.checkpoint, made.metadata({"v": entry, "w": entry}, pairs), a=content)
        self.refused("two tensors share bytes")

    def test_archives(self):
        good = tensor_pickle((2, 3))
        cases = [
            (b"x" * 100, "no archive of torch.save"),
            (archive(good, SIX, compression=zipfile.ZIP_DEFLATED), "compressed or encrypted"),
            (archive(tensor_pickle((2, 3), key="../0"), SIX, key="../0"), "storages are numbered"),
            (archive(tensor_pickle((2, 3), key="7"), SIX), "'data/7' is not in the archive"),
            (archive(good, SIX[:-4]), "a tensor of 24 bytes in a storage of 20"),
            (archive(tensor_pickle((2, 3), offset=1), SIX), "a tensor of 24 bytes in a storage of 24"),
            (archive(tensor_pickle((2, 3), offset=-1), SIX), "make no sense"),
            (archive(tensor_pickle((2, 3), strides=(1, 2)), SIX), "only row-major"),
            (archive(tensor_pickle((2, 3), strides=(0, 0)), SIX), "only row-major"),
            (archive(tensor_pickle((3, 2)), SIX), r"holds float32 \(3, 2\); the metadata says float32 \(2, 3\)"),
            (archive(made.pickled(made.listing()), SIX), "no tensor"),
            (archive(good, SIX, extra=[("other/x", b"")]), "an archive of 2 folders"),
            (archive(good, SIX, extra=[(f"archive/{n}", b"") for n in range(99)]), "an archive of 102 files"),
            (archive(good, SIX, byteorder=b"big"), "another byte order"),
            (archive(good, SIX).replace(SIX, SIX[::-1]), "checksum .* the file is damaged"),
        ]
        for content, pattern in cases:
            with self.subTest(pattern):
                write_one(self.checkpoint, content, length=max(len(content), 24))
                self.refused(pattern)

    def test_an_archive_whose_list_is_said_to_be_huge(self):
        content = bytearray(archive(tensor_pickle((2, 3)), SIX) + b"\0" * (2 << 20))
        end = content.rindex(b"PK\5\6")
        record = content[end : end + 22]
        struct.pack_into("<I", record, 12, len(content) - 100)  # bytes of the list
        struct.pack_into("<I", record, 16, 0)
        write_one(self.checkpoint, bytes(content) + bytes(record))
        self.refused("for what should be a short list of files")

    def test_every_changed_byte_of_an_archive_is_read_or_refused(self):
        content = archive(tensor_pickle((2, 3)), SIX)
        for at in range(len(content)):
            for flip in (0x01, 0xFF):
                changed = content[:at] + bytes([content[at] ^ flip]) + content[at + 1 :]
                try:
                    tensor = ArchivedTensor(io.BytesIO(changed), 0, len(changed), "here")
                    data = b"".join(tensor.blocks())
                except Refused:
                    continue
                if (tensor.dtype, tensor.shape) == ("float32", (2, 3)):
                    self.assertEqual(data, SIX)

    def test_no_checkpoint(self):
        self.refused("no folder", FileNotFoundError)
        os.mkdir(self.checkpoint)
        self.refused(".metadata: no such file", FileNotFoundError)
        write_one(self.checkpoint, archive(tensor_pickle((2, 3)), SIX))
        os.unlink(os.path.join(self.checkpoint, "a.distcp"))
        self.refused("a.distcp: no such file", FileNotFoundError)
        write(self.checkpoint, made.pickled(made.listing()))
        self.refused("no metadata of torch.distributed.checkpoint")


class Pieces(Folder):
    def test_any_part_from_blocks_of_any_length(self):
        shape = (3, 4, 5)
        whole = bytes(range(60))
        for offsets, sizes in (((0, 0, 0), shape), ((1, 0, 0), (2, 4, 5)), ((0, 1, 0), (3, 2, 5)), ((1, 2, 3), (2, 1, 2))):
            part = bytes(
                whole[(a * 4 + b) * 5 + c]
                for a in range(offsets[0], offsets[0] + sizes[0])
                for b in range(offsets[1], offsets[1] + sizes[1])
                for c in range(offsets[2], offsets[2] + sizes[2])
            )
            inside = {
                (a * 4 + b) * 5 + c
                for a in range(3) for b in range(4) for c in range(5)
                if all(o <= at < o + s for at, o, s in zip((a, b, c), offsets, sizes))
            }  # fmt: skip
            for block in (1, 3, 7, 60):
                file = _safetensors.SafetensorsFile(self.out, [("w", "U8", 1, shape)], {})
                file.write("w", offsets, sizes, [part[at : at + block] for at in range(0, len(part), block)])
                file.close()
                expected = bytes(value if value in inside else 0 for value in whole)
                self.assertEqual(read_safetensors(self.out)["w"][2], expected)
                os.unlink(self.out)

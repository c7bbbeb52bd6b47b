"""What torch.distributed.checkpoint writes, at as many ranks as there are, comes out of the conversion bit for bit."""

import os
import shutil
import subprocess
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from handmade_checkpoint import read_safetensors

from amaxscope.torch_checkpoint import convert

DTYPES = {
    "F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "U8": torch.uint8, "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip
RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
SPLIT = {"rows": 0, "columns": 1, "uneven": 0, "rows_f8": 0, "middle": 1}


def tensors():
    torch.manual_seed(7)
    return {
        "rows": torch.randn(12, 6),
        "columns": torch.randn(7, 8).bfloat16(),
        "uneven": torch.randn(7, 5, dtype=torch.float64),
        "rows_f8": torch.randn(8, 4).to(torch.float8_e4m3fn),
        "middle": torch.randn(2, 6, 3).half(),
        "e5m2": torch.randn(5).to(torch.float8_e5m2),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "counts": torch.arange(5),
        "flags": torch.tensor([True, False]),
        "view": torch.randn(8, 8)[2:5, 1:4],
        "large": torch.arange(5 << 20, dtype=torch.uint8),
    }


@unittest.skipUnless(dcp.is_available() if hasattr(dcp, "is_available") else True, "torch without distributed")
class Real(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if RANKS > 1:
            dist.init_process_group("gloo")
            cls.addClassCleanup(dist.destroy_process_group)
        name = [tempfile.mkdtemp() if RANK == 0 else None]
        if RANKS > 1:
            dist.broadcast_object_list(name)
        cls.folder = name[0]
        if RANK == 0:
            cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.tensors = tensors()
        state = {name: cls.on_ranks(name, tensor) for name, tensor in cls.tensors.items()}
        state.update(step=7, nested={"learning_rate": 0.1, "list": [1, 2]})
        dcp.save(state, checkpoint_id=os.path.join(cls.folder, "checkpoint"))

    @staticmethod
    def on_ranks(name, tensor):
        if RANKS == 1 or name not in SPLIT:
            return tensor
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard

        dim = SPLIT[name]
        size = -(-tensor.shape[dim] // RANKS)
        local = torch.split(tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor, size, dim)[RANK]
        local = local.contiguous().view(tensor.dtype)
        mesh = init_device_mesh("cpu", (RANKS,))
        return DTensor.from_local(local, mesh, [Shard(dim)], shape=tensor.shape, stride=tensor.stride(), run_check=False)

    def convert(self, output, **options):
        return convert(os.path.join(self.folder, "checkpoint"), os.path.join(self.folder, output), **options)

    @unittest.skipIf(RANK, "rank 0 has the folder")
    def test_bit_for_bit(self):
        written, left_out = self.convert("out.safetensors")
        self.assertEqual({name for name, _, _ in written}, set(self.tensors))
        self.assertEqual({name for name, _ in left_out}, {"step", "nested.learning_rate", "nested.list"})
        found = read_safetensors(os.path.join(self.folder, "out.safetensors"))
        for name, tensor in self.tensors.items():
            dtype, shape, data = found[name]
            self.assertEqual((DTYPES[dtype], shape), (tensor.dtype, tuple(tensor.shape)), name)
            expected = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            self.assertEqual(data, expected, name)

    @unittest.skipIf(RANK, "rank 0 has the folder")
    def test_the_program_reads_it(self):
        program = os.path.join(os.environ.get("AMAXSCOPE_BINARY_DIR", ""), "launch", "amaxscope")
        if not os.path.exists(program):
            self.skipTest("the program amaxscope is not built")
        self.convert("some", tensors="^(rows|columns|middle)$", shard_bytes=300)
        index = os.path.join(self.folder, "some", "model.safetensors.index.json")
        done = subprocess.run(
            [program, "analyze", index, "--recipe", "current", "--stats", "cur_amax,numel"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        for name in ("rows", "columns", "middle"):
            amax = self.tensors[name].abs().max().item()
            self.assertRegex(done.stdout, rf"{name} [^\n]*\n[^\n]*numel {self.tensors[name].numel()}")
            self.assertIn(f"cur_amax {amax:.6g}"[:14], done.stdout)

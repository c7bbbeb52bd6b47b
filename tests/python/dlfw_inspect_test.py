"""The features of amaxscope under the real nvidia-dlfw-inspect; what TransformerEngine would call is called by a stand-in for it.
Expected values are arithmetic of numpy."""

import json
import math
import os
import re
import subprocess
import tempfile
import unittest
from unittest import mock

import numpy as np
import nvdlfw_inspect.api as debug_api
import torch
from dlfw_support import STAND_IN, begin
from fp8_arithmetic import E4M3, E5M2, scale_of, through_mxfp8, through_one_scale
from nvdlfw_inspect.registry import Registry

import amaxscope
from amaxscope._dlfw import modifying_features, sums


def delayed(scale=8.0, gradient_scale=100.0):
    from transformer_engine.pytorch.tensor.float8_tensor import DType, Float8Quantizer

    return {
        "activation": Float8Quantizer(torch.tensor(scale), torch.zeros(1), DType.kFloat8E4M3),
        "weight": Float8Quantizer(torch.tensor(scale), torch.zeros(1), DType.kFloat8E4M3),
        "gradient": Float8Quantizer(torch.tensor(gradient_scale), torch.zeros(1), DType.kFloat8E5M2),
    }


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        torch.manual_seed(3)

    def begin(self, **features):
        return begin(self, self.folder, **features)

    def layer(self, name="fc1", **options):
        from te_layer import Linear

        return Linear(name, torch.randn(64, 96), **options)

    def close_to(self, value, expected, tolerance=1e-12):
        self.assertLessEqual(abs(value - expected), tolerance * abs(expected), f"{value} and not {expected}")


class Statistics(Run):
    STATS = ["min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range"]

    def check_moments(self, lines, name, iteration, x):
        x = np.asarray(x, dtype=np.float64)
        magnitudes = np.abs(x[x != 0])
        expected = {
            "min": x.min(), "max": x.max(), "mean": x.mean(), "std": x.std(ddof=1), "l1_norm": np.abs(x).sum(),
            "l2_norm": math.sqrt((x * x).sum()), "cur_amax": np.abs(x).max(),
            "dynamic_range": math.log2(magnitudes.max()) - math.log2(magnitudes.min()),
        }  # fmt: skip
        for stat, value in expected.items():
            self.close_to(lines.values[f"{name}_{stat}", iteration], value, 1e-10)

    def test_of_all_six_tensors(self):
        tensors = ["activation", "weight", "gradient", "output", "dgrad", "wgrad"]
        lines = self.begin(LogTensorStats={"tensors": tensors, "stats": self.STATS})
        layer = self.layer()
        x, dy = torch.randn(32, 96).bfloat16(), torch.randn(32, 64)
        y, dx, dw = layer.forward_backward(x, dy)
        debug_api.step()
        for name, tensor in zip(tensors, (x, layer.weight, dy, y, dx, dw)):
            self.check_moments(lines, f"fc1_{name}", 0, tensor.double().numpy())
        self.assertEqual(len(lines.values), 6 * len(self.STATS))

    def test_micro_batches_are_one_tensor_and_a_weight_counts_once(self):
        lines = self.begin(LogTensorStats={"tensors": ["activation", "weight"], "stats": [*self.STATS, "numel"]})
        layer = self.layer()
        parts = [torch.randn(8, 96) + 5, torch.randn(16, 96) - 3, torch.zeros(0, 96)]
        for part in parts:
            layer.forward_backward(part, torch.randn(len(part), 64))
        debug_api.step()
        self.check_moments(lines, "fc1_activation", 0, torch.cat(parts).double().numpy())
        self.assertEqual(lines.values["fc1_activation_numel", 0], 24 * 96)
        self.assertEqual(lines.values["fc1_weight_numel", 0], 64 * 96)

    def test_nan_and_inf_show(self):
        lines = self.begin(LogTensorStats={"tensors": ["activation"], "stats": ["min", "cur_amax", "nan", "inf", "l2_norm"]})
        layer = self.layer()
        x = torch.randn(4, 96)
        x[0, 0] = math.inf
        layer.forward_backward(x, torch.randn(4, 64))
        debug_api.step()
        x[1, 1] = math.nan
        layer.forward_backward(x, torch.randn(4, 64))
        debug_api.step()
        self.assertEqual([lines.values[f"fc1_activation_{name}", 0] for name in ("cur_amax", "nan", "inf")], [math.inf, 0, 1])
        self.assertTrue(math.isnan(lines.values["fc1_activation_min", 1]))
        self.assertTrue(math.isnan(lines.values["fc1_activation_cur_amax", 1]))

    def test_range_of_blocks(self):
        stat = {"max_blockwise_dynamic_range": {"block_size": 4, "dims": 1}}
        lines = self.begin(LogTensorStats={"tensors": ["activation", "gradient"], "stats": [stat]})
        x = torch.full((8, 96), 1.0)
        x[:4, 0] = 1024.0  # a column of blocks: along rows its range is log2(1024), along columns 0
        x[5, 7] = 2.0**-3
        dy = torch.ones(8, 64)
        dy[0, 0], dy[1, 0] = 16.0, 2.0
        self.layer().forward_backward(x, dy)
        debug_api.step()
        name = "max_blockwise_dynamic_range_block_size_4_dims_1"
        self.assertEqual(lines.values[f"fc1_activation_{name}_max_over_orientations", 0], 10.0)
        self.assertEqual(lines.values[f"fc1_gradient_{name}", 0], 4.0)

    def test_schedule(self):
        struct = [
            {"tensor": "activation", "stats": ["max"], "freq": 3},
            {"tensor": "weight", "stats": ["max"], "freq": 2, "start_step": 3, "end_step": 7},
            {"tensor": "gradient", "stats": ["max"], "start_end_list": [[0, 1], [6, 7]]},
        ]
        lines = self.begin(LogTensorStats={"tensors_struct": struct}, first=1)
        layer = self.layer()
        for _ in range(1, 10):
            layer.forward_backward(torch.randn(4, 96), torch.randn(4, 64))
            debug_api.step()
        found = {name: lines.iterations_of(f"fc1_{name}_max") for name in ("activation", "weight", "gradient")}
        self.assertEqual(found, {"activation": [3, 6, 9], "weight": [4, 6], "gradient": [1, 6, 7]})

    def test_what_is_not_known_is_said_at_the_first_forward(self):
        fake = {"gemms": ["fprop"], "tensors": ["weight"], "quant_format": "FP8E4M3"}
        cases = [
            ({"LogTensorStats": {"tensors": ["activation"], "stats": ["sum"]}}, "no statistic 'sum' here; it has min"),
            ({"LogTensorStats": {"tensors": ["activation"], "stats": ["max"], "frequency": 2}}, "unknown key 'frequency'"),
            ({"LogTensorStats": {"tensors": ["input"], "stats": ["max"]}}, "tensor 'input'; allowed are activation"),
            ({"LogTensorStats": {"stats": ["max"]}}, "needs `tensors` or `tensors_struct`"),
            ({"LogFp8TensorStats": {"tensors": ["weight"], "stats": ["mxfp8_bias"]}}, "no statistic 'mxfp8_bias'"),
            ({"FakeQuant": {**fake, "amax_scope": "te"}}, "amax_scope is 'te'"),
        ]  # fmt: skip
        for features, message in cases:
            with self.subTest(message):
                self.begin(**features)
                with self.assertRaisesRegex(ValueError, message):
                    self.layer().forward_backward(torch.randn(4, 96), torch.randn(4, 64))
                debug_api.end_debug()


class Quantization(Run):
    def check_error(self, lines, prefix, x, quantized, iteration=0):
        x, quantized = x.astype(np.float64), quantized.astype(np.float64)
        self.close_to(lines.values[f"{prefix}mse", iteration], ((x - quantized) ** 2).mean(), 1e-9)
        flushed = 100.0 * ((x != 0) & (quantized == 0)).sum() / x.size
        self.close_to(lines.values[f"{prefix}underflows%", iteration], flushed)

    def test_of_the_codes_that_the_training_made(self):
        stats = ["underflows%", "overflows%", "mse", "scale_inv_min", "scale_inv_max", "sqnr"]
        lines = self.begin(LogFp8TensorStats={"tensors": ["activation", "gradient"], "stats": stats})
        x, dy = torch.randn(32, 96), torch.randn(32, 64) * 10
        x[0, :] *= 1e-5  # flushed
        x[1, :8] = 60.0  # beyond 448 / 8
        self.layer(quantizers=delayed()).forward_backward(x, dy)
        debug_api.step()
        self.check_error(lines, "fc1_activation_", x.numpy(), through_one_scale(x.numpy(), E4M3, 8.0))
        self.check_error(lines, "fc1_gradient_", dy.numpy(), through_one_scale(dy.numpy(), E5M2, 100.0))
        self.assertGreater(lines.values["fc1_activation_underflows%", 0], 3.0)
        self.assertEqual(lines.values["fc1_activation_overflows%", 0], 100.0 * 8 / x.numel())
        self.assertEqual(lines.values["fc1_activation_scale_inv_min", 0], 0.125)
        self.assertEqual(lines.values["fc1_activation_scale_inv_max", 0], 0.125)
        error = ((x.double().numpy() - through_one_scale(x.numpy(), E4M3, 8.0)) ** 2).sum()
        self.close_to(lines.values["fc1_activation_sqnr", 0], 10 * math.log10((x.double().numpy() ** 2).sum() / error), 1e-9)

    def test_of_recipes_that_do_not_run(self):
        stats = ["fp8_current_scaling_mse", "fp8_current_scaling_underflows%", "mxfp8_mse", "mxfp8_underflows%",
                 "mxfp8_mse_columnwise", "mxfp8_underflows%_columnwise", "fp8_block_scaling_scale_inv_max"]  # fmt: skip
        lines = self.begin(LogFp8TensorStats={"tensors": ["activation"], "stats": stats})
        x = torch.randn(64, 96) * torch.logspace(-6, 2, 96)
        self.layer().forward_backward(x, torch.randn(64, 64))  # in high precision
        debug_api.step()
        x = x.numpy()
        self.check_error(
            lines, "fc1_activation_fp8_current_scaling_", x, through_one_scale(x, E4M3, scale_of(np.abs(x).max(), E4M3))
        )
        self.check_error(lines, "fc1_activation_mxfp8_", x, through_mxfp8(x, E4M3))
        columnwise = through_mxfp8(np.ascontiguousarray(x.T), E4M3).T
        mse = ((x.astype(np.float64) - columnwise) ** 2).mean()
        self.close_to(lines.values["fc1_activation_mxfp8_mse_columnwise", 0], mse, 1e-9)
        # pow2 scales of the recipe: fp8_max / amax rounded down to a power of two
        self.assertEqual(
            lines.values["fc1_activation_fp8_block_scaling_scale_inv_max", 0],
            2.0 ** -math.floor(math.log2(448.0 / np.abs(x).max())),
        )

    def test_of_sizes_that_are_no_whole_blocks(self):
        stats = ["mxfp8_mse", "mxfp8_underflows%", "mxfp8_mse_columnwise"]
        lines = self.begin(LogFp8TensorStats={"tensors": ["activation"], "stats": stats})
        from te_layer import Linear

        x = torch.randn(2, 5, 40) * torch.logspace(-6, 2, 40)
        Linear("fc1", torch.randn(64, 40)).forward_backward(x.reshape(10, 40), torch.randn(10, 64))
        debug_api.step()
        matrix = np.zeros((32, 64), dtype=np.float32)
        matrix[:10, :40] = x.reshape(10, 40).numpy()
        self.check_error(lines, "fc1_activation_mxfp8_", matrix[:10, :40], through_mxfp8(matrix, E4M3)[:10, :40])
        columnwise = through_mxfp8(np.ascontiguousarray(matrix.T), E4M3).T
        mse = ((matrix.astype(np.float64) - columnwise) ** 2).sum() / 400
        self.close_to(lines.values["fc1_activation_mxfp8_mse_columnwise", 0], mse, 1e-9)

    def test_of_nvfp4(self):
        lines = self.begin(LogNvfp4TensorStats={"tensors": ["activation"], "stats": ["underflows%", "mse"]})
        x = torch.ones(16, 32) * 6.0  # of each block the largest; the others are exact or flushed
        x[:, 1], x[:, 2], x[:, 3] = 3.0, 0.5, 0.01
        self.layer()
        from te_layer import Linear

        Linear("fc1", torch.randn(64, 32)).forward_backward(x, torch.randn(16, 64))
        debug_api.step()
        self.close_to(lines.values["fc1_activation_nvfp4_underflows%", 0], 100.0 / 32)
        self.close_to(lines.values["fc1_activation_nvfp4_mse", 0], 0.01**2 / 32, 1e-6)

    def test_what_cannot_be_measured_is_left_out_with_a_message(self):
        lines = self.begin(LogFp8TensorStats={"tensors": ["activation"], "stats": ["mse", "fp8_delayed_scaling_mse"]})
        self.layer().forward_backward(torch.randn(8, 96), torch.randn(8, 64))
        debug_api.step()
        self.assertEqual(lines.values, {})
        with open(os.path.join(self.folder, "nvdlfw_inspect_logs", "nvdlfw_inspect_globalrank-0.log"), encoding="utf-8") as log:
            said = log.read()
        self.assertIn("mse left out: the layer runs in high precision", said)
        self.assertIn("fp8_delayed_scaling_mse left out", said)


class Modified(Run):
    def used(self, quantizers=None, x=None, **features):
        self.begin(**features)
        layer = self.layer(quantizers=quantizers)
        self.x = torch.randn(64, 96) if x is None else x
        self.dy = torch.randn(64, 64)
        self.results = layer.forward_backward(self.x, self.dy)
        debug_api.step()
        return layer

    def test_fake_quantization_under_one_scale(self):
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(64, 96).to(dtype)
            x[0, 0] = math.nan
            layer = self.used(
                x=x, FakeQuant={"gemms": ["fprop"], "tensors": ["activation", "output"], "quant_format": "FP8E5M2"},
                quantizers=delayed(),
            )  # fmt: skip
            rowwise, columnwise = layer.used["activation"]
            expected = through_one_scale(
                np.nan_to_num(x.float().numpy()), E5M2, scale_of(np.nanmax(np.abs(x.float().numpy())), E5M2)
            )
            self.assertEqual(rowwise.dtype, dtype)
            self.assertTrue(math.isnan(rowwise[0, 0]))
            expected[0, 0] = rowwise[0, 0] = 0
            np.testing.assert_array_equal(rowwise.float().numpy(), torch.tensor(expected).to(dtype).float().numpy())
            self.assertTrue(hasattr(columnwise, "_scale_inv"))  # wgrad stays in FP8
            self.assertIs(type(layer.used["weight"][0]), torch.Tensor)  # fprop runs in high precision
            debug_api.end_debug()

    def test_fake_quantization_in_blocks_lies_along_the_product(self):
        layer = self.used(FakeQuant={"gemms": ["fprop", "wgrad"], "tensors": ["activation"], "quant_format": "MXFP8E4M3"})
        x = self.x.numpy()
        np.testing.assert_array_equal(layer.used["activation"][0].numpy(), through_mxfp8(x, E4M3))
        np.testing.assert_array_equal(layer.used["activation"][1].numpy(), through_mxfp8(np.ascontiguousarray(x.T), E4M3).T)

    def test_blocks_of_sizes_that_are_none(self):
        self.begin(FakeQuant={"gemms": ["fprop"], "tensors": ["activation"], "quant_format": "MXFP8E4M3"})
        layer = self.layer()
        x = torch.randn(2, 3, 96)
        made = modifying_features.through_blocks(x, "mxfp8", "e4m3", "activation", rowwise=True)
        np.testing.assert_array_equal(made.numpy(), through_mxfp8(x.numpy(), E4M3))
        layer.forward_backward(x.reshape(6, 96), torch.randn(6, 64))
        np.testing.assert_array_equal(layer.used["activation"][0].numpy(), made.reshape(6, 96).numpy())

    def test_every_format(self):
        for name in ("FP8E4M3", "FP8E5M2", "MXFP8E4M3", "MXFP8E5M2", "NVFP4", "FP8BLOCKE4M3"):
            layer = self.used(FakeQuant={"gemms": ["dgrad"], "tensors": ["weight", "gradient"], "quant_format": name})
            for tensor, original in (("weight", layer.weight), ("gradient", self.dy)):
                made = layer.used[tensor][1 if tensor == "weight" else 0]
                error = ((made - original) ** 2).mean().sqrt() / (original**2).mean().sqrt()
                self.assertTrue(0.005 < error < 0.2, f"{name}: {error}")
            debug_api.end_debug()

    def test_into_a_given_tensor(self):
        self.begin(FakeQuant={"gemms": ["fprop"], "tensors": ["weight"], "quant_format": "FP8E4M3"})
        x, out = torch.randn(8, 96), torch.empty(8, 96)
        feature = Registry.data["transformer_engine"].features["FakeQuant"]
        given = {"gemm": "fprop", "tensor_name": "weight", "tensor": x, "iteration": 0, "default_quantizer": None}
        self.assertIsNone(feature.modify_tensor({"quant_format": "FP8E4M3"}, "fc1", out=out, **given))
        np.testing.assert_array_equal(out.numpy(), through_one_scale(x.numpy(), E4M3, scale_of(x.abs().max(), E4M3)))

    def test_per_tensor_scaling(self):
        layer = self.used(quantizers=delayed(), PerTensorScaling={"gemms": ["dgrad"], "tensors": ["gradient"], "margin": 1})
        made, other = layer.used["gradient"]
        scale = scale_of(self.dy.abs().max() * 2, E5M2)
        self.assertEqual(float(made._scale_inv), np.float32(1) / scale)
        np.testing.assert_array_equal(made.dequantize().numpy(), through_one_scale(self.dy.numpy(), E5M2, scale))
        self.assertEqual(float(other._scale_inv), np.float32(0.01))  # wgrad keeps the recipe's

    def test_per_tensor_scaling_needs_delayed_scaling(self):
        self.begin(PerTensorScaling={"gemms": ["fprop"], "tensors": ["activation"]})
        with self.assertRaisesRegex(AssertionError, "delayed scaling recipe only"):
            self.layer().forward_backward(torch.randn(4, 96), torch.randn(4, 64))

    def test_a_modification_that_starts_later(self):
        lines = self.begin(
            FakeQuant={"gemms": ["fprop"], "tensors": ["activation"], "quant_format": "FP8E4M3", "start_step": 2},
            LogTensorStats={"tensors": ["activation"], "stats": ["max"]},
        )
        layer = self.layer(quantizers=delayed())
        in_fp8 = []
        for _ in range(4):
            layer.forward_backward(torch.randn(8, 96), torch.randn(8, 64))
            in_fp8.append([hasattr(layer.used[name][0], "_scale_inv") for name in ("activation", "weight", "gradient")])
            debug_api.step()
        self.assertEqual(in_fp8, [[True, True, True]] * 2 + [[False, False, True]] * 2)
        self.assertEqual(len(lines.values), 4)

    def test_what_is_spelled_out_for_devices_has_the_bits_of_the_library(self):
        x = torch.cat([torch.randn(4096) * 10**e for e in range(-3, 4)] + [torch.tensor([0.0, -0.0, math.inf, -math.inf, 464.0])])
        for form in ("e4m3", "e5m2"):
            for scale in (1.0, 0.37, 3.0e5):
                for dtype in (torch.float32, torch.bfloat16, torch.float16):
                    here = x.to(dtype)
                    scale_inv = float(torch.tensor(1.0) / torch.tensor(scale))
                    library = modifying_features.through_one_scale(here, form, scale)
                    own = modifying_features.spelled_out(here, form, scale, scale_inv)
                    self.assertTrue(torch.equal(library, own), f"{form} {scale} {dtype}")


class Registration(Run):
    def names(self):
        return {
            name: type(feature).__module__.startswith("amaxscope")
            for name, feature in Registry.data["transformer_engine"].features.items()
        }

    def test_in_either_order_of_the_folders_and_twice(self):
        own, reference = amaxscope.dlfw_inspect.feature_dirs()
        self.assertTrue(reference.startswith(STAND_IN))
        for dirs in ([own, reference], [reference, own], [own, reference]):
            begin(self, self.folder, dirs=dirs, LogTensorStats={"tensors": ["activation"], "stats": ["max"]})
            self.assertEqual(
                self.names(),
                {"LogTensorStats": True, "LogFp8TensorStats": True, "LogNvfp4TensorStats": True, "PerTensorScaling": True,
                 "FakeQuant": True, "DisableQuantizationGEMM": False},
            )  # fmt: skip
            self.assertNotIn("FakeQuant", Registry.data["transformer_engine"].feat_api_to_features["fp8_gemm"])
            debug_api.end_debug()

    def test_after_features_that_wait_for_their_namespace(self):
        own, reference = amaxscope.dlfw_inspect.feature_dirs()
        waiting = os.path.join(self.folder, "waiting")
        os.mkdir(waiting)
        with open(os.path.join(waiting, "early.py"), "w", encoding="utf-8") as file:
            file.write(
                "from nvdlfw_inspect.registry import Registry\n"
                "for name in ('LogTensorStats', 'Early'):\n"
                "    Registry.register_feature(namespace='transformer_engine')(type(name, (), {}))\n"
            )
        begin(self, self.folder, dirs=[waiting, own, reference], LogTensorStats={"tensors": ["activation"], "stats": ["max"]})
        self.assertTrue(self.names()["LogTensorStats"])
        self.assertFalse(self.names()["Early"])

    def test_off_is_nothing(self):
        with mock.patch.dict(os.environ, AMAXSCOPE="off"):
            lines = self.begin(
                FakeQuant={"gemms": ["fprop"], "tensors": ["activation"], "quant_format": "FP8E4M3"},
                LogTensorStats={"tensors": ["activation"], "stats": ["max"]},
            )
        layer = self.layer(quantizers=delayed())
        layer.forward_backward(torch.randn(8, 96), torch.randn(8, 64))
        debug_api.step()
        self.assertEqual(lines.values, {})
        self.assertTrue(hasattr(layer.used["activation"][0], "_scale_inv"))
        self.assertNotIn("run.json", os.listdir(self.folder))

    def test_other_features_stay_the_references(self):
        self.begin(DisableQuantizationGEMM={"gemms": ["fprop"]}, LogTensorStats={"tensors": ["activation"], "stats": ["max"]})
        layer = self.layer(quantizers=delayed())
        layer.forward_backward(torch.randn(8, 96), torch.randn(8, 64))
        self.assertIs(type(layer.used["activation"][0]), torch.Tensor)


class Files(Run):
    def test_records_of_a_run_and_of_one_that_goes_on(self):
        stats = {
            "LogTensorStats": {"tensors": ["activation"], "stats": ["max"]},
            "LogFp8TensorStats": {"tensors": ["activation"], "stats": ["mse"]},
        }
        fake = {"gemms": ["dgrad"], "tensors": ["weight"], "quant_format": "FP8E4M3"}
        for first, last in ((0, 2), (2, 4)):  # the second repeats iteration 2
            lines = self.begin(first=first, FakeQuant=fake, **stats)
            layer = self.layer(quantizers=delayed())
            for _ in range(first, last + 1):
                layer.forward_backward(torch.randn(8, 96), torch.randn(8, 64))
                debug_api.step()
            debug_api.end_debug()
        run = amaxscope.read(self.folder)
        self.assertEqual(run.problems, [])
        self.assertEqual(list(run["iteration"]), [at for at in range(5) for _ in ("max", "mse")])
        self.assertEqual(set(run["format"]) | set(run["recipe"]) | set(run["phase"]), {"E4M3", "delayed", "forward"})
        self.assertEqual(run.series("fc1", "activation", "max")[1][-1], lines.values["fc1_activation_max", 4])
        self.assertEqual(
            [(entry["state"], entry["first_iteration"], entry["last_iteration"]) for entry in run.runs],
            [("closed", 0, 2), ("closed", 2, 4)],
        )
        self.assertEqual(run.runs[0]["alters_numerics"], ["FakeQuant"])
        self.assertEqual(run.runs[0]["options"]["amax_scope"], "local")
        self.assertEqual(json.loads(run.runs[0]["config"]["text"])["section"]["enabled"], True)
        program = os.path.join(os.environ.get("AMAXSCOPE_BINARY_DIR", ""), "launch", "amaxscope")
        if os.path.exists(program):
            done = subprocess.run([program, "check-records", self.folder], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            done = subprocess.run([program, "report", self.folder, "--text"], capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 2, done.stdout + done.stderr)

    def test_without_records(self):
        self.begin(LogTensorStats={"tensors": ["activation"], "stats": ["max"]})
        amaxscope.dlfw_inspect.configure(records=False)
        self.layer().forward_backward(torch.randn(8, 96), torch.randn(8, 64))
        debug_api.step()
        self.assertNotIn("run.json", os.listdir(self.folder))


class AsTheSession(Run):
    """What the features say is what a session of the library says of the same tensor."""

    STATS = [
        *sums.MOMENTS,
        {"max_blockwise_dynamic_range": {"block_size": 8, "dims": 1}},
        {"max_blockwise_dynamic_range": {"dims": 2}},
    ]
    WHAT_IFS = [
        f"{recipe}_{stat}{suffix}"
        for recipe in ("fp8_current_scaling", "mxfp8", "fp8_block_scaling")
        for stat in sums.ERRORS
        for suffix in ("", "_columnwise")
        if not (suffix and recipe == "fp8_current_scaling")
    ]

    def of_the_session(self, tensor, x):
        features = {
            "LogTensorStats": {"enabled": True, "tensors": [tensor], "stats": self.STATS},
            "LogFp8TensorStats": {"enabled": True, "tensors": [tensor], "stats": self.WHAT_IFS},
            "LogNvfp4TensorStats": {"enabled": True, "tensors": [tensor], "stats": ["underflows%", "mse", "cosine"]},
        }
        folder = os.path.join(self.folder, f"session_{len(os.listdir(self.folder))}")
        config = {"section": {"enabled": True, "layers": {"layer_types": ["fc"]}, "transformer_engine": features}}
        with amaxscope.Session(config, log_dir=folder) as session:
            session.layer("fc1").inspect(tensor, x)
            session.step()
        run = amaxscope.read(folder)
        return dict(zip(run["statistic"], run["value"])), features

    def test_of_tensors_of_many_kinds(self):
        plain = torch.randn(64, 96) * torch.logspace(-5, 3, 96)
        odd = torch.randn(10, 40).bfloat16()
        zeros = torch.zeros(32, 64)
        zeros[3, 5:9] = torch.tensor([1.0, -3.0, 1e-7, 600.0])
        nan, infinite = torch.randn(32, 32), torch.randn(32, 32)
        nan[1, 1], infinite[2, 2] = math.nan, -math.inf
        kinds = {"plain": plain, "odd": odd, "mostly zeros": zeros, "zeros": torch.zeros(32, 32), "nan": nan, "inf": infinite}
        for tensor in ("activation", "weight", "gradient"):
            for kind, x in kinds.items():
                with self.subTest(f"{tensor}, {kind}"):
                    expected, features = self.of_the_session(tensor, x)
                    lines = self.begin(**features)
                    from te_layer import Linear

                    layer = Linear("fc1", torch.randn(8, x.shape[1]))
                    if tensor == "weight":
                        layer.weight = x
                    elif tensor == "gradient":
                        layer.weight = torch.randn(x.shape[1], 8)
                    rows = x.shape[0] if tensor != "weight" else 4
                    layer.forward_backward(
                        x if tensor == "activation" else torch.randn(rows, layer.weight.shape[1]),
                        x if tensor == "gradient" else torch.randn(rows, layer.weight.shape[0]),
                    )
                    debug_api.step()
                    debug_api.end_debug()
                    found = {
                        name[len(f"fc1_{tensor}_") :]: value for name, _ in lines.values for value in [lines.values[name, 0]]
                    }
                    # beside a NaN or Inf a session also says what stays known
                    extra = {"nan", "inf", "min_finite", "max_finite", "amax_finite"}
                    self.assertEqual(set(found) - extra, set(expected) - extra)
                    for name, value in found.items():
                        same = value == expected[name] or (math.isnan(value) and math.isnan(expected[name]))
                        if not same:  # ranges of blocks travel as floats in a session
                            near = 1e-6 if "blockwise" in name else 1e-9
                            if name.startswith("nvfp4") and tensor == "gradient":
                                near = 0.3  # rounded stochastically, with other draws
                            self.assertTrue(
                                math.isclose(value, expected[name], rel_tol=near), f"{name}: {value}, {expected[name]}"
                            )


class Page(Run):
    def test_the_config_of_the_page_runs(self):
        with open(os.path.join(os.environ["AMAXSCOPE_SOURCE_DIR"], "docs/dlfw_inspect.md"), encoding="utf-8") as page:
            text = page.read()
        names = {}
        exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], names)
        path = os.path.join(self.folder, "config.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
        lines = begin(self, self.folder, config=path, dirs=names["feature_dirs"])
        layer = self.layer("model.layers.1.mlp.fc1", quantizers=delayed())
        for _ in range(11):
            layer.forward_backward(torch.randn(8, 96), torch.randn(8, 64))
            debug_api.step()
        found = {name[len("model.layers.1.mlp.fc1_") :] for name, _ in lines.values}
        expected = {
            f"{tensor}_{stat}" for tensor in ("activation", "gradient", "weight") for stat in ("cur_amax", "dynamic_range", "std")
        }
        # fprop and wgrad stay in FP8; dgrad, the gradient's rowwise GEMM, runs in high precision
        expected |= {f"activation_{stat}" for stat in ("underflows%", "mse", "mxfp8_mse", "fp8_current_scaling_underflows%")}
        expected |= {"gradient_mxfp8_mse", "gradient_fp8_current_scaling_underflows%"}
        self.assertEqual(found, expected)
        self.assertEqual({at for _, at in lines.values}, {0, 10})

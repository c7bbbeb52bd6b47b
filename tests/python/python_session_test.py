"""Sessions of one rank, with arrays of Python's own: neither numpy nor torch is there."""

import array
import gc
import json
import os
import subprocess
import sys
import threading
import time
import unittest
import weakref

import amaxscope
from support import STATISTICS, TemporaryFolder, f32, fp8_code, fp8_value, lines, records


def matrix(values, rows):
    """f32, row-major."""
    return memoryview(array.array("f", values)).cast("B").cast("f", [rows, len(values) // rows])


class Sessions(unittest.TestCase):
    def test_without_a_config_nothing_happens_and_nothing_is_written(self):
        with TemporaryFolder() as folder:
            with amaxscope.Session(log_dir=folder / "logs") as session:
                layer = session.layer("fc1")
                self.assertFalse(session.enabled)
                self.assertFalse(layer.active)
                session.step()
                self.assertEqual(session.iteration, 1)
            self.assertFalse((folder / "logs").exists())

    def test_what_is_due_is_recorded_and_scalars(self):
        with TemporaryFolder() as folder:
            with amaxscope.Session(config_text=STATISTICS, log_dir=folder, first_iteration=4) as session:
                layer = session.layer("fc1")
                for step in range(3):
                    layer.inspect("activation", matrix([1, -2, 3, 4, -5.5 - step, 0], 2))
                    self.assertEqual(layer.active, step != 1)  # every second iteration
                    session.scalar("loss", 0.25 * step)
                    session.step()
                self.assertIsNone(session.write_failure)
            self.assertEqual([(r["iteration"], r["stats"]["cur_amax"]) for r in records(folder)], [(4, 5.5), (6, 7.5)])
            scalars = [line["scalars"]["loss"] for line in lines(folder) if "scalars" in line]
            self.assertEqual(scalars, [0, 0.25, 0.5])
            self.assertTrue(any(line.get("end_of_run") for line in lines(folder)))

    def test_a_config_can_be_a_file_a_mapping_or_a_preset(self):
        config = {
            "all": {
                "enabled": True,
                "layers": {"layer_types": ["all"]},
                "transformer_engine": {
                    "LogTensorStats": {"enabled": True, "tensors": ["activation"], "stats": ["cur_amax"], "freq": 1}
                },
            }
        }
        with TemporaryFolder() as folder:
            (folder / "debug.yaml").write_text(json.dumps(config))
            for i, source in enumerate([{"config": config}, {"config": folder / "debug.yaml"}]):
                with amaxscope.Session(log_dir=folder / str(i), **source) as session:
                    session.layer("fc1").inspect("activation", matrix([1.0, -3.0], 1))
                    session.step()
                self.assertEqual(records(folder / str(i))[0]["stats"], {"cur_amax": 3})
        names = [preset.name for preset in amaxscope.presets()]
        self.assertIn("watch", names)
        for name in names:
            with amaxscope.Session(preset=name) as session:
                self.assertTrue(session.enabled)
        with self.assertRaisesRegex(amaxscope.UsageError, '"wach"; there are watch, nan'):
            amaxscope.Session(preset="wach")
        with self.assertRaisesRegex(amaxscope.UsageError, "one of them is the config"):
            amaxscope.Session(config_text=STATISTICS, preset="watch")

    def test_errors_are_exceptions_of_their_kind_with_the_same_texts(self):
        with self.assertRaisesRegex(amaxscope.ConfigError, r"7:.*LogTensorStat\b"):
            amaxscope.Session(config_text=STATISTICS.replace("LogTensorStats", "LogTensorStat"))
        with self.assertRaises(amaxscope.ConfigError) as missing:
            amaxscope.Session("/nowhere/debug.yaml")
        self.assertIsInstance(missing.exception, ValueError)
        with amaxscope.Session(config_text=STATISTICS) as session:
            session.layer("fc1")
            with self.assertRaisesRegex(amaxscope.UsageError, "fc1"):
                session.layer("fc1")
            with self.assertRaisesRegex(amaxscope.UsageError, '"colum"; allowed are none, column, row'):
                session.layer("fc2", parallel="colum")
            layer = session.layer("fc3", recipe="mxfp8")
            with self.assertRaisesRegex(amaxscope.TensorError, "32"):
                layer.quantize("activation", matrix([0.0] * 6, 2))
            with self.assertRaisesRegex(amaxscope.TensorError, "activation is a list"):
                layer.quantize("activation", [1.0, 2.0])

    def test_after_it_is_closed_it_says_so(self):
        session = amaxscope.Session()
        layer = session.layer("fc1")
        session.close()
        session.close()
        for use in (session.step, lambda: layer.active, lambda: session.iteration, lambda: session.layer("fc2")):
            with self.assertRaisesRegex(amaxscope.UsageError, "the session is closed"):
                use()

    def test_an_exception_leaves_the_run_unclosed_and_stopped_does_not(self):
        stop = STATISTICS.replace("LogTensorStats", "NonFiniteGuard").replace("      stats: [cur_amax]\n", "")
        stop = stop.replace("      freq: 2\n", "      action: stop\n")
        with TemporaryFolder() as folder:
            with self.assertRaises(ZeroDivisionError):
                with amaxscope.Session(config_text=STATISTICS, log_dir=folder / "failed") as session:
                    session.layer("fc1").inspect("activation", matrix([1.0], 1))
                    session.step()
                    1 / 0
            self.assertFalse(any(line.get("end_of_run") for line in lines(folder / "failed")))
            with self.assertRaisesRegex(amaxscope.Stopped, "fc1"):
                with amaxscope.Session(config_text=stop, log_dir=folder / "stopped") as session:
                    layer = session.layer("fc1")
                    for _ in range(20):
                        layer.inspect("activation", matrix([1.0, float("nan")], 1))
                        session.step()
            self.assertTrue(any(line.get("end_of_run") for line in lines(folder / "stopped")))

    def test_observed_tensors_are_recorded_under_their_names(self):
        observe = """
everything:
  enabled: True
  observe: final_norm
  transformer_engine:
    LogTensorStats:
      enabled: True
      stats: [l1_norm]
      freq: 1
"""
        with TemporaryFolder() as folder:
            with amaxscope.Session(config_text=observe, log_dir=folder) as session:
                session.observe("decoder.final_norm", "residual", matrix([1.0, -2.5, 3.0], 1))
                session.step()
            (record,) = records(folder)
            self.assertEqual((record["layer"], record["tensor"]), ("decoder.final_norm", "residual"))
            self.assertEqual(record["stats"], {"l1_norm": 6.5})

    def test_state_goes_to_a_folder_and_comes_back(self):
        with TemporaryFolder() as folder:
            with amaxscope.Session(config_text=STATISTICS) as session:
                session.layer("fc1")
                session.step()
                session.step()
                session.save_state(folder)
            with amaxscope.Session(config_text=STATISTICS) as session:
                session.layer("fc1")
                session.load_state(folder)
                self.assertEqual(session.iteration, 2)
            with amaxscope.Session(config_text=STATISTICS) as session:
                with self.assertRaises(amaxscope.InputError):
                    session.load_state(folder / "nothing")

    def test_histories_of_delayed_scaling_are_in_the_state(self):
        with TemporaryFolder() as folder:
            with amaxscope.Session() as session:
                layer = session.layer("fc1", recipe="delayed")
                layer.quantize("activation", matrix([2.0, 1.0], 1))
                session.step()
                session.save_state(folder)
            with amaxscope.Session() as session:
                layer = session.layer("fc1", recipe="delayed")
                session.load_state(folder)
                self.assertEqual(layer.quantize("activation", matrix([9.0], 1)).scale_inv, f32(1 / 224))  # 448 / 2

    def test_updates_of_an_optimizer(self):
        updates = """
updates:
  enabled: True
  observe: weight
  transformer_engine:
    LogTensorStats:
      enabled: True
      stats: [lost_updates%]
      freq: 2
"""
        with TemporaryFolder() as folder:
            with amaxscope.Session(config_text=updates, log_dir=folder) as session:
                weight = amaxscope.kernels.cast(matrix([1.0, 1.0, 1.0, 2.0], 1), "bf16")
                for _ in range(2):
                    if session.observes_update("fc1.weight"):
                        # bf16 has 8 bits: from 1 the next is 2^-7 away, and 2^-8 is a tie that goes to even
                        session.observe_update("fc1.weight", weight, matrix([2.0**-7, 2.0**-9, 2.0**-8, 0.5], 1))
                    session.step()
                self.assertFalse(session.observes_update("something.else"))
            (record,) = records(folder)
            self.assertEqual((record["layer"], record["tensor"]), ("fc1.weight", "update"))
            self.assertEqual(record["stats"], {"lost_updates%": 50})

    def test_another_config_while_it_runs(self):
        with TemporaryFolder() as folder:
            with amaxscope.Session(
                config_text=STATISTICS, log_dir=folder, replaceable_config=True, poll_every=1
            ) as session:
                layer = session.layer("fc1")
                for step in range(6):
                    layer.inspect("activation", matrix([1.0 + step], 1))
                    if step == 2:
                        session.replace_config(STATISTICS.replace("freq: 2", "freq: 1"))
                    session.step()
                with self.assertRaises(amaxscope.ConfigError):
                    session.replace_config("all: [")
            self.assertEqual([record["iteration"] for record in records(folder)], [0, 2, 3, 4, 5])
        with amaxscope.Session(config_text=STATISTICS) as session:
            with self.assertRaisesRegex(amaxscope.UsageError, "replaceable_config"):
                session.replace_config(STATISTICS)

    def test_a_section_that_matches_nothing_is_an_error_when_asked(self):
        nowhere = STATISTICS.replace("layer_types: [all]", "layer_name_regex_pattern: nowhere")
        with amaxscope.Session(config_text=nowhere, strict=True) as session:
            session.layer("fc1")
            with self.assertRaisesRegex(amaxscope.ConfigError, '2:1: section "all" matched no layer'):
                session.step()

    def test_other_threads_run_while_the_library_computes(self):
        # This thread wakes up again and again; with the interpreter's lock held for the whole of a call it would not do so
        # between the call's beginning and end.
        quantizer = amaxscope.Quantizer("nvfp4")
        big = matrix([0.5] * (1 << 22), 2048)
        spans, woken = [], []

        def compute():
            for _ in range(5):
                begin = time.monotonic()
                quantizer.quantize(big, columnwise=True)
                spans.append((begin, time.monotonic()))

        thread = threading.Thread(target=compute)
        thread.start()
        while thread.is_alive():
            woken.append(time.monotonic())
            time.sleep(0.0005)
        thread.join()
        during = sum(any(begin < moment < end for begin, end in spans) for moment in woken)
        self.assertGreaterEqual(during, 10)


class Operands(unittest.TestCase):
    def test_codes_and_scale_of_current_scaling(self):
        values = [448.0, -3.3, 0.07, 17.0, -447.9, 1e-9]  # amax 448: the scale is 1
        with amaxscope.Session() as session:
            quantized = session.layer("fc1", recipe="current").quantize("activation", matrix(values, 2))
        self.assertEqual(quantized.shape, (2, 3))
        self.assertEqual(quantized.format(), "E4M3")
        self.assertEqual(quantized.codes.dtype, "e4m3")
        self.assertEqual(quantized.scale_inv, 1.0)
        expected = [fp8_code(f32(value)) for value in values]
        self.assertEqual(memoryview(quantized.codes).tolist(), [expected[:3], expected[3:]])
        columns = quantized.operand("columnwise")
        if columns.transposed:
            self.assertEqual(memoryview(columns.data).tolist(), [expected[:3], expected[3:]])
        else:
            self.assertEqual(memoryview(columns.data).tolist(), [[a, b] for a, b in zip(expected[:3], expected[3:])])
        decoded = memoryview(quantized.values()).tolist()
        self.assertEqual(decoded[0] + decoded[1], [fp8_value(code, 4) for code in expected])

    def test_block_scales_of_mxfp8(self):
        # Exponents of the amaxes are 3 and -2; e4m3's largest is 2^8: scales are 2^-5 and 2^-10.
        row = [float(2**3)] * 32 + [float(2**-2)] * 32
        quantized = amaxscope.Quantizer("mxfp8").quantize(matrix(row * 32, 32))
        operand = quantized.operand()
        self.assertEqual(quantized.format(), "E4M3+E8M0 scales")
        self.assertEqual((operand.block_scales.dtype, operand.block_shape, operand.scale_inv), ("e8m0", (1, 32), 1.0))
        self.assertEqual(memoryview(operand.block_scales).tolist()[0][:2], [127 - 5, 127 - 10])
        self.assertEqual(memoryview(operand.data).tolist()[31], [fp8_code(256.0)] * 64)

    def test_gradients_are_e5m2_and_a_format_can_be_asked_for(self):
        x = matrix([57344.0, 3.0], 1)
        self.assertEqual(memoryview(amaxscope.Quantizer("current", "gradient").quantize(x).codes).tolist(),
                         [[fp8_code(57344.0, 5), fp8_code(3.0, 5)]])  # fmt: skip
        self.assertEqual(amaxscope.Quantizer("current", format="e5m2").quantize(x).format(), "E5M2")

    def test_delayed_scaling_takes_the_scale_of_the_steps_before(self):
        quantizer = amaxscope.Quantizer("delayed", history=2)
        self.assertEqual(quantizer.quantize(matrix([2.0, 1.0], 1)).scale_inv, 1.0)
        quantizer.step()
        self.assertEqual(quantizer.quantize(matrix([100.0], 1)).scale_inv, f32(1 / 224))  # 448 / 2

    def test_arrays_keep_what_they_point_into(self):
        quantized = amaxscope.Quantizer("current").quantize(matrix([448.0, 1.0], 1), columnwise=True)
        codes = quantized.codes
        with self.assertRaisesRegex(amaxscope.UsageError, "1 arrays point into this operand"):
            quantized.keep(columnwise=True)
        copy = codes.copy()
        expected = memoryview(codes).tolist()
        del codes
        quantized.keep(columnwise=True)
        self.assertFalse(quantized.rowwise)
        self.assertEqual(memoryview(copy).tolist(), expected)
        with self.assertRaisesRegex(amaxscope.UsageError, "rowwise"):
            quantized.codes

    def test_an_operand_in_high_precision_keeps_the_tensor_it_points_to(self):
        with amaxscope.Session() as session:
            quantized = session.layer("fc1").quantize("activation", matrix([1.5, 2.5], 1))  # nobody else has it
            blocks = [matrix([0.0, 0.0], 1) for _ in range(100)]  # would take its memory
            self.assertEqual(memoryview(quantized.codes).tolist(), [[1.5, 2.5]])
            self.assertEqual(quantized.format(), "high precision")
            self.assertEqual(len(blocks), 100)


    def test_the_session_keeps_the_memory_of_a_weight_that_was_set(self):
        class Kept(array.array):  # with a place for a weak reference
            pass

        session = amaxscope.Session(preset="watch")
        weights = [Kept("f", [2.0, 1.0]), Kept("f", [3.0, 1.0])]
        seen = [weakref.ref(weight) for weight in weights]
        layer = session.layer("fc1")
        layer.set_weight(weights.pop(0))
        self.assertIsNotNone(seen[0]())
        layer.set_weight(weights.pop(0))
        self.assertIsNone(seen[0]())
        del layer
        gc.collect()
        self.assertIsNotNone(seen[1]())
        session.close()
        self.assertIsNone(seen[1]())


class AfterTheSession(unittest.TestCase):
    def test_operands_outlive_their_session_and_compute_with_its_threads(self):
        # Large enough for more than one thread, in codes too; the session has two by this variable.
        script = """
import array, amaxscope
x = memoryview(array.array("f", [1.5] * (1 << 20))).cast("B").cast("f", [2048, 512])
for recipe in ("none", "current", "mxfp8"):
    with amaxscope.Session(preset="watch") as session:
        layer = session.layer("fc1", recipe=recipe)
        quantized = layer.quantize("activation", x)
        out, saved = layer.forward(x, x)
    del session, layer
    print(memoryview(quantized.values())[2047, 511], memoryview(amaxscope.multiply("fprop", quantized, quantized))[0, 0])
    del quantized, saved
"""
        environment = dict(os.environ, AMAXSCOPE_THREADS="2")
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.split(), ["1.5", str(1.5 * 1.5 * 512)] * 3)


class Linear(unittest.TestCase):
    X = [1.0, 2.0, -1.0, 0.5, 4.0, 2.0]  # 2 x 3
    WEIGHT = [2.0, 0.0, 1.0, -1.0, 1.0, 1.0, 0.5, 0.25, 4.0, 1.0, 1.0, 1.0]  # 4 x 3
    DY = [1.0, 0.0, -2.0, 0.5, 1.0, 1.0, 0.0, 2.0]  # 2 x 4

    def test_forward_and_backward(self):
        y = [[1.0, 0.0, -3.0, 2.0], [3.0, 5.5, 9.25, 6.5]]
        dx = [[1.5, 0.0, -6.5], [3.0, 3.0, 4.0]]
        dweight = [[1.5, 6.0, 1.0], [0.5, 4.0, 2.0], [-2.0, -4.0, 2.0], [1.5, 9.0, 3.5]]
        with amaxscope.Session() as session:
            layer = session.layer("fc1")
            weight = matrix(self.WEIGHT, 4)
            out, saved = layer.forward(matrix(self.X, 2), weight)
            self.assertEqual(memoryview(out).tolist(), y)
            total = matrix([1.0] * 12, 4)
            back = layer.backward(matrix(self.DY, 2), saved, dweight=total, beta=1.0)
            self.assertEqual(memoryview(back).tolist(), dx)
            self.assertEqual(total.tolist(), [[value + 1 for value in row] for row in dweight])
            with self.assertRaisesRegex(amaxscope.UsageError, "had its backward"):
                layer.backward(matrix(self.DY, 2), saved, dweight=total)

            activation = layer.quantize("activation", matrix(self.X, 2))
            operand = layer.quantize("weight", weight)
            gradient = layer.quantize("gradient", matrix(self.DY, 2))
            self.assertEqual(memoryview(amaxscope.multiply("fprop", activation, operand)).tolist(), y)
            self.assertEqual(memoryview(amaxscope.multiply("dgrad", gradient, operand)).tolist(), dx)
            self.assertEqual(memoryview(amaxscope.multiply("wgrad", gradient, activation)).tolist(), dweight)

    def test_a_feature_that_modifies_is_in_the_result(self):
        fake = STATISTICS.replace("LogTensorStats", "PerTensorScaling").replace(
            "      stats: [cur_amax]\n      freq: 2\n", "      gemms: [fprop]\n"
        )
        x = [448.0, 3.3]  # 3.3 becomes 3.25
        with amaxscope.Session(config_text=fake) as session:
            layer = session.layer("fc1", recipe="delayed")
            out, _ = layer.forward(matrix(x, 1), matrix([0.0, 1.0], 1))
            self.assertEqual(memoryview(out).tolist(), [[fp8_value(fp8_code(3.3), 4)]])


class Kernels(unittest.TestCase):
    def test_amax_cast_and_back(self):
        from amaxscope import kernels

        x = matrix([0.3, -500.0, float("nan"), 2.0], 1)
        self.assertEqual(kernels.amax(x), 500.0)
        codes = kernels.cast(x, "e4m3", 2.0)
        self.assertEqual(memoryview(codes).tolist(), [[fp8_code(f32(0.6)), fp8_code(-1000.0), 0x7F, fp8_code(4.0)]])
        back = memoryview(kernels.dequantize(codes, 0.5)).tolist()[0]
        self.assertEqual(back[1], -224.0)
        self.assertEqual(memoryview(kernels.cast(matrix([1.0, -2.0], 1), "bf16")).tolist(), [[0x3F80, 0xC000]])

    def test_statistics(self):
        from amaxscope import kernels

        found = kernels.statistics(matrix([1.0, -3.0, 0.0, float("inf")], 2))
        self.assertEqual((found["numel"], found["inf"], found["nonzero"]), (4, 1, 3))
        self.assertEqual((found["sum"], found["l1"], found["sum_squares"], found["amax_finite"]), (-2, 4, 10, 3))
        error = kernels.cast_error(matrix([1e-9, 3.3, 1e6], 1), "e4m3", 1.0)
        self.assertEqual((error["underflows"], error["overflows"], error["saturated"]), (1, 1, 1))

"""What the features for nvidia-dlfw-inspect are made of, without it and without torch: sums, schedules, keys, kernels."""

import math
import unittest
from array import array

from amaxscope import _native, tensors
from amaxscope._dlfw import config as configs
from amaxscope._dlfw import sums
from amaxscope.session import Quantizer


def matrix(rows):
    flat = array("f", [value for row in rows for value in row])
    return tensors.view_of(memoryview(flat.tobytes()).cast("f", (len(rows), len(rows[0]))))


def moments(rows):
    return {key: value for key, value in _native.statistics(matrix(rows)).items() if key not in ("m3", "m4")}


class Sums(unittest.TestCase):
    def test_moments_of_parts_are_those_of_the_whole(self):
        rows = [[math.sin(9 * at + col) * 10.0 ** (at % 4) + 3 for col in range(8)] for at in range(40)]
        rows[5][2] = 0.0
        whole = moments(rows)
        parts = [moments(rows[:1]), moments(rows[1:17]), moments(rows[17:])]
        for order in (parts, parts[::-1]):
            total = order[0]
            for part in order[1:]:
                total = sums.merged_moments(total, part)
            for key, value in whole.items():
                self.assertLessEqual(abs(total[key] - value), 1e-9 * abs(value), key)

    def test_variance_of_groups_with_different_means(self):
        total = sums.merged_moments(moments([[0, 1, 2, 3]]), moments([[10, 11, 12, 13]]))
        self.assertAlmostEqual(sums.moment_value("std", total) ** 2, 30.0, 12)
        self.assertIsNone(sums.moment_value("std", moments([[1.0]])))

    def test_values(self):
        m = moments([[3.0, -4.0, 0.0, 0.5]])
        expected = {"min": -4, "max": 3, "mean": -0.125, "l1_norm": 7.5, "l2_norm": math.sqrt(25.25), "cur_amax": 4, "numel": 4,
                    "nonzero": 3, "dynamic_range": 3, "rms": math.sqrt(25.25 / 4), "nan": 0, "inf": 0}  # fmt: skip
        for name, value in expected.items():
            self.assertAlmostEqual(sums.moment_value(name, m), value, 12, name)
        self.assertEqual(set(expected) | {"std"}, set(sums.MOMENTS))

    def test_values_of_what_is_not_finite(self):
        nan, inf = math.nan, math.inf
        for rows, expected in (
            ([[1.0, nan, inf]], {"min": nan, "cur_amax": nan, "mean": nan, "l2_norm": nan, "nan": 1, "inf": 1}),
            ([[1.0, inf]], {"min": 1, "max": inf, "cur_amax": inf, "mean": inf, "std": nan, "l1_norm": inf}),
            ([[inf, -inf]], {"mean": nan, "dynamic_range": None, "l2_norm": inf}),
            ([[0.0, 0.0]], {"dynamic_range": 0, "cur_amax": 0, "std": 0, "l1_norm": 0}),
        ):
            for name, value in expected.items():
                found = sums.moment_value(name, moments(rows))
                same = found == value or (value is nan and found is not None and math.isnan(found))
                self.assertTrue(same, f"{name} of {rows} is {found} and not {value}")

    def test_what_only_one_part_has_stays(self):
        self.assertEqual(
            sums.merged({"a": ("range", 1.0)}, {"a": ("range", 3.0), "b": ("range", 2.0)}),
            {"a": ("range", 3.0), "b": ("range", 2.0)},
        )
        self.assertTrue(math.isnan(sums.merged_range(math.nan, 1.0)) and math.isnan(sums.merged_range(1.0, math.nan)))


class Kernels(unittest.TestCase):
    ROW = [1.0, 2.0, 4.0, 0.0005, 500.0, 0.0, -3.0, 17.0]
    # under scale 1: 0.0005 is flushed, 500 saturates to 448, 17 is half-way between 16 and 18 and goes to the even 16
    CODES = [0x38, 0x40, 0x48, 0x00, 0x7E, 0x00, 0xC4, 0x58]

    def check(self, found):
        self.assertEqual([found[key] for key in ("numel", "underflows", "overflows", "saturated")], [8, 1, 1, 1])
        self.assertAlmostEqual(found["error_squares"], 0.0005**2 + 52.0**2 + 1.0, 6)
        self.assertEqual(found["max_error"], 52.0)

    def test_error_of_given_codes(self):
        codes = tensors.codes(memoryview(bytes(self.CODES)).cast("B", (1, 8)), "e4m3")
        self.check(_native.error_of_codes(matrix([self.ROW]), codes, 1.0, 1.0))

    def test_error_of_a_quantized_tensor(self):
        row = [*self.ROW[:4], 448.0, *self.ROW[5:]]
        made = Quantizer("current").quantize(matrix([row]))
        found = _native.error_of_quantized(matrix([row]), made._native, "rowwise")
        self.assertAlmostEqual(found["error_squares"], 0.0005**2 + 1.0, 6)
        total = sums.merged_error(found, found)
        self.assertEqual(sums.error_value("underflows%", total), 12.5)
        self.assertAlmostEqual(sums.error_value("mse", total), (0.0005**2 + 1.0) / 8, 6)
        self.assertAlmostEqual(
            sums.error_value("sqnr", total), 10 * math.log10(sum(value * value for value in row) / (0.0005**2 + 1.0)), 5
        )

    def test_a_direction_that_is_not_there(self):
        made = Quantizer("mxfp8").quantize(matrix([[1.0] * 32] * 32))
        with self.assertRaisesRegex(Exception, "no codes columnwise"):
            _native.error_of_quantized(matrix([[1.0] * 32] * 32), made._native, "columnwise")

    def test_range_of_blocks(self):
        rows = [[1024.0, 1.0, 1.0, 1.0], [1024.0, 1.0, 1.0, 1.0], [1024.0, 1.0, 1.0, 1.0], [1024.0, 8.0, 1.0, 1.0]]
        self.assertEqual(_native.blockwise_range(matrix(rows), 4, 1, False), 10.0)
        self.assertEqual(_native.blockwise_range(matrix([row[1:3] for row in rows]), 2, 1, False), 3.0)


class Config(unittest.TestCase):
    def test_a_schedule_says_when_it_is_due_next(self):
        for config, expected in (
            ({"freq": 10, "start_step": 5}, [10, 20]),
            ({"freq": 5, "end_step": -1, "start_step": 3}, [5, 10, 15, 20]),
            ({"start_end_list": [[10, 11], [0, 2]]}, [0, 1, 2, 10, 11]),
            ({"end_step": 1}, [0, 1]),
        ):
            due = [at for at in range(22) if configs.due(config, at)[0]]
            self.assertEqual(due, expected)
            for at in range(22):
                later = [one for one in expected if one > at]
                following = configs.due(config, at)[1]
                self.assertEqual(following if following is None or following < 22 else None, min(later, default=None))

    def test_which_keys_hold(self):
        config = {
            "enabled": True, "freq": 4,
            "gemms_struct": [
                {"gemm": "fprop", "tensors_struct": [{"tensor": "activation", "quant_format": "A"}], "freq": 2},
                {"gemm": "dgrad", "tensors": "gradient", "quant_format": "B"},
            ],
        }  # fmt: skip
        self.assertEqual(
            configs.selected(config, "fprop", "activation"),
            {"freq": 2, "gemm": "fprop", "tensor": "activation", "quant_format": "A"},
        )
        self.assertIsNone(configs.selected(config, "fprop", "weight"))
        self.assertIsNone(configs.selected(config, "wgrad", "activation"))
        self.assertEqual(
            configs.selected(config, "dgrad", "gradient"), {"freq": 4, "gemm": "dgrad", "tensor": "gradient", "quant_format": "B"}
        )
        self.assertEqual(len(configs.schedules_of(config)), 2)
        self.assertIn("enabled", config)

    def test_what_is_refused(self):
        for config, message in (
            ({"gemms": ["fwd"]}, "gemm 'fwd'; allowed are fprop, dgrad, wgrad"),
            ({}, "needs `gemms` or `gemms_struct`"),
            ({"gemms_struct": [{"gemm": "fprop", "enabled": True}]}, "`enabled` inside of gemms_struct"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                configs.selected(config, "fprop")
        with self.assertRaisesRegex(ValueError, "freq is -1"):
            configs.due({"freq": -1}, 0)

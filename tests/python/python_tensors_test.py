"""What may be a tensor, and what the library's arrays are for others."""

import importlib.util
import unittest

import amaxscope
import numpy
from amaxscope import kernels
from amaxscope.tensors import view_of

HAS_ML_DTYPES = importlib.util.find_spec("ml_dtypes") is not None
HAS_TORCH = importlib.util.find_spec("torch") is not None


class OnlyDlpack:
    """Somebody's tensor that has DLPack and nothing else."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)


class ComesIn(unittest.TestCase):
    def test_no_copy_of_numpy_whatever_the_number_of_dimensions(self):
        x = numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4)
        for tensor in (x, OnlyDlpack(x), memoryview(x)):
            view = view_of(tensor)
            self.assertEqual((view.pointer, view.dtype, view.rows, view.cols), (x.ctypes.data, "f32", 6, 4))
        self.assertEqual(view_of(x).shape, (2, 3, 4))
        self.assertEqual((view_of(x[0, 0]).rows, view_of(x[0, 0]).cols), (1, 4))
        self.assertEqual((view_of(numpy.float64([2.5])[0:0]).rows, view_of(numpy.array(2.5)).cols), (1, 1))

    def test_padded_rows_are_taken_and_other_strides_are_an_error_that_says_what_to_do(self):
        x = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
        view = view_of(x[:, 1:3])
        self.assertEqual((view.rows, view.cols, view.row_stride), (3, 2, 4))
        self.assertEqual(kernels.amax(x[:2, 1:3]), 6.0)
        for strided in (x.T, x[:, ::2], x[::-1], numpy.broadcast_to(x[0], (3, 4))):
            with self.assertRaisesRegex(amaxscope.TensorError, r"x has the shape .* strides .*contiguous\(\)"):
                view_of(strided, "x")
            copy = amaxscope.contiguous(strided)
            numpy.testing.assert_array_equal(numpy.asarray(copy), strided)
        # [2, 3, 4] of which every second of the first dimension is missing is not one distance of rows.
        deep = numpy.zeros((4, 3, 4), dtype=numpy.float32)[::2]
        with self.assertRaises(amaxscope.TensorError):
            view_of(deep)
        self.assertEqual(view_of(deep[:, :1]).row_stride, 24)

    def test_read_only_memory_is_not_written_to(self):
        x = numpy.ones((2, 2), dtype=numpy.float32)
        x.setflags(write=False)
        self.assertFalse(view_of(x).writable)
        quantized = amaxscope.Quantizer("current").quantize(x, columnwise=True)
        with self.assertRaisesRegex(amaxscope.TensorError, "out is read-only"):
            amaxscope.multiply("fprop", quantized, quantized, out=x)

    def test_a_plain_pointer(self):
        x = numpy.arange(8, dtype=numpy.uint16)
        view = amaxscope.View(x.ctypes.data, "bf16", [2, 3], [4, 1], owner=x)
        x[:] = 0x3F80  # 1
        x[5] = 0xC040  # -3, in row 1
        x[3] = 0x7F80  # between the rows
        self.assertEqual(kernels.amax(view), 3.0)
        with self.assertRaisesRegex(amaxscope.UsageError, "float; allowed|\"float\"; allowed are f64, f32"):
            amaxscope.View(x.ctypes.data, "float", [2])

    def test_types_that_are_not_known(self):
        with self.assertRaisesRegex(amaxscope.TensorError, "x is of the type complex64"):
            view_of(numpy.zeros(2, dtype=numpy.complex64), "x")
        with self.assertRaisesRegex(amaxscope.TensorError, "x is f64|f64"):
            kernels.amax(numpy.zeros(2))
        with self.assertRaisesRegex(amaxscope.TensorError, "which amaxscope does not know"):
            view_of(memoryview(b"ab").cast("c"))

    def test_bytes_as_codes(self):
        x = numpy.array([[0x38, 0xB8]], dtype=numpy.uint8)  # 1 and -1
        numpy.testing.assert_array_equal(numpy.asarray(kernels.dequantize(amaxscope.codes(x, "e4m3"), 2.0)), [[2, -2]])
        with self.assertRaisesRegex(amaxscope.TensorError, "x is f32; bytes"):
            amaxscope.codes(x.astype(numpy.float32), "e4m3", "x")

    @unittest.skipUnless(HAS_ML_DTYPES, "no ml_dtypes")
    def test_types_of_ml_dtypes(self):
        import ml_dtypes

        x = numpy.array([[1.5, -3.0]], dtype=ml_dtypes.bfloat16)
        self.assertEqual((view_of(x).dtype, kernels.amax(x)), ("bf16", 3.0))
        codes = numpy.array([[1.5, -3.0]], dtype=ml_dtypes.float8_e5m2)
        self.assertEqual(view_of(codes).dtype, "e5m2")
        numpy.testing.assert_array_equal(numpy.asarray(kernels.dequantize(codes, 1.0)), [[1.5, -3.0]])
        rng = numpy.random.default_rng(1)
        values = rng.normal(size=(64, 33)).astype(numpy.float32)
        for word, theirs in (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2), ("bf16", ml_dtypes.bfloat16)):
            array = kernels.cast(values, word).numpy()
            self.assertEqual(array.dtype, theirs)
            numpy.testing.assert_array_equal(array, values.astype(theirs))

    @unittest.skipUnless(HAS_TORCH, "no torch")
    def test_tensors_of_torch(self):
        import torch

        x = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).requires_grad_()
        self.assertEqual((view_of(x).pointer, view_of(x).dtype), (x.data_ptr(), "bf16"))
        self.assertEqual(kernels.amax(x), 5.0)
        with self.assertRaisesRegex(amaxscope.TensorError, "contiguous"):
            view_of(x.t())
        codes = kernels.cast(torch.tensor([[1.0, -2.0]]), "e4m3")
        self.assertEqual(codes.torch().dtype, torch.float8_e4m3fn)
        self.assertEqual(codes.torch().float().tolist(), [[1.0, -2.0]])
        self.assertEqual(view_of(torch.zeros(2, 2, dtype=torch.float8_e5m2)).dtype, "e5m2")
        with self.assertRaisesRegex(amaxscope.TensorError, "x is on meta"):
            view_of(torch.zeros(2, device="meta"), "x")
        self.assertEqual(kernels.amax(OnlyDlpack(x.detach())), 5.0)
        # A view keeps the memory, also when the parameter that it is of gets another.
        parameter = torch.nn.Parameter(torch.full((1, 4), 7.0))
        view = view_of(parameter)
        parameter.data = torch.zeros(1, 4)
        others = [torch.zeros(1, 4) for _ in range(100)]
        self.assertEqual((kernels.amax(view), len(others)), (7.0, 100))


class GoesOut(unittest.TestCase):
    def test_an_array_is_numpys_without_a_copy(self):
        array = amaxscope.Array.zeros([2, 3])
        theirs = numpy.asarray(array)
        theirs[1, 2] = 5
        self.assertEqual((kernels.amax(array), theirs.ctypes.data), (5.0, array.pointer))
        self.assertEqual(repr(array), "<amaxscope.Array f32 [2, 3]>")
        if hasattr(numpy, "from_dlpack"):
            self.assertEqual(numpy.from_dlpack(array).ctypes.data, array.pointer)

    def test_memory_lives_as_long_as_somebody_looks(self):
        theirs = numpy.asarray(kernels.cast(numpy.full((4, 4), 2.0, dtype=numpy.float32), "e4m3"))
        others = [amaxscope.Array.zeros([4, 4], "u8") for _ in range(100)]
        self.assertEqual((theirs.tolist(), len(others)), ([[0x40] * 4] * 4, 100))

    def test_codes_are_read_only_also_by_dlpack(self):
        quantized = amaxscope.Quantizer("current").quantize(numpy.ones((2, 2), dtype=numpy.float32))
        codes = quantized.codes
        self.assertFalse(numpy.asarray(codes).flags.writeable)
        with self.assertRaisesRegex(BufferError, "read-only"):
            codes.__dlpack__()
        numpy.asarray(codes.copy())[0, 0] = 3
        self.assertEqual(numpy.asarray(codes)[0, 0], 0x7E)  # 448

    def test_fp4_codes_are_two_to_a_byte(self):
        quantized = amaxscope.Quantizer("nvfp4", "weight").quantize(numpy.ones((16, 32), dtype=numpy.float32))
        operand = quantized.operand()
        self.assertEqual((operand.data.dtype, operand.data.shape), ("e2m1", (16, 32)))
        self.assertEqual(numpy.asarray(operand.data).shape, (16, 16))
        self.assertEqual(operand.block_scales.dtype, "e4m3")

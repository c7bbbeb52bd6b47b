"""FP8 under one scale, by torch's casts on the CPU."""

import enum

import torch


class DType(enum.Enum):
    kFloat8E4M3 = torch.float8_e4m3fn
    kFloat8E5M2 = torch.float8_e5m2


LARGEST = {DType.kFloat8E4M3: 448.0, DType.kFloat8E5M2: 57344.0}


class Float8Tensor:
    def __init__(self, data, scale_inv, fp8_dtype, dtype):
        self._data, self._scale_inv, self._fp8_dtype, self.dtype = data, scale_inv, fp8_dtype, dtype

    def dequantize(self):
        return (self._data.view(self._fp8_dtype.value).float() * self._scale_inv).to(self.dtype)


class Float8Quantizer:
    """Delayed scaling: the scale is given."""

    def __init__(self, scale, amax, fp8_dtype):
        self.scale, self.amax, self.dtype = scale, amax, fp8_dtype

    def __call__(self, tensor):
        largest = LARGEST[self.dtype]
        codes = (tensor.float() * self.scale).clamp(-largest, largest).to(self.dtype.value)
        return Float8Tensor(codes.view(torch.uint8), (1.0 / self.scale).reshape(1), self.dtype, tensor.dtype)

    def update_quantized(self, tensor, out):
        made = self(tensor)
        out._data.copy_(made._data)
        out._scale_inv.copy_(made._scale_inv)


class Float8CurrentScalingQuantizer:
    def __init__(self, fp8_dtype):
        self.dtype = fp8_dtype

    def __call__(self, tensor):
        scale = torch.tensor(LARGEST[self.dtype]) / tensor.abs().amax().float()
        return Float8Quantizer(scale, None, self.dtype)(tensor)

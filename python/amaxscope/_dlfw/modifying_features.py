"""PerTensorScaling and FakeQuant for the hooks of TransformerEngine, with a scale that tensor-parallel ranks share if asked."""

import math

import torch
from nvdlfw_inspect.registry import api_method

from amaxscope import _native, tensors
from amaxscope.session import Quantizer

from . import config as configs
from . import groups, measures
from .logging_features import Feature

_FORMATS = {
    # quant_format: (library's recipe or None: one scale for the tensor, format of the codes)
    "FP8E4M3": (None, "e4m3"),
    "FP8E5M2": (None, "e5m2"),
    "MXFP8E4M3": ("mxfp8", "e4m3"),
    "MXFP8E5M2": ("mxfp8", "e5m2"),
    "NVFP4": ("nvfp4", None),
    "FP8BLOCKE4M3": ("block", "e4m3"),
}
_LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
_TORCH = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
# The GEMM that uses a tensor along its rows; the other one uses its columns.
_ROWWISE_GEMM = {
    "activation": "fprop", "weight": "fprop", "gradient": "dgrad", "output": "fprop", "wgrad": "wgrad", "dgrad": "dgrad",
}  # fmt: skip


class ModifyingFeature(Feature):
    keys = ("amax_scope",)

    @api_method
    def modify_tensor_enabled(self, config, layer_name, gemm, tensor_name, iteration):
        scope_of(config)
        return configs.due(config, iteration)

    def shared_scale(self, config, layer, tensor_name, gemm, tensor, form, margin=0):
        """The scale for a tensor under one, over the ranks that its amax_scope says."""
        local = amax(tensor)
        group = groups.tp_group_of(layer, self.collection.tp_groups)
        ranks = groups.ranks_of(group)
        scope = scope_of(config)
        if scope == "tensor" and group is None and groups.is_distributed():
            raise RuntimeError(
                f"{type(self).__name__} of {layer}, {tensor_name}: amax_scope is tensor, and the tensor-parallel group is not "
                "known: call amaxscope.dlfw_inspect.configure(tp_group=...)"
            )
        shared = local if scope == "local" or ranks is None else groups.largest(local, group, tensor)
        scale = scale_of(shared, form, margin)
        self.collection.scale(layer, tensor_name, gemm, scale, ranks)
        return scale, shared


class PerTensorScaling(ModifyingFeature):
    """A scale from the current amax instead of the recipe's delayed one; docs/dlfw_inspect.md."""

    keys = ("amax_scope", "margin")

    @api_method
    def modify_tensor(self, config, layer_name, gemm, tensor_name, tensor, iteration, default_quantizer, out=None, dtype=None):
        if measures.recipe_of(default_quantizer) != "fp8_delayed_scaling":
            raise AssertionError(
                f"PerTensorScaling of {layer_name}, {tensor_name}: works within the delayed scaling recipe only; the quantizer "
                f"is a {type(default_quantizer).__name__}"
            )
        from transformer_engine.pytorch.tensor.float8_tensor import Float8Quantizer

        form = measures.format_of(default_quantizer, "fp8_delayed_scaling", tensor_name)
        margin = int(config.get("margin", 0))
        scale, largest = self.shared_scale(config, layer_name, tensor_name, gemm, tensor, form, margin)
        on_device = {"dtype": torch.float32, "device": tensor.device}
        quantizer = Float8Quantizer(
            torch.tensor([scale], **on_device), torch.tensor([largest], **on_device), default_quantizer.dtype
        )
        if out is not None:
            quantizer.update_quantized(tensor.contiguous(), out)
            return None
        return quantizer(tensor.contiguous())


class FakeQuant(ModifyingFeature):
    """Quantizes and dequantizes; the GEMM runs in high precision; docs/dlfw_inspect.md."""

    keys = ("amax_scope", "quant_format")

    @api_method
    def fp8_gemm_enabled(self, config, layer_name, gemm, iteration):
        now, following = configs.due(config, iteration)
        return (False, iteration + 1) if now else (True, following)

    @api_method
    def modify_tensor(self, config, layer_name, gemm, tensor_name, tensor, iteration, default_quantizer, out=None, dtype=None):
        wanted = config.get("quant_format")
        if wanted not in _FORMATS:
            raise ValueError(
                f"FakeQuant of {layer_name}, {tensor_name}: quant_format {wanted!r}; allowed are {', '.join(_FORMATS)}"
            )
        recipe, form = _FORMATS[wanted]
        if recipe is None:
            scale, _ = self.shared_scale(config, layer_name, tensor_name, gemm, tensor, form)
            result = through_one_scale(tensor, form, scale)
        else:
            result = through_blocks(tensor, recipe, form, tensor_name, rowwise=_ROWWISE_GEMM[tensor_name] == gemm)
        if out is not None:
            out.copy_(result)
            return None
        return result if dtype is None else result.to(dtype)


def scope_of(config):
    scope = config.get("amax_scope", groups.SETTINGS.amax_scope)
    if scope not in ("local", "tensor"):
        raise ValueError(
            f"amax_scope is {scope!r}; here it is local or tensor (te needs to know how tensors lie, which no hook says)"
        )
    return scope


def amax(tensor):
    """Largest magnitude of the elements that are not NaN; 0 of none."""
    if tensor.numel() == 0:
        return 0.0
    if tensor.device.type == "cpu":
        return _native.amax(tensors.view_of(measures.on_host(tensor)))
    return float(tensor.detach().abs().nan_to_num(nan=0.0, posinf=math.inf).amax())


def scale_of(largest, form, margin=0):
    """docs/recipes.md: fp8_max * 2^-margin / amax as one division of float32; 1 where that has no meaning."""
    if not 0 < largest < math.inf:
        return 1.0
    scale = torch.tensor(_LARGEST[form] * 2.0**-margin, dtype=torch.float32) / torch.tensor(largest, dtype=torch.float32)
    return min(float(scale), torch.finfo(torch.float32).max)


def through_one_scale(tensor, form, scale):
    """Codes and back, in the tensor's dtype. On a device the arithmetic of the library's kernels is spelled out in torch."""
    scale_inv = float(torch.tensor(1.0) / torch.tensor(scale))
    if tensor.device.type == "cpu":
        x = measures.on_host(tensor)
        codes = _native.cast(tensors.view_of(x), form, scale)
        values = tensors.to_torch(_native.dequantize(tensors.view_of(codes), scale_inv, "f32"))
        return values.reshape(tensor.shape).to(tensor.dtype)
    return spelled_out(tensor, form, scale, scale_inv)


def spelled_out(tensor, form, scale, scale_inv):
    scaled = (tensor.detach().float() * scale).clamp(-_LARGEST[form], _LARGEST[form])
    return (scaled.to(_TORCH[form]).float() * scale_inv).to(tensor.dtype)


def through_blocks(tensor, recipe, form, tensor_name, rowwise):
    """Blocks lie along the sum of the product: along rows, or columns of the matrix. Each rank has blocks of its own."""
    if tensor.numel() == 0:
        return tensor.detach().clone()
    matrix = measures.on_host(tensor).reshape(-1, tensor.shape[-1] if tensor.dim() else 1)
    x = matrix if rowwise else matrix.t().contiguous()
    whole = measures.padded(x, recipe)
    made = Quantizer(recipe, tensor_name, format=form).quantize(whole)
    values = tensors.to_torch(made.values("rowwise", "f32")).reshape(whole.shape)[: x.shape[0], : x.shape[1]]
    values = values if rowwise else values.t()
    return values.reshape(tensor.shape).to(device=tensor.device, dtype=tensor.dtype)

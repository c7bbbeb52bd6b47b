"""What a linear layer of TransformerEngine calls, for one forward and backward on the CPU."""

import nvdlfw_inspect.api as debug_api

GEMMS = {
    "weight": ("fprop", "dgrad"), "activation": ("fprop", "wgrad"), "gradient": ("dgrad", "wgrad"),
    "output": ("fprop", None), "wgrad": ("wgrad", None), "dgrad": ("dgrad", None),
}  # fmt: skip


def iteration_now():
    return debug_api.DEBUG_MANAGER._trainer_iteration_count


class Operand:
    """Of one tensor of one forward: the *_enabled calls when it is made, the rest in quantize()."""

    def __init__(self, layer, tensor, parent):
        self.layer, self.tensor, self.parent = layer, tensor, parent
        self.iteration = iteration_now()
        hooks, names = debug_api.transformer_engine, {"layer_name": layer.name, "tensor_name": tensor}
        self.inspected = hooks.inspect_tensor_enabled(**names, iteration=self.iteration)[0]
        self.is_result = tensor in ("output", "wgrad", "dgrad")
        self.plans = []
        for gemm in GEMMS[tensor]:
            if gemm is None:
                continue
            if not self.is_result:
                hooks.inspect_tensor_postquantize_enabled(**names, iteration=self.iteration, gemm=gemm)
            if hooks.modify_tensor_enabled(**names, gemm=gemm, iteration=self.iteration)[0]:
                self.plans.append("modify")
            elif parent is not None and hooks.fp8_gemm_enabled(layer_name=layer.name, gemm=gemm, iteration=self.iteration)[0]:
                self.plans.append("quantize")
            else:
                self.plans.append("high precision")

    def quantize(self, x):
        """(rowwise, columnwise)."""
        quantized = self.parent(x) if "quantize" in self.plans else None
        made = [None, None]
        for direction in (1, 0):
            plan = self.plans[direction]
            if plan == "modify":
                made[direction] = self.modified(x, GEMMS[self.tensor][direction], dtype=x.dtype)
            else:
                made[direction] = quantized if plan == "quantize" else x
        self.inspect(x, made[0], made[1])
        return made

    def result(self, x):
        if self.plans[0] == "modify":
            x = self.modified(x, GEMMS[self.tensor][0])
        self.inspect(x, None, None)
        return x

    def modified(self, x, gemm, **more):
        return debug_api.transformer_engine.modify_tensor(
            layer_name=self.layer.name, tensor_name=self.tensor, gemm=gemm, tensor=x, default_quantizer=self.parent,
            iteration=self.iteration, **more,
        )  # fmt: skip

    def inspect(self, x, rowwise, columnwise):
        if self.inspected:
            debug_api.transformer_engine.inspect_tensor(
                layer_name=self.layer.name, tensor=x, tensor_name=self.tensor, iteration=iteration_now(),
                tp_group=self.layer.tp_group, tp_size=self.layer.tp_size, columnwise_quantized_tensor=columnwise,
                rowwise_quantized_tensor=rowwise, quantizer=self.parent,
            )  # fmt: skip


def values(operand):
    return operand.dequantize() if hasattr(operand, "_scale_inv") else operand


class Linear:
    """weight [n, k]; quantizers: {"activation", "weight", "gradient"} or {}: high precision."""

    def __init__(self, name, weight, quantizers=None, tp_group=None, tp_size=1):
        self.name, self.weight, self.quantizers = name, weight, quantizers or {}
        self.tp_group, self.tp_size = tp_group, tp_size
        self.used = {}

    def operand(self, tensor):
        return Operand(self, tensor, self.quantizers.get(tensor))

    def forward_backward(self, x, dy):
        """(y, dx, dw); self.used has the operands of the GEMMs."""
        operands = {name: self.operand(name) for name in GEMMS}
        activation = self.used["activation"] = operands["activation"].quantize(x)
        weight = self.used["weight"] = operands["weight"].quantize(self.weight)
        y = operands["output"].result(values(activation[0]).float() @ values(weight[0]).float().t())
        gradient = self.used["gradient"] = operands["gradient"].quantize(dy)
        dx = operands["dgrad"].result(values(gradient[0]).float() @ values(weight[1]).float())
        dw = operands["wgrad"].result(values(gradient[1]).float().t() @ values(activation[1]).float())
        return y, dx, dw

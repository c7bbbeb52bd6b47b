"""The namespace, its routing, and features that must not be called because others of their names take their place."""

from nvdlfw_inspect.base import BaseNamespaceAPI
from nvdlfw_inspect.registry import Registry, api_method

NEEDED = {
    "fp8_gemm_enabled": ["gemm"],
    "modify_tensor_enabled": ["tensor_name", "gemm"],
    "modify_tensor": ["tensor_name", "gemm"],
}


class Defaults:
    def fp8_gemm_enabled(self, config, layer_name, **_):
        return True, None

    def modify_tensor_enabled(self, config, layer_name, **_):
        return False, None

    inspect_tensor_enabled = inspect_tensor_postquantize_enabled = modify_tensor_enabled

    def inspect_tensor(self, config, layer_name, **_):
        raise AssertionError("no feature has answered")


@Registry.register_namespace_api(namespace="transformer_engine")
class Namespace(BaseNamespaceAPI):
    def __init__(self):
        super().__init__()
        self._default_api_impl = Defaults()
        self._cacheable_api_kwargs_map = {
            "modify_tensor": ["tensor_name", "gemm"],
            "inspect_tensor": ["tensor_name"],
            "inspect_tensor_enabled": ["tensor_name", "iteration"],
            "inspect_tensor_postquantize_enabled": ["tensor_name", "iteration"],
            "modify_tensor_enabled": ["tensor_name", "gemm"],
        }

    def is_multiple_feature_invocation_allowed(self, api_name):
        return not api_name.startswith("modify_tensor")

    def input_assertions_hook(self, api_name, **kwargs):
        assert all(name in kwargs for name in NEEDED.get(api_name, ["tensor_name"]))

    def routing_condition(self, api_name, config, _, feature_obj, **kwargs):
        needed = NEEDED.get(api_name, ["tensor_name"])
        return feature_obj.parse_config_and_api(
            config, gemm_parsing="gemm" in needed, tensor_parsing="tensor_name" in needed, **kwargs
        )

    def output_assertions_hook(self, api_name, ret, **kwargs):
        if "enabled" in api_name:
            assert isinstance(ret, (bool, tuple))
        if api_name == "inspect_tensor":
            assert ret is None

    def call_feature(self, call, feat_config, layer_name, **kwargs):
        if call.__name__ == "inspect_tensor":
            names = call.__code__.co_varnames
            optional = ("quantizer", "columnwise_quantized_tensor", "rowwise_quantized_tensor", "tp_size")
            kwargs = {key: value for key, value in kwargs.items() if key not in optional or key in names}
        return call(feat_config, layer_name, **kwargs)

    def handle_multi_feature_output(self, api_name, multi_feature_outputs, features_to_invoke, **kwargs):
        if "enabled" not in api_name:
            return super().handle_multi_feature_output(api_name, multi_feature_outputs, features_to_invoke, **kwargs)
        following = [output[1] for output in multi_feature_outputs if output[1] is not None]
        return any(output[0] for output in multi_feature_outputs), min(following, default=None)


class Own:
    def parse_config_and_api(self, config, **_):
        return True, {}


@Registry.register_feature(namespace="transformer_engine")
class FakeQuant(Own):
    @api_method
    def modify_tensor_enabled(self, config, layer_name, **_):
        raise AssertionError("the reference's FakeQuant was asked")

    @api_method
    def fp8_gemm(self, config, layer_name, **_):
        raise AssertionError("the reference's FakeQuant was asked")


@Registry.register_feature(namespace="transformer_engine")
class DisableQuantizationGEMM(Own):
    @api_method
    def fp8_gemm_enabled(self, config, layer_name, gemm, iteration):
        return False, iteration + 1

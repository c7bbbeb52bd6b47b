"""Puts the features into the registry of nvidia-dlfw-inspect, in whatever order folders are loaded."""

import os

from nvdlfw_inspect.base import BaseNamespaceAPI

from .collection import Collection
from .logging_features import LogFp8TensorStats, LogNvfp4TensorStats, LogTensorStats
from .modifying_features import FakeQuant, PerTensorScaling

_NAMESPACE = "transformer_engine"
_FEATURES = (LogTensorStats, LogFp8TensorStats, LogNvfp4TensorStats, PerTensorScaling, FakeQuant)


def register(registry):
    """The registry keeps the first feature of a name: one that is there already is taken out, one that comes later is not taken.
    debug_api.step() and end_debug() go to every namespace, so the collection has one of its own."""
    collection = Collection(off=os.environ.get("AMAXSCOPE", "").lower() in ("off", "0", "false", "no"))
    for feature in _FEATURES:
        _take_out(registry.data.get(_NAMESPACE), feature.__name__)
        own = type(feature.__name__, (feature,), {"__doc__": feature.__doc__, "collection": collection})
        registry.register_feature(namespace=_NAMESPACE)(own)
    registry.register_namespace_api(namespace="amaxscope")(_namespace_of(collection))


def _take_out(namespace, name):
    if namespace is None:
        return
    namespace.deferred_features[:] = [kind for kind in namespace.deferred_features if kind.__name__ != name]
    if namespace.features.pop(name, None) is not None:
        for names in namespace.feat_api_to_features.values():
            if name in names:
                names.remove(name)


def _namespace_of(collection):
    class Steps(BaseNamespaceAPI):
        """Has no hooks, only the ends of steps and of the run."""

        def input_assertions_hook(self, api_name, **kwargs):
            raise AttributeError(f"the namespace amaxscope has no hook {api_name!r}")

        def routing_condition(self, api_name, config, layer_name, feature_obj, **kwargs):
            return False, None

        def output_assertions_hook(self, api_name, ret, **kwargs):
            pass

        def is_multiple_feature_invocation_allowed(self, api_name):
            return False

        def step(self):
            collection.step()

        def end_debug(self):
            collection.end()

    return Steps

"""Features for nvidia-dlfw-inspect, so that the hooks of TransformerEngine call amaxscope (docs/dlfw_inspect.md).

    nvdlfw_inspect.api.initialize(config_file=..., feature_dirs=amaxscope.dlfw_inspect.feature_dirs(), ...)

This folder is what goes into feature_dirs, together with TransformerEngine's own. Features of the same name (LogTensorStats,
LogFp8TensorStats, LogNvfp4TensorStats, PerTensorScaling, FakeQuant) are then these; all others stay TransformerEngine's.
"""

import importlib.util
import os
from typing import Any, Optional


def feature_dirs(transformer_engine: bool = True) -> list[str]:
    """This folder and, when it is installed, TransformerEngine's folder of features, which has the hooks' namespace."""
    found = [os.path.dirname(os.path.abspath(__file__))]
    spec = importlib.util.find_spec("transformer_engine") if transformer_engine else None
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        features = os.path.join(folder, "debug", "features")
        if os.path.isdir(features):
            found.append(features)
    return found


def configure(*, amax_scope: Optional[str] = None, tp_group: Any = None, records: Optional[bool] = None) -> None:
    """Once on every rank, before the first forward. What is not given stays.

    amax_scope  of PerTensorScaling and FakeQuant that have no key of that name: "local" (each rank its own scale, as in the
                reference; the default) or "tensor" (one scale over the ranks of tp, as a run on one rank would have).
    tp_group    of torch.distributed: which ranks these are. Without it Megatron's, where Megatron is used.
    records     whether metrics/ and run.json are written beside the logs of nvidia-dlfw-inspect (default: yes).
    """
    from amaxscope._dlfw.groups import SETTINGS

    if amax_scope is not None:
        if amax_scope not in ("local", "tensor"):
            raise ValueError(f"amax_scope is {amax_scope!r}; it is local or tensor")
        SETTINGS.amax_scope = amax_scope
    if tp_group is not None:
        SETTINGS.tp_group = tp_group
    if records is not None:
        SETTINGS.records = bool(records)

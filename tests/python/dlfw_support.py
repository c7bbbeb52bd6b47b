"""Runs of nvidia-dlfw-inspect with the features of amaxscope and the stand-in for TransformerEngine."""

import os
import sys

import nvdlfw_inspect.api as debug_api
from nvdlfw_inspect.logging import BaseLogger

HERE = os.path.dirname(os.path.abspath(__file__))
STAND_IN = os.path.join(HERE, "te_stand_in")
sys.path.insert(0, STAND_IN)

import amaxscope.dlfw_inspect  # noqa: E402
from amaxscope._dlfw import groups  # noqa: E402


class Lines(BaseLogger):
    def __init__(self):
        self.values = {}

    def log_scalar(self, name, value, iteration, **_):
        assert (name, iteration) not in self.values, f"{name} twice at {iteration}"
        self.values[name, iteration] = value

    def iterations_of(self, name):
        return [iteration for known, iteration in self.values if known == name]


def section(**features):
    for feature in features.values():
        feature.setdefault("enabled", True)
    return {"enabled": True, "layers": {"layer_types": ["fc"]}, "transformer_engine": features}


def begin(case, folder, *, dirs=None, first=0, config=None, **features):
    """Lines that are logged from here to the end of the test. features: as in the YAML."""
    lines = Lines()
    groups.SETTINGS.__init__()
    debug_api.initialize(
        config_file=config or {"section": section(**features)},
        feature_dirs=dirs or amaxscope.dlfw_inspect.feature_dirs(),
        statistics_logger=lines, log_dir=folder, init_training_step=first,
    )  # fmt: skip
    case.addCleanup(debug_api.end_debug)
    return lines

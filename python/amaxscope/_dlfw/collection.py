"""What the features have gathered since the last step, and what a step does with it: one exchange with the other ranks, at
iterations that follow from the config alone, in which everything travels by its name. A rank that did not run a layer says
nothing of it and holds nobody up."""

import sys

import nvdlfw_inspect.api as debug_api
from nvdlfw_inspect.config_manager import ConfigManager
from nvdlfw_inspect.logging import MetricLogger, get_logger

from . import config as configs
from . import groups
from .records import Records
from .sums import error_value, merged, moment_value

LOGGING = ("LogTensorStats", "LogFp8TensorStats", "LogNvfp4TensorStats")
MODIFYING = ("PerTensorScaling", "FakeQuant")


class Entry:
    """Of one tensor and one feature: partial results, and the names under which they are reported."""

    def __init__(self, iteration, layer, tensor, ranks):
        self.iteration = iteration
        self.layer = layer
        self.tensor = tensor
        self.ranks = ranks  # of the world that it is over; "group": those of the reduction group
        self.parts = {}  # what -> (kind, result), as sums.merged() takes them
        self.names = []  # (name, what, statistic)
        self.recipe = None
        self.format = None

    def told(self):
        """What other ranks are told."""
        return {
            key: getattr(self, key) for key in ("iteration", "layer", "tensor", "ranks", "parts", "names", "recipe", "format")
        }


class Collection:
    """Of one registration of the features, between initialize() and end_debug()."""

    def __init__(self, off=False):
        self.off = off  # everything stays as if no feature were configured
        self.tp_groups = {}  # layer -> group, from hooks that are told
        self._entries = {}
        self._scales = {}  # (layer, tensor, gemm) -> (scale, ranks of tp)
        self._warned = set()
        self._first_iteration = None
        self._records = None

    # ---- what hooks call

    def learn(self, layer, tp_group):
        if groups.ranks_of(tp_group) is not None:
            self.tp_groups[layer] = tp_group

    def entry(self, feature, layer, tensor, iteration, ranks, stats):
        """Where to put what was measured; None when this tensor is not to be measured again before the next step (a weight in
        later micro-batches)."""
        key = (layer, tensor, feature, repr(stats))
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry(iteration, layer, tensor, ranks)
        elif tensor == "weight":
            return None
        entry.iteration = iteration
        return entry

    def scale(self, layer, tensor, gemm, scale, ranks):
        """The scale that this rank uses: ranks of tp are compared at the first step."""
        if self._first_iteration is None and ranks is not None:
            self._scales.setdefault((layer, tensor, gemm), (scale, ranks))

    def warn(self, text):
        """Once."""
        if text not in self._warned:
            self._warned.add(text)
            say(text)

    # ---- the step

    def step(self):
        """After every debug_api.step(), which has counted the iteration up already."""
        iteration = debug_api.DEBUG_MANAGER._trainer_iteration_count - 1
        if self.off:
            return
        first = self._first_iteration is None
        if first:
            self._first_iteration = iteration
        if not first and not is_due(iteration):
            return
        own = [entry.told() for entry in self._entries.values()]
        self._entries.clear()
        group = debug_api.get_tensor_reduction_group()
        told = groups.gathered({"entries": own, "scales": self._scales if first else {}}, group)
        if first:
            self._begin(iteration, [what["scales"] for _, what in told])
        self._report(iteration, own, told)

    def end(self):
        if self._records is not None:
            self._records.close()
            self._records = None

    def _begin(self, iteration, scales):
        compared, differing = compared_scales(scales)
        said = f"{differing} of {compared}"
        if any_enabled(MODIFYING) or compared:
            say(
                f"scales that differ between tensor-parallel ranks at iteration {iteration}: {said}; "
                f"amax_scope of features: {groups.SETTINGS.amax_scope} unless a feature says otherwise"
            )
        self._scales.clear()
        if groups.SETTINGS.records:
            self._records = Records(iteration, said, [name for name in MODIFYING if any_enabled((name,))])

    def _report(self, iteration, own, told):
        everyone = tuple(rank for rank, _ in told)
        mine = {key_of(entry) for entry in own}
        parts = {}
        for rank, what in told:
            for entry in what["entries"]:
                parts.setdefault(key_of(entry), []).append((rank, entry))
        lines = []
        for key in sorted(parts):
            ranks, entry = _of_ranks(parts[key], everyone)
            values = _values(entry)
            if key in mine:
                for name, value in values:
                    MetricLogger.log_scalar(f"{entry['layer']}_{entry['tensor']}_{name}", value, entry["iteration"])
            lines.append((ranks, entry, values))
        if self._records is not None:
            self._records.write_step(iteration, _once(lines))


def say(text):
    """Into the log of nvidia-dlfw-inspect. Not by its log_message(), which says what comes from one line of a program once."""
    get_logger().log_message(f"amaxscope: {text}")


def is_due(iteration):
    """Whether any logging feature of the config is, on any layer: the same on all ranks, whatever they ran."""
    return any(
        configs.due(schedule, iteration)[0] for feature in enabled_features(LOGGING) for schedule in configs.schedules_of(feature)
    )


def any_enabled(names):
    return next(iter(enabled_features(names)), None) is not None


def enabled_features(names):
    for section in ConfigManager.configs:
        features = section.extension_config.get("transformer_engine") or {}
        for name in names:
            feature = features.get(name)
            if feature and feature.get("enabled"):
                yield feature


def key_of(entry):
    """What is one number, over ranks. Of a weight each tp group has its own."""
    return (entry["layer"], entry["tensor"], repr(entry["names"]), repr(entry["ranks"]))


def compared_scales(scales):
    """(how many scales more than one rank of a tp group has, how many of them differ within one). Data-parallel replicas count
    once."""
    found = {}
    for of_rank in scales:
        for key, (scale, ranks) in of_rank.items():
            found.setdefault(key, {}).setdefault(ranks, []).append(scale)
    shared = [[values for values in by_group.values() if len(values) > 1] for by_group in found.values()]
    return sum(bool(values) for values in shared), sum(any(len(set(one)) > 1 for one in values) for values in shared)


def _of_ranks(parts, everyone):
    """(ranks that it is over, the entry with everybody's partial results)."""
    total = dict(parts[0][1])
    for _, entry in parts[1:]:
        total["parts"] = merged(total["parts"], entry["parts"])
    return (everyone if total["ranks"] == "group" else total["ranks"]), total


def _values(entry):
    """[(name, value)] of what there is a value for."""
    result = []
    for name, what, statistic in entry["names"]:
        kind, part = entry["parts"].get(what, (None, None))
        if kind == "moments":
            value = moment_value(statistic, part)
        elif kind == "error":
            value = error_value(statistic, part)
        else:
            value = part
        if value is not None:
            result.append((name, float(value)))
    return result


def _once(lines):
    """For the files: of replicas of one weight over data-parallel ranks the first, and each number written by the lowest of its
    ranks; two features on one tensor make one record."""
    records, seen = {}, {}
    for ranks, entry, values in sorted(lines, key=lambda line: line[0]):
        tensor = (entry["layer"], entry["tensor"])
        if not values:
            continue
        if seen.setdefault((tensor, repr(entry["names"])), ranks) != ranks or ranks[0] != groups.world_rank():
            continue
        record = records.setdefault((*tensor, ranks), {"entry": entry, "stats": {}})
        record["stats"].update(values)
        for key in ("recipe", "format"):
            record["entry"][key] = record["entry"][key] or entry[key]
    return [(layer, tensor, ranks, record) for (layer, tensor, ranks), record in records.items()]


def weights_are_reduced_over_tp():
    """TransformerEngine's setting of that name."""
    state = sys.modules.get("transformer_engine.debug.pytorch.debug_state")
    return state is None or state.TEDebugState.weight_tensor_tp_group_reduce

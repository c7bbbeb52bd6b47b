"""LogTensorStats, LogFp8TensorStats and LogNvfp4TensorStats for the hooks of TransformerEngine."""

from nvdlfw_inspect.registry import api_method

from . import config as configs
from . import groups, measures
from .collection import weights_are_reduced_over_tp
from .sums import ERRORS, MOMENTS, merged


class Feature:
    """What TransformerEngine's namespace asks of a feature: routing by the config. Who registers it sets `collection`."""

    collection = None
    keys = ()

    def parse_config_and_api(self, config, gemm_parsing=False, tensor_parsing=False, gemm=None, tensor_name=None, **_):
        """(whether the feature is about this GEMM and tensor, its keys there)."""
        if self.collection.off:
            return False, None
        found = configs.selected(config, gemm if gemm_parsing else None, tensor_name if tensor_parsing else None)
        if found is None:
            return False, None
        # A key may be known to the feature and belong to a list of tensors that this hook does not ask about.
        checked = {
            key: value for key, value in found.items() if key not in ("tensors", "tensors_struct", "gemms", "gemms_struct")
        }
        configs.check_keys(checked, type(self).__name__, self.keys)
        return True, found


class LoggingFeature(Feature):
    keys = ("stats",)

    @api_method
    def inspect_tensor_enabled(self, config, layer_name, tensor_name, iteration):
        self.statistics(config["stats"])  # a wrong name is said before anything is measured
        return configs.due(config, iteration)

    @api_method
    def inspect_tensor(
        self,
        config,
        layer_name,
        tensor_name,
        iteration,
        tp_group,
        tensor,
        rowwise_quantized_tensor=None,
        columnwise_quantized_tensor=None,
        quantizer=None,
        tp_size=1,
    ):
        self.collection.learn(layer_name, tp_group)
        operands = {"rowwise": rowwise_quantized_tensor, "columnwise": columnwise_quantized_tensor}
        if tensor is None:  # a weight that exists in FP8 only
            tensor = rowwise_quantized_tensor.dequantize()
            operands = {}
        ranks = _reduced_over(tensor_name, tp_group, tp_size)
        entry = self.collection.entry(type(self).__name__, layer_name, tensor_name, iteration, ranks, config["stats"])
        if entry is None or tensor.numel() == 0:
            return
        parts, names = {}, []
        self.measure(entry, measures.on_host(tensor), tensor_name, config["stats"], operands, quantizer, parts, names)
        entry.parts = merged(entry.parts, parts)
        entry.names = entry.names or names

    def skip(self, layer, tensor, stats, why):
        self.collection.warn(f"{type(self).__name__} of {layer}, {tensor}: {', '.join(stats)} left out: {why}")


def _reduced_over(tensor_name, tp_group, tp_size):
    """As the reference: weights over tp, unless it is told not to; the others over the reduction group."""
    if tensor_name != "weight":
        return "group"
    ranks = groups.ranks_of(tp_group) if tp_size > 1 and weights_are_reduced_over_tp() else None
    return ranks if ranks is not None else (groups.world_rank(),)


class LogTensorStats(LoggingFeature):
    """Statistics of tensors in high precision; docs/dlfw_inspect.md."""

    def statistics(self, stats):
        """[(statistic, block, dims)]; ValueError for one that is not known."""
        return [self._statistic(stat) for stat in stats]

    @staticmethod
    def _statistic(stat):
        if isinstance(stat, dict) and list(stat) == ["max_blockwise_dynamic_range"]:
            given = stat["max_blockwise_dynamic_range"] or {}
            block, dims = given.get("block_size", 32), given.get("dims", 1)
            if set(given) - {"block_size", "dims"} or type(block) is not int or block < 1 or dims not in (1, 2):
                raise ValueError(f"max_blockwise_dynamic_range of {given}; block_size is 1 at least, dims 1 or 2")
            return "max_blockwise_dynamic_range", block, dims
        if stat == "max_blockwise_dynamic_range":
            return stat, 32, 1
        if stat not in MOMENTS:
            raise ValueError(
                f"LogTensorStats has no statistic {stat!r} here; it has {', '.join(MOMENTS)}, max_blockwise_dynamic_range"
            )
        return stat, None, None

    def measure(self, entry, x, tensor_name, stats, operands, quantizer, parts, names):
        entry.recipe = measures.recipe_of(quantizer)
        for name, block, dims in self.statistics(stats):
            if block is None:
                if "moments" not in parts:
                    parts["moments"] = ("moments", measures.moments(x))
                names.append((name, "moments", name))
                continue
            both = tensor_name in ("activation", "weight")
            name = f"{name}_block_size_{block}_dims_{dims}{'_max_over_orientations' if both else ''}"
            parts[name] = ("range", measures.blockwise_range(x, block, dims, both))
            names.append((name, name, None))


class LogFp8TensorStats(LoggingFeature):
    """What quantization did, and what other recipes would do; docs/dlfw_inspect.md."""

    recipes = ("fp8_delayed_scaling", "fp8_current_scaling", "mxfp8", "fp8_block_scaling")
    prefix = ""

    def statistics(self, stats):
        """[(name in the log, recipe or None: the running one, statistic, direction)]."""
        return [(f"{self.prefix}{stat}", *self._statistic(stat)) for stat in stats]

    def _statistic(self, stat):
        if not isinstance(stat, str):
            raise ValueError(f"{type(self).__name__} has no statistic {stat!r}")
        name, direction = stat, "rowwise"
        if name.endswith("_columnwise"):
            name, direction = name[: -len("_columnwise")], "columnwise"
        recipe = next((recipe for recipe in self.recipes if name.startswith(recipe + "_")), None)
        if recipe is not None:
            name = name[len(recipe) + 1 :]
        if name not in ERRORS:
            raise ValueError(
                f"{type(self).__name__} has no statistic {stat!r} here; it has {', '.join(ERRORS)}, also with "
                f"{'_, '.join(self.recipes)}_ before and _columnwise after it"
            )
        return recipe, name, direction

    def measure(self, entry, x, tensor_name, stats, operands, quantizer, parts, names):
        running = measures.recipe_of(quantizer)
        entry.recipe = running
        skipped = {}
        for name, recipe, statistic, direction in self.statistics(stats):
            what = f"{recipe or ''} {direction}"
            if what not in parts and what not in skipped:
                found, why = self._error(entry, x, tensor_name, recipe, direction, operands.get(direction), quantizer)
                if found is None:
                    skipped[what] = why
                else:
                    parts[what] = ("error", found)
            if what in parts:
                names.append((name, what, statistic))
            else:
                self.skip(entry.layer, tensor_name, [name], skipped[what])

    def _error(self, entry, x, tensor_name, recipe, direction, operand, quantizer):
        """(partial result or None, why not)."""
        running = measures.recipe_of(quantizer)
        wanted = recipe or running
        if wanted is None:
            return None, "the layer runs in high precision; a statistic with a recipe before it says what that would do"
        if wanted not in self.recipes:
            return None, f"the running recipe is {wanted}"
        form = measures.format_of(quantizer, wanted, tensor_name)
        if wanted == running and wanted in ("fp8_delayed_scaling", "fp8_current_scaling"):
            found = measures.error_of_operand(x, operand, wanted, form)
            if found is not None:
                entry.format = form
                ranks = groups.ranks_of(self.collection.tp_groups.get(entry.layer))
                self.collection.scale(entry.layer, tensor_name, "recipe", found["scale_max"], ranks)
                return found, ""
            if recipe is None or wanted == "fp8_delayed_scaling":
                return None, "the operand of this GEMM is not in FP8"
        if wanted == "fp8_delayed_scaling":
            return None, "delayed scaling as a what-if needs a history; `amaxscope replay` of a dump has one"
        if wanted == running and recipe is None:
            if not hasattr(operand, "dequantize") or type(operand).__module__.startswith("torch"):
                return None, "the operand of this GEMM is not quantized"
            entry.format = form
        return measures.error_of_recipe(x, wanted, tensor_name, form, direction), ""


class LogNvfp4TensorStats(LogFp8TensorStats):
    """The same for NVFP4, under any running recipe."""

    recipes = ("nvfp4",)
    prefix = "nvfp4_"

    def _statistic(self, stat):
        _, name, direction = super()._statistic(stat)
        return "nvfp4", name, direction

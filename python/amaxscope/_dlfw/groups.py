"""Which ranks belong together, by process groups of torch.distributed, and what they tell one another."""

import sys

import torch
import torch.distributed as dist


class Settings:
    """What amaxscope.dlfw_inspect.configure() has set; the defaults are what the reference does."""

    def __init__(self):
        self.amax_scope = "local"
        self.tp_group = None
        self.records = True


SETTINGS = Settings()


def is_distributed():
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def world_rank():
    return dist.get_rank() if is_distributed() else 0


def world_size():
    return dist.get_world_size() if is_distributed() else 1


def ranks_of(group):
    """World ranks; None of one rank or no group."""
    if not is_distributed() or group is None:
        return None
    ranks = tuple(dist.get_process_group_ranks(group))
    return ranks if len(ranks) > 1 else None


def tp_group_of(layer_name, learned):
    """The tensor-parallel group of a layer, for hooks that are not told it: what configure() said, what a hook that is told has
    learned of the layer, Megatron's own. None: there is none, or it is not known."""
    if SETTINGS.tp_group is not None:
        return SETTINGS.tp_group
    if layer_name in learned:
        return learned[layer_name]
    megatron = sys.modules.get("megatron.core.parallel_state")
    if megatron is not None and megatron.model_parallel_is_initialized():
        if ".experts." in layer_name and hasattr(megatron, "get_expert_tensor_parallel_group"):
            return megatron.get_expert_tensor_parallel_group()
        return megatron.get_tensor_model_parallel_group()
    return None


def largest(value, group, like):
    """MAX of a float over a group, each rank with its own; collective."""
    device = like.device if dist.get_backend(group) == "nccl" else torch.device("cpu")
    shared = torch.tensor([value], dtype=torch.float32, device=device)
    dist.all_reduce(shared, dist.ReduceOp.MAX, group=group)
    return float(shared)


def gathered(what, group):
    """[(world rank, what that rank has)] by rank; collective. group None: the world."""
    if not is_distributed():
        return [(0, what)]
    ranks = ranks_of(group if group is not None else dist.group.WORLD)
    if ranks is None:
        return [(dist.get_rank(), what)]
    parts = [None] * len(ranks)
    dist.all_gather_object(parts, what, group=group)
    return sorted(zip(ranks, parts), key=lambda part: part[0])

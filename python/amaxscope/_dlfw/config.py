"""What a feature's mapping in the YAML says for one tensor and GEMM, and when it is due (docs/config.md, sections 3 and 4)."""

import copy

GEMMS = ("fprop", "dgrad", "wgrad")
TENSORS = ("activation", "weight", "gradient", "output", "wgrad", "dgrad")
SCHEDULE = ("freq", "start_step", "end_step", "start_end_list")


def selected(config, gemm=None, tensor=None):
    """The keys that hold for a GEMM and a tensor (None: of any), without the lists that chose them; None when they are not
    chosen. The first entry of a struct counts; it overlays what stands around it, and wins over the plain list."""
    config = copy.deepcopy(dict(config))
    config.pop("enabled", None)
    for kind, wanted, allowed in (("gemm", gemm, GEMMS), ("tensor", tensor, TENSORS)):
        if wanted is None:
            continue
        config = _chosen(config, kind, wanted, allowed)
        if config is None:
            return None
    return config


def _chosen(config, kind, wanted, allowed):
    entries, names = config.pop(f"{kind}s_struct", None), config.pop(f"{kind}s", None)
    if entries is not None:
        for entry in entries:
            if "enabled" in entry:
                raise ValueError(f"`enabled` inside of {kind}s_struct; it belongs to the feature")
            if _known(entry[kind], kind, allowed) == wanted:
                config.update(entry)
                return config
        return None
    if names is None:
        raise ValueError(f"a feature needs `{kind}s` or `{kind}s_struct`")
    names = [names] if isinstance(names, str) else names
    if wanted not in [_known(name, kind, allowed) for name in names]:
        return None
    config[kind] = wanted
    return config


def _known(name, kind, allowed):
    if name not in allowed:
        raise ValueError(f"{kind} {name!r}; allowed are {', '.join(allowed)}")
    return name


def check_keys(config, feature, allowed):
    for key in config:
        if key not in allowed and key not in SCHEDULE and key not in ("gemm", "tensor"):
            raise ValueError(f"unknown key {key!r} in {feature}; allowed are {', '.join((*allowed, *SCHEDULE))}")


def intervals_of(config):
    """[(first, last)], both included; last None: no end."""
    pairs = config.get("start_end_list")
    if pairs is None:
        pairs = [(config.get("start_step"), config.get("end_step"))]
    return sorted((int(start or 0), None if end is None or end == -1 else int(end)) for start, end in pairs)


def due(config, iteration):
    """(whether it is due now, the next iteration at which it is; None: never)."""
    freq = int(config.get("freq") or 1)
    if freq < 1:
        raise ValueError(f"freq is {freq}; it is 1 at least")
    now, following = False, None
    for first, last in intervals_of(config):
        if iteration % freq == 0 and first <= iteration and (last is None or iteration <= last):
            now = True
        candidate = -(-max(iteration + 1, first) // freq) * freq
        if (last is None or candidate <= last) and (following is None or candidate < following):
            following = candidate
    return now, following


def schedules_of(config):
    """The mappings with schedules in a feature's mapping: of itself and of every struct entry, overlaid."""
    entries = [dict(config)]
    for kind in ("gemms_struct", "tensors_struct"):
        entries = [
            {**{key: value for key, value in entry.items() if key != kind}, **inner}
            for entry in entries
            for inner in entry.get(kind) or [{}]
        ]
    return entries

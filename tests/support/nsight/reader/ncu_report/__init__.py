"""A stand-in for NVIDIA's reader, for machines without Nsight Compute: its calls, over what `bin/ncu` writes."""

import json
from pathlib import Path


class IAction:
    NameBase_DEMANGLED, NameBase_MANGLED = 2, 3

    def __init__(self, kernel):
        self._kernel = kernel

    def name(self, base=0):
        return self._kernel["name"]

    def metric_names(self):
        return [*self._kernel["metrics"], *self._kernel["instances"]]

    def metric_by_name(self, name):
        if name in self._kernel["instances"]:
            return IMetric(sum(self._kernel["instances"][name].values()), self._kernel["instances"][name])
        return IMetric(self._kernel["metrics"][name]) if name in self._kernel["metrics"] else None

    def nvtx_state(self):
        return INvtx(self._kernel["ranges"]) if self._kernel["ranges"] else None

    def rule_results_as_dicts(self):
        return self._kernel["rules"]

    def source_files(self):
        return self._kernel["files"]

    def source_info(self, address):
        return ISource(*self._kernel["places"][str(address)]) if str(address) in self._kernel["places"] else None

    def sass_by_pc(self, address):
        return "      LDG.E R0,   [R2.64]"


class IMetric:
    def __init__(self, value, instances=None):
        self._value, self._instances = value, list((instances or {}).items())

    def value(self, index=None):
        if index is not None:
            return self._instances[index][1]
        return float("nan") if self._value == "nan" else self._value

    def unit(self):
        return ""

    def num_instances(self):
        return len(self._instances)

    def has_correlation_ids(self):
        return bool(self._instances)

    def correlation_ids(self):
        return Addresses([int(address) for address, _ in self._instances])


class Addresses:
    def __init__(self, addresses):
        self._addresses = addresses

    def value(self, index):
        return self._addresses[index]


class INvtx:
    def __init__(self, ranges):
        self._ranges = ranges

    def domains(self):
        return (0,)

    def domain_by_id(self, number):
        return self

    def push_pop_ranges(self):
        return tuple(self._ranges)


class ISource:
    def __init__(self, file, line):
        self._file, self._line = file, line

    def file_name(self):
        return self._file

    def line(self):
        return self._line


class IContext:
    def __init__(self, kernels):
        self._kernels = kernels

    def get_version(self):
        return "2026.3.1"

    def num_ranges(self):
        return 1 if self._kernels else 0

    def range_by_idx(self, index):
        return self

    def num_actions(self):
        return len(self._kernels)

    def action_by_idx(self, index):
        return IAction(self._kernels[index])


def load_report(path):
    _, _, body = Path(path).read_bytes().partition(b"\n")
    try:
        return IContext(json.loads(body))
    except ValueError:  # as the real one: a report that is cut short holds nothing
        return IContext([])

"""A small problem, an honest kernel for it, and a real server over stdio to judge it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

from tests.support.paths import ROOT

SCALE_ADD = """
import torch, torch.nn as nn

class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(256))

    def forward(self, x, y):
        return x * self.scale + y + self.bias

def get_inputs():
    return [torch.randn(64, 256), torch.randn(64, 256)]

def get_init_inputs():
    return [1.5]
"""

HONEST = '''
import torch, torch.nn as nn, tvm_ffi.cpp
SOURCE = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView b, tvm::ffi::TensorView o, double s) {
  const float *p = static_cast<const float*>(x.data_ptr()), *q = static_cast<const float*>(y.data_ptr());
  const float* c = static_cast<const float*>(b.data_ptr()); float* d = static_cast<float*>(o.data_ptr());
  int64_t n = b.numel();
  for (int64_t i = 0; i < x.numel(); ++i) d[i] = p[i] * (float)s + q[i] + c[i % n];
}
"""
kernel = tvm_ffi.cpp.load_inline("scale_add", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])

class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(256))

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(x, y, self.bias.detach(), out, self.scale)
        return out
'''

TOLD = """#include <Python.h>
#include <cmath>
#include <cstdint>
static long long number(PyObject* found) {
  long long number = PyLong_AsLongLong(found);
  Py_DECREF(found);
  return number;
}
static long long told(PyObject* tensor, const char* method) {
  return number(PyObject_CallMethod(tensor, method, nullptr));
}
static long long width(PyObject* tensor) { return number(PyObject_CallMethod(tensor, "size", "i", -1)); }
"""
"""What C++ without torch's or tvm's headers asks tensors for: those take the compiler two seconds."""
MODULE = """
static PyMethodDef methods[] = {{"run", run, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "quick", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_quick() { return PyModule_Create(&module); }
"""
"""The Python module of a function `run`."""

QUICK = f'''
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
SOURCE = r"""
{TOLD}static PyObject* run(PyObject*, PyObject* args) {{
  PyObject *x, *y, *b, *o; double s;
  if (!PyArg_ParseTuple(args, "OOOOd", &x, &y, &b, &o, &s)) return nullptr;
  const float *p = (const float*)told(x, "data_ptr"), *q = (const float*)told(y, "data_ptr");
  const float* c = (const float*)told(b, "data_ptr"); float* d = (float*)told(o, "data_ptr");
  int64_t m = told(x, "numel"), n = told(b, "numel");
  for (int64_t i = 0; i < m; ++i) d[i] = p[i] * (float)s + q[i] + c[i % n];
  Py_RETURN_NONE;
}}{MODULE}"""
kernel = load_inline("quick", SOURCE, no_implicit_headers=True, extra_cflags=["-O3"])

''' + HONEST[HONEST.index("class ModelNew") :]
"""HONEST in quick C++; its loop and its Python are the same."""


def server_parameters(cache: Path) -> StdioServerParameters:
    passed_on = {k: v for k, v in os.environ.items() if not k.endswith("_KEY")}
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
    env = passed_on | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": path}
    return StdioServerParameters(command=sys.executable, args=["-m", "ncu_server"], env=env, cwd=str(cache))


class Server:
    """The tools as functions; `cache` is the folder that it was started in and keeps its files in."""

    def __init__(self, client: Client, cache: Path | None = None) -> None:
        self.client, self.cache = client, cache

    async def call(self, tool: str, /, **arguments: Any) -> CallToolResult:
        return await self.client.call_tool(tool, arguments)

    async def evaluate(self, candidate: str, problem: str = SCALE_ADD, **more: Any) -> dict[str, Any]:
        answer = await self.call("evaluate_kernel", candidate=candidate, problem=problem, target="cpu", **more)
        assert not answer.is_error, answer.content
        assert answer.structured_content is not None
        return answer.structured_content

    async def refusal(self, tool: str, /, **arguments: Any) -> str:
        answer = await self.call(tool, **arguments)
        assert answer.is_error
        return str(getattr(answer.content[0], "text", ""))


@asynccontextmanager
async def opened(parameters: StdioServerParameters) -> AsyncIterator[Server]:
    """A server for a fixture: opened and closed by one task of its own, as the SDK asks."""
    client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def hold() -> None:
        async with Client(parameters) as found:
            client.set_result(found)
            await done.wait()

    task = asyncio.create_task(hold())
    await asyncio.wait((task, client), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    yield Server(await client, Path(parameters.cwd or "."))
    done.set()
    await task


def command(pid: int) -> list[bytes]:
    """The command line of a process, empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants(pid: int) -> set[int]:
    """All processes below `pid`, from /proc."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] != "Z":
            parents[int(stat.parent.name)] = int(fields[1])
    found: set[int] = set()
    while more := {p for p, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found

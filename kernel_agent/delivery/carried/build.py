# ---- How the kernel is built: as it was when it was verified. ----
import contextlib as _ka_contextlib
import hashlib as _ka_hashlib
from importlib import import_module as _ka_import_module, util as _ka_util
import os as _ka_os
import platform as _ka_platform
import shutil as _ka_shutil
import sys as _ka_sys
import tempfile as _ka_tempfile

import torch as _ka_torch

_KA_ODD = set(" $:;,'\"`()[]{}<>|&#*?!\\")  # ninja and the compilers split what they are told at these


def _ka_place(device=None):
    """Raise ImportError in one sentence where this machine, or this GPU, is not what the kernel was verified on."""
    verified = f"This kernel was verified on {_KA_DEVICE} ({_KA_ARCH})"
    if _KA_TARGET == "cpu":
        level = _ka_torch.backends.cpu.get_cpu_capability()
        levels = ("DEFAULT", "AVX2", "AVX512")
        lower = {level, _KA_LEVEL} <= set(levels) and levels.index(level) < levels.index(_KA_LEVEL)
        if _ka_platform.machine() != _KA_ARCH.partition("-")[0] or lower:
            raise ImportError(f"{verified}; this machine is {_ka_platform.machine()} with {level}: find one for it.")
        return
    if not _ka_torch.cuda.is_available():
        raise ImportError(f"{verified}; no CUDA device is visible here.")
    here = "sm_%d%d" % _ka_torch.cuda.get_device_capability(device)
    if here != _KA_ARCH:
        name = _ka_torch.cuda.get_device_name(device)
        raise ImportError(f"{verified}; the GPU here is {name} ({here}): find one for it.")


def _ka_toolkit():
    """Where CUDA's compiler lies: CUDA_HOME, else the usual folder, else beside the nvcc on PATH."""
    named = _ka_os.environ.get("CUDA_HOME") or _ka_os.environ.get("CUDA_PATH")
    found = _ka_shutil.which("nvcc")
    beside = _ka_os.path.dirname(_ka_os.path.dirname(_ka_os.path.realpath(found))) if found else ""
    for home in filter(None, (named, beside, "/usr/local/cuda")):
        if _ka_os.path.exists(_ka_os.path.join(home, "bin", "nvcc")) and home != "/usr/local":
            return home
    if found:
        return beside
    raise ImportError("CUDA's compiler nvcc builds this kernel and is not here; install it or set CUDA_HOME.")


def _ka_can_write(place):
    while not _ka_os.path.exists(place):
        place = _ka_os.path.dirname(place)
    return _ka_os.access(place, _ka_os.W_OK)


def _ka_spare():
    """A folder of this user's own among temporary files."""
    places = [_ka_tempfile.gettempdir(), "/tmp", "/var/tmp"]
    place = next((one for one in places if not _KA_ODD & set(one) and _ka_can_write(one)), places[0])
    return _ka_os.path.join(place, f"kernel-agent-{_ka_os.getuid()}")


def _ka_settings():
    """The environment of the build."""
    settings = dict(_KA_BUILD)
    if _KA_TARGET == "cuda":
        home = _ka_toolkit()
        places = [f"{home}/lib64", f"{home}/lib", _ka_os.environ.get("LIBRARY_PATH", "")]
        settings |= {"CUDA_HOME": home, "LIBRARY_PATH": ":".join(filter(None, places))}
    for name, usual in (("TVM_FFI_CACHE_DIR", "tvm-ffi"), ("TORCH_EXTENSIONS_DIR", "torch_extensions")):
        place = _ka_os.environ.get(name) or _ka_os.path.join(_ka_os.path.expanduser("~/.cache"), usual)
        if _KA_ODD & set(place) or not _ka_can_write(place):
            settings[name] = _ka_os.path.join(_ka_spare(), usual)
    return settings


def _ka_linked(path):
    """The path by a link to its folder where it is one that ninja and the compilers would split."""
    if not _KA_ODD & set(path):
        return path
    folder, name = _ka_os.path.split(path)
    link = _ka_os.path.join(_ka_spare(), "names", _ka_hashlib.sha256(_ka_os.fsencode(folder)).hexdigest()[:16])
    _ka_os.makedirs(_ka_os.path.dirname(link), exist_ok=True)
    with _ka_contextlib.suppress(FileExistsError):
        _ka_os.symlink(folder, link)
    return _ka_os.path.join(link, name)


def _ka_folders():
    """What tells a binding where it is installed, with what it is to tell instead, where that path is an odd one."""
    for module, names in (
        ("torch.utils.cpp_extension", ("_TORCH_PATH", "TORCH_LIB_PATH")),
        ("tvm_ffi.cpp.extension", ("find_include_path", "find_dlpack_include_path", "find_libtvm_ffi")),
    ):
        spec = _ka_util.find_spec(module.partition(".")[0])
        place = spec.origin if spec and spec.origin else ""
        if not _KA_ODD & set(place + _ka_os.path.realpath(place or "/")):
            continue
        owner = _ka_import_module(module)
        for name in names:
            found = getattr(owner, name)
            path = _ka_linked(found() if callable(found) else found)
            yield owner, name, (lambda *_, path=path: path) if callable(found) else path


class _ka_Judged:
    """Within it the environment is that of the verified build, and the arguments of who imports this are hidden."""

    def __init__(self):
        self.settings = _ka_settings()

    def __enter__(self):
        self.before = {name: _ka_os.environ.get(name) for name in self.settings}
        self.arguments, _ka_sys.argv = _ka_sys.argv, _ka_sys.argv[:1]
        _ka_os.environ.update(self.settings)
        self.found = []
        for owner, name, instead in _ka_folders():
            self.found.append((owner, name, getattr(owner, name)))
            setattr(owner, name, instead)

    def __exit__(self, *fault):
        for owner, name, value in self.found:
            setattr(owner, name, value)
        for name, value in self.before.items():
            if value is None:
                _ka_os.environ.pop(name, None)
            else:
                _ka_os.environ[name] = value
        _ka_sys.argv = self.arguments


if _KA_TARGET == "cpu" or not _KA_GUARDED:  # else the first call looks at the GPU of its inputs
    _ka_place()
_ka_as_judged = _ka_Judged()

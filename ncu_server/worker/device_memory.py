"""Device memory that processes share by descriptor: the driver's virtual memory management.

An allocation is made in one process, exported as a descriptor and mapped in others; it lasts as long as a descriptor
or a mapping does. The functions and their structures are those of CUDA's driver API, "Virtual Memory Management".
"""

from __future__ import annotations

import ctypes
import functools
import os
import stat
from collections.abc import Sequence

import torch

from ncu_server.worker import driver
from ncu_server.worker.driver import DriverError

PINNED, POSIX_DESCRIPTOR, ON_DEVICE, READ_WRITE = 1, 1, 1, 3  # cuda.h: CU_MEM_ALLOCATION_TYPE_PINNED, ...
_handed: dict[int, tuple[int, int]] = {}
_synchronize, _as_tensor = torch.cuda.synchronize, torch.as_tensor  # bound before any candidate's code


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


def _location() -> Location:
    return Location(ON_DEVICE, torch.cuda.current_device())


def _properties() -> Properties:
    return Properties(PINNED, POSIX_DESCRIPTOR, _location())


@functools.cache
def _granularity() -> int:
    size = ctypes.c_size_t()
    driver.call("cuMemGetAllocationGranularity", ctypes.byref(size), ctypes.byref(_properties()), 0)
    return size.value


def _whole(size: int) -> int:
    """The bytes of an allocation that holds `size`."""
    return -(-size // _granularity()) * _granularity()


class Mapping:
    """An allocation in this process's address space, until nothing refers to it; torch takes it for an array."""

    def __init__(self, handle: ctypes.c_uint64, size: int) -> None:
        self._size, self._address = _whole(size), ctypes.c_uint64()
        room = ctypes.c_size_t(self._size)
        driver.call("cuMemAddressReserve", ctypes.byref(self._address), room, ctypes.c_size_t(0), ctypes.c_uint64(0), 0)
        try:
            driver.call("cuMemMap", self._address, room, ctypes.c_size_t(0), handle, 0)
            access = Access(_location(), READ_WRITE)
            driver.call("cuMemSetAccess", self._address, room, ctypes.byref(access), ctypes.c_size_t(1))
        except BaseException:
            driver.library().cuMemAddressFree(self._address, room)
            raise
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (self._address.value, False),
            "strides": None,
            "version": 3,
        }

    def __del__(self) -> None:
        if hasattr(self, "__cuda_array_interface__"):
            _synchronize()
            room = ctypes.c_size_t(self._size)
            driver.library().cuMemUnmap(self._address, room)
            driver.library().cuMemAddressFree(self._address, room)


def _mapped(handle: ctypes.c_uint64, size: int) -> torch.Tensor:
    """The first `size` bytes of an allocation; the handle is given back, the mapping keeps the memory."""
    try:
        return _as_tensor(Mapping(handle, size), device="cuda")
    finally:
        driver.library().cuMemRelease(handle)


def _created(size: int) -> ctypes.c_uint64:
    handle, properties, room = ctypes.c_uint64(), _properties(), ctypes.c_size_t(_whole(size))
    driver.call("cuMemCreate", ctypes.byref(handle), room, ctypes.byref(properties), ctypes.c_uint64(0))
    return handle


def make(size: int) -> tuple[int, torch.Tensor]:
    """A new allocation: its descriptor, which the caller closes, and its bytes.

    Raises OutOfMemoryError where the device has no room, DriverError where it exports none.
    """
    torch.cuda.init()
    try:
        handle = _created(size)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()  # the driver does not know what torch keeps for later
        handle = _created(size)
    descriptor = ctypes.c_int()
    try:
        driver.call(
            "cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, POSIX_DESCRIPTOR, ctypes.c_uint64(0)
        )
    except BaseException:
        driver.library().cuMemRelease(handle)
        raise
    room = _mapped(handle, _whole(size))
    room[size:].zero_()
    return descriptor.value, room[:size]


def opened(descriptor: int, size: int) -> torch.Tensor:
    """The first `size` bytes of an allocation that another process has made. Raises DriverError where it has fewer."""
    torch.cuda.init()
    handle = ctypes.c_uint64()
    driver.call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), POSIX_DESCRIPTOR)
    return _mapped(handle, size)


def is_shared(descriptor: int) -> bool:
    """Whether a descriptor is that of device memory, and not of a file."""
    return not stat.S_ISREG(os.fstat(descriptor).st_mode)


def hand(place: int, descriptor: int, room: int) -> None:
    """Let the server have an allocation in place of the memory behind the descriptor `place`, with the next answer."""
    _handed[place] = descriptor, room


def handed(descriptors: Sequence[int]) -> list[tuple[int, int, int]]:
    """What is to go with an answer: the number of the memory that it stands for, its descriptor, its bytes."""
    given = [(descriptors.index(place), *what) for place, what in _handed.items()]
    _handed.clear()
    return given


@functools.cache
def refusal() -> str | None:
    """In words, why this driver shares no memory by descriptor; None where it does."""
    try:
        descriptor, room = make(1)
        room.fill_(1)
        os.close(descriptor)
    except (OSError, AttributeError, DriverError) as fault:
        return str(fault)
    return None

// See types.h; where the host's compiler reads it, with the bindings for Python.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <iomanip>
#include <list>
#include <queue>
#include <stack>

#include <torch/types.h>

#include <torch/version.h>

#ifndef __CUDACC__
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#endif

// See types.h; with the bindings for Python.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <iomanip>
#include <list>
#include <queue>
#include <stack>

#include <torch/types.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

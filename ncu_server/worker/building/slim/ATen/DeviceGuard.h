// Without lists of tensors, which bring the interpreter's values with them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

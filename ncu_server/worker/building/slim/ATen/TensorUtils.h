// Left empty: every header of an operator includes it and none that torch/types.h takes needs it.
#pragma once

#include <ATen/core/Tensor.h>

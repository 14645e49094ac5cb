// See torch/types.h.
#pragma once

#include <torch/types.h>

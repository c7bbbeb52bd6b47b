// A header that looks up.
#pragma once
#include "kernels/amax.hpp"

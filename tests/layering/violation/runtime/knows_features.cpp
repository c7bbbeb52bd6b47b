#include "features/builtin.hpp"
#include "registry.hpp"

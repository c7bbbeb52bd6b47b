#include "features/first.hpp"
#include "features/second.hpp"

// What operators need from the device layer.
#pragma once

#include "allocator.h"
#include "generator.h"
#include "guard.h"
#include "stream.h"

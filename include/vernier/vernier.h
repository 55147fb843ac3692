// All of Vernier's public API: open a model, submit a request, iterate its token events, cancel.
#pragma once

#include "vernier/device.h"
#include "vernier/engine.h"
#include "vernier/error.h"
#include "vernier/model.h"
#include "vernier/sampling.h"
#include "vernier/tokenizer.h"
#include "vernier/version.h"

// All of poise in one include: attention, its statistics, their explanation, the report's model.
// Programs that need less include less: every header here stands alone. Linking poise::poise is
// enough for everything but report.h and run_log.h, whose functions live in poise::report.
#pragma once

#include <poise/advice.h>
#include <poise/attention.h>
#include <poise/cpu.h>
#include <poise/error.h>
#include <poise/executor.h>
#include <poise/gradient.h>
#include <poise/health.h>
#include <poise/limits.h>
#include <poise/plan.h>
#include <poise/report.h>
#include <poise/run_log.h>
#include <poise/series.h>
#include <poise/stats.h>
#include <poise/tangent.h>
#include <poise/tensor.h>
#include <poise/theory.h>
#include <poise/whatif.h>

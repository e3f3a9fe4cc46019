/* Writes sizes and times as people read them. */
#ifndef MILLRACE_COMMON_BASE_UNITS_H
#define MILLRACE_COMMON_BASE_UNITS_H

#include "common/base/str.h"

void units_add_size(struct str *out, double bytes);       /* "512 B", "4.0 MiB" */
void units_add_duration(struct str *out, double seconds); /* "53.5 ms", "2 h 5 min", "−3 µs" */

#endif

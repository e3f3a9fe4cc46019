/* The program that a pattern becomes. For regex*.c only. */
#ifndef MILLRACE_KERNELS_CPU_REGEX_INTERNAL_H
#define MILLRACE_KERNELS_CPU_REGEX_INTERNAL_H

#include "kernels/cpu/regex.h"

enum { REGEX_MAX_CHAR = 0x10ffff, REGEX_MAX_STEPS = 100000, REGEX_MAX_REPEAT = 1000, REGEX_MAX_DEPTH = 200 };

struct regex_range {
    uint32_t low, high;
};

enum regex_step_kind {
    STEP_CHAR,  /* a character in ranges[first .. first + n) */
    STEP_SPLIT, /* go on at both x and y */
    STEP_JUMP,  /* at x */
    STEP_CHECK, /* if the place is one (x: enum regex_place) */
    STEP_END,
};

enum regex_place { PLACE_BEGIN, PLACE_END, PLACE_LINE_BEGIN, PLACE_LINE_END, PLACE_WORD, PLACE_NO_WORD };

struct regex_step {
    enum regex_step_kind kind;
    int x, y; /* STEP_CHAR: first, n */
};

struct regex {
    struct regex_step *steps;
    struct regex_range *ranges;
    int n_steps, steps_capacity, n_ranges, ranges_capacity;
};

#endif

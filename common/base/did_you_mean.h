/* Finds the name that somebody who mistyped one may have meant, for messages. Any thread. */
#ifndef MILLRACE_COMMON_BASE_DID_YOU_MEAN_H
#define MILLRACE_COMMON_BASE_DID_YOU_MEAN_H

#include "common/base/str.h"

/* The best name so far. All zero at the start, but for `typed`. */
struct did_you_mean {
    struct span typed;
    const char *best; /* borrowed; NULL: no name is near */
    int distance;
};

/* Looks at one more name. A name is near if at most a third of the letters, and one at least, have
 * to be typed, left out, changed or swapped with the next one. */
void did_you_mean_try(struct did_you_mean *guess, const char *name);
/* Appends ", did you mean PREFIX+NAME?", or nothing. */
void did_you_mean_add(const struct did_you_mean *guess, const char *prefix, struct str *out);

#endif

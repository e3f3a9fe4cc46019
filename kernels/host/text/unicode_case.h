/* Tables of Unicode's case mappings (generated: unicode_case.c), sorted by code point, for
 * utf8.c. */
#ifndef MILLRACE_KERNELS_HOST_TEXT_UNICODE_CASE_H
#define MILLRACE_KERNELS_HOST_TEXT_UNICODE_CASE_H

#include <stddef.h>
#include <stdint.h>

/* first, first + step, … last: each becomes itself plus distance. */
struct case_run {
    uint32_t first, last;
    int32_t step, distance;
};
/* One becomes several; 0 ends the list. */
struct case_special {
    uint32_t code, to[3];
};
struct code_range {
    uint32_t first, last;
};

extern const struct case_run unicode_lower_runs[], unicode_upper_runs[];
extern const size_t n_unicode_lower_runs, n_unicode_upper_runs;
extern const struct case_special unicode_lower_specials[], unicode_upper_specials[];
extern const size_t n_unicode_lower_specials, n_unicode_upper_specials;
/* What decides whether a sigma is a word's last letter. */
extern const struct code_range unicode_cased[], unicode_case_ignorable[];
extern const size_t n_unicode_cased, n_unicode_case_ignorable;

#endif

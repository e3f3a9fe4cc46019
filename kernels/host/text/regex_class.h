/* Classes of characters: ASCII's by their ranges, Unicode's by their names in PCRE2. For
 * regex*.c only. */
#ifndef MILLRACE_KERNELS_HOST_TEXT_REGEX_CLASS_H
#define MILLRACE_KERNELS_HOST_TEXT_REGEX_CLASS_H

#include "common/base/str.h"

struct ascii_class {
    const char *name;
    /* pairs of first and last, ascending; NUL first where the class begins at it */
    const char *ranges;
    int n_ranges;
};

/* `\d` and its kin by their letter, of either case; NULL for others. */
const struct ascii_class *ascii_class_of_escape(char letter);
const struct ascii_class *ascii_class_find(struct span name); /* "alpha"; NULL when there is none */
/* Appends the members for use between [ and ]. `ignores_case`: what the complement leaves out is
 * closed under case. */
void ascii_class_add(const struct ascii_class *class, bool is_negated, bool ignores_case,
                     struct str *out);
void regex_add_range(struct str *out, uint32_t low, uint32_t high);

/* Appends the members of a Unicode class for use between [ and ]: `name` is "L", "Lu", "Greek",
 * "Any". 1: done; 0: no such class; -1: PCRE2 has no words for its complement there. */
int unicode_class_add(struct span name, bool is_negated, bool ignores_case, struct str *out);

#endif

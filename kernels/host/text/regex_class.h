/* Writes classes of characters for PCRE2: ASCII's by their ranges, Unicode's by their names. */
#ifndef MILLRACE_KERNELS_HOST_TEXT_REGEX_CLASS_H
#define MILLRACE_KERNELS_HOST_TEXT_REGEX_CLASS_H

#include "common/base/str.h"

struct ascii_class {
    const char *name;
    /* pairs of a first and a last character, ascending; n_ranges pairs, since NUL may be one */
    const char *ranges;
    int n_ranges;
};

/* Finds the class of an escape such as `\d` by its letter, of either case; NULL for other
 * letters. */
const struct ascii_class *ascii_class_of_escape(char letter);
/* by name, as "alpha"; NULL for other names */
const struct ascii_class *ascii_class_find(struct span name);
/* Appends the class's members for use between [ and ]. With `ignores_case` the characters that the
 * complement leaves out include both cases. */
void ascii_class_add(const struct ascii_class *class, bool is_negated, bool ignores_case,
                     struct str *out);
void regex_add_range(struct str *out, uint32_t low, uint32_t high);

/* Appends the members of a Unicode class for use between [ and ]. `name` is for example "L", "Lu",
 * "Greek" or "Any". Returns 1 on success, 0 when there is no such class, -1 when PCRE2 cannot
 * express its complement there. */
int unicode_class_add(struct span name, bool is_negated, bool ignores_case, struct str *out);

#endif

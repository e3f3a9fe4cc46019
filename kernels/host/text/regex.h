/* Regular expressions in RE2's syntax and meaning, run by PCRE2.
 *
 * A pattern is parsed as RE2 parses it (regex_translate.c: what RE2 refuses is refused) and
 * written anew for PCRE2, with every construct in which the two differ spelt out: the places ^ $
 * \A \z, ASCII classes, \Q…\E, (?s) (?m) (?U), repetition of places, scripts. Characters are
 * those of UTF-8; ill-formed bytes match nothing.
 *
 * PCRE2 backtracks. A whole match that takes too many steps is asked again of PCRE2's automaton,
 * which does not; a search that does ends with RESOURCE_EXHAUSTED. No pattern hangs a step.
 *
 * tests/differential/fuzz_regex.py counts what differs from TensorFlow. Of 10,000 random
 * patterns: whole matches, none; replacements, 6 (a loop whose body may be empty; (?i) with \p
 * of one case), and \B, which holds between the bytes of a character there.
 *
 * Not there: single bytes (\C), and a negated \pC inside of [ ]: UNIMPLEMENTED. */
#ifndef MILLRACE_KERNELS_HOST_TEXT_REGEX_H
#define MILLRACE_KERNELS_HOST_TEXT_REGEX_H

#include "common/base/status.h"
#include "common/base/str.h"

struct regex;

enum regex_use {
    REGEX_WHOLE = 0,  /* regex_matches_all */
    REGEX_SEARCH = 1, /* regex_replace */
    REGEX_OFTEN = 2,  /* worth compiling to machine code: for many texts */
};

/* `use`: REGEX_WHOLE or REGEX_SEARCH, maybe with REGEX_OFTEN. Immutable once made: any thread
 * may use it, many at a time. Errors: INVALID_ARGUMENT "Invalid pattern: P, error: …";
 * UNIMPLEMENTED. */
struct status *regex_new(struct span pattern, int use, struct regex **ret) MUST_USE;
void regex_free(struct regex *regex); /* accepts NULL */

/* What one thread needs to match. */
struct regex_run;
struct regex_run *regex_run_new(const struct regex *regex); /* borrows the regex */
void regex_run_free(struct regex_run *run);                 /* accepts NULL */

/* Does the whole text match? Errors: RESOURCE_EXHAUSTED. */
struct status *regex_matches_all(struct regex_run *run, struct span text, bool *ret) MUST_USE;
/* Appends the text with its first match, or all matches, replaced. In `rewrite`, \0 is the
 * match, \1 to \9 its groups, \\ a backslash. A rewrite that names a group that is not there
 * leaves the text as it is. Errors: RESOURCE_EXHAUSTED. */
struct status *regex_replace(struct regex_run *run, struct span text, struct span rewrite,
                             bool replaces_all, struct str *out) MUST_USE;

/* ---- regex_translate.c ---- */

/* Appends the pattern in PCRE2's words, which are ASCII. Errors: as regex_new. */
struct status *regex_translate(struct span pattern, struct str *out) MUST_USE;
struct status *regex_invalid(struct span pattern, const char *what,
                             struct span where) MUST_USE COLD NEVER_NULL;

#endif

/* Matches regular expressions in RE2's syntax and meaning; PCRE2 executes them.
 *
 * A pattern is parsed as RE2 parses it (regex_translate.c refuses what RE2 refuses) and is written
 * again for PCRE2. Every construct in which the two differ is written out: the assertions ^ $ \A
 * \z, ASCII classes, \Q…\E, (?s) (?m) (?U), repeated assertions, scripts. Characters are those of
 * UTF-8; ill-formed bytes match nothing.
 *
 * PCRE2 backtracks. When a whole match takes too many steps, PCRE2's automaton, which does not
 * backtrack, runs instead. When a search takes too many steps, it ends with RESOURCE_EXHAUSTED. So
 * no pattern blocks a step.
 *
 * tests/differential/fuzz_regex.py counts differences from TensorFlow. Of 10,000 random patterns,
 * whole matches had none. Replacements had 6: a loop whose body may be empty, (?i) with \p of one
 * case, and \B, which holds between the bytes of a character in RE2.
 *
 * Not supported, UNIMPLEMENTED: single bytes (\C), and a negated \pC inside of [ ]. */
#ifndef MILLRACE_KERNELS_HOST_TEXT_REGEX_H
#define MILLRACE_KERNELS_HOST_TEXT_REGEX_H

#include "common/base/status.h"
#include "common/base/str.h"

struct regex;

enum regex_use {
    REGEX_WHOLE = 0,  /* regex_matches_all */
    REGEX_SEARCH = 1, /* regex_replace */
    REGEX_OFTEN = 2,  /* for many texts: the pattern is compiled to machine code */
};

/* Compiles a pattern. `use` is REGEX_WHOLE or REGEX_SEARCH, with or without REGEX_OFTEN. A regex is
 * immutable: many threads may use it at a time. Errors: INVALID_ARGUMENT "Invalid pattern: P,
 * error: …"; UNIMPLEMENTED. */
struct status *regex_new(struct span pattern, int use, struct regex **ret) MUST_USE;
void regex_free(struct regex *regex); /* accepts NULL */

/* The memory that one thread needs to match. */
struct regex_run;
struct regex_run *regex_run_new(const struct regex *regex); /* borrows the regex */
void regex_run_free(struct regex_run *run);                 /* accepts NULL */

/* Tells whether the whole text matches. Errors: RESOURCE_EXHAUSTED. */
struct status *regex_matches_all(struct regex_run *run, struct span text, bool *ret) MUST_USE;
/* Appends the text to `out` with its first match, or with all matches, replaced. In `rewrite`, \0
 * is the match, \1 to \9 are its groups, and \\ is a backslash. When the rewrite names a group that
 * the pattern does not have, the text is appended unchanged. Errors: RESOURCE_EXHAUSTED. */
struct status *regex_replace(struct regex_run *run, struct span text, struct span rewrite,
                             bool replaces_all, struct str *out) MUST_USE;
/* Compiles a regex again, for a user who may outlive it. */
struct status *regex_copy(const struct regex *regex, struct regex **ret) MUST_USE;

/* ---- regex_translate.c ---- */

/* Appends the pattern in PCRE2's syntax, in ASCII. Errors: as regex_new. */
struct status *regex_translate(struct span pattern, struct str *out) MUST_USE;
struct status *regex_invalid(struct span pattern, const char *what,
                             struct span where) MUST_USE COLD NEVER_NULL;

#endif

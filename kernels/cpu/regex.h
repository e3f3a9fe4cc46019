/* Regular expressions in RE2's syntax, answering one question: does the whole text match?
 *
 * A pattern becomes a small program of an automaton without backtracking [Thompson 1968]: time is the text's length times the program's.
 * Characters are those of UTF-8; ill-formed bytes match nothing.
 *
 *   .  [a-z]  [^a]  [[:alpha:]]  \d \w \s \D \W \S  \b \B  ^ $ \A \z  (x) (?:x) (?P<n>x)  (?i) (?s) (?m) (?U)  x|y  x* x+ x? x{n,m} and
 * lazy forms \n \t \r \f \v \a \x7f \x{10ffff} \123 \Q…\E \pN
 *
 * Not there: Unicode classes (\pL, \p{Greek}) and (?i) of letters beyond ASCII: UNIMPLEMENTED. */
#ifndef MILLRACE_KERNELS_CPU_REGEX_H
#define MILLRACE_KERNELS_CPU_REGEX_H

#include "common/base/status.h"

struct regex;

/* Errors: INVALID_ARGUMENT "Invalid pattern: P, error: …"; UNIMPLEMENTED. */
struct status *regex_new(struct span pattern, struct regex **ret) MUST_USE;
void regex_free(struct regex *regex); /* accepts NULL */
/* Any thread. */
bool regex_matches_all(const struct regex *regex, struct span text);

#endif

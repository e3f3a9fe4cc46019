/* Bugs planted on purpose, to see that the simulated cluster finds them (tests/sim/README.md):
 * `if (PLANTED(3))` at the place of the third. Only in builds with -Dplanted_bugs=true; in all
 * others it is the constant 0, and nothing of them is compiled. */
#ifndef MILLRACE_COMMON_BASE_PLANTED_H
#define MILLRACE_COMMON_BASE_PLANTED_H

#ifdef MILLRACE_PLANTED_BUGS
extern int planted_bug; /* which one is there; 0: none */
#define PLANTED(number) (planted_bug == (number))
#else
#define PLANTED(number) 0
#endif

#endif

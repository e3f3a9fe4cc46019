/* What may be wrong with the simulated CUPTI (MILLRACE_SIM_CUPTI: some of these, joined by ","). */
#ifndef MILLRACE_TESTS_CUDA_SIM_CUPTI_H
#define MILLRACE_TESTS_CUDA_SIM_CUPTI_H

#include <stdbool.h>

struct cupti_faults {
    int version;    /* version:N: what cuptiGetVersion says; default 130000 */
    int refusal;    /* refuse:N: cuptiActivityEnable returns this */
    int n_drop;     /* drop:N: every Nth record of an activity is lost */
    bool late;      /* records are handed out once nothing is recorded any more */
    bool shuffle;   /* the last record comes first */
    bool unknown;   /* records of unknown kinds between the others, and marks of other programs */
    bool keep;      /* buffers are never handed back */
    bool zero;      /* activities have no times */
    bool wild;      /* activities have impossible times */
    bool alien;     /* kernels of graphs have other names */
    bool anonymous; /* the nodes of graphs have no numbers */
};

/* Read once. */
const struct cupti_faults *cupti_faults(void);

#endif

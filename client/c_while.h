/* While loops of the C client [WP 4.4]: a condition and a body, each built as a graph of its own,
 * become a loop of Enter, Merge, Switch, NextIteration and Exit.
 *
 *   TF_NewWhile ─ build cond_graph and body_graph, set cond_output, body_outputs and name
 *               ─ TF_FinishWhile, or TF_AbortWhile
 *
 * One thread at a time per loop; TF_FinishWhile locks the graph. */
#ifndef MILLRACE_CLIENT_C_WHILE_H
#define MILLRACE_CLIENT_C_WHILE_H

#include "client/c_graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TF_WhileParams {
    const int ninputs;
    TF_Graph *const cond_graph;
    const TF_Output *const cond_inputs; /* placeholders for the values of the loop */
    TF_Output cond_output;              /* the caller sets it: a scalar bool */
    TF_Graph *const body_graph;
    const TF_Output *const body_inputs;
    TF_Output *const body_outputs; /* the caller sets them: the next values */
    const char *name;              /* the caller sets it: what the names of the loop begin with */
} TF_WhileParams;

/* Begins a loop with these initial values. After an error nothing is to be freed. */
TF_WhileParams TF_NewWhile(TF_Graph *graph, TF_Output *inputs, int ninputs, TF_Status *status);
/* Adds the loop to the graph, sets `outputs` to the values after it, and frees what TF_NewWhile
 * made, also after an error. After an error no operation has been added, but functions of the two
 * graphs may be in the library. TF_AddGradients differentiates the loop. */
void TF_FinishWhile(const TF_WhileParams *params, TF_Status *status, TF_Output *outputs);
/* Frees what TF_NewWhile made. */
void TF_AbortWhile(const TF_WhileParams *params);

#ifdef __cplusplus
}
#endif
#endif

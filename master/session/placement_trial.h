/* Decides when a signature is placed again, and which of two placements its steps keep: a pure
 * state machine, events in, actions out [WP 3.2.1].
 *
 * A placement by cost is as good as its costs and the simulation. So the first one that moves nodes
 * is compared with that of the simple rule: the signature is compiled by that rule, the next steps
 * alternate between both placements, and the measured times decide. When sampled steps have
 * measured other costs than those that a placement was made from, the signature is compiled by
 * them. If the nodes are then placed otherwise, steps decide likewise.
 *
 * The states of a placement's trial:
 *
 *   (new) -> WATCHING
 *   WATCHING  -> COMPILING   it has a rival by the simple rule, or measured costs contradict it
 *   COMPILING -> WATCHING    the nodes are placed alike, or it failed
 *             -> RACING      they are placed otherwise
 *             -> SETTLED     as WATCHING, after TRIAL_MAX_COMPILES
 *   RACING    -> WATCHING    one of the placements has won, or the other one has failed
 *             -> SETTLED     as WATCHING, after TRIAL_MAX_COMPILES
 *
 * It does no I/O and reads no clock: master/session/replacement.c carries the actions out. */
#ifndef MILLRACE_MASTER_SESSION_PLACEMENT_TRIAL_H
#define MILLRACE_MASTER_SESSION_PLACEMENT_TRIAL_H

#include "common/base/state_machine.h"

enum {
    TRIAL_MAX_COMPILES = 3, /* of one signature, apart from the first one and by the simple rule */
    TRIAL_MAX_TAKES = TRIAL_MAX_COMPILES + 1,
    /* sampled steps of a placement before its costs are judged: the first one finds cold caches */
    TRIAL_SAMPLES = 2,
    TRIAL_WARM_STEPS = 2, /* of each placement, which do not count */
    TRIAL_STEPS = 9,      /* of each placement, which do */
};
/* By which part the costs must differ from those of the placement (cost_rows_contradiction). */
#define TRIAL_MARGIN 0.33
/* The other placement is kept if its median step is shorter by this part. */
#define TRIAL_MIN_GAIN 0.03

enum trial_state { TRIAL_WATCHING, TRIAL_COMPILING, TRIAL_RACING, TRIAL_SETTLED };
extern const struct state_machine trial_machine;

enum trial_arm { TRIAL_PRESENT, TRIAL_OTHER };
enum trial_compiled { TRIAL_COMPILE_FAILED, TRIAL_PLACED_ALIKE, TRIAL_PLACED_OTHERWISE };

/* What the caller must do after an event. */
enum trial_action {
    TRIAL_NOTHING,
    TRIAL_COMPILE,        /* compile the signature, and tell trial_compiled */
    TRIAL_COMPILE_SIMPLE, /* the same, by the simple rule */
    TRIAL_TAKE,           /* the other placement has won: it becomes the present one */
    TRIAL_DROP,           /* the present placement has won */
};

/* Measured steps of one placement. */
struct trial_steps {
    double ns[TRIAL_STEPS];
    int n, n_warm;
};

struct placement_trial {
    uint8_t state;  /* enum trial_state */
    bool has_rival; /* it is still to be compared with the placement of the simple rule */
    int n_compiles, n_samples;
    enum trial_arm last_arm;     /* of the last step that began */
    struct trial_steps steps[2]; /* by arm; of the present or the last race */
    double median_ns[2];         /* by arm, of the last race; 0: there was none */
};

/* has_rival: the simple rule places nodes otherwise, and its placement would fit, too. */
void trial_init(struct placement_trial *trial, bool has_rival);
/* A sampled step of the present placement is in the table of costs. */
enum trial_action trial_costs_measured(struct placement_trial *trial, double contradiction);
/* The compilation that TRIAL_COMPILE or TRIAL_COMPILE_SIMPLE asked for has ended. */
void trial_compiled(struct placement_trial *trial, enum trial_compiled result);
/* The placement of a step that begins: always TRIAL_PRESENT except in a race. */
enum trial_arm trial_next_arm(struct placement_trial *trial);
/* A step has ended well, and was not traced. */
enum trial_action trial_step_ended(struct placement_trial *trial, enum trial_arm arm, double ns);
/* The other placement can run no more steps, or one of them has failed: steps that only the other
 * placement fails must not go on alternating. No effect outside of a race. */
void trial_abandon(struct placement_trial *trial);

#endif

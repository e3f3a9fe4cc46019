/* What the files of cuda_steps share: programs, plans of them, and steps on the devices. */
#ifndef MILLRACE_TESTS_CUDA_STEPS_H
#define MILLRACE_TESTS_CUDA_STEPS_H

#include <pthread.h>
#include <stdatomic.h>

#include "kernels/cuda/driver_api.h"
#include "kernels/cuda/rows/gpu_plugin.h"
#include "tests/unit/worker/ending.h"
#include "worker/container.h"
#include "worker/executor/executor.h"

enum { N_CPUS = 1, MAX_TRIES = 2, MAX_FETCHES = 4 };

extern struct device devices[N_CPUS + GPU_MAX_DEVICES];
extern int n_devices;
extern int n_copy_threads;                /* of a large copy */
extern const char *const device_names[3]; /* a CPU and two GPUs */
extern struct pool *pool;
extern _Thread_local struct container_table *containers; /* its variables are the thread's own */

/* What libcuda.so.1 of the simulation has beyond the driver's calls. */
struct sim_driver {
    unsigned long (*count)(const char *call);
    CUresult (*hold)(int is_held);
    CUresult (*block)(const char *call, int is_blocked);
    CUresult (*fail)(const char *call, unsigned long n, CUresult error);
    CUresult (*refuse)(const char *call);
    CUresult (*kill)(const char *call, unsigned long n);
    CUresult (*fail_device)(CUdevice device, CUresult error);
    void (*set_workspace)(int64_t size_bytes);
    void (*on_flush)(void (*flush)(void));
};
extern struct sim_driver driver;
/* Waits until a call was made n times. */
void await_calls(const char *call, unsigned long n);

struct program {
    const char *name;
    int n_fed[2]; /* floats of each feed; 0: there is none */
    int n_fetches;
    const char *text;             /* devices are written @C, @G and @H */
    const char *expected_failure; /* part of the message; NULL: it succeeds */
};
#define FEED "x = _MrFeed() {T=float, index=0}\n"
extern const struct program programs[];
extern const size_t n_programs;
extern const struct program on_cpu;

/* Training steps, and what sets their variables (steps_segments.c). */
extern const struct program mlp_init, mlp_step, wide_step, net_init, net_step;

struct run {
    struct plan *plan;
    struct execution execution;
    struct tensor feeds[2] __attribute__((aligned(64)));
    struct tensor fetches[MAX_FETCHES] __attribute__((aligned(64)));
    struct ending end;
};

struct status *make_plan(const struct program *program, bool is_on_cpu, struct plan **ret) MUST_USE;
/* Steps of a program whose variables and random numbers are its own. */
struct training {
    struct container_table *before; /* the thread's containers, until the end */
    struct plan *plan, *init_plan;
};
/* Runs `init` once, and makes the plan of `program`. After a failure, too, training_end is due. */
struct status *training_begin(struct training *training, const struct program *init,
                              const struct program *program) MUST_USE;
void training_end(struct training *training);
/* The same, on a GPU, of a program that has a plan. */
struct plan *plan_of(const struct program *program);
void start_plan(struct run *run, const struct program *program, struct plan *plan);
/* The same; run.execution.stats is then the caller's. */
void start_traced(struct run *run, const struct program *program, struct plan *plan);
/* The same, and tells when a save holds its values. */
void start_saving(struct run *run, const struct program *program, struct plan *plan,
                  void (*on_inputs_taken)(struct execution *execution));
/* The fetches are the caller's. */
struct status *end_plan(struct run *run) MUST_USE;
void run_clear(struct run *run);

/* One attempt; makes the plan unless there is one. NULL: it ended as it should. */
struct status *attempt(const struct program *program, struct plan **plan,
                       const struct run *expected) MUST_USE;
/* False: it did not succeed twice. */
bool run_program(const struct program *program);

/* ---- training on the first GPU (steps_segments.c) ---- */

enum { N_TRAINED = 14 };
/* Writes a hash of the fetches of each step. Returns how many steps have failed. A traced step is
 * enqueued node by node. */
int train_hashed(const struct program *init, const struct program *program, bool is_traced,
                 uint64_t hashes[N_TRAINED]);
/* False, and prints which, if a step differs. */
bool hashes_are_equal(const char *name, const uint64_t a[N_TRAINED], const uint64_t b[N_TRAINED]);
/* What the GPU has counted; in the last step of a training alone. */
uint64_t counted(enum device_count which);
uint64_t counted_last(enum device_count which);

/* ---- copies (steps_transfers.c) ---- */

struct transfer {
    struct device_copy copy;
    _Atomic bool has_ended;
};
/* Starts a copy between two of `devices`; 0 is the host, whose memory is the allocator's. */
void transfer_start(struct transfer *transfer, int src, int dst, struct allocator *allocator,
                    const struct tensor *from, struct tensor *ret);
/* The same, to the host and into a growing buffer. */
void transfer_start_growing(struct transfer *transfer, int src, const struct tensor *from,
                            struct tensor *ret, struct buffer *growing);
struct status *transfer_end(struct transfer *transfer) MUST_USE;

enum { FOLDER_BYTES = 256 };
/* A new folder below $TMPDIR, where file ops may write. */
void make_folder(char folder[FOLDER_BYTES]);
/* A folder and its files. */
void remove_folder(const char *folder);

/* ---- modes; false: something is wrong, which was printed ---- */

bool run_warm(void);
bool run_ahead(void);
bool run_parted(void);
bool run_cancelled_size(void);
bool run_waiting(void);
bool run_forgotten(void);
bool run_patience(void);
bool run_holders(void);
bool run_exhausted(void);
bool run_compiled(void);
bool run_traced(void);
bool run_activities(void);
bool run_activities_left_out(void);
bool run_activities_at_once(void);
bool run_lost_activities(void);
bool run_workspace(void);
bool run_planning(void);
bool run_engines(void);
bool run_synced(void);
/* An unknown phase: lists the phases. */
bool run_lost(const char *phase);
bool run_hang(void);
bool run_hanging_launch(void);
bool run_hanging_copies(void);
bool run_described(void);
bool run_rdma(void);
bool run_rdma_failures(void);
bool run_saves(void);
bool run_segments(void);
bool run_segment_failures(void);
bool run_refused_captures(void);
bool run_segments_at_once(void);
bool run_transfers(void);
/* A part of it, with lines as those of programs. */
bool run_transfers_program(void);
bool run_arriving(void);
/* A part of it, with lines as those of programs. */
bool run_arriving_program(void);
/* Once the devices are closed. */
bool end_transfers(void);
bool run_failing_peer(void);
bool run_closing(void);
bool end_closing(void); /* once the devices are closed */
bool run_team(void);
bool run_hanging_team(void);
extern bool is_copy_left; /* a copy is under way when the devices are closed */
bool end_team(void);      /* once they are closed */

#endif

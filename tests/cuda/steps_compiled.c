/* Mode of cuda_steps: fused programs while they are compiled. Where a call about that fails, for
 * instance because the driver has no memory for the code, the program is interpreted from then on,
 * and its steps succeed. At the end a program is queued when the devices are closed.
 *
 * MILLRACE_SIM_COMPILER has to name a compiler (tests/cuda/sim/sim.h). */
#include "tests/cuda/steps.h"

#include <sched.h>
#include <stdio.h>

#define FUSED(op)                                                                   \
    FEED "c = _MrFused(x) {Tin=[float], Tout=[float], program=[&Mul{T=float}, &" op \
         "{T=float}], names=[\"m\", \"c\"], operands=[0, 0, 1], results=[1]} @G\n"  \
         "y = _MrFetch(c) {T=float, index=0}\n"

/* Each program is another one for the compiler. */
static const struct compilation {
    struct program program;
    const char *call; /* which fails; NULL: none */
    CUresult error;
} compilations[] = {
    {{"fused", {64}, 1, FUSED("Neg")}, NULL, CUDA_SUCCESS},
    {{"not created", {64}, 1, FUSED("Abs")}, "nvrtcCreateProgram", CUDA_ERROR_OUT_OF_MEMORY},
    {{"not compiled", {64}, 1, FUSED("Square")}, "nvrtcCompileProgram", CUDA_ERROR_OUT_OF_MEMORY},
    {{"without a size", {64}, 1, FUSED("Floor")}, "nvrtcGetCUBINSize", CUDA_ERROR_UNKNOWN},
    {{"without code", {64}, 1, FUSED("Ceil")}, "nvrtcGetCUBIN", CUDA_ERROR_UNKNOWN},
    {{"not loaded", {64}, 1, FUSED("Rint")}, "cuLibraryLoadData", CUDA_ERROR_OUT_OF_MEMORY},
    {{"not found", {64}, 1, FUSED("Sign")}, "cuLibraryGetKernel", CUDA_ERROR_UNKNOWN},
    {{"no function", {64}, 1, FUSED("Relu")}, "cuKernelGetFunction", CUDA_ERROR_UNKNOWN},
};
static const struct program last = {"fused", {64}, 1, FUSED("Relu6")};

/* Runs a program until its compilation has ended as it should, and then again. */
static bool compile(const struct compilation *compilation) {
    const struct program *program = &compilation->program;
    enum device_count expected = compilation->call ? DEVICE_NOT_COMPILED : DEVICE_COMPILED;
    uint64_t n = counted(expected);
    uint64_t n_ended = counted(DEVICE_COMPILED) + counted(DEVICE_NOT_COMPILED);
    bool is_well = run_program(program); /* two steps, which find all other functions */
    if (compilation->call)
        CHECK(driver.fail(compilation->call, 1, compilation->error) == 0);
    is_well &= run_program(program);
    while (counted(DEVICE_COMPILED) + counted(DEVICE_NOT_COMPILED) == n_ended)
        sched_yield();
    is_well &= run_program(program);
    if (counted(expected) != n + 1) {
        printf("%s: its compilation has not ended as expected\n", program->name);
        is_well = false;
    }
    return is_well;
}

bool run_compiled(void) {
    bool is_well = true;
    for (size_t i = 0; i < ARRAY_LEN(compilations); i++)
        is_well &= compile(&compilations[i]);
    return is_well & run_program(&last) & run_program(&last); /* compiled when all is closed */
}

/* NVRTC: the calls that the plugin makes. The host's compiler makes a shared object of the source,
 * whose kernels the device process loads. MILLRACE_SIM_COMPILER is its command up to the names of
 * the object and the source; without it, there is no compiler. The code of a program is the path of
 * its object, behind SIM_CODE_MARK (driver_kernels.c). */
#include "tests/cuda/sim/driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/compiler_api.h"

enum { COMPILER_SUCCESS = 0, COMPILER_INVALID = 3, COMPILER_COMPILATION = 6 };

#define COMPILER_CALL(name, arguments) EXPORTED int name arguments;
#include "kernels/cuda/compiler_calls.inc"

struct _nvrtcProgram {
    char *source;
    char code[256];
};

int nvrtcVersion(int *ret_major, int *ret_minor) {
    BEGIN_LIBRARY(nvrtcVersion);
    *ret_major = 13;
    *ret_minor = 0;
    return getenv("MILLRACE_SIM_COMPILER") != NULL ? COMPILER_SUCCESS : COMPILER_INVALID;
}

int nvrtcCreateProgram(nvrtcProgram *ret, const char *source, const char *name, int n_headers,
                       const char *const *headers, const char *const *names) {
    BEGIN_LIBRARY(nvrtcCreateProgram);
    *ret = calloc(1, sizeof **ret);
    if (*ret == NULL)
        return COMPILER_INVALID;
    (*ret)->source = strdup(source);
    return COMPILER_SUCCESS;
}

int nvrtcDestroyProgram(nvrtcProgram *program) {
    BEGIN_DESTROY(nvrtcDestroyProgram, *program);
    free((*program)->source);
    free(*program);
    *program = NULL;
    return COMPILER_SUCCESS;
}

int nvrtcCompileProgram(nvrtcProgram program, int n, const char *const *options) {
    BEGIN_LIBRARY(nvrtcCompileProgram);
    char path[128], command[2048];
    const char *folder = getenv("TMPDIR"), *compiler = getenv("MILLRACE_SIM_COMPILER");
    snprintf(path, sizeof path, "%s/sim-XXXXXX.cu", folder != NULL ? folder : "/tmp");
    int file = mkstemps(path, 3);
    size_t size = strlen(program->source);
    if (file < 0 || compiler == NULL)
        return COMPILER_INVALID;
    bool is_written = write(file, program->source, size) == (ssize_t)size;
    close(file);
    snprintf(program->code, sizeof program->code, "%s%s.so", SIM_CODE_MARK, path);
    snprintf(command, sizeof command, "%s -o %s.so %s", compiler, path, path);
    bool is_made = is_written && system(command) == 0;
    unlink(path);
    return is_made ? COMPILER_SUCCESS : COMPILER_COMPILATION;
}

int nvrtcGetProgramLogSize(nvrtcProgram program, size_t *ret) {
    BEGIN_LIBRARY(nvrtcGetProgramLogSize);
    *ret = 1;
    return COMPILER_SUCCESS;
}

int nvrtcGetProgramLog(nvrtcProgram program, char *ret) {
    BEGIN_LIBRARY(nvrtcGetProgramLog);
    *ret = '\0'; /* the compiler has written to the standard error */
    return COMPILER_SUCCESS;
}

int nvrtcGetCUBINSize(nvrtcProgram program, size_t *ret) {
    BEGIN_LIBRARY(nvrtcGetCUBINSize);
    *ret = strlen(program->code) + 1;
    return COMPILER_SUCCESS;
}

int nvrtcGetCUBIN(nvrtcProgram program, char *ret) {
    BEGIN_LIBRARY(nvrtcGetCUBIN);
    memcpy(ret, program->code, strlen(program->code) + 1);
    return COMPILER_SUCCESS;
}

/* Loads the plugin's kernels into the context of a device, and finds them there (gpu_device.h). */
#include <stdlib.h>

#include "kernels/cuda/gpu_device.h"
#include "kernels/cuda/images.h"

/* A kernel of a small image, whose PTX is quickly compiled where the image has no code. */
static const char PROBED[] = "direct_forward_i32";

/* Nothing that the plugin has runs on such a device with such a driver. */
static bool is_without_code(CUresult error) {
    return error == CUDA_ERROR_NO_BINARY_FOR_GPU || error == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ||
           error == CUDA_ERROR_JIT_COMPILER_NOT_FOUND || error == CUDA_ERROR_INVALID_PTX ||
           error == CUDA_ERROR_INVALID_IMAGE;
}

static struct status *check(struct gpu_device *gpu, CUresult error, const char *call) {
    if (!is_without_code(error))
        return gpu_check(gpu, error, call);
    struct status *why = driver_status(error, call);
    struct status *st =
        status_unimplemented("the kernels of the plugin do not run on '%s' of "
                             "compute capability %d.%d: %s",
                             gpu->name, gpu->major, gpu->minor, status_message(why));
    status_unref(why);
    return st;
}

CUresult gpu_images_find(struct gpu_device *gpu, const char *name, CUfunction *ret,
                         const char **ret_call) {
    CUkernel kernel;
    CUresult error = CUDA_ERROR_NOT_FOUND;
    *ret_call = "cuLibraryGetKernel";
    for (size_t i = 0; i < gpu->n_libraries && error == CUDA_ERROR_NOT_FOUND; i++)
        error = gpu->api->cuLibraryGetKernel(&kernel, gpu->libraries[i], name);
    if (error != CUDA_SUCCESS)
        return error;
    *ret_call = "cuKernelGetFunction";
    return gpu->api->cuKernelGetFunction(ret, kernel);
}

/* The driver loads an image when the first of its kernels is asked for, so one is. */
static struct status *probe(struct gpu_device *gpu) {
    CUfunction function;
    const char *call;
    CUresult error = gpu_images_find(gpu, PROBED, &function, &call);
    return error == CUDA_ERROR_NOT_FOUND ? NULL : check(gpu, error, call);
}

struct status *gpu_images_load(struct gpu_device *gpu) {
    /* A simulated device ignores the image that it is given, but wants one. */
    static const void *const simulated[] = {"no image"};
    const void *const *images = n_gpu_images > 0 ? gpu_images : simulated;
    size_t n = MAX(n_gpu_images, (size_t)1);
    gpu->libraries = xcalloc(n, sizeof *gpu->libraries);
    for (size_t i = 0; i < n; i++) {
        TRY(check(gpu,
                  gpu->api->cuLibraryLoadData(&gpu->libraries[i], images[i], NULL, NULL, 0, NULL,
                                              NULL, 0),
                  "cuLibraryLoadData"));
        gpu->n_libraries++;
    }
    return probe(gpu);
}

/* A part of gpu_rates: a large value that a link carries from one GPU to another, whole and in
 * pieces. */
#ifndef MILLRACE_BENCH_GPU_PIECES_H
#define MILLRACE_BENCH_GPU_PIECES_H

#include "kernels/device.h"

/* Bytes a second, from the first byte's move to the last. */
struct pieces_rates {
    double sent_whole, sent_in_pieces;         /* out of the GPU's memory, and over the link */
    double received_whole, received_in_pieces; /* over the link, and into the GPU's memory */
    double link;                               /* over the link alone */
};

/* The link is this thread's memcpy of 4 MiB at a time, as a socket on loopback is. So what pieces
 * gain depends on the rate of memcpy beside the GPU's, and on a second core. */
void measure_pieces(struct device *device, size_t size_bytes, struct pieces_rates *ret);

#endif

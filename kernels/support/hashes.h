/* Computes hashes with published definitions. Users keep their values (bucket numbers of features),
 * so these functions must never change.
 *
 * Any thread. Cost about 1 ns per 8 bytes, SipHash twice that. */
#ifndef MILLRACE_KERNELS_SUPPORT_HASHES_H
#define MILLRACE_KERNELS_SUPPORT_HASHES_H

#include <stddef.h>
#include <stdint.h>

/* FarmHash's Fingerprint64 (the farmhashna variant). */
uint64_t hash_fingerprint64(const void *data, size_t len);
/* MurmurHash64A. */
uint64_t hash_murmur64(const void *data, size_t len, uint64_t seed);
/* SipHash-2-4 [Aumasson, Bernstein 2012]. It is keyed: a client that does not know the key cannot
 * choose inputs that collide. */
uint64_t hash_sip24(const void *data, size_t len, uint64_t key0, uint64_t key1);

#endif

/* Keeps variant packs by their addresses (dnn_packs.h). */
#include "kernels/cuda/dnn_packs.h"

#include <string.h>

#include "kernels/cuda/dnn_plan.h"

static struct status *fill(cudnnBackendDescriptor_t pack, const struct dnn_addresses *addresses) {
    static const int64_t ids[DNN_OPERANDS] = {ID_IN, ID_FILTER, ID_OUT};
    TRY(dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, DNN_OPERANDS, ids));
    TRY(dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, DNN_OPERANDS,
                addresses->operands));
    TRY(dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                &addresses->workspace));
    return dnn_finalize(pack);
}

static struct status *pack_new(const struct dnn_addresses *addresses,
                               cudnnBackendDescriptor_t *ret) {
    cudnnBackendDescriptor_t pack;
    TRY(dnn_create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    struct status *st = fill(pack, addresses);
    if (st)
        dnn_destroy(pack);
    else
        *ret = pack;
    return st;
}

static bool is_same(const struct dnn_addresses *a, const struct dnn_addresses *b) {
    return memcmp(a, b, sizeof *a) == 0; /* pointers only, without padding */
}

static uint64_t hash(const struct dnn_addresses *addresses) {
    uint64_t h = (uintptr_t)addresses->workspace;
    for (int i = 0; i < DNN_OPERANDS; i++)
        h = (h ^ (uintptr_t)addresses->operands[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return h >> 32; /* the upper bits depend on all of the addresses */
}

struct status *dnn_pack_get(struct dnn_packs *packs, const struct dnn_addresses *addresses,
                            cudnnBackendDescriptor_t *ret) {
    struct dnn_pack *set = packs->sets[hash(addresses) % DNN_PACK_SETS], *oldest = &set[0];
    for (int i = 0; i < DNN_PACK_WAYS; i++) {
        if (set[i].descriptor && is_same(&set[i].addresses, addresses)) {
            set[i].last_use = ++packs->n_uses;
            *ret = set[i].descriptor;
            return NULL;
        }
        if (set[i].last_use < oldest->last_use)
            oldest = &set[i];
    }
    cudnnBackendDescriptor_t made;
    TRY(pack_new(addresses, &made));
    dnn_destroy(oldest->descriptor);
    *oldest = (struct dnn_pack){*addresses, made, ++packs->n_uses};
    *ret = made;
    return NULL;
}

void dnn_packs_clear(struct dnn_packs *packs) {
    for (int i = 0; i < DNN_PACK_SETS * DNN_PACK_WAYS; i++)
        dnn_destroy(packs->sets[i / DNN_PACK_WAYS][i % DNN_PACK_WAYS].descriptor);
    memset(packs, 0, sizeof *packs);
}

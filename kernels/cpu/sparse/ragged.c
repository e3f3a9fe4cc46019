/* Checks splits; see ragged.h. */
#include "kernels/cpu/sparse/ragged.h"

struct status *ragged_check_splits(const struct tensor *splits, int64_t n_values, bool is_exact) {
    int64_t n = splits->n_elements;
    if (splits->rank != 1)
        return status_invalid("Ragged splits must be a vector, but have rank %d", splits->rank);
    if (n == 0)
        return status_invalid("Ragged splits may not be empty");
    int64_t last = tensor_index_at(splits, 0);
    if (last < 0)
        return status_invalid("Ragged splits must be non-negative");
    if (is_exact && last != 0)
        return status_invalid(
            "Invalid ragged splits: first element of splits must be 0 but is %lld",
            (long long)last);
    for (int64_t i = 1; i < n; i++) {
        int64_t next = tensor_index_at(splits, i);
        if (next < last)
            return status_invalid(
                "Invalid ragged splits: ragged splits must be sorted (monotonically increasing), "
                "but splits[%lld] = %lld is smaller than splits[%lld] = %lld",
                (long long)i, (long long)next, (long long)(i - 1), (long long)last);
        last = next;
    }
    if (n_values < 0)
        return NULL;
    if (last > n_values)
        return status_invalid("Ragged splits must not point past values: the last split is %lld, "
                              "the number of values %lld",
                              (long long)last, (long long)n_values);
    if (is_exact && last != n_values)
        return status_invalid("Invalid ragged splits: last element of splits must be the number of "
                              "ragged values(%lld) but is %lld",
                              (long long)n_values, (long long)last);
    return NULL;
}

struct status *ragged_check_nested(const struct tensor *splits, int n_splits,
                                   const struct tensor *values, bool is_exact) {
    if (values->rank < 1)
        return status_invalid("Ragged values must have rank >= 1");
    for (int i = 0; i < n_splits; i++) {
        bool is_innermost = i == n_splits - 1;
        if (!is_innermost && splits[i + 1].rank != 1)
            return status_invalid("Ragged splits must be a vector, but have rank %d",
                                  splits[i + 1].rank);
        TRY(ragged_check_splits(&splits[i],
                                is_innermost ? tensor_dim(values, 0) : splits[i + 1].n_elements - 1,
                                is_exact));
    }
    return NULL;
}

int64_t ragged_row_len(const struct tensor *values) {
    int64_t n_rows = tensor_dim(values, 0);
    return n_rows > 0 ? values->n_elements / n_rows : 1;
}

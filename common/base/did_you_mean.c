/* Counts the changes between two words. */
#include "common/base/did_you_mean.h"

enum { MAX_WORD_BYTES = 40 };

/* How many letters must be added, removed, changed, or swapped with their neighbour. */
static int count_changes(const char *a, int n_a, const char *b, int n_b) {
    int rows[3][MAX_WORD_BYTES + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (int k = 0; k <= n_b; k++)
        last[k] = k;
    for (int i = 1; i <= n_a; i++) {
        now[0] = i;
        for (int k = 1; k <= n_b; k++) {
            now[k] = MIN(MIN(last[k], now[k - 1]) + 1, last[k - 1] + (a[i - 1] != b[k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                now[k] = MIN(now[k], before[k - 2] + 1);
        }
        int *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[n_b];
}

void did_you_mean_try(struct did_you_mean *guess, const char *name) {
    size_t n_typed = guess->typed.len, n_name = strlen(name);
    if (n_typed > MAX_WORD_BYTES || n_name > MAX_WORD_BYTES)
        return;
    int distance = count_changes(guess->typed.data, (int)n_typed, name, (int)n_name);
    if (distance > MAX((int)n_typed / 3, 1) || distance >= (int)n_name ||
        (guess->best && distance >= guess->distance))
        return;
    guess->best = name;
    guess->distance = distance;
}

void did_you_mean_add(const struct did_you_mean *guess, const char *prefix, struct str *out) {
    if (guess->best)
        str_addf(out, ", did you mean %s%s?", prefix, guess->best);
}

/* Decodes UTF-8, and maps Unicode's cases (the full mapping of the Unicode standard, chapter 3.13,
 * without any locale's exceptions). */
#include "kernels/host/text/utf8.h"
#include "common/base/pool_cancel.h"
#include "common/base/str.h"
#include "kernels/host/text/unicode_case.h"

enum { REPLACEMENT = 0xfffd, CAPITAL_SIGMA = 0x3a3, SMALL_SIGMA = 0x3c3, FINAL_SIGMA = 0x3c2 };

uint32_t utf8_decode(struct span text, size_t *ret_len) {
    const unsigned char *p = (const unsigned char *)text.data;
    unsigned lead = p[0];
    *ret_len = 1;
    if (lead < 0x80)
        return lead;
    size_t n = lead >= 0xc2 && lead <= 0xdf   ? 2
               : lead >= 0xe0 && lead <= 0xef ? 3
               : lead >= 0xf0 && lead <= 0xf4 ? 4
                                              : 0;
    if (n == 0)
        return REPLACEMENT;
    uint32_t code = lead & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        /* The second byte's range leaves out overlong forms, surrogates and characters beyond
         * U+10FFFF. */
        unsigned low = 0x80, high = 0xbf;
        if (i == 1) {
            low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : low;
            high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : high;
        }
        if (i >= text.len || p[i] < low || p[i] > high)
            return REPLACEMENT;
        code = code << 6 | (p[i] & 0x3fu);
        *ret_len = i + 1;
    }
    return code;
}

static bool in_ranges(const struct code_range *ranges, size_t n, uint32_t code) {
    size_t begin = 0, end = n;
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        if (code > ranges[middle].last)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin < n && code >= ranges[begin].first;
}

/* Is there a cased letter before `at`, or after it, when ignorable characters are skipped? */
static bool is_cased_before(struct span text, size_t at) {
    while (at > 0) {
        size_t begin = at - 1, len;
        while (begin > 0 && utf8_is_continuation(text.data[begin]) && at - begin < 4)
            begin--;
        uint32_t code = utf8_decode((struct span){text.data + begin, at - begin}, &len);
        if (!in_ranges(unicode_case_ignorable, n_unicode_case_ignorable, code))
            return in_ranges(unicode_cased, n_unicode_cased, code);
        at = begin;
    }
    return false;
}
static bool is_cased_after(struct span text, size_t at) {
    while (at < text.len) {
        size_t len;
        uint32_t code = utf8_decode((struct span){text.data + at, text.len - at}, &len);
        if (!in_ranges(unicode_case_ignorable, n_unicode_case_ignorable, code))
            return in_ranges(unicode_cased, n_unicode_cased, code);
        at += len;
    }
    return false;
}

struct case_table {
    const struct case_run *runs;
    size_t n_runs;
    const struct case_special *specials;
    size_t n_specials;
};

static void add_mapped(struct str *out, const struct case_table *table, uint32_t code) {
    size_t begin = 0, end = table->n_specials;
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        if (code > table->specials[middle].code)
            begin = middle + 1;
        else
            end = middle;
    }
    if (begin < table->n_specials && table->specials[begin].code == code) {
        for (int i = 0; i < 3 && table->specials[begin].to[i]; i++)
            str_add_utf8(out, table->specials[begin].to[i]);
        return;
    }
    begin = 0;
    end = table->n_runs;
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        if (code > table->runs[middle].last)
            begin = middle + 1;
        else
            end = middle;
    }
    const struct case_run *run = &table->runs[begin];
    if (begin < table->n_runs && code >= run->first &&
        (code - run->first) % (uint32_t)run->step == 0)
        code += (uint32_t)run->distance;
    str_add_utf8(out, code);
}

void utf8_to_lower(struct span text, struct str *out) {
    const struct case_table table = {unicode_lower_runs, n_unicode_lower_runs,
                                     unicode_lower_specials, n_unicode_lower_specials};
    int64_t n = 0;
    for (size_t at = 0, len; at < text.len && pool_goes_on(n); at += len, n++) {
        uint32_t code = utf8_decode((struct span){text.data + at, text.len - at}, &len);
        if (code == CAPITAL_SIGMA)
            str_add_utf8(out, is_cased_before(text, at) && !is_cased_after(text, at + len)
                                  ? FINAL_SIGMA
                                  : SMALL_SIGMA);
        else
            add_mapped(out, &table, code);
    }
}

void utf8_to_upper(struct span text, struct str *out) {
    const struct case_table table = {unicode_upper_runs, n_unicode_upper_runs,
                                     unicode_upper_specials, n_unicode_upper_specials};
    int64_t n = 0;
    for (size_t at = 0, len; at < text.len && pool_goes_on(n); at += len, n++)
        add_mapped(out, &table, utf8_decode((struct span){text.data + at, text.len - at}, &len));
}

/* Files of records that we write (common/io/record_sink.h), read by our reader, and Snappy's format
 * (common/io/snappy.h). That TensorFlow reads them is a test of tests/differential. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/io/file_root.h"
#include "common/io/record_sink.h"
#include "common/io/snappy.h"

static char path[64];

static int setup(void **state) {
    snprintf(path, sizeof(path), "/tmp/millrace-records-XXXXXX");
    int fd = mkstemp(path);
    file_roots_set_whole();
    return fd < 0 ? -1 : close(fd);
}
static int teardown(void **state) { return unlink(path); }

/* n bytes that repeat after `period`, or do not when that is 0. */
static struct str bytes_made(size_t n, size_t period) {
    struct str out = STR_INIT;
    uint32_t random = 12345;
    for (size_t i = 0; i < n; i++) {
        random = random * 1664525 + 1013904223;
        str_add_char(&out, period && i >= period ? out.data[i - period] : (char)(random >> 24));
    }
    return out;
}

/* ---- Snappy ---- */

static const size_t lengths[] = {0, 1, 3, 4, 59, 60, 61, 255, 256, 257, 4096, 65535, 65536, 300000};
static const size_t periods[] = {0, 1, 3, 4, 5, 64, 2047, 2049, 40000, 70000};

static void what_was_compressed_expands_to_itself(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        for (size_t k = 0; k < ARRAY_LEN(periods); k++) {
            struct str plain = bytes_made(lengths[i], periods[k]), packed = STR_INIT,
                       out = STR_INIT;
            snappy_compress((struct span){str_text(&plain), plain.len}, &packed);
            assert_true(snappy_expand((struct span){str_text(&packed), packed.len}, &out));
            assert_int_equal(out.len, plain.len);
            assert_memory_equal(str_text(&out), str_text(&plain), plain.len);
            if (periods[k] > 0 && periods[k] < 2050 && lengths[i] >= 2 * periods[k] + 64)
                assert_true(packed.len < plain.len);
            assert_true(packed.len <= 32 + plain.len + plain.len / 6); /* the format's own bound */
            str_fini(&plain);
            str_fini(&packed);
            str_fini(&out);
        }
}

/* Blocks that the format's description gives: literals, and copies of each kind. */
static void known_blocks_expand(void **state) {
    static const struct {
        const char *packed;
        size_t len;
        const char *plain; /* NULL: malformed */
    } rows[] = {
        {"\x00", 1, ""},
        {"\x05\x10hello", 7, "hello"},
        {"\x08\x04xy\x09\x02", 6, "xyxyxyxy"},           /* 1-byte offset, overlapping */
        {"\x08\x04xy\x0a\x02\x00", 7, NULL},             /* a copy of 3: 5 bytes of 8 */
        {"\x08\x04xy\x16\x02\x00", 7, "xyxyxyxy"},       /* 2-byte offset, overlapping */
        {"\x06\x04xy\x01\x02", 6, "xyxyxy"},             /* 1-byte offset */
        {"\x06\x04xy\x0f\x02\x00\x00\x00", 9, "xyxyxy"}, /* 4-byte offset */
        {"\x06\x04xy\x01\x03", 6, NULL},                 /* from before the beginning */
        {"\x06\x04xy\x01\x00", 6, NULL},                 /* offset 0 */
        {"\x05\x10hell", 6, NULL},
        {"\x04\x10hello", 7, NULL},
        {"", 0, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct str out = STR_INIT;
        bool is_sound = snappy_expand((struct span){rows[i].packed, rows[i].len}, &out);
        if (is_sound != (rows[i].plain != NULL) ||
            (is_sound && strcmp(str_text(&out), rows[i].plain) != 0))
            fail_msg("row %zu: %d '%s'", i, is_sound, str_text(&out));
        str_fini(&out);
    }
}

static void a_block_that_is_cut_is_refused(void **state) {
    struct str plain = bytes_made(2000, 300), packed = STR_INIT;
    snappy_compress((struct span){plain.data, plain.len}, &packed);
    for (size_t n = 0; n < packed.len; n++) {
        struct str out = STR_INIT;
        assert_false(snappy_expand((struct span){packed.data, n}, &out));
        str_fini(&out);
    }
    str_fini(&plain);
    str_fini(&packed);
}

/* ---- records ---- */

static void write_all(enum record_coding coding, const size_t *sizes, size_t n, size_t period) {
    struct record_sink *sink;
    assert_null(record_sink_open(path, coding, &sink));
    for (size_t i = 0; i < n; i++) {
        struct str record = bytes_made(sizes[i], period);
        assert_null(record_sink_add(sink, (struct span){str_text(&record), record.len}));
        str_fini(&record);
    }
    assert_null(record_sink_finish(sink));
    record_sink_free(sink);
}

/* Reads until the end, or until a failure, which it returns. */
static struct status *read_all(enum record_coding coding, const size_t *sizes, size_t n,
                               size_t period, size_t *ret_n) {
    struct record_options options = {.format = RECORD_TFRECORD, .coding = coding};
    struct record_source *source;
    struct str key = STR_INIT, value = STR_INIT;
    bool is_end = false;
    assert_null(record_source_open(&options, span_of(path), &source));
    struct status *st = NULL;
    for (*ret_n = 0; !st; ++*ret_n) {
        st = record_source_next(source, &key, &value, &is_end);
        if (st || is_end)
            break;
        assert_true(*ret_n < n);
        struct str record = bytes_made(sizes[*ret_n], period);
        assert_int_equal(value.len, record.len);
        assert_memory_equal(str_text(&value), str_text(&record), record.len);
        str_fini(&record);
    }
    str_fini(&key);
    str_fini(&value);
    record_source_free(source);
    return st;
}

static const enum record_coding codings[] = {CODING_NONE, CODING_ZLIB, CODING_GZIP, CODING_SNAPPY};

static void every_coding_gives_the_records_back(void **state) {
    /* below, at and above the bytes that are written at once, and a file without records */
    static const size_t sizes[] = {0, 1, 65520, 65519, 65521, 7, 65536, 1 << 20, 0, 12, 200000};
    size_t n;
    for (size_t c = 0; c < ARRAY_LEN(codings); c++)
        for (size_t period = 0; period < 10; period += 3) {
            write_all(codings[c], sizes, ARRAY_LEN(sizes), period);
            assert_null(read_all(codings[c], sizes, ARRAY_LEN(sizes), period, &n));
            assert_int_equal(n, ARRAY_LEN(sizes));
            write_all(codings[c], NULL, 0, period);
            assert_null(read_all(codings[c], NULL, 0, period, &n));
            assert_int_equal(n, 0);
        }
}

static void a_file_is_replaced(void **state) {
    static const size_t many[] = {50000, 50000, 50000}, one[] = {5};
    size_t n;
    write_all(CODING_NONE, many, ARRAY_LEN(many), 0);
    write_all(CODING_NONE, one, 1, 0);
    assert_null(read_all(CODING_NONE, one, 1, 0, &n));
    assert_int_equal(n, 1);
}

/* A file that was cut ends before its last record, never with another one. */
static void a_file_that_is_cut_is_noticed(void **state) {
    static const size_t sizes[] = {100, 70000, 300};
    for (size_t c = 0; c < ARRAY_LEN(codings); c++) {
        write_all(codings[c], sizes, ARRAY_LEN(sizes), 0);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        assert_int_equal(fseek(file, 0, SEEK_END), 0);
        long len = ftell(file);
        fclose(file);
        assert_int_equal(truncate(path, len - 200), 0);
        size_t n;
        struct status *st = read_all(codings[c], sizes, ARRAY_LEN(sizes), 0, &n);
        if (!st || status_code(st) == STATUS_INTERNAL || n != 2)
            fail_msg("coding %zu: %zu records, %s", c, n, status_message(st));
        status_unref(st);
    }
}

static void failures_name_the_file(void **state) {
    struct record_sink *sink = NULL;
    struct status *st = record_sink_open("/tmp/no such directory/x", CODING_NONE, &sink);
    assert_int_equal(status_code(st), STATUS_NOT_FOUND);
    assert_non_null(strstr(status_message(st), "/tmp/no such directory/x"));
    status_unref(st);
    assert_null(sink);
    for (size_t c = 0; c < ARRAY_LEN(codings); c++) { /* a disk without space */
        assert_null(record_sink_open("/dev/full", codings[c], &sink));
        assert_null(record_sink_add(sink, (struct span){"abc", 3}));
        st = record_sink_finish(sink);
        assert_non_null(st);
        assert_non_null(strstr(status_message(st), "/dev/full"));
        status_unref(st);
        record_sink_free(sink);
    }
    record_sink_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_compressed_expands_to_itself),
        cmocka_unit_test(known_blocks_expand),
        cmocka_unit_test(a_block_that_is_cut_is_refused),
        cmocka_unit_test(every_coding_gives_the_records_back),
        cmocka_unit_test(a_file_is_replaced),
        cmocka_unit_test(a_file_that_is_cut_is_noticed),
        cmocka_unit_test(failures_name_the_file),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

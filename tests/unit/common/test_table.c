/* Tables and what they are made of: checksums, ordered codes, Snappy, blocks, seeking, damage. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/io/crc32c.h"
#include "common/io/ordered_code.h"
#include "common/io/snappy.h"
#include "common/io/table.h"
#include "tests/unit/common/sim_fs.h"

static void expect_ok(struct status *st) {
    if (st)
        fail_msg("%s", status_message(st));
}

/* ---- checksums ---- */

static void test_crc32c_has_the_published_values(void **state) {
    char zeros[32] = {0}, ones[32];
    memset(ones, 0xff, sizeof(ones));
    assert_int_equal(crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(crc32c(zeros, 32), 0x8a9136aa);
    assert_int_equal(crc32c(ones, 32), 0x62a8ab43);
    assert_int_equal(crc32c("", 0), 0);
    assert_int_equal(crc32c_unmask(crc32c_mask(0x12345678)), 0x12345678);
    assert_int_equal(crc32c_mask(0), 0xa282ead8);
}

static void test_crc32c_is_the_same_by_tables_and_in_parts(void **state) {
    enum { N = 20000 };
    unsigned char *bytes = malloc(N);
    for (int i = 0; i < N; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t n = 0; n < N; n = n * 3 / 2 + 1)
        for (size_t at = 0; at < 3 && at + n < N; at++) {
            uint32_t whole = crc32c(bytes + at, n);
            assert_int_equal(whole, crc32c_extend_portable(0, bytes + at, n));
            assert_int_equal(
                whole, crc32c_extend(crc32c(bytes + at, n / 3), bytes + at + n / 3, n - n / 3));
        }
    free(bytes);
}

/* ---- ordered codes ---- */

static void test_ordered_codes_sort(void **state) {
    static const int64_t values[] = {
        INT64_MIN, INT64_MIN + 1, -(1ll << 62), -1000000, -8193, -8192,
        -65,       -64,           -1,           0,        1,     63,
        64,        127,           128,          8191,     8192,  100000,
        1ll << 34, 1ll << 62,     INT64_MAX};
    struct str before = STR_INIT;
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        struct str code = STR_INIT;
        ordered_add_signed(&code, values[i]);
        if (i > 0)
            assert_true(table_compare((struct span){before.data, before.len},
                                      (struct span){code.data, code.len}) < 0);
        str_fini(&before);
        before = code;
    }
    str_fini(&before);
}

static void test_ordered_codes_have_their_bytes(void **state) {
    struct str code = STR_INIT;
    ordered_add_number(&code, 0);
    ordered_add_number(&code, 0x1234);
    ordered_add_string(&code, (struct span){"a\0\xff", 3});
    ordered_add_signed(&code, -1);
    ordered_add_signed(&code, 64);
    ordered_add_signed(&code, INT64_MAX);
    ordered_add_signed(&code, INT64_MIN);
    static const char expected[] = "\0\x02\x12\x34"
                                   "a\0\xff\xff\0\0\x01"
                                   "\x7f\xc0\x40"
                                   "\xff\xc0\x7f\xff\xff\xff\xff\xff\xff\xff"
                                   "\0\x3f\x80\0\0\0\0\0\0\0";
    assert_int_equal(code.len, sizeof(expected) - 1);
    assert_memory_equal(code.data, expected, code.len);
    str_fini(&code);
}

/* ---- Snappy ---- */

static void expect_expands(const char *data, size_t len, const char *expected) {
    struct str out = STR_INIT;
    bool is_good = snappy_expand((struct span){data, len}, &out);
    if (!expected) {
        assert_false(is_good);
    } else {
        assert_true(is_good);
        assert_string_equal(str_text(&out), expected);
    }
    str_fini(&out);
}

static void test_snappy_expands(void **state) {
    expect_expands("\x05\x10hello", 7, "hello");
    expect_expands("\x09\x04"
                   "ab\x0d\x02", /* 7 bytes from 2 back */
                   6, "ababababa");
    expect_expands("\x08\x04"
                   "ab\x16\x02\0", /* 6 bytes, the offset in two */
                   7, "abababab");
    expect_expands("\0", 1, "");
}

static void test_broken_snappy_is_refused(void **state) {
    expect_expands("", 0, NULL);
    expect_expands("\x05\x10hell", 6, NULL);             /* cut off */
    expect_expands("\x04\x10hello", 7, NULL);            /* longer than claimed */
    expect_expands("\x06\x10hello", 7, NULL);            /* shorter than claimed */
    expect_expands("\x09\x04\x61\x62\x0d\x03", 6, NULL); /* from before the beginning */
    expect_expands("\x09\x04\x61\x62\x0d\0", 6, NULL);   /* from nowhere */
    expect_expands("\xff\xff\xff\xff\x0f\0a", 7, NULL);  /* a bomb: 4 GiB from 2 bytes */
    expect_expands("\xff\xff\xff\xff\xff\xff", 6, NULL); /* no length */
    expect_expands("\x05\xf0", 2, NULL);                 /* a literal's length is missing */
}

/* ---- tables ---- */

static void key_of(int i, char *out, size_t len) {
    snprintf(out, len, "tensor/%06d/%s", i, i % 3 ? "weights" : "w");
}

/* Values are long now and then, so that there are many blocks. */
static void write_table(const struct file_system *fs, const char *path, int n) {
    struct file_sink sink = FILE_SINK_INIT;
    struct table_writer writer;
    char key[64], *value = calloc(1, 5000);
    expect_ok(file_sink_open(&sink, fs, path));
    table_writer_init(&writer, &sink);
    for (int i = 0; i < n; i++) {
        key_of(i, key, sizeof(key));
        memcpy(value, &i, sizeof(i));
        expect_ok(table_writer_add(&writer, span_of(key), (struct span){value, i % 7 ? 4 : 5000}));
    }
    expect_ok(table_writer_finish(&writer));
    expect_ok(file_sink_finish(&sink));
    table_writer_fini(&writer);
    file_sink_fini(&sink);
    free(value);
}

static void test_a_table_reads_back_in_order(void **state) {
    enum { N = 5000 };
    struct sim_fs *sim = sim_fs_new();
    struct table_reader reader;
    struct table_iter iter;
    char key[64];
    int i = 0, number;
    write_table(&sim->fs, "d/t", N);
    expect_ok(table_reader_open(&reader, &sim->fs, "d/t"));
    table_iter_init(&iter, &reader);
    for (expect_ok(table_iter_seek(&iter, (struct span){"", 0})); iter.is_valid;
         expect_ok(table_iter_next(&iter)), i++) {
        key_of(i, key, sizeof(key));
        assert_true(span_is(table_iter_key(&iter), key));
        memcpy(&number, table_iter_value(&iter).data, sizeof(number));
        assert_int_equal(number, i);
    }
    assert_int_equal(i, N);
    table_iter_fini(&iter);
    table_reader_close(&reader);
    sim_fs_free(sim);
}

static void test_seeking_finds_the_first_key_not_below(void **state) {
    enum { N = 3000 };
    struct sim_fs *sim = sim_fs_new();
    struct table_reader reader;
    struct table_iter iter;
    char key[64];
    write_table(&sim->fs, "d/t", N);
    expect_ok(table_reader_open(&reader, &sim->fs, "d/t"));
    table_iter_init(&iter, &reader);
    for (int i = 0; i < N; i += 37) {
        key_of(i, key, sizeof(key));
        expect_ok(table_iter_seek(&iter, span_of(key)));
        assert_true(iter.is_valid && span_is(table_iter_key(&iter), key));
        strncat(key, "+", 2);
        expect_ok(table_iter_seek(&iter, span_of(key)));
        key_of(i + 1, key, sizeof(key));
        if (i + 1 < N)
            assert_true(iter.is_valid && span_is(table_iter_key(&iter), key));
    }
    expect_ok(table_iter_seek(&iter, span_of("z")));
    assert_false(iter.is_valid);
    table_iter_fini(&iter);
    table_reader_close(&reader);
    sim_fs_free(sim);
}

static void test_an_empty_table_is_a_table(void **state) {
    struct sim_fs *sim = sim_fs_new();
    struct table_reader reader;
    struct table_iter iter;
    write_table(&sim->fs, "d/t", 0);
    expect_ok(table_reader_open(&reader, &sim->fs, "d/t"));
    table_iter_init(&iter, &reader);
    expect_ok(table_iter_seek(&iter, (struct span){"", 0}));
    assert_false(iter.is_valid);
    table_iter_fini(&iter);
    table_reader_close(&reader);
    sim_fs_free(sim);
}

static struct status *read_all(const struct file_system *fs) {
    struct table_reader reader;
    struct table_iter iter;
    TRY(table_reader_open(&reader, fs, "d/t"));
    table_iter_init(&iter, &reader);
    struct status *st = table_iter_seek(&iter, (struct span){"", 0});
    while (!st && iter.is_valid)
        st = table_iter_next(&iter);
    table_iter_fini(&iter);
    table_reader_close(&reader);
    return st;
}

/* Whatever byte is changed, reading says DATA_LOSS and where; but for the empty metaindex and
 * the zeros of the footer, which nobody reads.
 */
static void test_every_damaged_byte_is_noticed(void **state) {
    struct sim_fs *sim = sim_fs_new();
    int n_unnoticed = 0;
    write_table(&sim->fs, "d/t", 40);
    struct sim_file *file = &sim->files[0];
    for (size_t i = 0; i < file->len; i++) {
        file->data[i] ^= 0x41;
        struct status *st = read_all(&sim->fs);
        if (!st) {
            n_unnoticed++;
        } else {
            assert_int_equal(status_code(st), STATUS_DATA_LOSS);
            assert_non_null(strstr(status_message(st), "d/t"));
        }
        status_unref(st);
        file->data[i] ^= 0x41;
    }
    assert_in_range(n_unnoticed, 1, TABLE_FOOTER_BYTES + 16);
    expect_ok(read_all(&sim->fs));
    for (size_t n = 0; n < 60 && n < file->len; n++) { /* cut off */
        file->len -= n;
        struct status *st = read_all(&sim->fs);
        assert_int_equal(status_code(st), n ? STATUS_DATA_LOSS : STATUS_OK);
        status_unref(st);
        file->len += n;
    }
    sim_fs_free(sim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc32c_has_the_published_values),
        cmocka_unit_test(test_crc32c_is_the_same_by_tables_and_in_parts),
        cmocka_unit_test(test_ordered_codes_sort),
        cmocka_unit_test(test_ordered_codes_have_their_bytes),
        cmocka_unit_test(test_snappy_expands),
        cmocka_unit_test(test_broken_snappy_is_refused),
        cmocka_unit_test(test_a_table_reads_back_in_order),
        cmocka_unit_test(test_seeking_finds_the_first_key_not_below),
        cmocka_unit_test(test_an_empty_table_is_a_table),
        cmocka_unit_test(test_every_damaged_byte_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Bundles: what is written reads back; slices; what damaged and hostile files say. */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/io/bundle.h"
#include "common/io/crc32c.h"
#include "common/io/slices_file.h"
#include "common/tensor/tensor_proto.h"
#include "tests/unit/common/sim_fs.h"

static void expect_ok(struct status *st) {
    if (st)
        fail_msg("%s", status_message(st));
}

static void expect_fails(struct status *st, enum status_code code, const char *words) {
    if (status_code(st) != code || !strstr(status_message(st), words))
        fail_msg("%s: %s, not %s: %s", status_code_name(status_code(st)), status_message(st),
                 status_code_name(code), words);
    status_unref(st);
}

static void parse(const char *text, struct tensor *ret) {
    struct span in = span_of(text);
    expect_ok(tensor_parse(&in, allocator_host(), ret));
}

static void expect_text(const struct tensor *t, const char *text) {
    struct str out = STR_INIT;
    tensor_print(t, 1000, &out);
    assert_string_equal(str_text(&out), text);
    str_fini(&out);
}

static struct status *read_text(const struct file_system *fs, const char *prefix, const char *name,
                                const char *spec, struct tensor *ret) {
    struct bundle_reader *reader = NULL;
    struct bundle_entry entry;
    struct tensor_slice slice;
    struct shape whole, part;
    struct arena arena;
    arena_init(&arena);
    struct status *st = bundle_reader_open(fs, prefix, &reader);
    if (!st)
        st = bundle_find(reader, span_of(name), &arena, &entry);
    if (!st && spec)
        st = tensor_slice_parse_spec(span_of(spec), &arena, &whole, &slice, &part);
    if (!st)
        st = spec ? bundle_read_slice(reader, span_of(name), &entry, &slice, allocator_host(), ret)
                  : bundle_read(reader, span_of(name), &entry, allocator_host(), ret);
    bundle_reader_close(reader);
    arena_fini(&arena);
    return st;
}

static void expect_read(const struct file_system *fs, const char *prefix, const char *name,
                        const char *spec, const char *text) {
    struct tensor t = TENSOR_INIT;
    expect_ok(read_text(fs, prefix, name, spec, &t));
    expect_text(&t, text);
    tensor_clear(&t);
}

static void add(struct bundle_writer *writer, const char *name, const char *text) {
    struct tensor t = TENSOR_INIT;
    parse(text, &t);
    expect_ok(bundle_writer_add(writer, span_of(name), &t));
    tensor_clear(&t);
}

static struct status *add_slice(struct bundle_writer *writer, const char *name, const char *spec,
                                const char *text) {
    struct tensor t = TENSOR_INIT;
    struct tensor_slice slice;
    struct shape whole, part;
    struct arena arena;
    arena_init(&arena);
    parse(text, &t);
    struct status *st = tensor_slice_parse_spec(span_of(spec), &arena, &whole, &slice, &part);
    if (!st)
        st = bundle_writer_add_slice(writer, span_of(name), whole, &slice, &t);
    tensor_clear(&t);
    arena_fini(&arena);
    return st;
}

static const char *const texts[][2] = {
    {"floats", "float[3]{1, 2.5, -3}"},
    {"scalar", "int64[]{-7}"},
    {"nothing", "double[0,3]{}"},
    {"strings", "string[3]{\"a\", \"\", \"some longer text\"}"},
    {"no strings", "string[0]{}"},
    {"flags", "bool[2]{true, false}"},
    {"deep", "uint8[1,2,1,2,1]{1, 2, 3, 4}"},
};

static void write_texts(const struct file_system *fs, const char *prefix) {
    struct bundle_writer *writer = NULL;
    expect_ok(bundle_writer_new(fs, prefix, &writer));
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        add(writer, texts[i][0], texts[i][1]);
    expect_ok(bundle_writer_finish(writer));
    bundle_writer_free(writer);
}

static void test_what_is_written_reads_back(void **state) {
    struct sim_fs *sim = sim_fs_new();
    write_texts(&sim->fs, "d/m");
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        expect_read(&sim->fs, "d/m", texts[i][0], NULL, texts[i][1]);
    struct tensor t = TENSOR_INIT;
    expect_fails(read_text(&sim->fs, "d/m", "float", NULL, &t), STATUS_NOT_FOUND,
                 "Key float not found in checkpoint");
    expect_fails(read_text(&sim->fs, "d/m", "", NULL, &t), STATUS_NOT_FOUND,
                 "not found in checkpoint");
    expect_fails(read_text(&sim->fs, "d/other", "floats", NULL, &t), STATUS_NOT_FOUND,
                 "d/other.index; No such file");
    sim_fs_free(sim);
}

static void test_slices_come_together(void **state) {
    struct sim_fs *sim = sim_fs_new();
    struct bundle_writer *writer = NULL;
    expect_ok(bundle_writer_new(&sim->fs, "d/m", &writer));
    expect_ok(add_slice(writer, "v", "4 3 0,2:-", "int32[2,3]{1, 2, 3, 4, 5, 6}"));
    expect_ok(add_slice(writer, "v", "4 3 2,2:0,1", "int32[2,1]{7, 10}"));
    expect_ok(add_slice(writer, "v", "4 3 2,2:1,2", "int32[2,2]{8, 9, 11, 12}"));
    expect_ok(add_slice(writer, "holes", "4 0,1", "int32[1]{1}"));
    expect_ok(add_slice(writer, "holes", "4 2,2", "int32[2]{3, 4}"));
    expect_ok(add_slice(writer, "all", "2 -", "string[2]{\"x\", \"y\"}"));
    expect_ok(bundle_writer_finish(writer));
    bundle_writer_free(writer);
    expect_read(&sim->fs, "d/m", "v", NULL, "int32[4,3]{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}");
    expect_read(&sim->fs, "d/m", "v", "4 3 1,2:1,2", "int32[2,2]{5, 6, 8, 9}");
    expect_read(&sim->fs, "d/m", "v", "4 3 2,2:1,2", "int32[2,2]{8, 9, 11, 12}");
    expect_read(&sim->fs, "d/m", "holes", "4 2,1", "int32[1]{3}");
    expect_read(&sim->fs, "d/m", "all", "2 1,1", "string[1]{\"y\"}");
    struct tensor t = TENSOR_INIT;
    expect_fails(read_text(&sim->fs, "d/m", "holes", NULL, &t), STATUS_INVALID_ARGUMENT,
                 "Does not have sufficient slices");
    expect_fails(read_text(&sim->fs, "d/m", "holes", "4 0,2", &t), STATUS_INVALID_ARGUMENT,
                 "Does not have sufficient slices");
    sim_fs_free(sim);
}

static void test_slices_must_agree(void **state) {
    struct sim_fs *sim = sim_fs_new();
    struct bundle_writer *writer = NULL;
    expect_ok(bundle_writer_new(&sim->fs, "d/m", &writer));
    add(writer, "w", "int32[4]{1, 2, 3, 4}");
    expect_ok(add_slice(writer, "v", "4 0,1", "int32[1]{1}"));
    expect_fails(add_slice(writer, "v", "5 1,1", "int32[1]{1}"), STATUS_INVALID_ARGUMENT,
                 "differ in type or whole shape");
    expect_fails(add_slice(writer, "v", "4 1,1", "float[1]{1}"), STATUS_INVALID_ARGUMENT,
                 "differ in type or whole shape");
    expect_fails(add_slice(writer, "v", "4 0,1", "int32[1]{1}"), STATUS_INVALID_ARGUMENT,
                 "duplicate key");
    expect_fails(add_slice(writer, "w", "4 0,1", "int32[1]{1}"), STATUS_INVALID_ARGUMENT,
                 "duplicate key");
    bundle_writer_free(writer);
    assert_null(sim_name_at(sim, 0)); /* nothing remains of what was not finished */
    sim_fs_free(sim);
}

static void test_specs_are_refused_with_reasons(void **state) {
    static const struct {
        const char *spec;
        enum status_code code;
        const char *words;
    } rows[] = {
        {"4", STATUS_INVALID_ARGUMENT, "Need least two elements in shape_and_slice specification"},
        {"4 x", STATUS_INVALID_ARGUMENT, "Expected a pair of numbers or '-' but got 'x'"},
        {"4 1,2,3", STATUS_INVALID_ARGUMENT, "Expected a pair of numbers"},
        {"4 -1,2", STATUS_INVALID_ARGUMENT, "Expected non-negative start and positive length"},
        {"4 1,0", STATUS_INVALID_ARGUMENT, "Expected non-negative start and positive length"},
        {"a 1,2", STATUS_INVALID_ARGUMENT, "Non numerical dimension"},
        {"4 1,4", STATUS_INVALID_ARGUMENT, "out of bounds"},
        {"4 9223372036854775807,9223372036854775807", STATUS_INVALID_ARGUMENT, "out of bounds"},
        {"4 0,1:0,1", STATUS_INVALID_ARGUMENT, "Mismatching ranks"},
        {"-4 0,1", STATUS_INVALID_ARGUMENT, ""},
        {"4294967296 4294967296 4294967296 -:-:-", STATUS_INVALID_ARGUMENT, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct tensor_slice slice;
        struct shape whole, part;
        struct arena arena;
        arena_init(&arena);
        expect_fails(tensor_slice_parse_spec(span_of(rows[i].spec), &arena, &whole, &slice, &part),
                     rows[i].code, rows[i].words);
        arena_fini(&arena);
    }
}

/* ---- merging ---- */

static void write_part(const struct file_system *fs, const char *prefix, const char *name,
                       const char *spec, const char *text) {
    struct bundle_writer *writer = NULL;
    expect_ok(bundle_writer_new(fs, prefix, &writer));
    add(writer, name, text);
    if (spec)
        expect_ok(add_slice(writer, "v", spec, "int32[2]{1, 2}"));
    expect_ok(bundle_writer_finish(writer));
    bundle_writer_free(writer);
}

static void test_parts_merge(void **state) {
    static const char *const parts[] = {"d/p/0", "d/p/1", "d/p/2"};
    struct sim_fs *sim = sim_fs_new();
    write_part(&sim->fs, "d/p/0", "a", "4 0,2", "float[]{1}");
    write_part(&sim->fs, "d/p/1", "b", "4 2,2", "float[]{2}");
    expect_fails(bundle_merge(&sim->fs, parts, 3, "d/m", false), STATUS_INVALID_ARGUMENT,
                 "d/p/2 did not exist");
    expect_read(&sim->fs, "d/p/0", "a", NULL, "float[]{1}");
    expect_ok(bundle_merge(&sim->fs, parts, 3, "d/m", true));
    expect_read(&sim->fs, "d/m", "a", NULL, "float[]{1}");
    expect_read(&sim->fs, "d/m", "b", NULL, "float[]{2}");
    expect_read(&sim->fs, "d/m", "v", NULL, "int32[4]{1, 2, 1, 2}");
    expect_fails(bundle_merge(&sim->fs, parts, 3, "d/m2", true), STATUS_INVALID_ARGUMENT,
                 "At least one prefix checkpoint file must exist");
    sim_fs_free(sim);
}

static void test_parts_that_disagree_do_not_merge(void **state) {
    static const char *const parts[] = {"d/p/0", "d/p/1"};
    struct sim_fs *sim = sim_fs_new();
    write_part(&sim->fs, "d/p/0", "a", NULL, "float[]{1}");
    write_part(&sim->fs, "d/p/1", "a", NULL, "float[]{2}");
    expect_fails(bundle_merge(&sim->fs, parts, 2, "d/m", false), STATUS_INVALID_ARGUMENT,
                 "Duplicate tensor keyed by a");
    write_part(&sim->fs, "d/p/1", "b", "6 2,2", "float[]{2}");
    write_part(&sim->fs, "d/p/0", "a", "4 0,2", "float[]{1}");
    expect_fails(bundle_merge(&sim->fs, parts, 2, "d/m", false), STATUS_INVALID_ARGUMENT,
                 "different shapes");
    expect_read(&sim->fs, "d/p/1", "b", NULL, "float[]{2}");
    sim_fs_free(sim);
}

/* ---- two savers of one prefix ---- */

enum { N_SAVERS = 2, SAVES_EACH = 100 };

struct saver {
    pthread_t thread;
    char prefix[64];
    /* saves that were reported and could not be read while the other went on */
    _Atomic int *n_broken;
};

/* Each spells the prefix in its own way. What a reader opened may be replaced under it, so it
 * looks a few times. */
static void *save_again_and_again(void *arg) {
    struct saver *saver = arg;
    for (int i = 0; i < SAVES_EACH; i++) {
        write_texts(&file_system_posix, saver->prefix);
        bool is_read = false;
        for (int look = 0; look < 100 && !is_read; look++) {
            struct tensor t = TENSOR_INIT;
            struct status *st = read_text(&file_system_posix, saver->prefix, "floats", NULL, &t);
            is_read = !st;
            status_unref(st);
            tensor_clear(&t);
        }
        *saver->n_broken += !is_read;
    }
    return NULL;
}

static void test_saves_of_one_prefix_at_a_time_leave_a_whole_checkpoint(void **state) {
    char dir[] = "/tmp/test_bundle_XXXXXX", path[96];
    struct saver savers[N_SAVERS];
    _Atomic int n_broken = 0;
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < N_SAVERS; i++) {
        savers[i].n_broken = &n_broken;
        snprintf(savers[i].prefix, sizeof(savers[i].prefix), "%s%s/m", dir, i ? "/." : "");
        assert_int_equal(pthread_create(&savers[i].thread, NULL, save_again_and_again, &savers[i]),
                         0);
    }
    for (int i = 0; i < N_SAVERS; i++)
        assert_int_equal(pthread_join(savers[i].thread, NULL), 0);
    assert_int_equal(n_broken, 0);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        expect_read(&file_system_posix, savers[0].prefix, texts[i][0], NULL, texts[i][1]);
    int n_files = 0;
    for (int n = 1; n <= 4; n++) {
        snprintf(path, sizeof(path), "%s/m.data-00000-of-%05d", dir, n);
        n_files += unlink(path) == 0;
    }
    assert_int_equal(n_files, 1);
    snprintf(path, sizeof(path), "%s/m.index", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0); /* nothing else is left */
}

/* ---- damage ---- */

static struct sim_file *file_named(struct sim_fs *sim, const char *path) {
    for (int i = 0; i < sim->n_names; i++)
        if (strcmp(sim->names[i].path, path) == 0)
            return &sim->files[sim->names[i].file];
    fail_msg("%s is missing", path);
    return NULL;
}

static void test_every_damaged_byte_of_the_data_is_named(void **state) {
    struct sim_fs *sim = sim_fs_new();
    write_texts(&sim->fs, "d/m");
    struct sim_file *file = file_named(sim, "d/m.data-00000-of-00001");
    for (size_t at = 0; at < file->len; at++) {
        int n_damaged = 0;
        file->data[at] ^= 1 << at % 8;
        for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
            struct tensor t = TENSOR_INIT;
            struct status *st = read_text(&sim->fs, "d/m", texts[i][0], NULL, &t);
            if (st) {
                assert_int_equal(status_code(st), STATUS_DATA_LOSS);
                assert_non_null(strstr(status_message(st), texts[i][0]));
                assert_non_null(strstr(status_message(st), "at offset"));
                n_damaged++;
            }
            status_unref(st);
            tensor_clear(&t);
        }
        assert_int_equal(n_damaged, 1);
        file->data[at] ^= 1 << at % 8;
    }
    file->len -= 1;
    struct tensor t = TENSOR_INIT;
    expect_fails(read_text(&sim->fs, "d/m", texts[ARRAY_LEN(texts) - 1][0], NULL, &t),
                 STATUS_DATA_LOSS, "ends before");
    file->len += 1;
    sim_fs_free(sim);
}

/* An index with one entry, as a stranger may write it. */
static void write_index(struct sim_fs *sim, const struct bundle_entry *entry, int n_shards) {
    struct file_sink sink = FILE_SINK_INIT;
    struct table_writer table;
    struct str header = STR_INIT, proto = STR_INIT;
    sim->fs.unlink(&sim->fs, "d/x.index");
    expect_ok(file_sink_open(&sink, &sim->fs, "d/x.index"));
    table_writer_init(&table, &sink);
    bundle_header_print(n_shards, &header);
    bundle_entry_print(entry, &proto);
    expect_ok(
        table_writer_add(&table, (struct span){"", 0}, (struct span){header.data, header.len}));
    expect_ok(table_writer_add(&table, span_of("t"), (struct span){proto.data, proto.len}));
    expect_ok(table_writer_finish(&table));
    expect_ok(file_sink_finish(&sink));
    table_writer_fini(&table);
    file_sink_fini(&sink);
    str_fini(&header);
    str_fini(&proto);
}

static void expect_hostile(struct sim_fs *sim, struct bundle_entry entry, int n_shards,
                           enum status_code code) {
    struct tensor t = TENSOR_INIT;
    write_index(sim, &entry, n_shards);
    struct status *st = read_text(&sim->fs, "d/x", "t", NULL, &t);
    if (status_code(st) != code)
        fail_msg("%s: %s", status_code_name(status_code(st)), status_message(st));
    status_unref(st);
    tensor_clear(&t);
}

static void test_hostile_entries_are_refused(void **state) {
    struct sim_fs *sim = sim_fs_new();
    int64_t dims[2] = {2, 2}, huge[3] = {1ll << 40, 1ll << 40, 1ll << 40}, negative[1] = {-1},
            tera[1] = {1ll << 40};
    char data[16] = {0};
    struct file_sink sink = FILE_SINK_INIT;
    expect_ok(file_sink_open(&sink, &sim->fs, "d/x.data-00000-of-00001"));
    expect_ok(file_sink_write(&sink, data, sizeof(data)));
    expect_ok(file_sink_finish(&sink));
    file_sink_fini(&sink);
    struct bundle_entry good = {.dtype = DT_FLOAT,
                                .shape = {2, dims},
                                .size_bytes = 16,
                                .crc = crc32c_mask(crc32c(data, 16))},
                        bad;
    expect_hostile(sim, good, 1, STATUS_OK);
    bad = good, bad.offset = 1;
    expect_hostile(sim, bad, 1, STATUS_DATA_LOSS);
    bad = good, bad.offset = INT64_MAX;
    expect_hostile(sim, bad, 1, STATUS_DATA_LOSS);
    bad = good, bad.offset = -1;
    expect_hostile(sim, bad, 1, STATUS_DATA_LOSS);
    bad = good, bad.size_bytes = -16;
    expect_hostile(sim, bad, 1, STATUS_DATA_LOSS);
    bad = good, bad.size_bytes = 15;
    expect_hostile(sim, bad, 1, STATUS_DATA_LOSS);
    bad = good, bad.shape = (struct shape){3, huge};
    expect_hostile(sim, bad, 1, STATUS_DATA_LOSS);
    bad = good, bad.shape = (struct shape){1, tera}, bad.size_bytes = 4ll << 40;
    expect_hostile(sim, bad, 1, STATUS_DATA_LOSS);
    bad = good, bad.shape = (struct shape){1, negative};
    expect_hostile(sim, bad, 1, STATUS_DATA_LOSS);
    bad = good, bad.shard = 1;
    expect_hostile(sim, bad, 1, STATUS_DATA_LOSS);
    bad = good, bad.shard = 1;
    expect_hostile(sim, bad, 2, STATUS_NOT_FOUND);
    bad = good, bad.crc++;
    expect_hostile(sim, bad, 1, STATUS_DATA_LOSS);
    bad = good, bad.dtype = DT_STRING;
    expect_hostile(sim, bad, 1, STATUS_DATA_LOSS);
    bad = good, bad.dtype = DT_VARIANT;
    expect_hostile(sim, bad, 1, STATUS_DATA_LOSS);
    bad = good, bad.dtype = DT_RESOURCE;
    expect_hostile(sim, bad, 1, STATUS_UNIMPLEMENTED);
    bad = good, bad.dtype = (enum dtype)77;
    expect_hostile(sim, bad, 1, STATUS_DATA_LOSS);
    sim_fs_free(sim);
}

/* Empty, and two protos: a type name each, the second with metadata. */
static void test_variants_are_saved_and_each_damaged_byte_is_found(void **state) {
    static const struct span protos[] = {{"\x0a\x03int", 5}, {"\x0a\x01l\x12\x03\x00\x01\x02", 8}};
    static const struct object_type secret = {.name = "secret"};
    struct sim_fs *sim = sim_fs_new();
    struct bundle_writer *writer = NULL;
    struct tensor t = TENSOR_INIT, back = TENSOR_INIT;
    const int64_t three = 3;
    expect_ok(tensor_new(allocator_host(), DT_VARIANT, (struct shape){1, &three}, &t));
    for (int i = 0; i < 2; i++)
        tensor_set_object(&t, i + 1, &variant_proto_new(protos[i])->object);
    expect_ok(bundle_writer_new(&sim->fs, "d/v", &writer));
    expect_ok(bundle_writer_add(writer, span_of("v"), &t));
    expect_ok(bundle_writer_finish(writer));
    bundle_writer_free(writer);
    expect_ok(read_text(&sim->fs, "d/v", "v", NULL, &back));
    struct object *const *objects = tensor_cdata(&back);
    assert_null(objects[0]);
    for (int i = 0; i < 2; i++) {
        struct span proto = bytes_span(CONTAINER_OF(objects[i + 1], struct bytes, object));
        assert_int_equal(proto.len, protos[i].len);
        assert_memory_equal(proto.data, protos[i].data, proto.len);
    }
    tensor_clear(&back);
    struct sim_file *file = file_named(sim, "d/v.data-00000-of-00001");
    for (size_t at = 0; at < file->len; at++) {
        file->data[at] ^= 1 << at % 8;
        expect_fails(read_text(&sim->fs, "d/v", "v", NULL, &back), STATUS_DATA_LOSS, "v");
        file->data[at] ^= 1 << at % 8;
    }
    struct object unknown;
    object_init(&unknown, &secret);
    object_ref(&unknown); /* never freed */
    tensor_set_object(&t, 0, &unknown);
    expect_ok(bundle_writer_new(&sim->fs, "d/w", &writer));
    expect_fails(bundle_writer_add(writer, span_of("v"), &t), STATUS_UNIMPLEMENTED, "secret");
    bundle_writer_free(writer);
    tensor_clear(&t);
    sim_fs_free(sim);
}

static void test_slices_that_overlap_or_lie_are_refused(void **state) {
    struct sim_fs *sim = sim_fs_new();
    int64_t whole[1] = {4}, tera[1] = {1ll << 40}, starts[2] = {0, 1}, lengths[2] = {2, 2};
    struct tensor_slice two[2] = {{1, &starts[0], &lengths[0]}, {1, &starts[1], &lengths[1]}};
    int64_t zero[1] = {0}, all[1] = {1ll << 40}, beyond[1] = {5};
    struct tensor_slice claim = {1, zero, all}, outside = {1, zero, beyond};
    expect_hostile(
        sim,
        (struct bundle_entry){.dtype = DT_FLOAT, .shape = {1, whole}, .slices = two, .n_slices = 2},
        1, STATUS_INVALID_ARGUMENT);
    expect_hostile(sim,
                   (struct bundle_entry){
                       .dtype = DT_FLOAT, .shape = {1, whole}, .slices = &outside, .n_slices = 1},
                   1, STATUS_DATA_LOSS);
    write_index(sim,
                &(struct bundle_entry){
                    .dtype = DT_FLOAT, .shape = {1, tera}, .slices = &claim, .n_slices = 1},
                1);
    struct tensor t = TENSOR_INIT;
    struct status *st = read_text(&sim->fs, "d/x", "t", NULL, &t);
    assert_true(st != NULL);
    status_unref(st);
    sim_fs_free(sim);
}

static void test_a_later_format_is_refused(void **state) {
    struct str header = STR_INIT;
    int n;
    bundle_header_print(3, &header);
    expect_ok(bundle_header_parse((struct span){header.data, header.len}, &n));
    assert_int_equal(n, 3);
    str_fini(&header);
    expect_fails(bundle_header_parse((struct span){"\x08\x01\x10\x01", 4}, &n),
                 STATUS_UNIMPLEMENTED, "endianness");
    expect_fails(bundle_header_parse((struct span){"\x08\x01\x1a\x02\x10\x09", 6}, &n),
                 STATUS_UNIMPLEMENTED, "version 9");
    expect_fails(bundle_header_parse((struct span){"\x08\xff\xff\xff\x7f", 5}, &n),
                 STATUS_DATA_LOSS, "shards");
    expect_fails(bundle_header_parse((struct span){"\x1a\x09\x10", 3}, &n), STATUS_DATA_LOSS,
                 "malformed");
}

/* ---- the older format ---- */

static void test_the_older_format_reads_back(void **state) {
    struct sim_fs *sim = sim_fs_new();
    struct slices_writer *writer = slices_writer_new(&sim->fs, "d/old");
    struct slices_reader *reader = NULL;
    char path[] = "d/old", *paths[] = {path};
    struct arena arena;
    arena_init(&arena);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct tensor t = TENSOR_INIT;
        parse(texts[i][1], &t);
        struct tensor_slice all = tensor_slice_all(t.rank, &arena);
        expect_ok(slices_writer_add(writer, span_of(texts[i][0]), tensor_shape(&t), &all, &t));
        tensor_clear(&t);
    }
    expect_ok(slices_writer_finish(writer));
    slices_writer_free(writer);
    expect_ok(slices_reader_open(&sim->fs, paths, 1, &reader));
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const struct slices_tensor *tensor = slices_reader_find(reader, span_of(texts[i][0]));
        struct tensor t = TENSOR_INIT;
        assert_non_null(tensor);
        struct tensor_slice all = tensor_slice_all(slices_tensor_shape(tensor).rank, &arena);
        expect_ok(slices_reader_read(reader, tensor, &all, allocator_host(), &t));
        expect_text(&t, texts[i][1]);
        tensor_clear(&t);
    }
    assert_null(slices_reader_find(reader, span_of("none")));
    slices_reader_close(reader);
    arena_fini(&arena);
    sim_fs_free(sim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_reads_back),
        cmocka_unit_test(test_slices_come_together),
        cmocka_unit_test(test_slices_must_agree),
        cmocka_unit_test(test_specs_are_refused_with_reasons),
        cmocka_unit_test(test_parts_merge),
        cmocka_unit_test(test_parts_that_disagree_do_not_merge),
        cmocka_unit_test(test_saves_of_one_prefix_at_a_time_leave_a_whole_checkpoint),
        cmocka_unit_test(test_every_damaged_byte_of_the_data_is_named),
        cmocka_unit_test(test_hostile_entries_are_refused),
        cmocka_unit_test(test_variants_are_saved_and_each_damaged_byte_is_found),
        cmocka_unit_test(test_slices_that_overlap_or_lie_are_refused),
        cmocka_unit_test(test_a_later_format_is_refused),
        cmocka_unit_test(test_the_older_format_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

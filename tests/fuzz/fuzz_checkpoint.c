/* Fuzzes reading checkpoints: with any bytes in an index, a data file or a file of the older
 * format, reading ends with a tensor or a status.
 *
 *   input   a mode, then chunks, each after its length (16 bits; the last one may be cut off)
 *     0     the index file as it is; the rest is the data file
 *     1     header and entries of an index that is sound as a table: header, then name and entry
 *           by turns; the last chunk is the data
 *     2     a file of the older format as it is
 *     3     keys and values of such a file, sound as a table */
#include "common/io/bundle.h"
#include "common/io/slices_file.h"
#include "tests/unit/common/sim_fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT_BYTES = 64 << 20, MAX_ROWS = 32 };

static struct span take_chunk(struct span *in) {
    size_t len = in->len;
    if (in->len >= 2) {
        len = MIN((size_t)(uint8_t)in->data[0] | (size_t)(uint8_t)in->data[1] << 8, in->len - 2);
        in->data += 2;
        in->len -= 2;
    }
    struct span chunk = {in->data, len};
    in->data += len;
    in->len -= len;
    return chunk;
}

static void write_file(struct sim_fs *sim, const char *path, struct span bytes) {
    struct file_sink sink = FILE_SINK_INIT;
    struct status *st = file_sink_open(&sink, &sim->fs, path);
    CHECK(!st);
    st = file_sink_write(&sink, bytes.data, bytes.len);
    CHECK(!st);
    st = file_sink_finish(&sink);
    CHECK(!st);
    file_sink_fini(&sink);
}

/* A table of the chunks, as far as their keys ascend; what follows the last one is *in. */
static void write_table(struct sim_fs *sim, const char *path, struct span *in, bool has_data) {
    struct file_sink sink = FILE_SINK_INIT;
    struct table_writer table;
    struct span last = {"", 0};
    struct status *st = file_sink_open(&sink, &sim->fs, path);
    CHECK(!st);
    table_writer_init(&table, &sink);
    st = table_writer_add(&table, last, take_chunk(in));
    CHECK(!st);
    for (int i = 0; i < MAX_ROWS && in->len > 0; i++) {
        struct span before = *in, key = take_chunk(in);
        if (table_compare(key, last) <= 0) {
            if (has_data)
                *in = before;
            break;
        }
        st = table_writer_add(&table, key, take_chunk(in));
        CHECK(!st);
        last = key;
    }
    st = table_writer_finish(&table);
    CHECK(!st);
    st = file_sink_finish(&sink);
    CHECK(!st);
    table_writer_fini(&table);
    file_sink_fini(&sink);
}

static void read_bundle(struct sim_fs *sim, struct allocator *allocator) {
    struct bundle_reader *reader = NULL;
    struct bundle_iter iter;
    struct status *st = bundle_reader_open(&sim->fs, "d/m", &reader);
    if (st) {
        status_unref(st);
        return;
    }
    st = bundle_iter_init(&iter, reader);
    for (int i = 0; !st && iter.is_valid && i < 2 * MAX_ROWS; i++) {
        struct tensor t = TENSOR_INIT;
        status_unref(bundle_read(reader, iter.name, &iter.entry, allocator, &t));
        tensor_clear(&t);
        st = bundle_iter_next(&iter);
    }
    status_unref(st);
    bundle_iter_fini(&iter);
    bundle_reader_close(reader);
    static const char *const parts[] = {"d/m"};
    status_unref(bundle_merge(&sim->fs, parts, 1, "d/merged", false));
}

static void read_slices(struct sim_fs *sim, struct allocator *allocator) {
    struct slices_reader *reader = NULL;
    const struct slices_tensor *tensor;
    char path[] = "d/m", *paths[] = {path};
    struct arena arena;
    arena_init(&arena);
    struct status *st = slices_reader_open(&sim->fs, paths, 1, &reader);
    for (size_t i = 0; !st && i < 2 * MAX_ROWS && (tensor = slices_reader_at(reader, i)); i++) {
        struct tensor t = TENSOR_INIT;
        struct tensor_slice all = tensor_slice_all(slices_tensor_shape(tensor).rank, &arena);
        status_unref(slices_reader_read(reader, tensor, &all, allocator, &t));
        tensor_clear(&t);
    }
    status_unref(st);
    slices_reader_close(reader);
    arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct allocator *allocator = allocator_host_new("fuzz", LIMIT_BYTES);
    struct sim_fs *sim = sim_fs_new();
    struct span in = {(const char *)data + 1, size > 0 ? size - 1 : 0};
    int mode = size > 0 ? data[0] & 3 : 2;
    if (mode == 0)
        write_file(sim, "d/m.index", take_chunk(&in));
    else if (mode == 1)
        write_table(sim, "d/m.index", &in, true);
    else if (mode == 2)
        write_file(sim, "d/m", in);
    else
        write_table(sim, "d/m", &in, false);
    if (mode < 2) {
        write_file(sim, "d/m.data-00000-of-00001", in);
        read_bundle(sim, allocator);
    } else {
        read_slices(sim, allocator);
    }
    CHECK(sim_n_open(sim) == 0);
    sim_fs_free(sim);
    allocator_host_free(allocator);
    return 0;
}

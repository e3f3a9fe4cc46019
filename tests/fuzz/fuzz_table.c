/* Reads a table with one block that a stranger wrote, past its checksum: entries, restarts, Snappy.
 *
 *   input   the block's type (0 plain, 1 Snappy, others unknown), then its bytes. The rest of the
 *           table is valid. */
#include "common/io/crc32c.h"
#include "common/io/table.h"
#include "tests/unit/common/sim_fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_ENTRIES = 1000 };

static struct table_range add_block(struct str *out, struct span bytes, char type) {
    struct table_range range = {(int64_t)out->len, (int64_t)bytes.len};
    str_add_bytes(out, bytes.data, bytes.len);
    str_add_char(out, type);
    uint32_t crc = crc32c_mask(crc32c(out->data + range.offset, bytes.len + 1));
    str_add_bytes(out, &crc, sizeof(crc));
    return range;
}

static void build(struct str *out, struct span bytes, char type) {
    struct table_block_builder index = {.interval = 1}, empty = {.interval = 1};
    struct str value = STR_INIT;
    uint64_t magic = TABLE_MAGIC;
    table_range_add(&value, add_block(out, bytes, type));
    table_block_add(&index, span_of("\xff\xff"), (struct span){value.data, value.len});
    struct table_range metaindex_range = add_block(out, table_block_end(&empty), 0);
    struct table_range index_range = add_block(out, table_block_end(&index), 0);
    size_t begin = out->len;
    table_range_add(out, metaindex_range);
    table_range_add(out, index_range);
    while (out->len < begin + TABLE_FOOTER_BYTES - 8)
        str_add_char(out, '\0');
    str_add_bytes(out, &magic, sizeof(magic));
    table_block_fini(&index);
    table_block_fini(&empty);
    str_fini(&value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sim_fs *sim = sim_fs_new();
    struct file_sink sink = FILE_SINK_INIT;
    struct str file = STR_INIT;
    struct table_reader reader;
    struct table_iter iter;
    build(&file, (struct span){(const char *)data + 1, size > 0 ? size - 1 : 0},
          size > 0 ? (char)data[0] : 0);
    struct status *st = file_sink_open(&sink, &sim->fs, "d/t");
    CHECK(!st);
    st = file_sink_write(&sink, file.data, file.len);
    CHECK(!st);
    st = file_sink_finish(&sink);
    CHECK(!st);
    file_sink_fini(&sink);
    st = table_reader_open(&reader, &sim->fs, "d/t");
    CHECK(!st);
    table_iter_init(&iter, &reader);
    st = table_iter_seek(&iter, (struct span){"", 0});
    for (int i = 0; !st && iter.is_valid && i < MAX_ENTRIES; i++)
        st = table_iter_next(&iter);
    status_unref(st);
    table_iter_fini(&iter);
    table_reader_close(&reader);
    sim_fs_free(sim);
    str_fini(&file);
    return 0;
}

/* Writes a table, block after block, without compression: large data of a checkpoint are not in
 * tables. */
#include "common/io/crc32c.h"
#include "common/io/table.h"

enum { BLOCK_BYTES = 256 * 1024 };

void table_writer_init(struct table_writer *writer, struct file_sink *sink) {
    *writer = (struct table_writer){.sink = sink, .block_bytes = BLOCK_BYTES};
    writer->block.interval = TABLE_RESTART_INTERVAL;
    writer->index.interval = 1;
}

void table_writer_fini(struct table_writer *writer) {
    table_block_fini(&writer->block);
    table_block_fini(&writer->index);
}

static struct status *write_block(struct table_writer *writer, struct table_block_builder *block,
                                  struct table_range *ret) {
    struct span data = table_block_end(block);
    char trailer[TABLE_BLOCK_TRAILER_BYTES] = {0};
    uint32_t crc = crc32c_mask(crc32c_extend(crc32c(data.data, data.len), trailer, 1));
    memcpy(trailer + 1, &crc, sizeof(crc));
    *ret = (struct table_range){file_sink_offset(writer->sink), (int64_t)data.len};
    TRY(file_sink_write(writer->sink, data.data, data.len));
    return file_sink_write(writer->sink, trailer, sizeof(trailer));
}

static struct status *end_data_block(struct table_writer *writer) {
    struct table_range range;
    struct str value = STR_INIT;
    if (writer->block.n_restarts == 0)
        return NULL;
    TRY(write_block(writer, &writer->block, &range));
    table_range_add(&value, range);
    table_block_add(&writer->index,
                    (struct span){str_text(&writer->block.last_key), writer->block.last_key.len},
                    (struct span){value.data, value.len});
    table_block_clear(&writer->block);
    str_fini(&value);
    return NULL;
}

struct status *table_writer_add(struct table_writer *writer, struct span key, struct span value) {
    struct span last = {str_text(&writer->block.last_key), writer->block.last_key.len};
    CHECK(writer->block.n_restarts == 0 || table_compare(last, key) < 0);
    table_block_add(&writer->block, key, value);
    return writer->block.data.len >= writer->block_bytes ? end_data_block(writer) : NULL;
}

struct status *table_writer_finish(struct table_writer *writer) {
    struct table_range metaindex, index;
    struct str footer = STR_INIT;
    TRY(end_data_block(writer));
    TRY(write_block(writer, &writer->block, &metaindex));
    TRY(write_block(writer, &writer->index, &index));
    table_range_add(&footer, metaindex);
    table_range_add(&footer, index);
    while (footer.len < TABLE_FOOTER_BYTES - 8)
        str_add_char(&footer, '\0');
    uint64_t magic = TABLE_MAGIC;
    str_add_bytes(&footer, &magic, sizeof(magic));
    struct status *st = file_sink_write(writer->sink, footer.data, footer.len);
    str_fini(&footer);
    return st;
}

/* Fuzzes both ends of the calls by which tasks read checkpoints that only one of them has
 * (kernels/host/files/checkpoint_peer.h). The first byte chooses what the other bytes are:
 *
 *   0  the bytes of a request: the owner replies
 *   1  a request's fields, with the identity that the file has: the owner replies
 *   2  the bytes of a reply: the caller reads it
 *   3  the replies of a lying task while its checkpoint is fetched: the caller's whole path
 *   4  the same while the checkpoint is restored
 *
 * No call may read a file outside of the root or remove a file that this process has not saved,
 * and a fetch that fails must leave no file. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/list.h"
#include "common/io/crc32c.h"
#include "common/io/file_root.h"
#include "common/tensor/tensor_proto.h"
#include "kernels/host/files/checkpoint_peer.h"
#include "tests/fuzz/input_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_TASKS = 2, N_ELEMENTS = 300, MAX_FLIPS = 8, MODES = 5 };

#define KEPT "root/kept/model"
#define OWN "root/own/model"
#define SECRET "what lies outside of the root is nobody's"

static void check(struct status *st) { CHECK(!st); }

/* ---- the files: kept/model of two data files, link → outside ---- */

static void write_bundle(const char *prefix, const char *name) {
    struct bundle_writer *writer = NULL;
    struct tensor numbers = TENSOR_INIT, strings = TENSOR_INIT;
    int64_t dims[] = {N_ELEMENTS}, few[] = {2};
    char other[32];
    snprintf(other, sizeof(other), "%s_s", name);
    check(tensor_new(allocator_host(), DT_INT32, (struct shape){1, dims}, &numbers));
    check(tensor_new(allocator_host(), DT_STRING, (struct shape){1, few}, &strings));
    for (int i = 0; i < N_ELEMENTS; i++)
        ((int32_t *)tensor_data(&numbers))[i] = i;
    tensor_set_string(&strings, 0, "a word", 6);
    tensor_set_string(&strings, 1, "", 0);
    check(bundle_writer_new(&file_system_posix, prefix, &writer));
    check(bundle_writer_add(writer, span_of(name), &numbers));
    check(bundle_writer_add(writer, span_of(other), &strings));
    check(bundle_writer_finish(writer));
    bundle_writer_free(writer);
    tensor_clear(&numbers);
    tensor_clear(&strings);
}

/* a name of one length: what is asked is as long in every run */
static char base[] = "/tmp/millrace-fuzz-ask-XXXXXX";

/* Of the system; valid for seven more. */
static const char *below(const char *name) {
    static char text[8][128];
    static int next;
    char *path = text[next++ % 8];
    snprintf(path, sizeof(text[0]), "%s/%s", base, name);
    return path;
}

static void remove_base(void) {
    char command[64];
    snprintf(command, sizeof(command), "rm -r %s", base);
    CHECK(system(command) == 0);
}

static void make_dir(const char *name) { CHECK(mkdir(below(name), 0755) == 0); }

static void start(void) {
    CHECK(mkdtemp(base));
    atexit(remove_base);
    make_dir("root");
    make_dir("root/kept");
    make_dir("root/fetched");
    make_dir("outside");
    FILE *file = fopen(below("outside/model.index"), "wb");
    CHECK(file && fputs(SECRET, file) >= 0 && fclose(file) == 0);
    CHECK(symlink("../outside", below("root/link")) == 0);
    CHECK(symlink("../../outside/model.index", below("root/kept/odd.index")) == 0);
    CHECK(symlink("../../outside/model.index", below("root/kept/odd.data-00000-of-00001")) == 0);
    const char *parts[] = {below("root/a/part"), below("root/b/part")}, *roots[] = {below("root")};
    check(file_roots_set(roots, 1));
    write_bundle(parts[0], "v");
    write_bundle(parts[1], "w");
    check(bundle_merge(&file_system_posix, parts, 2, below(KEPT), false));
}

/* The files in a directory; removes them, too. */
static int n_files(const char *dir, bool removes) {
    DIR *folder = opendir(dir);
    int n = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.')
            continue;
        n++;
        CHECK(!removes || unlinkat(dirfd(folder), entry->d_name, 0) == 0);
    }
    if (folder)
        closedir(folder);
    return n;
}

static bool is_whole(const char *prefix) {
    struct bundle_reader *reader = NULL;
    struct status *st = bundle_reader_open(&file_system_posix, prefix, &reader);
    if (!st)
        st = bundle_check(reader);
    bool is_good = !st;
    status_unref(st);
    bundle_reader_close(reader);
    return is_good;
}

/* ---- the owner ---- */

static struct status *answer_to(struct span request, struct peer_reply *ret) {
    *ret = (struct peer_reply){.bytes = STR_INIT};
    struct status *st = checkpoint_serve(request, ret);
    CHECK(ret->payload_bytes <= PEER_MAX_PAYLOAD_BYTES && ret->bytes.len <= PEER_MAX_REPLY_BYTES);
    CHECK(!ret->payload_bytes || !memmem(ret->payload->data, ret->payload_bytes, SECRET, 10));
    return st;
}

static void ask(struct span request) {
    struct peer_reply answer;
    status_unref(answer_to(request, &answer));
    str_fini(&answer.bytes);
    buffer_unref(answer.payload);
}

/* As it is; and of a checkpoint that is there, if it is a request. */
static void try_request(void) {
    struct checkpoint_request parsed;
    struct str request = STR_INIT;
    struct status *st = checkpoint_request_parse(in, &parsed);
    ask(in);
    if (!st) {
        parsed.prefix = span_of(below(KEPT));
        checkpoint_request_print(&parsed, &request);
        ask((struct span){request.data, request.len});
    }
    status_unref(st);
    str_fini(&request);
}

static void try_fields(void) {
    static const char *const prefixes[] = {
        KEPT,       OWN, "root/link/model", "root/kept/odd", "root/kept/../../outside/model",
        "root/none"};
    struct str request = STR_INIT;
    struct checkpoint_listing found = {0};
    struct peer_reply answer;
    unsigned flags = take_byte(), kind = take_byte() % 5, which = take_byte();
    int shard = (int)take_byte() % 4 - 1, n_shards = (int)take_byte() % 4;
    uint64_t offset = take_byte();
    offset <<= take_byte() % 64;
    uint64_t n = take_byte();
    n <<= take_byte() % 24;
    const char *prefix = below(prefixes[which % ARRAY_LEN(prefixes)]);
    checkpoint_request_print(
        &(struct checkpoint_request){.kind = CHECKPOINT_LOOK, .prefix = span_of(prefix)}, &request);
    struct status *st = answer_to((struct span){request.data, request.len}, &answer);
    if (!st)
        check(checkpoint_listing_parse((struct span){str_text(&answer.bytes), answer.bytes.len},
                                       &found));
    status_unref(st);
    str_fini(&answer.bytes);
    const struct checkpoint_file *file =
        shard == INDEX_SHARD ? &found.index : checkpoint_listing_shard(&found, shard, n_shards);
    str_clear(&request);
    checkpoint_request_print(
        &(struct checkpoint_request){.kind = (enum checkpoint_request_kind)kind,
                                     .prefix = span_of(prefix),
                                     .shard = shard,
                                     .n_shards = n_shards,
                                     .offset = offset,
                                     .n = n,
                                     .identity = file ? file->identity ^ (flags & 1) : 0,
                                     .removes_dir = (flags & 2) != 0},
        &request);
    ask((struct span){request.data, request.len});
    checkpoint_listing_fini(&found);
    str_fini(&request);
}

/* ---- the asker ---- */

/* What is understood is printed and understood again. */
static void try_answer(void) {
    struct checkpoint_listing found, again;
    struct str text = STR_INIT, second = STR_INIT;
    struct status *st = checkpoint_listing_parse(in, &found);
    CHECK(found.n_shards <= LISTING_MAX_SHARDS);
    if (!st) {
        checkpoint_listing_print(&found, &text);
        check(checkpoint_listing_parse((struct span){str_text(&text), text.len}, &again));
        checkpoint_listing_print(&again, &second);
        CHECK(text.len == second.len && memcmp(str_text(&text), str_text(&second), text.len) == 0);
        checkpoint_listing_fini(&again);
    }
    status_unref(st);
    checkpoint_listing_fini(&found);
    str_fini(&text);
    str_fini(&second);
}

/* The host of an asking kernel: other tasks that answer as the bytes say, each request when its
 * turn comes. */
static struct list asked;
static struct pool_task *io_first, **io_last = &io_first;
static bool is_done;

static int host_count(struct kernel_ctx *ctx) { return N_TASKS; }
static const char *host_name(struct kernel_ctx *ctx, int task) {
    return task ? "/job:ps/task:1" : "/job:ps/task:0";
}
static void host_done(struct kernel_ctx *ctx) { is_done = true; }

static void host_submit(struct kernel_ctx *ctx, struct pool_task *task) {
    task->next = NULL;
    *io_last = task;
    io_last = &task->next;
}

static void host_call(struct kernel_ctx *ctx, struct peer_call *call) {
    CHECK(call->request.len <= PEER_MAX_REQUEST_BYTES);
    call->reply = STR_INIT;
    list_push_back(&asked, &call->link);
}

static const struct kernel_host host = {.done = host_done,
                                        .submit_io = host_submit,
                                        .peer_count = host_count,
                                        .peer_name = host_name,
                                        .peer_call_start = host_call};

/* Some bytes of an answer changed; its checksum, if it is to be believed, made again. */
static void twist(char *bytes, size_t n, unsigned flips) {
    for (unsigned i = 0; i < flips; i++) {
        size_t at = take_byte();
        at = at << 8 | take_byte();
        unsigned with = take_byte();
        if (n > 0)
            bytes[at % n] ^= (char)with;
    }
}

static void sign(struct peer_call *call) {
    str_clear(&call->reply);
    proto_add_fixed32(&call->reply, 1, crc32c(call->payload->data, call->payload_bytes));
}

static void answer_oddly(struct peer_call *call) {
    struct span bytes = take_chunk();
    struct span payload = take_chunk();
    str_add_bytes(&call->reply, bytes.data, bytes.len);
    call->payload = payload.len ? buffer_alloc(allocator_host(), payload.len) : NULL;
    call->payload_bytes = payload.len;
    if (payload.len)
        memcpy(call->payload->data, payload.data, payload.len);
    if (payload.len && !bytes.len)
        sign(call);
}

static void answer(struct peer_call *call) {
    unsigned how = take_byte(), flips = how >> 3 & (MAX_FLIPS - 1);
    struct peer_reply honest;
    if (how % 4 == 2) {
        int code = (int)take_byte() % 20;
        call->status = status_from_wire(code, take_chunk());
        if (call->status) {
            call->on_done(call);
            return;
        }
    }
    if (how % 4 == 3) {
        answer_oddly(call);
    } else {
        call->status = answer_to(call->request, &honest);
        call->reply = honest.bytes;
        call->payload = honest.payload;
        call->payload_bytes = honest.payload_bytes;
        if (how % 4 == 1)
            twist(call->payload ? call->payload->data : call->reply.data,
                  call->payload ? call->payload_bytes : call->reply.len, flips);
        if (how % 4 == 1 && how & 4 && call->payload)
            sign(call);
    }
    call->on_done(call);
}

static void turn_until_done(void) {
    while (!is_done) {
        struct list *link;
        struct pool_task *task = io_first;
        CHECK(task || !list_is_empty(&asked));
        if (task) {
            io_first = task->next;
            if (!io_first)
                io_last = &io_first;
            task->run(task);
        } else if ((link = list_pop_front(&asked))) {
            answer(LIST_ENTRY(link, struct peer_call, link));
        }
    }
    CHECK(!io_first && list_is_empty(&asked));
}

static struct status *fetch_status;

static void on_fetched(struct part_fetch *fetch, struct status *status_take) {
    fetch_status = status_take;
    is_done = true;
}

static void try_fetch(void) {
    struct kernel_ctx ctx = {.host = &host};
    struct part_fetch fetch = {.ctx = &ctx,
                               .prefix = below(KEPT),
                               .local_prefix = below("root/fetched/model"),
                               .on_end = on_fetched};
    part_fetch_start(&fetch);
    turn_until_done();
    bool is_there = !fetch_status && fetch.task >= 0;
    status_unref(fetch_status);
    CHECK(!is_there || is_whole(below("root/fetched/model")));
    CHECK(is_there == (n_files(below("root/fetched"), true) > 0));
}

static void set_strings(struct tensor *t, int rank, const char *const *texts, int64_t n) {
    check(tensor_new(allocator_host(), DT_STRING, (struct shape){rank, &n}, t));
    for (int64_t i = 0; i < n; i++)
        tensor_set_string(t, i, texts[i], strlen(texts[i]));
}

static void try_restore(void) {
    static const char *const names[] = {"v", "w", "v_s", "w_s"}, *const slices[] = {"", "300 7,20",
                                                                                    "", ""};
    static const uint8_t out_types[] = {DT_INT32, DT_INT32, DT_STRING, DT_STRING};
    struct tensor inputs[3] = {TENSOR_INIT, TENSOR_INIT, TENSOR_INIT},
                  outputs[4] = {TENSOR_INIT, TENSOR_INIT, TENSOR_INIT, TENSOR_INIT};
    struct kernel_instance instance = {
        .allocator = allocator_host(), .n_inputs = 3, .n_outputs = 4, .out_types = out_types};
    struct kernel_ctx ctx = {
        .inputs = inputs, .outputs = outputs, .instance = &instance, .host = &host};
    const char *prefix = below(KEPT);
    set_strings(&inputs[0], 0, &prefix, 1);
    set_strings(&inputs[1], 1, names, 4);
    set_strings(&inputs[2], 1, slices, 4);
    checkpoint_remote_restore(&ctx);
    turn_until_done();
    for (int i = 0; i < 4; i++) {
        CHECK(ctx.status || outputs[i].dtype == out_types[i]);
        tensor_clear(&outputs[i]);
    }
    for (int i = 0; i < 3; i++)
        tensor_clear(&inputs[i]);
    status_unref(ctx.status);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool is_started;
    if (!is_started)
        start();
    is_started = true;
    list_init(&asked);
    is_done = false;
    if (access(below(OWN ".index"), F_OK) < 0) { /* what may be removed */
        write_bundle(below(OWN), "v");
        checkpoint_note_saved(below(OWN));
    }
    in = (struct span){(const char *)data, size};
    switch (take_byte() % MODES) {
    case 0:
        try_request();
        break;
    case 1:
        try_fields();
        break;
    case 2:
        try_answer();
        break;
    case 3:
        try_fetch();
        break;
    default:
        try_restore();
    }
    CHECK(n_files(below("outside"), false) == 1 && n_files(below("root/kept"), false) == 5);
    return 0;
}

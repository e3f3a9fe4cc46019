/* Fuzzes what is read from etcd: replies of the gateway, registrations and keys; and the header of
 * a relayed connection. The first byte chooses. */
#include <stdlib.h>

#include "rpc/membership/etcd_message.h"
#include "rpc/grpc/grpc_preface.h"
#include "rpc/membership/member.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What a reply names lies in it: every string is read once. */
static size_t read_range(const struct etcd_range *range) {
    size_t n = 0;
    for (int i = 0; i < range->n; i++)
        n += strlen(range->kvs[i].key) + strlen(range->kvs[i].value.data);
    return n;
}

static void try_reply(struct span text) {
    struct etcd_reply reply;
    etcd_reply_init(&reply);
    struct status *st = etcd_reply_parse(text, &reply);
    for (int i = 0; !st && i < reply.n_ranges; i++)
        CHECK(read_range(&reply.ranges[i]) <= text.len);
    for (int i = 0; !st && i < reply.n_events; i++)
        CHECK(reply.events[i].kv.key != NULL);
    status_unref(st);
    etcd_reply_fini(&reply);
    status_unref(etcd_failure_parse(text.len % 2 ? 503 : 404, text));
}

/* What was accepted is written as something that is accepted again, and written the same. */
static void try_member(struct span text) {
    struct cluster_member member, again;
    struct str first = STR_INIT, second = STR_INIT;
    struct arena arena;
    arena_init(&arena);
    struct status *st = member_parse(text, &arena, &member);
    if (!st) {
        member_write(&member, &first);
        struct status *bad = member_parse((struct span){first.data, first.len}, &arena, &again);
        CHECK(!bad);
        member_write(&again, &second);
        CHECK(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    }
    status_unref(st);
    str_fini(&first);
    str_fini(&second);
    arena_fini(&arena);
}

static void try_key(struct span text) {
    char *key = xstrndup(text.data, text.len);
    struct str task = STR_INIT;
    if (member_read_task_key("c", key, &task))
        CHECK(task.len > 0 && task.len < 128);
    status_unref(member_check_cluster(key));
    str_fini(&task);
    free(key);
}

/* In one piece or byte by byte: it comes to the same. */
static void try_preface(struct span text) {
    static struct grpc_preface whole, slow;
    enum grpc_preface_outcome outcome = PREFACE_MORE, slow_outcome = PREFACE_MORE;
    const char *data = text.data;
    size_t len = text.len;
    memset(&whole, 0, sizeof(whole));
    memset(&slow, 0, sizeof(slow));
    if (len > 0)
        outcome = grpc_preface_feed(&whole, &data, &len);
    for (size_t i = 0; i < text.len && slow_outcome == PREFACE_MORE; i++) {
        const char *byte = text.data + i;
        size_t one = 1;
        slow_outcome = grpc_preface_feed(&slow, &byte, &one);
    }
    CHECK(outcome == slow_outcome && strcmp(whole.task, slow.task) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const tries[])(struct span) = {try_reply, try_member, try_key, try_preface};
    if (size == 0)
        return 0;
    tries[data[0] % ARRAY_LEN(tries)]((struct span){(const char *)data + 1, size - 1});
    return 0;
}

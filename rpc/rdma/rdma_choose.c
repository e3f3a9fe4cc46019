/* Chooses the RDMA device, its port and its address. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "rpc/rdma/rdma_device.h"

enum { MAX_PORT = 255, MAX_GID = 255 }; /* An address vector has no bits for a larger index. */

/* ---- what the user says ---- */

static bool parse_number(const char *text, int max, int *ret) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < 0 || value > max)
        return false;
    *ret = (int)value;
    return true;
}

struct status *rdma_choice_parse(const char *text, struct rdma_choice *ret) {
    *ret = (struct rdma_choice){.gid = -1};
    if (!text || !*text)
        return NULL;
    char copy[128];
    if ((size_t)snprintf(copy, sizeof(copy), "%s", text) >= sizeof(copy))
        return status_invalid("rdma-device: the name has %zu bytes, which is too long",
                              strlen(text));
    char *rest = copy, *name = strsep(&rest, ":"), *port = strsep(&rest, ":"),
         *gid = strsep(&rest, ":");
    if (rest || (port && !parse_number(port, MAX_PORT, &ret->port)) ||
        (gid && !parse_number(gid, MAX_GID, &ret->gid)) || (port && ret->port == 0) ||
        (size_t)snprintf(ret->name, sizeof(ret->name), "%s", name) >= sizeof(ret->name))
        return status_invalid("rdma-device: '%s' is not NAME[:PORT[:GID]]", text);
    return NULL;
}

/* ---- addresses ---- */

static bool is_ipv4(const union ibv_gid *gid) {
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(gid->raw, prefix, sizeof(prefix)) == 0;
}
static bool is_link_local(const union ibv_gid *gid) {
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

/* How well other hosts can reach the address; 0 means not at all. */
static int rate_gid(const struct ibv_gid_entry *entry, bool is_ethernet) {
    if (!is_ethernet)
        return 1;
    if (entry->gid_type != IBV_GID_TYPE_ROCE_V2 || is_link_local(&entry->gid))
        return 0;
    return is_ipv4(&entry->gid) ? 2 : 1;
}

static bool choose_gid(const struct verbs *verbs, const struct rdma_choice *choice, int n_gids,
                       struct rdma_port *port) {
    int best = 0, first = choice->gid >= 0 ? choice->gid : 0,
        end = choice->gid >= 0 ? choice->gid + 1 : MIN(n_gids, MAX_GID + 1);
    for (int i = first; i < end && best < 2; i++) {
        struct ibv_gid_entry entry;
        if (verbs->query_gid(port->context, port->number, (uint32_t)i, &entry) != 0)
            continue; /* an unused entry of the table */
        int rating = choice->gid >= 0 ? 2 : rate_gid(&entry, port->is_ethernet);
        if (rating <= best)
            continue;
        best = rating;
        port->gid_index = entry.gid_index;
        port->gid = entry.gid;
    }
    return best > 0;
}

/* ---- ports and devices ---- */

/* Returns NULL when the port serves, else what it lacks. */
static const char *try_port(const struct verbs *verbs, const struct rdma_choice *choice,
                            struct rdma_port *port) {
    struct ibv_port_attr attr;
    if (verbs->query_port(port->context, port->number, &attr) != 0)
        return "cannot be queried";
    if (attr.state != IBV_PORT_ACTIVE)
        return "is not active";
    port->is_ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    port->lid = attr.lid;
    port->mtu = attr.active_mtu;
    port->max_message_bytes = attr.max_msg_sz;
    if (attr.max_msg_sz == 0 || attr.active_mtu < IBV_MTU_256 || attr.active_mtu > IBV_MTU_4096)
        return "reports no message size or no MTU";
    return choose_gid(verbs, choice, attr.gid_tbl_len, port)
               ? NULL
               : "has no RoCE v2 address that others can route to";
}

static bool try_device(const struct verbs *verbs, const struct rdma_choice *choice,
                       struct ibv_device *device, struct rdma_port *ret, struct str *why) {
    const char *name = verbs->get_device_name(device), *lack = "has no port";
    struct rdma_port port = {.name = name, .number = 1};
    if (*choice->name && strcmp(choice->name, name) != 0)
        return false;
    if (device->transport_type == IBV_TRANSPORT_IWARP) {
        str_addf(why, "; %s is iWARP, which has no WRITE WITH IMM", name);
        return false;
    }
    port.context = verbs->open_device(device);
    if (!port.context) {
        str_addf(why, "; %s does not open: %s", name, strerror(errno));
        return false;
    }
    int first = choice->port > 0 ? choice->port : 1;
    /* no device has more than two ports */
    for (int number = first; number <= (choice->port > 0 ? first : 2); number++) {
        port.number = (uint8_t)number;
        const char *why_not = try_port(verbs, choice, &port);
        if (!why_not) {
            port.name = verbs->get_device_name(device);
            *ret = port;
            return true;
        }
        if (number == first)
            lack = why_not;
    }
    verbs->close_device(port.context);
    str_addf(why, "; port %d of %s %s", first, name, lack);
    return false;
}

struct status *rdma_port_choose(const struct verbs *verbs, const struct rdma_choice *choice,
                                struct rdma_port *ret) {
    struct str why = STR_INIT;
    int n = 0;
    bool is_found = false;
    struct ibv_device **devices = verbs->get_device_list(&n);
    for (int i = 0; devices && i < n && !is_found; i++)
        is_found = try_device(verbs, choice, devices[i], ret, &why);
    if (devices)
        verbs->free_device_list(devices); /* the chosen device stays open */
    struct status *st = NULL;
    if (!is_found)
        st = status_failed_precondition("this host has no RDMA device%s%s that serves%s",
                                        *choice->name ? " " : "", choice->name, str_text(&why));
    str_fini(&why);
    return st;
}

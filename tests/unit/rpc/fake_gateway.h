/* An HTTP server that stands in for etcd. Each connection has a thread, and a function of the test
 * writes the replies. */
#ifndef MILLRACE_TESTS_UNIT_RPC_FAKE_GATEWAY_H
#define MILLRACE_TESTS_UNIT_RPC_FAKE_GATEWAY_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/str.h"

struct fake_gateway {
    struct fake_gateway *next; /* the list of all gateways */
    int fd, port;
    pthread_t thread;
    pthread_mutex_t lock; /* held while `answer` runs */
    void *arg;
    /* Writes the body and returns the HTTP status, or one of these:
     *    0  closes the connection without a reply
     *   -1  sends nothing until the peer closes the connection
     *   -2  the body begins a stream that does not end
     *   -3  the body is a stream that ends */
    int (*answer)(void *arg, const char *path, const char *body, struct str *out);
};

struct fake_connection {
    struct fake_gateway *gateway;
    int fd;
};

static inline void fake_write(int fd, const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        data += n;
        len -= (size_t)n;
    }
}

/* Reads a request's path and body. Returns false at the end of the connection. */
static inline bool fake_read(int fd, struct str *request, char *path, size_t path_size,
                             const char **ret_body) {
    str_clear(request);
    for (;;) {
        char *end = request->len ? strstr(request->data, "\r\n\r\n") : NULL;
        const char *length = end ? strcasestr(request->data, "content-length:") : NULL;
        size_t wanted = length && length < end ? strtoul(length + 15, NULL, 10) : 0;
        if (end && request->len >= (size_t)(end + 4 - request->data) + wanted) {
            const char *from = strchr(request->data, ' ') + 1;
            snprintf(path, path_size, "%.*s", (int)strcspn(from, " "), from);
            *ret_body = end + 4;
            return true;
        }
        char bytes[4096];
        ssize_t n = read(fd, bytes, sizeof(bytes));
        if (n <= 0)
            return false;
        str_add_bytes(request, bytes, (size_t)n);
    }
}

static inline void *fake_serve(void *arg) {
    struct fake_connection connection = *(struct fake_connection *)arg;
    struct fake_gateway *gateway = connection.gateway;
    struct str request = STR_INIT, head = STR_INIT, out = STR_INIT;
    char path[256];
    const char *body;
    int code = 200;
    free(arg);
    while (code > 0 && fake_read(connection.fd, &request, path, sizeof(path), &body)) {
        str_clear(&head);
        str_clear(&out);
        pthread_mutex_lock(&gateway->lock);
        code = gateway->answer(gateway->arg, path, body, &out);
        pthread_mutex_unlock(&gateway->lock);
        if (code > 0)
            str_addf(&head, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n", code, out.len);
        else if (code <= -2)
            str_add(&head, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        fake_write(connection.fd, str_text(&head), head.len);
        fake_write(connection.fd, str_text(&out), code == -1 ? 0 : out.len);
    }
    char byte;
    while ((code == -1 || code == -2) && read(connection.fd, &byte, 1) > 0)
        ;
    close(connection.fd);
    str_fini(&request);
    str_fini(&head);
    str_fini(&out);
    return NULL;
}

static inline void *fake_accept(void *arg) {
    struct fake_gateway *gateway = arg;
    int fd;
    while ((fd = accept(gateway->fd, NULL, NULL)) >= 0) {
        struct fake_connection *connection = malloc(sizeof(*connection));
        pthread_t thread;
        *connection = (struct fake_connection){gateway, fd};
        pthread_create(&thread, NULL, fake_serve, connection);
        pthread_detach(thread);
    }
    return NULL;
}

/* The gateway is never freed, because the threads of its connections may end after the test. */
static inline struct fake_gateway *
fake_gateway_new(int (*answer)(void *arg, const char *path, const char *body, struct str *out),
                 void *arg) {
    static struct fake_gateway *made;
    struct fake_gateway *gateway = calloc(1, sizeof(*gateway));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    gateway->next = made;
    made = gateway;
    gateway->answer = answer;
    gateway->arg = arg;
    pthread_mutex_init(&gateway->lock, NULL);
    gateway->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(gateway->fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
          listen(gateway->fd, 16) == 0);
    getsockname(gateway->fd, (struct sockaddr *)&address, &len);
    gateway->port = ntohs(address.sin_port);
    pthread_create(&gateway->thread, NULL, fake_accept, gateway);
    return gateway;
}

static inline void fake_gateway_stop(struct fake_gateway *gateway) {
    shutdown(gateway->fd, SHUT_RDWR);
    pthread_join(gateway->thread, NULL);
    close(gateway->fd);
}

#endif

/* Compares open files with the files that hold this process' secrets. */
#include "common/io/file_secret.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/base.h"

enum { MAX_SECRETS = 16, MEMORY_MAJOR = 1, MEM_MINOR = 1, KMEM_MINOR = 2, PORT_MINOR = 4 };

static struct secret {
    char *path; /* absolute */
    /* The file that was there first, or -1. It stays open, so that no other file gets its inode. */
    int first_fd;
} secrets[MAX_SECRETS];
static int n_secrets;

void file_secret_add(const char *path) {
    if (!path)
        return;
    CHECK(n_secrets < MAX_SECRETS);
    char *cwd = path[0] == '/' ? NULL : getcwd(NULL, 0);
    size_t size = strlen(path) + (cwd ? strlen(cwd) : 0) + 2;
    char *absolute = xmalloc(size);
    snprintf(absolute, size, "%s%s%s", cwd ? cwd : "", cwd ? "/" : "", path);
    free(cwd);
    secrets[n_secrets++] =
        (struct secret){.path = absolute, .first_fd = open(absolute, O_PATH | O_CLOEXEC)};
}

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* A disk, or the memory of the machine. */
static bool is_raw_device(const struct stat *info) {
    unsigned which = minor(info->st_rdev);
    return S_ISBLK(info->st_mode) ||
           (S_ISCHR(info->st_mode) && major(info->st_rdev) == MEMORY_MAJOR &&
            (which == MEM_MINOR || which == KMEM_MINOR || which == PORT_MINOR));
}

bool file_secret_is(int fd) {
    struct stat info, other;
    struct statfs system;
    if (fstat(fd, &info) != 0 || fstatfs(fd, &system) != 0)
        return true;
    if (system.f_type == PROC_SUPER_MAGIC || is_raw_device(&info))
        return true;
    for (int i = 0; i < n_secrets; i++) {
        if (secrets[i].first_fd >= 0 && fstat(secrets[i].first_fd, &other) == 0 &&
            is_same(&info, &other))
            return true;
        if (stat(secrets[i].path, &other) == 0 && is_same(&info, &other))
            return true;
    }
    return false;
}

/* A file system in memory for tests. It fails any call on demand. It logs all changes, and makes
 * from the log the states that a power cut may leave.
 *
 * A cut after the first k entries of the log keeps each write whose file was synced later, and each
 * change of a name (of a file or directory) whose directory was synced later. The contents of a
 * lost directory are lost. Other changes may be kept or lost in any combination; such a write may
 * be whole, half, or zeros. Changes of one name keep their order. Threads: one. */
#ifndef MILLRACE_TESTS_UNIT_COMMON_SIM_FS_H
#define MILLRACE_TESTS_UNIT_COMMON_SIM_FS_H

#include "common/io/file_system.h"

struct sim_file {
    char *data;
    size_t len;
};

enum sim_kind {
    SIM_CREATE,
    SIM_WRITE,
    SIM_SYNC,
    SIM_RENAME,
    SIM_UNLINK,
    SIM_MAKE_DIR,
    SIM_SYNC_DIR
};

struct sim_entry {
    enum sim_kind kind;
    char *path, *to; /* of names */
    int file;        /* number of the file */
    size_t offset, len;
    char *data;
};

struct sim_name {
    char *path;
    int file;
};

enum { SIM_MAX_OPEN = 64 };

struct sim_fs {
    struct file_system fs; /* first: what the code under test gets */
    struct sim_file *files;
    struct sim_name *names;
    struct sim_entry *log;
    char **dirs;
    int n_files, n_names, n_log, n_dirs;
    int open_files[SIM_MAX_OPEN]; /* file numbers by descriptor, -1 where free */
    /* How many calls succeed before one fails; -1: none fails. Reads count, too. */
    int fail_after, fail_error;
    bool fail_once;  /* only that call fails; otherwise all later calls fail, too */
    bool short_once; /* a write moves half of its bytes instead of failing */
    int n_calls;
};

struct sim_fs *sim_fs_new(void); /* with the directories "." and "d" */
void sim_fs_free(struct sim_fs *sim);
int sim_n_open(const struct sim_fs *sim);
/* Names in order; NULL at the end. */
const char *sim_name_at(const struct sim_fs *sim, int i);

/* How one state is chosen among those after k entries: */
struct sim_choice {
    enum { SIM_ALL, SIM_NONE, SIM_ALL_BUT, SIM_ONLY, SIM_RANDOM } how;
    int entry;     /* SIM_ALL_BUT, SIM_ONLY */
    uint64_t seed; /* SIM_RANDOM */
};
/* The files after the power cut. The first `n_settled` entries are on the disk. */
struct sim_fs *sim_after_cut(const struct sim_fs *sim, int n_settled, int k,
                             struct sim_choice choice);
/* May entry i be missing after k entries? */
bool sim_is_open(const struct sim_fs *sim, int i, int k);

#endif

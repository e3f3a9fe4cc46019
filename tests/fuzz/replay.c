/* Runs a fuzz target over the files of the folders named, as an ordinary test: corpora hold the
 * bugs that were found. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path) {
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file)
        return 0;
    size_t size = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    /* of its exact size, so that a sanitizer sees the end */
    uint8_t *copy = malloc(size ? size : 1);
    for (size_t i = 0; i < size; i++)
        copy[i] = bytes[i];
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    return 1;
}

int main(int argc, char **argv) {
    int n_files = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (!folder) {
            n_files += replay_file(argv[i]);
            continue;
        }
        for (struct dirent *entry; (entry = readdir(folder));) {
            char path[4096];
            snprintf(path, sizeof(path), "%s/%s", argv[i], entry->d_name);
            if (entry->d_name[0] != '.')
                n_files += replay_file(path);
        }
        closedir(folder);
    }
    printf("%d files\n", n_files);
    return n_files > 0 ? 0 : 1;
}

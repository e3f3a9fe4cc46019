/* Fuzzes loading SavedModels: any bytes as saved_model.pb end as an error, since no server listens.
 * A model that needs no server may be loaded.
 *
 *   input   which tags are asked for, and whether there are variables, then the file */
#include "client/c_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuzz/input_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char directory[] = "/tmp/millrace-fuzz-model-XXXXXX";

static void write_file(const char *name, struct span bytes) {
    char path[sizeof(directory) + 64];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(bytes.data, 1, bytes.len, file) == bytes.len);
    fclose(file);
}

static void remove_file(const char *name) {
    char path[sizeof(directory) + 64];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    remove(path);
}

static void remove_directory(void) {
    remove_file("saved_model.pb");
    remove_file("variables/variables.index");
    remove_file("variables");
    remove(directory);
}

/* Once: the folder of the model, on a file system in memory where there is one. */
static void make_directory(void) {
    static bool is_made;
    if (is_made)
        return;
    CHECK(mkdtemp(directory));
    char path[sizeof(directory) + 16];
    snprintf(path, sizeof(path), "%s/variables", directory);
    CHECK(mkdir(path, 0700) == 0);
    atexit(remove_directory);
    is_made = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const tags[] = {"serve", "train", "gpu"};
    make_directory();
    in = (struct span){(const char *)data, size};
    unsigned choice = take_byte();
    write_file("saved_model.pb", in);
    if (choice & 64)
        write_file("variables/variables.index", (struct span){"", 0});
    else
        remove_file("variables/variables.index");
    TF_Status *status = TF_NewStatus();
    TF_Graph *graph = TF_NewGraph();
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_SetTarget(options, "grpc://127.0.0.1:1"); /* nobody listens there */
    TF_Buffer *meta_graph = choice & 128 ? TF_NewBuffer() : NULL;
    TF_Session *session = TF_LoadSessionFromSavedModel(
        options, NULL, directory, tags, (int)(choice % 4), graph, meta_graph, status);
    if ((session != NULL) != (TF_GetCode(status) == TF_OK))
        abort();
    if (session)
        TF_DeleteSession(session, status);
    TF_DeleteBuffer(meta_graph);
    TF_DeleteSessionOptions(options);
    TF_DeleteGraph(graph);
    TF_DeleteStatus(status);
    return 0;
}

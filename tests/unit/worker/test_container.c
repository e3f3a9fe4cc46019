/* Containers: names, kinds, Reset, entries that handles keep, and threads that meet on one name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <pthread.h>

#include "worker/container.h"

struct thing {
    struct object object;
    int number;
};

static _Atomic int n_things;

static void thing_free(struct object *object) {
    atomic_fetch_sub(&n_things, 1);
    free(CONTAINER_OF(object, struct thing, object));
}

static const struct object_type thing_type = {.name = "thing", .free = thing_free};
static const struct object_type other_type = {.name = "other", .free = thing_free};

static struct status *make_thing(void *arg, struct object **ret) {
    struct thing *thing = xmalloc(sizeof(*thing));
    object_init(&thing->object, &thing_type);
    thing->number = *(int *)arg;
    atomic_fetch_add(&n_things, 1);
    *ret = &thing->object;
    return NULL;
}

static struct status *make_other(void *arg, struct object **ret) {
    TRY(make_thing(arg, ret));
    (*ret)->type = &other_type;
    return NULL;
}

static struct status *fail_to_make(void *arg, struct object **ret) {
    return status_exhausted("no things left");
}

static struct container_table *table;

/* A container of the host's memory. */
static struct container_place at(const char *container) {
    return (struct container_place){container, ""};
}

static int setup(void **state) {
    table = container_table_new();
    return 0;
}

static int teardown(void **state) {
    container_table_free(table);
    assert_int_equal(n_things, 0);
    return 0;
}

static void put_at(struct container_place place, const char *name, int number) {
    struct object *made;
    assert_null(
        container_lookup_or_create(table, place, name, &thing_type, make_thing, &number, &made));
    object_unref(made);
}

static void put(const char *container, const char *name, int number) {
    put_at(at(container), name, number);
}

static int number_of(struct status *st, struct object *object) {
    assert_null(st);
    int number = CONTAINER_OF(object, struct thing, object)->number;
    object_unref(object);
    return number;
}

static int get(const char *container, const char *name) {
    struct object *found = NULL;
    struct status *st = container_lookup(table, at(container), name, &thing_type, &found);
    return number_of(st, found);
}

static void expect(struct status *st, enum status_code code, const char *words) {
    assert_int_equal(status_code(st), code);
    if (!strstr(status_message(st), words))
        fail_msg("\"%s\" does not say \"%s\"", status_message(st), words);
    status_unref(st);
}

static void a_resource_is_found_by_container_and_name(void **state) {
    put("", "v", 1);
    put("c", "v", 2);
    put("", "w", 3);
    assert_int_equal(get("", "v"), 1);
    assert_int_equal(get("localhost", "v"), 1); /* the default's name */
    assert_int_equal(get("c", "v"), 2);
    assert_int_equal(container_n_resources(table), 3);
    put("c", "v", 9); /* is there already */
    assert_int_equal(get("c", "v"), 2);
}

static void a_missing_resource_is_named(void **state) {
    struct object *found;
    expect(container_lookup(table, at("c"), "nothing", &thing_type, &found), STATUS_NOT_FOUND,
           "Resource c/nothing/thing does not exist.");
    expect(container_delete(table, at(""), "nothing", "thing"), STATUS_NOT_FOUND, "nothing");
}

static void kinds_have_names_of_their_own(void **state) {
    struct object *found;
    int number = 2;
    put("", "v", 1);
    expect(container_lookup(table, at(""), "v", &other_type, &found), STATUS_NOT_FOUND,
           "Resource localhost/v/other does not exist.");
    expect(container_delete(table, at(""), "v", "other"), STATUS_NOT_FOUND, "v/other");
    assert_null(
        container_lookup_or_create(table, at(""), "v", &other_type, make_other, &number, &found));
    assert_int_equal(number_of(NULL, found), 2);
    assert_int_equal(get("", "v"), 1);
    assert_int_equal(container_n_resources(table), 2);
    assert_null(container_delete(table, at(""), "v", "other"));
    assert_int_equal(get("", "v"), 1);
}

static void a_device_with_its_own_memory_has_its_own_resources(void **state) {
    const struct container_place gpu = {"", "/job:w/replica:0/task:0/device:GPU:0"};
    struct object *found;
    struct str page = STR_INIT;
    put("", "v", 1);
    expect(container_lookup(table, gpu, "v", &thing_type, &found), STATUS_NOT_FOUND,
           "Resource localhost/v/thing does not exist.");
    put_at(gpu, "v", 2);
    assert_int_equal(get("", "v"), 1);
    struct status *st = container_lookup(table, gpu, "v", &thing_type, &found);
    assert_int_equal(number_of(st, found), 2);
    assert_null(container_delete(table, at(""), "v", "thing"));
    container_describe(table, 100, &page);
    assert_string_equal(page.data,
                        "[{\"container\":\"localhost\",\"name\":\"v\",\"kind\":\"thing\","
                        "\"device\":\"/job:w/replica:0/task:0/device:GPU:0\"}]");
    str_fini(&page);
    container_reset(table, ""); /* of all devices */
    assert_int_equal(container_n_resources(table), 0);
}

static void a_failed_creation_leaves_nothing(void **state) {
    struct object *found;
    expect(container_lookup_or_create(table, at(""), "v", &thing_type, fail_to_make, NULL, &found),
           STATUS_RESOURCE_EXHAUSTED, "no things left");
    assert_int_equal(container_n_resources(table), 0);
}

static void deleting_lets_go_of_one(void **state) {
    put("", "v", 1);
    put("", "w", 2);
    assert_null(container_delete(table, at(""), "v", "thing"));
    assert_int_equal(container_n_resources(table), 1);
    assert_int_equal(n_things, 1);
    assert_int_equal(get("", "w"), 2);
}

static void reset_empties_one_container_or_all(void **state) {
    put("", "v", 1);
    put("c", "v", 2);
    put("d", "v", 3);
    container_reset(table, "c");
    assert_int_equal(n_things, 2);
    container_reset(table, "");
    assert_int_equal(n_things, 1);
    assert_int_equal(get("d", "v"), 3);
    container_reset(table, NULL);
    assert_int_equal(n_things, 0);
}

static void a_kept_entry_finds_what_is_there_now(void **state) {
    struct object *entry = container_entry(table, at("c"), "v", &thing_type), *found = NULL;
    int number = 7;
    expect(container_entry_lookup(table, entry, &found), STATUS_NOT_FOUND, "v");
    assert_null(container_entry_lookup_or_create(table, entry, make_thing, &number, &found));
    object_unref(found);
    assert_int_equal(get("c", "v"), 7);
    container_reset(table, "c");
    expect(container_entry_lookup(table, entry, &found), STATUS_NOT_FOUND, "v");
    put("c", "v", 8);
    struct status *st = container_entry_lookup(table, entry, &found);
    assert_int_equal(number_of(st, found), 8);
    struct object *again = container_entry(table, at("c"), "v", &thing_type);
    assert_ptr_equal(again, entry);
    object_unref(again);
    object_unref(entry);
    assert_int_equal(get("c", "v"), 8); /* a resource keeps its entry */
}

static void weak_references_keep_no_resources(void **state) {
    struct container_table *weak = container_table_ref_weak(table);
    struct object *entry = container_entry(weak, at("c"), "w", &thing_type), *found = NULL;
    int number = 2;
    put("c", "v", 1);
    container_table_free(table);
    assert_int_equal(n_things, 0);
    expect(container_entry_lookup_or_create(weak, entry, make_thing, &number, &found),
           STATUS_CANCELLED, "c/w/thing");
    expect(container_lookup_or_create(weak, at("c"), "v", &thing_type, make_thing, &number, &found),
           STATUS_CANCELLED, "c/v/thing");
    assert_int_equal(n_things, 0);
    container_table_unref_weak(weak);
    object_unref(entry);
    table = NULL;
}

static void an_entry_may_outlive_its_table(void **state) {
    struct object *entry = container_entry(table, at("c"), "v", &thing_type), *found;
    put("c", "v", 1);
    container_table_free(table);
    assert_int_equal(n_things, 0);
    expect(container_entry_lookup(NULL, entry, &found), STATUS_NOT_FOUND, "v");
    object_unref(entry);
    table = container_table_new();
}

static void names_that_do_not_fit_a_small_buffer_work(void **state) {
    char *name = malloc(5001);
    memset(name, 'n', 5000);
    name[5000] = '\0';
    put("c", name, 4);
    assert_int_equal(get("c", name), 4);
    free(name);
}

static void the_page_lists_resources(void **state) {
    struct str page = STR_INIT;
    put("c", "quo\"te", 1);
    container_describe(table, 100, &page);
    assert_string_equal(page.data,
                        "[{\"container\":\"c\",\"name\":\"quo\\\"te\",\"kind\":\"thing\"}]");
    str_fini(&page);
}

/* Threads create, find, keep and drop the same few names. */
static void *churn(void *arg) {
    static const char *const names[] = {"a", "b", "c"};
    unsigned seed = (unsigned)(uintptr_t)arg;
    for (int i = 0; i < 3000; i++) {
        const char *name = names[rand_r(&seed) % 3];
        struct object *found = NULL;
        int number = i;
        switch (rand_r(&seed) % 4) {
        case 0:
            assert_null(container_lookup_or_create(table, at(""), name, &thing_type, make_thing,
                                                   &number, &found));
            object_unref(found);
            break;
        case 1:
            status_unref(container_delete(table, at(""), name, "thing"));
            break;
        case 2: {
            struct object *entry = container_entry(table, at(""), name, &thing_type);
            struct status *st = container_entry_lookup(table, entry, &found);
            if (!st)
                object_unref(found);
            status_unref(st);
            object_unref(entry);
            break;
        }
        default:
            if (i % 100 == 0)
                container_reset(table, NULL);
        }
    }
    return NULL;
}

static void threads_may_meet_on_one_name(void **state) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_resource_is_found_by_container_and_name),
        TEST(a_missing_resource_is_named),
        TEST(kinds_have_names_of_their_own),
        TEST(a_device_with_its_own_memory_has_its_own_resources),
        TEST(a_failed_creation_leaves_nothing),
        TEST(deleting_lets_go_of_one),
        TEST(reset_empties_one_container_or_all),
        TEST(a_kept_entry_finds_what_is_there_now),
        TEST(weak_references_keep_no_resources),
        TEST(an_entry_may_outlive_its_table),
        TEST(names_that_do_not_fit_a_small_buffer_work),
        TEST(the_page_lists_resources),
        TEST(threads_may_meet_on_one_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

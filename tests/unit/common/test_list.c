/* The intrusive list: order, removal, splicing, removal while visiting. */
#include "common/base/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct item {
    int number;
    struct list link;
};

static void assert_numbers(struct list *head, const int *numbers, int n) {
    int i = 0;
    LIST_FOR_EACH (link, head) {
        assert_true(i < n);
        assert_int_equal(LIST_ENTRY(link, struct item, link)->number, numbers[i++]);
        assert_ptr_equal(link->next->prev, link);
    }
    assert_int_equal(i, n);
}

static void pushes_keep_order(void **state) {
    struct list head;
    struct item items[] = {{.number = 0}, {.number = 1}, {.number = 2}, {.number = 3}};
    list_init(&head);
    assert_true(list_is_empty(&head));
    assert_null(list_pop_front(&head));
    list_push_back(&head, &items[1].link);
    list_push_back(&head, &items[3].link);
    list_push_front(&head, &items[0].link);
    list_insert_before(&items[3].link, &items[2].link);
    assert_numbers(&head, (int[]){0, 1, 2, 3}, 4);
    assert_ptr_equal(list_pop_front(&head), &items[0].link);
    assert_numbers(&head, (int[]){1, 2, 3}, 3);
}

static void removing_twice_is_harmless(void **state) {
    struct list head;
    struct item items[] = {{.number = 0}, {.number = 1}};
    list_init(&head);
    list_push_back(&head, &items[0].link);
    list_push_back(&head, &items[1].link);
    list_remove(&items[0].link);
    list_remove(&items[0].link);
    assert_true(list_is_empty(&items[0].link));
    assert_numbers(&head, (int[]){1}, 1);
}

static void splicing_moves_all_and_empties_the_source(void **state) {
    struct list to, from;
    struct item items[] = {{.number = 0}, {.number = 1}, {.number = 2}};
    list_init(&to);
    list_init(&from);
    list_splice_back(&to, &from);
    assert_true(list_is_empty(&to));
    list_push_back(&from, &items[0].link);
    list_splice_back(&to, &from);
    list_push_back(&from, &items[1].link);
    list_push_back(&from, &items[2].link);
    list_splice_back(&to, &from);
    assert_true(list_is_empty(&from));
    assert_numbers(&to, (int[]){0, 1, 2}, 3);
}

static void a_visitor_may_remove_where_it_stands(void **state) {
    struct list head;
    struct item items[6];
    list_init(&head);
    for (int i = 0; i < 6; i++) {
        items[i].number = i;
        list_push_back(&head, &items[i].link);
    }
    LIST_FOR_EACH_SAFE (link, tmp, &head) {
        if (LIST_ENTRY(link, struct item, link)->number % 2 == 0)
            list_remove(link);
    }
    assert_numbers(&head, (int[]){1, 3, 5}, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_keep_order),
        cmocka_unit_test(removing_twice_is_harmless),
        cmocka_unit_test(splicing_moves_all_and_empties_the_source),
        cmocka_unit_test(a_visitor_may_remove_where_it_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

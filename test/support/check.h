/* check.h - included by every test: cmocka, and TEST(name). The name of a test says what the test checks. */
#ifndef FILCH_TEST_CHECK_H
#define FILCH_TEST_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TEST(name) static void name(void **cmocka_state __attribute__((unused)))
#define ok(call) assert_int_equal((call), 0)
#define same(got, want) assert_int_equal((got), (want))

#endif

/* header.c - what a user's file looks like to the compiler: only filch.h, as C99, C11 and C++17, with every warning on.
 * Compiled for its syntax by the tests header_c99, header_c11, header_cxx17; linked and run by install_test. */
#include <filch.h>

#ifndef __cplusplus
/* Designated initializers are C's; C++ users write `filch_options o = {}; o.size = sizeof o;`. */
static const filch_options       options = FILCH_OPTIONS_INIT;
static const filch_spawn_options spawn_options = FILCH_SPAWN_OPTIONS_INIT;
static const filch_report        report = FILCH_REPORT_INIT;
static const filch_stats         stats = FILCH_STATS_INIT;
#else
static filch_options       options = {};
static filch_spawn_options spawn_options = {};
static filch_report        report = {};
static filch_stats         stats = {};
#endif

int main(void)
{
    uint64_t span = FILCH_SECONDS(1) + FILCH_MILLISECONDS(1) + FILCH_MICROSECONDS(1);
    (void)options;
    (void)spawn_options;
    (void)report;
    (void)stats;
    return filch_version()[0] == '0' && filch_err_text(FILCH_OK) != NULL && span < FILCH_FOREVER ? 0 : 1;
}

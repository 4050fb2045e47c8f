/* other_run_test.c - a recording made by another run of this program, with other addresses, is replayed here: addresses
 * must not count as differences. The other run is this program with the argument "record". */
#include <stdio.h>
#include <unistd.h>

#include "api/fixture.h"
#include "support/until.h"

#define BROKEN (FILCH_EUSER + 9)

static filch_err child_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    (void)self;
    return has_cancel(events, count) ? filch_done(out, filch_none()) : filch_idle(out);
}

static filch_err nothing(void *arg, filch_data *result)
{
    (void)arg, (void)result;
    return FILCH_OK;
}

/* The process makes every kind of yield with pointers in its command, and some other yields. Then it fails. */
static filch_err clerk_step(void *self, const filch_event *events, size_t count, filch_out *out)
{
    static const filch_type child = { .name = "child", .step = child_step };
    uint64_t               *begun = self;
    (void)events, (void)count;
    if (*begun != 0) return BROKEN;
    *begun = 1;
    filch_err err = filch_yield_broadcast(out, 1, "group", filch_str("news"));
    err |= filch_yield_send_name(out, 2, "nobody", filch_int(5));
    err |= filch_yield_spawn(out, 3, &child, NULL);
    err |= filch_yield_exec(out, 4, &child, NULL);
    err |= filch_yield_work(out, 5, nothing, out);
    err |= filch_yield_join(out, 6, "group");
    err |= filch_yield_cancel(out, 7, (filch_pid){ 7, 7 }, BROKEN, 9);
    err |= filch_yield_read_until(out, 8, (filch_stream){ 9 }, "\n", 1, 100, 0);
    err |= filch_yield_connect(out, 9, "127.0.0.1:1", NULL);
    return err == FILCH_OK ? filch_wait(out) : err;
}

static const filch_type clerk = { .name = "clerk", .size = sizeof(uint64_t), .step = clerk_step };

static void write_out(void *user, filch_pid pid, filch_err error, const void *bytes, size_t size)
{
    (void)pid, (void)error;
    size_t *written = user;
    *written = fwrite(bytes, 1, size, stdout);
}

static int record(void)
{
    filch_options opt = FILCH_OPTIONS_INIT;
    filch_sched  *sched;
    size_t        written = 0;
    opt.workers = FILCH_NO_WORKERS;
    opt.on_blackbox = write_out;
    opt.on_blackbox_user = &written;
    opt.blackbox = FILCH_BLACKBOX_STEPS;
    opt.node = 1;
    if (filch_sched_create(&sched, &opt) != FILCH_OK) return 2;
    if (filch_spawn(sched, &clerk, NULL, NULL) != FILCH_OK) return 3;
    for (uint64_t end_ns = fli_clock_ns() + FILCH_SECONDS(60); written == 0 && fli_clock_ns() < end_ns;) {
        if (filch_tick(sched, 0, NULL) != FILCH_OK) return 4;
    }
    if (filch_sched_stop(sched, FILCH_SECONDS(60), NULL) != FILCH_OK) return 5;
    return written > 0 ? fflush(stdout) : 6;
}

TEST(a_recording_of_another_run_is_replayed_without_a_difference)
{
    char    self[500], command[700];
    uint8_t bytes[16384];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    self[length] = '\0';
    snprintf(command, sizeof command, "%s '%s' record", emulator() != NULL ? emulator() : "", self);
    for (int run = 0; run < 3; run++) {
        FILE *pipe = popen(command, "r");
        assert_non_null(pipe);
        size_t size = fread(bytes, 1, sizeof bytes, pipe);
        same(pclose(pipe), 0);
        assert_true(size > 0);
        filch_blackbox_report report = FILCH_BLACKBOX_REPORT_INIT;
        ok(filch_blackbox_replay(bytes, size, &clerk, &report));
        assert_string_equal(report.text, "");
        same(report.differs, 0);
        same(report.again, 1);
        same(report.error, BROKEN);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recording_of_another_run_is_replayed_without_a_difference),
    };
    if (argc == 2 && strcmp(argv[1], "record") == 0) return record();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

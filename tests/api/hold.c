/* SPDX-License-Identifier: Apache-2.0 */
/* What holds workers, and what they inherit: cgroups (as root, on a mount of this program's own), descriptors. */
#define _GNU_SOURCE
#include "kit.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char g_here[PATH_MAX];    /* the folder of the test programs */
static char g_mount[PATH_MAX];   /* of cgroup2 */
static char g_pids[PATH_MAX];    /* where workers note their numbers */
static const char *g_no_cgroups; /* why there are none; NULL = there are */

#define NEEDS_CGROUPS()                                                                                                    \
    do {                                                                                                                   \
        (void)state;                                                                                                       \
        if (g_no_cgroups) {                                                                                                \
            print_message("skip: %s\n", g_no_cgroups);                                                                     \
            skip();                                                                                                        \
        }                                                                                                                  \
    } while (0)

/* ------------------------------------------------------------------------------------------------------------- helpers */

static void text_of(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, size - 1);
    text[got > 0 ? got : 0] = '\0';
    if (fd >= 0) close(fd);
}

static double slack(void) {
    const char *given = getenv("UJOIN_TEST_SLACK");
    return given && atof(given) > 1 ? atof(given) : 1;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pause_ms(long ms) {
    const struct timespec t = {0, ms * 1000000};
    nanosleep(&t, NULL);
}

/* There and no zombie. */
static int runs(int pid) {
    char path[64];
    char text[512];
    const char *name_end;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    text_of(path, text, sizeof text);
    name_end = strrchr(text, ')');
    return name_end && name_end[2] != 'Z' && name_end[2] != 'X';
}

static int parent_of(int pid) {
    char path[64];
    char text[512];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    text_of(path, text, sizeof text);
    if (strrchr(text, ')')) sscanf(strrchr(text, ')') + 1, " %*c %d", &parent);
    return parent;
}

static size_t noted(int *pids, size_t most) {
    char text[4096];
    size_t count = 0;
    char *at = text;
    text_of(g_pids, text, sizeof text);
    while (count < most && *at) {
        char *end;
        long pid = strtol(at, &end, 10);
        if (*end != '\n') break;
        pids[count++] = (int)pid;
        at = end + 1;
    }
    return count;
}

static void wait_for_pids(int *pids, size_t count) {
    double end = now() + 30 * slack();
    while (noted(pids, count) < count) {
        if (now() > end) fail_msg("of %zu processes %zu have come", count, noted(pids, count));
        pause_ms(2);
    }
}

/* The directories of launcher `pid` below this program's cgroup. */
static int cgroups_of(int pid) {
    char text[PATH_MAX];
    char path[2 * PATH_MAX];
    char start[32];
    const char *own;
    int count = 0;
    DIR *list;
    struct dirent *entry;
    text_of("/proc/self/cgroup", text, sizeof text);
    own = strstr(text, "0::/");
    assert_non_null(own);
    snprintf(path, sizeof path, "%s%.*s", g_mount, (int)strcspn(own + 3, "\n"), own + 3);
    snprintf(start, sizeof start, "ujoin-%d-", pid);
    list = opendir(path);
    assert_non_null(list);
    while ((entry = readdir(list))) count += strncmp(entry->d_name, start, strlen(start)) == 0;
    closedir(list);
    return count;
}

static void assert_gone(const int *pids, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (runs(pids[i])) fail_msg("process %d still runs", pids[i]);
}

static void wait_until_gone(const int *pids, size_t count, int launcher) {
    double end = now() + 5 * slack(); /* promised within a second */
    size_t left = count;
    while (left > 0 || cgroups_of(launcher) > 0) {
        if (now() > end) fail_msg("%zu processes and %d cgroups are left", left, cgroups_of(launcher));
        left = 0;
        for (size_t i = 0; i < count; i++) left += (size_t)runs(pids[i]);
        pause_ms(2);
    }
}

static char g_output[4][4096]; /* by rank */

static ujoin_status keep_output(void *data, int32_t rank, ujoin_std stream, const char *text, size_t size) {
    size_t length = strlen(g_output[rank]);
    (void)data;
    (void)stream;
    if (length + size < sizeof g_output[rank]) {
        memcpy(g_output[rank] + length, text, size);
        g_output[rank][length + size] = '\0';
    }
    return UJOIN_OK;
}

/* A job of pctx_worker whose output comes to g_output. */
static ujoin_pctx *job_of(ujoin_containment containment, int nprocs, const char *const *args, size_t count) {
    char program[PATH_MAX + 32];
    ujoin_pctx_spec spec = {0};
    ujoin_pctx *job = NULL;
    memset(g_output, 0, sizeof g_output);
    snprintf(program, sizeof program, "%s/pctx_worker", g_here);
    spec.size = sizeof spec;
    spec.program = program;
    spec.args = args;
    spec.arg_count = count;
    spec.nprocs = nprocs;
    spec.log_dir = "/dev/null";
    spec.output = keep_output;
    spec.containment = containment;
    if (pctx_create(&spec, &job) != UJOIN_OK) fail_msg("%s", ujoin_last_error());
    return job;
}

static void need_ok(ujoin_status status) {
    if (status != UJOIN_OK) fail_msg("%s: %s", ujoin_status_name(status), ujoin_last_error());
}

static ujoin_worker_result result_of(ujoin_pctx *job, int32_t rank) {
    ujoin_worker_result result = {0};
    result.size = sizeof result;
    need_ok(pctx_get_result(job, rank, &result));
    return result;
}

/* ------------------------------------------------------------------------------------------------------------- cgroups */

/* Commands of a worker that leaves a tree; five numbers are noted. */
static void tree_args(char (*texts)[PATH_MAX + 32], const char **args) {
    static const char *const forms[] = {"child=plain,%s", "child=setsid,%s", "child=daemon,%s", "comet=%s", "pid=%s"};
    for (size_t i = 0; i < 5; i++) {
        snprintf(texts[i], sizeof texts[i], forms[i], g_pids);
        args[i] = texts[i];
    }
    args[5] = "forever";
    unlink(g_pids);
}

/* Two such workers in a cgroup, once all have noted their numbers. */
static ujoin_pctx *start_trees(int pids[10]) {
    char texts[5][PATH_MAX + 32];
    const char *args[6];
    ujoin_pctx *job;
    tree_args(texts, args);
    job = job_of(UJOIN_CONTAINMENT_CGROUP, 2, args, 6);
    need_ok(pctx_start(job));
    wait_for_pids(pids, 10);
    return job;
}

static void test_cgroup_holds_whole_trees(void **state) {
    int pids[10];
    ujoin_pctx *job;
    NEEDS_CGROUPS();
    job = start_trees(pids);
    assert_int_equal(cgroups_of(getpid()), 1);
    for (int32_t rank = 0; rank < 2; rank++) {
        ujoin_worker_result result = result_of(job, rank);
        char path[64];
        char text[PATH_MAX];
        assert_int_equal(result.containment, UJOIN_CONTAINMENT_CGROUP);
        snprintf(path, sizeof path, "/proc/%d/cgroup", result.pid);
        text_of(path, text, sizeof text);
        snprintf(path, sizeof path, "/ujoin-%d-", (int)getpid());
        assert_non_null(strstr(text, path));
    }
    assert_non_null(strstr(pctx_report_json(job), "\"containment\":\"cgroup\""));
    need_ok(pctx_close(job, SIGTERM, 0));
    assert_gone(pids, 10);
    assert_int_equal(cgroups_of(getpid()), 0); /* so the comet is gone, too */
    pctx_destroy(job);
}

static void test_cgroup_of_workers_that_end_well(void **state) {
    char left[PATH_MAX + 32];
    const char *args[] = {left, "out=done\\n"};
    int pids[2];
    ujoin_pctx *job;
    NEEDS_CGROUPS();
    unlink(g_pids);
    snprintf(left, sizeof left, "child=daemon,%s", g_pids);
    job = job_of(UJOIN_CONTAINMENT_BEST, 2, args, 2);
    need_ok(pctx_start(job));
    need_ok(pctx_wait(job, 60000));
    assert_int_equal(noted(pids, 2), 2);
    assert_gone(pids, 2);
    assert_int_equal(cgroups_of(getpid()), 0);
    assert_string_equal(g_output[1], "done\n");
    assert_int_equal(result_of(job, 0).containment, UJOIN_CONTAINMENT_CGROUP);
    pctx_destroy(job);
}

/* Workers may make cgroups of their own below. */
static void test_cgroup_with_others_below_is_removed(void **state) {
    static const char *const args[] = {
        "-c", "cd \"$0$(sed -n s/^0:://p /proc/self/cgroup)\" && mkdir -p a/b && echo $$ > a/b/cgroup.procs && exit 3",
        g_mount};
    ujoin_pctx *job;
    ujoin_worker worker = {0};
    NEEDS_CGROUPS();
    job = job_of(UJOIN_CONTAINMENT_CGROUP, 1, args, 3);
    worker.size = sizeof worker;
    worker.program = "sh";
    need_ok(pctx_set_worker(job, 0, &worker));
    need_ok(pctx_start(job));
    assert_int_equal(pctx_wait(job, 60000), UJOIN_E_CHILD_FAILED);
    assert_int_equal(result_of(job, 0).exit_code, 3);
    assert_int_equal(cgroups_of(getpid()), 0);
    pctx_destroy(job);
}

static void test_cgroup_outlives_no_killed_launcher(void **state) {
    char texts[5][PATH_MAX + 32];
    const char *args[6];
    char launcher[PATH_MAX + 32];
    char worker[PATH_MAX + 32];
    int pids[10];
    pid_t pid;
    NEEDS_CGROUPS();
    tree_args(texts, args);
    snprintf(launcher, sizeof launcher, "%s/pctx_launcher", g_here);
    snprintf(worker, sizeof worker, "%s/pctx_worker", g_here);
    pid = fork();
    if (pid == 0) {
        execl(launcher, launcher, "cgroup", "2", worker, args[0], args[1], args[2], args[3], args[4], args[5],
              (char *)NULL);
        _exit(127);
    }
    wait_for_pids(pids, 10);
    assert_int_equal(cgroups_of(pid), 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    wait_until_gone(pids, 10, pid);
}

static void test_cgroup_outlives_no_killed_warden(void **state) {
    int pids[10];
    ujoin_pctx *job;
    NEEDS_CGROUPS();
    job = start_trees(pids);
    kill(parent_of(result_of(job, 0).pid), SIGKILL);
    assert_int_equal(pctx_wait(job, 60000), UJOIN_E_CHILD_FAILED);
    assert_gone(pids, 10);
    assert_int_equal(cgroups_of(getpid()), 0);
    pctx_destroy(job);
}

/* A start that fails leaves no directory. */
static void test_cgroup_of_a_start_that_fails(void **state) {
    static const char *const args[] = {"forever"};
    ujoin_pctx *job;
    ujoin_worker worker = {0};
    NEEDS_CGROUPS();
    job = job_of(UJOIN_CONTAINMENT_CGROUP, 2, args, 1);
    worker.size = sizeof worker;
    worker.program = "/etc/passwd";
    need_ok(pctx_set_worker(job, 1, &worker));
    assert_error(pctx_start(job), UJOIN_E_SYSTEM, "rank 1: cannot execute \"/etc/passwd\"");
    assert_int_equal(cgroups_of(getpid()), 0);
    pctx_destroy(job);
}

static void refuse_cgroup(const char *part) {
    static const char *const args[] = {"out=here\\n"};
    ujoin_pctx *job = job_of(UJOIN_CONTAINMENT_CGROUP, 1, args, 1);
    assert_error(pctx_start(job), UJOIN_E_SYSTEM, "cannot make a cgroup for the workers: ");
    assert_error(UJOIN_E_SYSTEM, UJOIN_E_SYSTEM, part);
    pctx_destroy(job);
    job = job_of(UJOIN_CONTAINMENT_BEST, 1, args, 1); /* takes the next best */
    need_ok(pctx_start(job));
    need_ok(pctx_wait(job, 60000));
    assert_int_equal(result_of(job, 0).containment, UJOIN_CONTAINMENT_WARDEN);
    assert_non_null(strstr(pctx_report_json(job), "\"containment\":\"warden\""));
    assert_string_equal(g_output[0], "here\n");
    pctx_destroy(job);
}

static void test_cgroup_that_cannot_be_made(void **state) {
    char line[2 * PATH_MAX];
    char at[PATH_MAX];
    int left = 1;
    NEEDS_CGROUPS();
    assert_int_equal(mount(NULL, g_mount, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), 0);
    refuse_cgroup("Read-only file system; the cgroup of this process has to be given to its user");
    while (left) { /* in this program's own view alone */
        FILE *mounts = fopen("/proc/self/mounts", "re");
        left = 0;
        while (fgets(line, sizeof line, mounts))
            if (sscanf(line, "%*s %4095s cgroup2 ", at) == 1 && strstr(line, " cgroup2 ") && umount2(at, MNT_DETACH) == 0)
                left = 1;
        fclose(mounts);
    }
    refuse_cgroup("no cgroup2 file system is mounted");
}

/* ujoin-run; gives its exit status. */
static int run_launcher(const char *options, char *out, size_t size) {
    char command[4 * PATH_MAX];
    size_t got;
    FILE *pipe;
    snprintf(command, sizeof command, "%s/../../bin/ujoin-run %s 2>&1", g_here, options);
    pipe = popen(command, "re");
    assert_non_null(pipe);
    got = fread(out, 1, size - 1, pipe);
    out[got] = '\0';
    return WEXITSTATUS(pclose(pipe));
}

static void test_containment_of_ujoin_run(void **state) {
    char out[16384];
    (void)state;
    assert_int_equal(run_launcher("--containment none true", out, sizeof out), 2);
    assert_non_null(strstr(out, "--containment is \"none\"; expected one of: warden, cgroup, best"));
    assert_int_equal(run_launcher("--json - true", out, sizeof out), 0);
    assert_non_null(strstr(out, "\"containment\":\"warden\""));
    assert_int_equal(run_launcher("--containment best --json - true", out, sizeof out), 0);
    assert_non_null(strstr(out, g_no_cgroups ? "\"containment\":\"" : "\"containment\":\"cgroup\""));
    if (g_no_cgroups) return;
    assert_int_equal(run_launcher("--containment=cgroup --nproc-per-node 2 --json - sh -c 'exit 7'", out, sizeof out), 7);
    assert_non_null(strstr(out, "\"containment\":\"cgroup\""));
}

/* --------------------------------------------------------------------------------------------------------- descriptors */

/* A file with this text, at its beginning. */
static int file_with(const char *text) {
    char path[PATH_MAX + 32];
    int fd;
    snprintf(path, sizeof path, "%s.file", g_pids);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    unlink(path);
    return fd;
}

static void give(ujoin_pctx *job, int32_t rank, const ujoin_worker_fd *fds, size_t count, const char *const *args,
                 size_t arg_count) {
    ujoin_worker worker = {0};
    worker.size = sizeof worker;
    worker.fds = fds;
    worker.fd_count = count;
    worker.args = args;
    worker.arg_count = arg_count;
    need_ok(pctx_set_worker(job, rank, &worker));
}

static void inherit(ujoin_containment containment) {
    static const char *const kept[] = {"fds", "fdread=7", "fdread=1000"};
    char swapped[3][32];
    const char *const swapped_args[] = {"fds", swapped[0], swapped[1]};
    char listed[256];
    int a = file_with("one\n");
    int b = file_with("two\n");
    int c = file_with("three\n");
    int leak = open("/dev/null", O_RDONLY); /* would be inherited by any other start */
    const ujoin_worker_fd seven[] = {{a, 7}, {b, 1000}};
    const ujoin_worker_fd swap[] = {{b, c}, {c, b}};
    const ujoin_worker_fd same[] = {{c, -1}};
    ujoin_pctx *job = job_of(containment, 4, NULL, 0);
    assert_true(leak > 2);
    snprintf(swapped[0], sizeof swapped[0], "fdread=%d", b);
    snprintf(swapped[1], sizeof swapped[1], "fdread=%d", c);
    give(job, 0, seven, 2, kept, 3);
    need_ok(pctx_start(job));
    need_ok(pctx_wait(job, 60000));
    assert_string_equal(g_output[0], "fd 0\nfd 1\nfd 2\nfd 7\nfd 1000\none\ntwo\n");
    pctx_destroy(job);

    lseek(b, 0, SEEK_SET);
    job = job_of(containment, 3, kept, 1);
    give(job, 0, swap, 2, swapped_args, 3);
    give(job, 1, same, 1, kept, 1); /* the same descriptor for two workers */
    need_ok(pctx_start(job));
    need_ok(pctx_wait(job, 60000));
    snprintf(listed, sizeof listed, "fd 0\nfd 1\nfd 2\nfd %d\nfd %d\nthree\ntwo\n", b, c);
    assert_string_equal(g_output[0], listed);
    snprintf(listed, sizeof listed, "fd 0\nfd 1\nfd 2\nfd %d\n", c);
    assert_string_equal(g_output[1], listed);
    assert_string_equal(g_output[2], "fd 0\nfd 1\nfd 2\n");
    pctx_destroy(job);
    close(a);
    close(b);
    close(c);
    close(leak);
}

static void test_descriptors_of_programs(void **state) {
    (void)state;
    inherit(UJOIN_CONTAINMENT_GROUP);
    inherit(UJOIN_CONTAINMENT_WARDEN);
    if (!g_no_cgroups) inherit(UJOIN_CONTAINMENT_CGROUP);
}

/* So many that the numbers which are wanted are those of others that have not had their turn. */
static void test_most_descriptors(void **state) {
    static const char *const args[] = {"fdread=66", "fdread=10"};
    ujoin_worker_fd fds[64];
    (void)state;
    for (int warden = 0; warden < 2; warden++) {
        ujoin_pctx *job = job_of(warden ? UJOIN_CONTAINMENT_WARDEN : UJOIN_CONTAINMENT_GROUP, 1, args, 2);
        int many = file_with("many\n");
        int last = file_with("last\n");
        for (int i = 0; i < 64; i++) fds[i] = (ujoin_worker_fd){i == 56 ? last : many, 66 - i};
        give(job, 0, fds, 64, args, 2);
        need_ok(pctx_start(job));
        need_ok(pctx_wait(job, 60000));
        assert_string_equal(g_output[0], "many\nlast\n");
        pctx_destroy(job);
        close(many);
        close(last);
    }
}

static void refuse_fds(const ujoin_worker_fd *fds, size_t count, const char *part) {
    ujoin_pctx *job = job_of(0, 2, NULL, 0);
    ujoin_worker worker = {0};
    worker.size = sizeof worker;
    worker.fds = fds;
    worker.fd_count = count;
    assert_error(pctx_set_worker(job, 1, &worker), UJOIN_E_INVALID, part);
    pctx_destroy(job);
}

static void test_descriptors_that_are_refused(void **state) {
    static ujoin_worker_fd many[65];
    const ujoin_worker_fd twice[] = {{0, 5}, {1, 6}, {2, 5}};
    const ujoin_worker_fd standard[] = {{0, 2}};
    const ujoin_worker_fd same_standard[] = {{1, -1}};
    const ujoin_worker_fd negative[] = {{-1, 3}};
    const ujoin_worker_fd to_negative[] = {{0, -2}};
    (void)state;
    refuse_fds(twice, 3, "worker.fds[0] and worker.fds[2] would both be descriptor 5 of the worker");
    refuse_fds(standard, 1, "worker.fds[0] would be descriptor 2 of the worker, one of its standard streams");
    refuse_fds(same_standard, 1, "descriptor 1 of the worker");
    refuse_fds(negative, 1, "worker.fds[0].from is -1");
    refuse_fds(to_negative, 1, "worker.fds[0].to is -2");
    refuse_fds(many, 65, "worker.fd_count is 65; at most 64");
    refuse_fds(NULL, 1, "worker.fds is NULL, but worker.fd_count is 1");
}

/* What can be seen at the start only; then no worker has run. */
static void test_descriptors_that_are_not_there(void **state) {
    char mark[PATH_MAX + 32];
    const char *args[] = {mark};
    int gone = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ujoin_worker_fd closed[] = {{0, 8}, {0, 9}};
    struct rlimit limit;
    char text[64];
    ujoin_pctx *job = job_of(0, 3, args, 1);
    (void)state;
    snprintf(mark, sizeof mark, "touch=%s", g_pids);
    unlink(g_pids);
    pctx_destroy(job);
    job = job_of(0, 3, args, 1);
    closed[1].from = gone;
    give(job, 1, closed, 2, NULL, 0);
    close(gone);
    snprintf(text, sizeof text, "rank 1: descriptor %d (worker.fds) is not open", gone);
    assert_error(pctx_start(job), UJOIN_E_INVALID, text);
    pctx_destroy(job);
    getrlimit(RLIMIT_NOFILE, &limit);
    closed[1].from = 0;
    closed[1].to = (int32_t)limit.rlim_cur;
    job = job_of(0, 3, args, 1);
    give(job, 2, closed, 2, NULL, 0);
    snprintf(text, sizeof text, "rank 2: descriptor %d of the worker is not below the limit", closed[1].to);
    assert_error(pctx_start(job), UJOIN_E_INVALID, text);
    pctx_destroy(job);
    assert_int_not_equal(access(g_pids, F_OK), 0);
}

/* A function worker: returns what comes from descriptors 3 and 4, and which others are open. */
static ujoin_status read_three_and_four(void *user_data, const ujoin_worker_args *args) {
    char text[256] = "";
    size_t length = 0;
    (void)user_data;
    (void)args;
    for (int fd = 3; fd < 5; fd++) {
        ssize_t got = read(fd, text + length, 64);
        length += got > 0 ? (size_t)got : 0;
    }
    for (int fd = 7; fd < 64; fd++) /* 5 and 6 have call and answer */
        if (fcntl(fd, F_GETFD) >= 0) length += (size_t)snprintf(text + length, 16, "fd %d\n", fd);
    return pctx_return(text, length);
}

static void test_descriptors_of_functions(void **state) {
    static const ujoin_start_method methods[] = {UJOIN_START_SPAWN, UJOIN_START_FORK, UJOIN_START_FORKSERVER};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        int a = file_with("three\n");
        int b = file_with("four\n");
        const ujoin_worker_fd fds[] = {{b, 4}, {a, 3}, {a, 40}};
        ujoin_pctx_spec spec = {0};
        ujoin_pctx *job = NULL;
        ujoin_worker_result result;
#if defined(__SANITIZE_THREAD__)
        if (methods[i] == UJOIN_START_FORK) continue; /* it dies of a thread that is made after such a fork */
#endif
        spec.size = sizeof spec;
        spec.function = "read";
        spec.nprocs = 1;
        spec.start_method = methods[i];
        spec.containment = methods[i] == UJOIN_START_FORK || !g_no_cgroups ? UJOIN_CONTAINMENT_BEST : 0;
        need_ok(pctx_create(&spec, &job));
        give(job, 0, fds, 3, NULL, 0);
        need_ok(pctx_start(job));
        need_ok(pctx_wait(job, 60000));
        result = result_of(job, 0);
        if (result.value_size != 17 || memcmp(result.value, "three\nfour\nfd 40\n", 17) != 0)
            fail_msg("method %d: %.*s", (int)methods[i], (int)result.value_size, (const char *)result.value);
        if (methods[i] == UJOIN_START_FORK) assert_int_equal(result.containment, UJOIN_CONTAINMENT_GROUP);
        if (methods[i] == UJOIN_START_FORKSERVER)
            assert_int_equal(result.containment, g_no_cgroups ? UJOIN_CONTAINMENT_WARDEN : UJOIN_CONTAINMENT_CGROUP);
        pctx_destroy(job);
        close(a);
        close(b);
    }
    if (!g_no_cgroups) assert_int_equal(cgroups_of(getpid()), 0);
}

static void test_fork_into_a_cgroup_is_refused(void **state) {
    ujoin_pctx_spec spec = {0};
    ujoin_pctx *job = NULL;
    (void)state;
    spec.size = sizeof spec;
    spec.function = "read";
    spec.nprocs = 1;
    spec.start_method = UJOIN_START_FORK;
    spec.containment = UJOIN_CONTAINMENT_CGROUP;
    need_ok(pctx_create(&spec, &job));
    assert_error(pctx_start(job), UJOIN_E_UNSUPPORTED, "UJOIN_START_FORK");
    pctx_destroy(job);
}

/* ---------------------------------------------------------------------------------------------------------------- main */

static void mount_cgroups(void) {
    g_no_cgroups = "needs root and a kernel with cgroup2";
    if (geteuid() != 0) return;
    g_no_cgroups = "mount namespaces are not permitted here";
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return;
    g_no_cgroups = "cgroup2 cannot be mounted here, or only to be read";
    mkdir(g_mount, 0700);
    if (mount("cgroup2", g_mount, "cgroup2", 0, NULL) == 0 && access(g_mount, W_OK) == 0) g_no_cgroups = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cgroup_holds_whole_trees),
        cmocka_unit_test(test_cgroup_of_workers_that_end_well),
        cmocka_unit_test(test_cgroup_with_others_below_is_removed),
        cmocka_unit_test(test_cgroup_outlives_no_killed_launcher),
        cmocka_unit_test(test_cgroup_outlives_no_killed_warden),
        cmocka_unit_test(test_cgroup_of_a_start_that_fails),
        cmocka_unit_test(test_containment_of_ujoin_run),
        cmocka_unit_test(test_descriptors_of_programs),
        cmocka_unit_test(test_most_descriptors),
        cmocka_unit_test(test_descriptors_that_are_refused),
        cmocka_unit_test(test_descriptors_that_are_not_there),
        cmocka_unit_test(test_descriptors_of_functions),
        cmocka_unit_test(test_fork_into_a_cgroup_is_refused),
        cmocka_unit_test(test_cgroup_that_cannot_be_made), /* last: it unmounts */
    };
    const char *folder = getenv("TMPDIR");
    ssize_t length = readlink("/proc/self/exe", g_here, sizeof g_here - 1);
    int code = 0;
    if (pctx_register("read", read_three_and_four, NULL, NULL) != UJOIN_OK) return 1;
    if (pctx_worker_main(&code) != UJOIN_OK) return code;
    if (length < 0) return 1;
    g_here[length] = '\0';
    *strrchr(g_here, '/') = '\0';
    snprintf(g_mount, sizeof g_mount, "%s/cgroups-%d", folder ? folder : "/tmp", (int)getpid());
    snprintf(g_pids, sizeof g_pids, "%s/pids-%d", folder ? folder : "/tmp", (int)getpid());
    mount_cgroups();
    code = cmocka_run_group_tests(tests, NULL, NULL);
    umount2(g_mount, MNT_DETACH);
    rmdir(g_mount);
    unlink(g_pids);
    return code;
}

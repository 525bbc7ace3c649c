/* SPDX-License-Identifier: Apache-2.0 */
/* A worker for the tests of process contexts. Each argument is a command, run in order; then it exits with 0.
 * An argument "R:command" runs only in the worker whose variable RANK is R. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <ujoin.h>
#include <unistd.h>

static const char *rank(void) {
    const char *value = getenv("RANK");
    return value ? value : "?";
}

static void sleep_ms(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static void write_all(int fd, const char *text, size_t size) {
    while (size > 0) {
        ssize_t done = write(fd, text, size);
        if (done < 0) _exit(98);
        text += done;
        size -= (size_t)done;
    }
}

/* "\n", "\0", "\xHH" and "\\" in an argument. */
static size_t unescape(const char *from, char *to) {
    char *start = to;
    for (; *from; from++) {
        if (*from != '\\') {
            *to++ = *from;
            continue;
        }
        from++;
        if (*from == 'n') {
            *to++ = '\n';
        } else if (*from == '0') {
            *to++ = '\0';
        } else if (*from == 'x') {
            char digits[3] = {from[1], from[2], 0};
            *to++ = (char)strtol(digits, NULL, 16);
            from += 2;
        } else {
            *to++ = *from;
        }
    }
    return (size_t)(to - start);
}

static void say(int fd, const char *text) {
    char buffer[4096];
    write_all(fd, buffer, unescape(text, buffer));
}

/* Appends this process's number to the file, so that a test can look for it later. */
static void note_pid(const char *path) {
    char line[32];
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    write_all(fd, line, (size_t)snprintf(line, sizeof line, "%d\n", (int)getpid()));
    close(fd);
}

/* A child that sleeps for ever; kinds: "plain", "setsid", "daemon" (setsid and a second fork), "group". */
static void leave_child(const char *kind, const char *path) {
    int ready[2];
    char byte;
    if (pipe(ready) != 0) _exit(97);
    if (fork() == 0) {
        if (strcmp(kind, "group") == 0) setpgid(0, 0);
        if (strcmp(kind, "setsid") == 0 || strcmp(kind, "daemon") == 0) setsid();
        if (strcmp(kind, "daemon") == 0 && fork() != 0) _exit(0);
        note_pid(path);
        close(ready[0]);
        write_all(ready[1], "r", 1);
        close(ready[1]);
        for (;;) pause();
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) _exit(96);
    close(ready[0]);
}

/* A process that is another one every moment: each makes the next and exits. Whoever kills one has missed it. Where it
 * escapes, whoever adopts them has less to bury than a system has numbers for. */
static void comet(const char *path) {
    static const struct timespec moment = {0, 2000000};
    if (fork() != 0) return;
    note_pid(path);
    for (time_t end = time(NULL) + 30; time(NULL) < end;) {
        pid_t next;
        nanosleep(&moment, NULL);
        next = fork();
        if (next > 0) _exit(0);
        if (next == 0) setsid();
    }
    _exit(0);
}

static void *stay(void *unused) {
    (void)unused;
    for (;;) pause();
    return NULL;
}

/* Goes on in another thread; the first one ends. */
static void leaderless(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, stay, NULL) != 0) _exit(97);
    pthread_exit(NULL);
}

/* Memory that takes a while to be taken back. */
static void grow(size_t megabytes) {
    char *memory = mmap(NULL, megabytes << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) _exit(98);
    for (size_t at = 0; at < megabytes << 20; at += 4096) memory[at] = 1;
}

/* All that comes from a descriptor, to stdout. */
static void copy_descriptor(int fd) {
    char buffer[4096];
    ssize_t got;
    while ((got = read(fd, buffer, sizeof buffer)) > 0) write_all(1, buffer, (size_t)got);
    if (got < 0) printf("descriptor %d: %s\n", fd, strerror(errno)), fflush(stdout);
}

static void lines(const char *count, int fd) {
    long n = strtol(count, NULL, 10);
    char line[64];
    for (long i = 0; i < n; i++) {
        int length = snprintf(line, sizeof line, "%s line %ld\n", rank(), i);
        write_all(fd, line, (size_t)length);
    }
}

static void long_line(const char *count) {
    size_t n = (size_t)strtol(count, NULL, 10);
    char *line = malloc(n + 1);
    memset(line, 'x', n);
    line[n] = '\n';
    write_all(1, line, n + 1);
    free(line);
}

/* As lines(), in large writes. */
static void burst(const char *count) {
    long n = strtol(count, NULL, 10);
    for (long i = 0; i < n; i++) printf("%s line %ld\n", rank(), i);
    fflush(stdout);
}

static void copy_stdin(void) {
    char buffer[4096];
    ssize_t got;
    while ((got = read(0, buffer, sizeof buffer)) > 0) write_all(1, buffer, (size_t)got);
}

static void show_settings(void) {
    struct rlimit files;
    struct rlimit core;
    cpu_set_t set;
    mode_t mask = umask(0);
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_CORE, &core);
    sched_getaffinity(0, sizeof set, &set);
    printf("umask %03o nofile %lu core %lu cpus", (unsigned)mask, (unsigned long)files.rlim_cur,
           (unsigned long)core.rlim_cur);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set)) printf(" %d", cpu);
    printf("\n");
    fflush(stdout);
}

static void record(const char *message) {
    if (pctx_record_error(message, NULL, 0) != UJOIN_OK) _exit(95);
}

static void list_descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    while ((entry = readdir(directory)))
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(directory)) printf("fd %s\n", entry->d_name);
    closedir(directory);
    fflush(stdout);
}

static void show_signals(void) {
    char line[256];
    FILE *file = fopen("/proc/self/status", "re");
    while (fgets(line, sizeof line, file))
        if (strncmp(line, "Sig", 3) == 0 && strncmp(line, "SigQ", 4) != 0) fputs(line, stdout);
    fclose(file);
    fflush(stdout);
}

static void wait_for_file(const char *path) {
    while (access(path, F_OK) != 0) sleep_ms(2);
}

static const char *g_done_file;
static void on_term_done(int signal_number) {
    (void)signal_number;
    close(open(g_done_file, O_WRONLY | O_CREAT, 0600));
    _exit(0);
}

static void on_term_slow(int signal_number) {
    (void)signal_number;
    sleep_ms(3000);
    on_term_done(signal_number);
}

static void finish_on_term(const char *path) {
    struct sigaction action = {0};
    g_done_file = path;
    action.sa_handler = on_term_done;
    sigaction(SIGTERM, &action, NULL);
}

static void die(const char *number) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(atoi(number), SIG_DFL);
    raise(atoi(number));
}

static const char *after(const char *command, const char *name) {
    size_t length = strlen(name);
    return strncmp(command, name, length) == 0 && command[length] == '=' ? command + length + 1 : NULL;
}

static void run(const char *command) {
    const char *value;
    char kind[16];
    char path[1024];
    if ((value = after(command, "out")))
        say(1, value);
    else if ((value = after(command, "err")))
        say(2, value);
    else if ((value = after(command, "exit")))
        _exit(atoi(value));
    else if ((value = after(command, "die")))
        die(value);
    else if ((value = after(command, "sleep")))
        sleep_ms(atol(value));
    else if ((value = after(command, "lines")))
        lines(value, 1);
    else if ((value = after(command, "errlines")))
        lines(value, 2);
    else if ((value = after(command, "burst")))
        burst(value);
    else if ((value = after(command, "record")))
        record(value);
    else if (strcmp(command, "cat") == 0)
        copy_stdin();
    else if (strcmp(command, "settings") == 0)
        show_settings();
    else if ((value = after(command, "longline")))
        long_line(value);
    else if ((value = after(command, "pid")))
        note_pid(value);
    else if ((value = after(command, "await")))
        wait_for_file(value);
    else if ((value = after(command, "touch")))
        close(open(value, O_WRONLY | O_CREAT, 0600));
    else if ((value = after(command, "onterm")))
        finish_on_term(value);
    else if ((value = after(command, "getenv")))
        printf("%s=%s\n", value, getenv(value) ? getenv(value) : "(unset)"), fflush(stdout);
    else if ((value = after(command, "comet")))
        comet(value);
    else if ((value = after(command, "fdread")))
        copy_descriptor(atoi(value));
    else if (sscanf(command, "child=%15[^,],%1023s", kind, path) == 2)
        leave_child(kind, path);
    else if (strcmp(command, "ignoreterm") == 0)
        signal(SIGTERM, SIG_IGN);
    else if (strcmp(command, "slowterm") == 0)
        signal(SIGTERM, on_term_slow);
    else if (strcmp(command, "stopself") == 0)
        raise(SIGSTOP);
    else if (strcmp(command, "closeout") == 0)
        close(1), close(2);
    else if (strcmp(command, "fds") == 0)
        list_descriptors();
    else if (strcmp(command, "signals") == 0)
        show_signals();
    else if (strcmp(command, "cwd") == 0)
        printf("%s\n", getcwd(path, sizeof path)), fflush(stdout);
    else if (strcmp(command, "stdin") == 0)
        printf("stdin %zd\n", read(0, path, sizeof path)), fflush(stdout);
    else if (strcmp(command, "session") == 0)
        printf("session %d\n", getsid(0) == getpid() && getpgid(0) == getpid()), fflush(stdout);
    else if ((value = after(command, "grow")))
        grow((size_t)atol(value));
    else if (strcmp(command, "leaderless") == 0)
        leaderless();
    else if (strcmp(command, "forever") == 0)
        for (;;) pause();
    else
        fprintf(stderr, "unknown command %s\n", command), _exit(99);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *colon = strchr(argv[i], ':');
        const char *equals = strchr(argv[i], '=');
        if (!colon || (equals && equals < colon))
            run(argv[i]);
        else if (strlen(rank()) == (size_t)(colon - argv[i]) && strncmp(argv[i], rank(), (size_t)(colon - argv[i])) == 0)
            run(colon + 1);
    }
    return 0;
}

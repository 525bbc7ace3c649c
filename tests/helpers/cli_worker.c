/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that tests of ujoin-run start: cli_worker COMMAND [arguments]. It leaves what it saw in files of the directory
 * $CLI_DIR, named <what>.<rank>; a file that is there is whole. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ujoin.h>
#include <unistd.h>

extern char **environ;

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value ? value : "?";
}

static FILE *begin(char *path, size_t size, const char *what) {
    FILE *file;
    snprintf(path, size, "%s/.%s.%s", variable("CLI_DIR"), what, variable("RANK"));
    file = fopen(path, "we");
    if (!file) exit(99);
    return file;
}

static void end(FILE *file, const char *path, const char *what) {
    char whole[4096];
    snprintf(whole, sizeof whole, "%s/%s.%s", variable("CLI_DIR"), what, variable("RANK"));
    if (fclose(file) != 0 || rename(path, whole) != 0) exit(98);
}

static void leave_lines(const char *what, char **lines) {
    char path[4096];
    FILE *file = begin(path, sizeof path, what);
    for (; *lines; lines++) fprintf(file, "%s\n", *lines);
    end(file, path, what);
}

static void leave_number(const char *what, double number) {
    char path[4096];
    FILE *file = begin(path, sizeof path, what);
    fprintf(file, "%.17g\n", number);
    end(file, path, what);
}

static int signals_file = -1;
static int polite; /* end when a signal asks for it */

static void on_signal(int signal) {
    char text[3] = {(char)('0' + signal / 10), (char)('0' + signal % 10), '\n'};
    if (write(signals_file, text, 3) != 3) _exit(97);
    if (polite && signal != SIGCONT && signal != SIGTSTP && signal != SIGUSR1) _exit(0);
}

/* Notes every signal in signals.<rank>. */
static int note_signals(void) {
    const int list[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGUSR1};
    char path[4096];
    struct sigaction action;
    sigset_t none;
    size_t i;
    snprintf(path, sizeof path, "%s/signals.%s", variable("CLI_DIR"), variable("RANK"));
    signals_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (signals_file < 0) return 99;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    for (i = 0; i < sizeof list / sizeof *list; i++) sigaction(list[i], &action, NULL);
    leave_number("ready", 1);
    sigemptyset(&none);
    for (;;) sigsuspend(&none);
}

/* A group, and the sum of rank + 1 over it. */
static int sum_over_group(const char *how) {
    ujoin_group_options options = {0};
    char place[256];
    ujoin_group *group;
    double value;
    ujoin_const_buffer send = {0};
    ujoin_buffer recv = {0};
    snprintf(place, sizeof place, "tcp://%s:%s", variable("MASTER_ADDR"), variable("MASTER_PORT"));
    options.size = sizeof options;
    options.rendezvous = strcmp(how, "tcp") == 0 ? place : NULL;
    options.rank = atoi(variable("RANK"));
    options.world_size = atoi(variable("WORLD_SIZE"));
    if (ujoin_group_create(options.rendezvous ? &options : NULL, &group) < 0) {
        fprintf(stderr, "%s\n", ujoin_last_error());
        return 4;
    }
    value = ujoin_group_rank(group) + 1;
    send.data = recv.data = &value;
    send.count = recv.count = 1;
    send.dtype = recv.dtype = UJOIN_F64;
    if (ujoin_all_reduce(group, &send, &recv, UJOIN_SUM, NULL, NULL) < 0) {
        fprintf(stderr, "%s\n", ujoin_last_error());
        return 5;
    }
    leave_number("sum", value);
    ujoin_group_destroy(group);
    return 0;
}

static ujoin_status fail_recorded(void *user_data) {
    (void)user_data;
    return ujoin_set_last_error(UJOIN_E_CALLBACK, "the reason");
}

static ujoin_status exit_recorded(void *code) {
    exit(atoi(code));
    return UJOIN_OK;
}

int main(int argc, char **argv) {
    const char *command = argc > 1 ? argv[1] : "";
    const int mine = argc > 2 && strcmp(argv[2], variable("RANK")) == 0;
    leave_number("pid", getpid());
    if (strcmp(command, "env") == 0) {
        leave_lines("env", environ);
    } else if (strcmp(command, "args") == 0 || strcmp(command, "-u") == 0) { /* -u: called as if it were Python */
        leave_lines("args", argv + 1);
    } else if (strcmp(command, "exit") == 0) { /* exit RANK CODE: that rank; the others wait */
        if (mine) fprintf(stderr, "the reason of rank %s\n", argv[2]);
        if (mine) return atoi(argv[3]);
        pause();
    } else if (strcmp(command, "die") == 0) {                           /* die RANK SIGNAL */
        if (mine) signal(atoi(argv[3]), SIG_DFL), raise(atoi(argv[3])); /* a sanitizer has a handler of its own */
        pause();
    } else if (strcmp(command, "signals") == 0) { /* signals polite|stubborn */
        polite = strcmp(argv[2], "polite") == 0;
        return note_signals();
    } else if (strcmp(command, "group") == 0) {
        return sum_over_group(argc > 2 ? argv[2] : "");
    } else if (strcmp(command, "fail_once") ==
               0) { /* fail_once RANK: in the first attempt; later it leaves the environment */
        if (strcmp(variable("TORCHELASTIC_RESTART_COUNT"), "0") == 0) {
            if (mine) return 5;
            pause();
        }
        leave_lines("env", environ);
    } else if (strcmp(command, "record") == 0) { /* record RANK */
        if (mine) return pctx_record(fail_recorded, NULL) < 0;
        pause();
    } else if (strcmp(command, "record_exit") == 0) { /* record_exit CODE */
        return pctx_record(exit_recorded, argv[2]) == UJOIN_OK ? 90 : 91;
    } else if (strcmp(command, "print") == 0) {
        printf("out of %s\n", variable("RANK"));
        fprintf(stderr, "err of %s\n", variable("RANK"));
    } else if (*command) {
        return 96;
    }
    return 0;
}

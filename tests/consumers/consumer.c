/* SPDX-License-Identifier: Apache-2.0 */
/* A program of a user: valid C99 and C++. Linked to the library, or with -DBY_DLOPEN loading the file that its first
 * argument names, with local scope. The other arguments say what to do: threads, processes, backends. */
#ifndef __cplusplus
#define _POSIX_C_SOURCE 200809L
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ujoin.h>
#include <unistd.h>

#define FUNCTIONS(F)                                                                                                       \
    F(ujoin_abi_version)                                                                                                   \
    F(ujoin_backends)                                                                                                      \
    F(ujoin_last_error)                                                                                                    \
    F(ujoin_status_name) F(ujoin_group_create) F(ujoin_all_reduce) F(ujoin_group_close) F(ujoin_group_destroy)

#define DECLARE(name) static __typeof__(&name) call_##name;
FUNCTIONS(DECLARE)

#ifdef BY_DLOPEN
#include <dlfcn.h>
static void *library;
static void find(const char *name, void *out) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    memcpy(out, &found, sizeof found);
}
#define BIND(name) find(#name, &call_##name);
#else
#define BIND(name) call_##name = &name;
#endif

struct rank {
    int rank;
    const char *rendezvous;
    const char *backend;
    int ok;
};

static int refused(const char *what, ujoin_status status) {
    if (status == UJOIN_OK) return 0;
    fprintf(stderr, "%s: %s: %s\n", what, call_ujoin_status_name(status), call_ujoin_last_error());
    return 1;
}

/* A group of two, in which the sum of ones is two. */
static void *one_rank(void *argument) {
    struct rank *self = (struct rank *)argument;
    ujoin_group *group = NULL;
    ujoin_group_options options;
    ujoin_buffer memory;
    float value = 1;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.rendezvous = self->rendezvous;
    options.backend = self->backend;
    options.rank = self->rank;
    options.world_size = 2;
    options.rendezvous_timeout_ms = 20000;
    memset(&memory, 0, sizeof memory);
    memory.data = &value;
    memory.count = 1;
    memory.dtype = UJOIN_F32;
    self->ok = !refused("ujoin_group_create", call_ujoin_group_create(&options, &group)) &&
               !refused("ujoin_all_reduce", call_ujoin_all_reduce(group, NULL, &memory, UJOIN_SUM, NULL, NULL)) &&
               !refused("ujoin_group_close", call_ujoin_group_close(group, 20000));
    if (self->ok && value != 2) {
        fprintf(stderr, "rank %d: the sum of two ones is %g\n", self->rank, (double)value);
        self->ok = 0;
    }
    call_ujoin_group_destroy(group);
    return NULL;
}

static int threads(void) {
    char name[64];
    struct rank ranks[2];
    pthread_t other;
    int i;
    snprintf(name, sizeof name, "local://consumer-%d", (int)getpid());
    for (i = 0; i < 2; i++) {
        ranks[i].rank = i;
        ranks[i].rendezvous = name;
        ranks[i].backend = "local";
        ranks[i].ok = 0;
    }
    if (pthread_create(&other, NULL, one_rank, &ranks[1]) != 0) return 1;
    one_rank(&ranks[0]);
    pthread_join(other, NULL);
    return !(ranks[0].ok && ranks[1].ok);
}

static int processes(void) {
    char name[512];
    const char *place = getenv("TMPDIR");
    struct rank self;
    int status = 1;
    pid_t child;
    snprintf(name, sizeof name, "file://%s/consumer-%d", place ? place : "/tmp", (int)getpid());
    child = fork();
    self.rank = child == 0;
    self.rendezvous = name;
    self.backend = "shm";
    self.ok = 0;
    one_rank(&self);
    if (child == 0) _exit(!self.ok);
    waitpid(child, &status, 0);
    unlink(name + strlen("file://"));
    return !(self.ok && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The question what there is always has an answer; what there is not says so. */
static int backends(void) {
    static const char *const absent[] = {"nccl", "mpi", "gloo"};
    const char *text = call_ujoin_backends();
    int bad = 0;
    size_t i;
    if (!text || !strstr(text, "self\tyes") || !strstr(text, "shm\tyes")) {
        fprintf(stderr, "ujoin_backends() says: %s\n", text ? text : "(null)");
        bad = 1;
    }
    for (i = 0; i < sizeof absent / sizeof *absent; i++) {
        ujoin_group_options options;
        ujoin_group *group = NULL;
        ujoin_status status;
        memset(&options, 0, sizeof options);
        options.size = sizeof options;
        options.rendezvous = "local://absent";
        options.backend = absent[i];
        options.world_size = 1;
        status = call_ujoin_group_create(&options, &group);
        if ((status != UJOIN_E_UNSUPPORTED && status != UJOIN_E_INVALID) || group ||
            !strstr(call_ujoin_last_error(), absent[i])) {
            fprintf(stderr, "backend %s: %s: %s\n", absent[i], call_ujoin_status_name(status), call_ujoin_last_error());
            bad = 1;
        }
    }
    return bad;
}

int main(int argc, char **argv) {
    int i = 1, bad = 0;
#ifdef BY_DLOPEN
    library = argc > 1 ? dlopen(argv[i++], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "no library named");
        return 1;
    }
#endif
    FUNCTIONS(BIND)
    if (call_ujoin_abi_version() < UJOIN_ABI_VERSION) return 1;
    for (; i < argc; i++) {
        if (strcmp(argv[i], "threads") == 0)
            bad |= threads();
        else if (strcmp(argv[i], "processes") == 0)
            bad |= processes();
        else if (strcmp(argv[i], "backends") == 0)
            bad |= backends();
        else
            bad = 1;
    }
    return bad;
}

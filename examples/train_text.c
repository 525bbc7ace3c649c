/* SPDX-License-Identifier: Apache-2.0 */
/* The main job: N processes train a character-level language model together, on shards of unequal length. One join context
 * over gradient reduction and a sharded optimizer; whoever has no more batches works for the others until all are done.
 *
 *     ujoin-run --standalone --nproc-per-node 2 train_text --out DIR          (examples/run does all of it)
 *
 * train_text.md says precisely what is computed. */
#define _GNU_SOURCE

#include "check.h"
#include "output.h"
#include <time.h>

static const char usage[] =
    "usage: train_text [--text FILE] [--out DIR] [--epochs E] [--seed S] [--batch B] [--live]\n"
    "                  [--check [--rounds R] [--break shadow]]\n"
    "  --text FILE     train on this file (default: the licences in " LICENCES ")\n"
    "  --out DIR       where the model and the loss curve go (default: ujoin-example)\n"
    "  --epochs E      passes over the text, 1 to 1,000 (default: 3; with --check: 2)\n"
    "  --seed S        of initial values and of the order of batches (default: 42)\n"
    "  --batch B       characters predicted in a batch, 1 to 4,096 (default: 128)\n"
    "  --live          progress lines even where the output is no terminal; they begin with ~\n"
    "  --check         train R rounds (default: 60), then compute them again in one process and compare\n"
    "  --break shadow  leave a shadowed round out of the second computation: the check must notice\n"
    "Lines that begin with a space are meant for a rank's log only.\n";

static uint64_t option_number(const char *name, const char *value, uint64_t least_value, uint64_t most) {
    char *end = NULL;
    errno = 0;
    uint64_t number = value && *value >= '0' && *value <= '9' ? strtoull(value, &end, 10) : 0;
    if (!end || *end || errno || number < least_value || number > most)
        fail(2, "%s takes a number from %llu to %llu, not \"%s\"", name, (unsigned long long)least_value,
             (unsigned long long)most, value ? value : "");
    return number;
}

static settings settings_read(int argc, char **argv) {
    settings o = {.out = "ujoin-example", .seed = 42, .batch = 128, .rounds = 60};
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        int takes_value = 1;
        if (strcmp(name, "--text") == 0)
            o.text = value;
        else if (strcmp(name, "--out") == 0)
            o.out = value;
        else if (strcmp(name, "--epochs") == 0)
            o.epochs = option_number(name, value, 1, 1000);
        else if (strcmp(name, "--seed") == 0)
            o.seed = option_number(name, value, 0, UINT64_MAX);
        else if (strcmp(name, "--batch") == 0)
            o.batch = option_number(name, value, 1, 4096);
        else if (strcmp(name, "--rounds") == 0)
            o.rounds = option_number(name, value, 1, 1000000);
        else if (strcmp(name, "--break") == 0 && value && strcmp(value, "shadow") == 0)
            o.break_shadow = 1;
        else
            takes_value = 0;
        if (takes_value && !value) fail(2, "%s needs a value\n%s", name, usage);
        i += takes_value;
        if (strcmp(name, "--check") == 0)
            o.check = 1;
        else if (strcmp(name, "--live") == 0)
            o.live = 1;
        else if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
            fputs(usage, stdout);
            exit(0);
        } else if (!takes_value)
            fail(2, "unknown option %s\n%s", name, usage);
    }
    if (o.break_shadow && !o.check) fail(2, "--break shadow goes with --check");
    if (o.epochs == 0) o.epochs = o.check ? 2 : 3;
    return o;
}

/* Under ujoin-run the environment says who we are; started by hand this process is a group of one. */
static ujoin_group *group_make(void) {
    ujoin_group_options alone = {.size = sizeof alone, .backend = "self", .world_size = 1};
    int by_hand = !getenv("RANK") && !getenv("WORLD_SIZE");
    ujoin_group *group;
    check(ujoin_group_create(by_hand ? &alone : NULL, &group));
    return group;
}

/* ------------------------------------------------------------------------------------------------------- telling -- */

typedef struct progress {
    const settings *options;
    ujoin_ctx *join;
    ujoin_ddp *ddp;
    int reports, terminal; /* whether this rank tells how things go, and to whom */
    int ranks;
    double began, told, characters, loss; /* of this epoch */
    curve curve;
} progress;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void progress_begin(progress *p) {
    p->began = p->told = seconds();
    p->characters = p->loss = 0;
}

/* A live line, at most five times a second; the text of the last one is overwritten on a terminal. */
static void progress_round(progress *p, size_t epoch, size_t round, const shard *s, const batch *b, double loss) {
    ujoin_ddp_report reduced = {.size = sizeof reduced};
    check(ujoin_ddp_get_report(p->ddp, &reduced));
    p->characters += reduced.samples;
    p->loss += loss;
    if (epoch == 0 && round < 5) printf(" round %zu: loss %.6f\n", round + 1, loss);
    if (!p->reports) return;
    if (2 * b->samples >= s->batch_size) /* of a few samples the mean says nothing */
        curve_add(&p->curve, loss / log(2));
    double now = seconds();
    if ((!p->terminal && !p->options->live) || now - p->told < 0.2) return;
    ujoin_ctx_report joined = {.size = sizeof joined};
    check(ujoin_ctx_get_report(p->join, &joined));
    p->told = now;
    printf("%sepoch %zu/%zu  step %zu/%zu  loss %.3f  %.0f characters/s  %d of %d ranks active%s",
           p->terminal ? "\r" : "~ ", epoch + 1, p->options->epochs, round + 1, s->batches, loss,
           p->characters / (now - p->began), p->ranks - (int)joined.joined, p->ranks, p->terminal ? "\033[K" : "\n");
    fflush(stdout);
}

/* After an epoch: a line that says who joined when. The rounds after a rank's last one were shadowed by it. */
static void progress_end(progress *p, size_t epoch, const shard *s) {
    ujoin_ctx_report own = {.size = sizeof own};
    check(ujoin_ctx_get_report(p->join, &own));
    printf(" epoch %zu: %lld rounds of its own, then %lld rounds shadowed for others\n", epoch + 1, (long long)own.rounds,
           (long long)own.shadow_rounds);
    if (!p->reports) return;
    double mean = s->batches ? p->loss / (double)s->batches : 0;
    printf("%sepoch %zu/%zu: loss %.3f (%.3f bits per character), %.0f characters/s", p->terminal ? "\r\033[K" : "",
           epoch + 1, p->options->epochs, mean, mean / log(2), p->characters / (seconds() - p->began));
    int64_t *rounds = allocate((size_t)p->ranks, sizeof *rounds), shadowed = 0;
    ujoin_ctx_rounds(p->join, rounds, (size_t)p->ranks);
    for (int rank = 0; rank < p->ranks; rank++) {
        printf("%s rank %d after %lld", rank == 0 ? "; joined:" : ",", rank, (long long)rounds[rank]);
        shadowed += rounds[p->ranks - 1] - rounds[rank];
    }
    printf(" rounds; %lld rounds shadowed\n", (long long)shadowed);
    p->curve.per_epoch = p->curve.count / (epoch + 1);
    free(rounds);
}

/* Bits per character on the text that nobody trains on; every rank takes each size-th batch. */
static double evaluate(ujoin_group *group, model *m, const text *held_out) {
    size_t rank = (size_t)ujoin_group_rank(group), size = (size_t)ujoin_group_size(group),
           count = held_out->length - CONTEXT;
    uint32_t *position = allocate(m->batch, sizeof *position);
    double loss = 0;
    for (size_t first = rank * m->batch; first < count; first += size * m->batch) {
        batch b = {.position = position, .samples = least(count - first, m->batch)};
        for (size_t s = 0; s < b.samples; s++) position[s] = (uint32_t)(CONTEXT + first + s);
        loss += model_forward(m, held_out->characters, &b);
    }
    check(ujoin_all_reduce(group, NULL, &(ujoin_buffer){.data = &loss, .count = 1, .dtype = UJOIN_F64}, UJOIN_SUM, NULL,
                           NULL));
    free(position);
    return loss / (double)count / log(2);
}

/* What the model writes when it begins with the first characters of the held-out text. */
static void print_sample(model *m, const text *held_out, uint64_t seed, size_t count) {
    unsigned char *written = allocate(CONTEXT + count + 1, 1);
    uint64_t state = random_stream(seed, UINT64_MAX);
    memcpy(written, held_out->characters, CONTEXT);
    for (uint32_t at = CONTEXT; at < CONTEXT + count; at++) {
        batch b = {.position = &at, .samples = 1};
        float *probability = m->activation[LAYERS], left = random_unit(&state);
        size_t c = 0, most = m->width[LAYERS];
        model_logits(m, written, &b);
        for (size_t i = 0; i < most; i++) probability[i] /= 0.7f; /* a little bolder than the model is sure */
        softmax(probability, most, 0);
        while (c + 1 < most && (left -= probability[c]) >= 0) c++;
        written[at] = (unsigned char)c;
    }
    printf("a sample of what it writes:\n| ");
    for (size_t i = 0; i < CONTEXT + count; i++) {
        unsigned char byte = held_out->table[written[i]];
        if (byte == '\n')
            printf("\n| ");
        else
            putchar(byte < ' ' || byte == 127 ? ' ' : byte);
    }
    putchar('\n');
    free(written);
}

/* ------------------------------------------------------------------------------------------------------ training -- */

static void gradient_ready(void *ddp, size_t parameter) { check(ujoin_ddp_ready(ddp, parameter)); }

static void train(const settings *o, const text *t, shard *s, int rank, model *m, ujoin_ddp *ddp, ujoin_zero *opt,
                  ujoin_ctx *join, progress *p) {
    for (size_t epoch = 0; epoch < o->epochs; epoch++) {
        shard_shuffle(s, o->seed, epoch, (size_t)rank);
        check(zero_set_hyper(opt, -1, "lr", learning_rate(epoch, o->epochs)));
        progress_begin(p);
        check(ujoin_ctx_start(join));
        for (size_t round = 0; round < s->batches; round++) { /* ranks have different numbers of batches */
            batch b = shard_batch(s, round);
            check(ujoin_ddp_forward(ddp, (double)b.samples));
            double loss = model_forward(m, t->characters, &b) / (double)b.samples;
            model_backward(m, t->characters, &b, gradient_ready, ddp);
            check(ujoin_ddp_finish(ddp));
            check(zero_step(opt, NULL));
            progress_round(p, epoch, round, s, &b, loss);
        }
        printf(" epoch %zu: no more batches, joining\n", epoch + 1);
        check(ujoin_ctx_finish(join)); /* works for the others until all are done */
        progress_end(p, epoch, s);
    }
}

static int finish_training(const settings *o, ujoin_group *group, model *m, ujoin_zero *opt, const text *whole,
                           const text *held_out, const progress *p) {
    char *path = path_join(o->out, "model.safetensors");
    printf(" saving %s\n", path);
    check(zero_save(opt, path, &(ujoin_save_options){.size = sizeof(ujoin_save_options), .parts = UJOIN_SAVE_PARAMETERS}));
    printf(" saved\n");
    double order1 = text_order1_entropy(whole), after = evaluate(group, m, held_out);
    if (p->reports) {
        printf("held-out text after training: %.3f bits per character\n", after);
        print_sample(m, held_out, o->seed, 400);
        curve_write(&p->curve, o->out, order1, after);
        printf("model: %s\nloss curve: %s/loss.svg\n", path, o->out);
    }
    free(path);
    if (p->reports && !(after < order1))
        fail(1, "the model has not learned: %.3f bits per character, not below the text's order-1 entropy of %.3f", after,
             order1);
    if (p->reports && !o->text && !(after < 3.0))
        fail(1, "the model has not learned enough: %.3f bits per character, not below 3.0", after);
    return 0;
}

int main(int argc, char **argv) {
    settings o = settings_read(argc, argv);
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* a log that is read while it grows, and after a kill */
    output_prepare(o.out);
    text whole = text_load(o.text), train_part = text_part(&whole, 0), held_out = text_part(&whole, 1);

    printf(" process %ld: meeting the others\n", (long)getpid());
    ujoin_group *group = group_make();
    int rank = ujoin_group_rank(group), size = ujoin_group_size(group);
    if (o.check) check_cut_text(&o, &train_part, (size_t)size);
    shard s = shard_make(train_part.length, (size_t)rank, (size_t)size, o.batch);
    printf(" rank %d of %d: %zu characters, %zu batches\n", rank, size, s.samples, s.batches);

    model m = model_build(whole.table_size, o.batch, o.seed);
    ujoin_param params[PARAMS];
    model_params(&m, params);
    ujoin_ddp *ddp;
    check(ujoin_ddp_create(group, params, PARAMS,
                           &(ujoin_ddp_options){.size = sizeof(ujoin_ddp_options), .division = UJOIN_DIVISION_SAMPLES},
                           &ddp));
    ujoin_zero *opt = optimizer_make(group, params);
    ujoin_joinable *both[] = {ujoin_ddp_joinable(ddp), zero_joinable(opt)};
    ujoin_ctx *join;
    check(ujoin_ctx_create(both, 2, NULL, &join));

    progress p = {.options = &o, .join = join, .ddp = ddp, .reports = is_reporter(group), .ranks = size};
    p.terminal = p.reports && isatty(1);
    if (o.break_shadow && size == 1) fail(2, "--break shadow needs at least two ranks: one alone never works for others");
    if (p.reports)
        printf("text: %s, %zu characters, %d different; order-1 entropy %.3f bits per character\n"
               "model: %zu parameters; ranks: %d, the first with %zu characters, the last with %zu\n",
               o.text ? o.text : LICENCES, whole.length, whole.table_size, text_order1_entropy(&whole), m.total, size,
               shard_begin(train_part.length, 1, (size_t)size), s.end - s.begin);
    if (!o.check) {
        double before = evaluate(group, &m, &held_out);
        if (p.reports) printf("held-out text before training: %.3f bits per character\n", before);
    }
    train(&o, &train_part, &s, rank, &m, ddp, opt, join, &p);

    char fingerprint[65];
    sha256_text(m.value[0], m.total * sizeof(float), fingerprint);
    printf(" parameters sha256 %s\n", fingerprint);
    int status =
        o.check ? check_run(&o, group, &train_part, &m) : finish_training(&o, group, &m, opt, &whole, &held_out, &p);
    ujoin_ctx_destroy(join);
    zero_destroy(opt);
    ujoin_ddp_destroy(ddp);
    ujoin_group_destroy(group);
    model_destroy(&m);
    free(s.position);
    free(p.curve.bits);
    free(whole.characters);
    free(train_part.characters);
    free(held_out.characters);
    return status;
}

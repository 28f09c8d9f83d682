#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "os/threads.h"

static int cmd_help(int argc, char **argv);

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"train", wh_cmd_train, "train a model as a run configuration says, or go on from a checkpoint"},
    {"eval", wh_cmd_eval, "mean loss of a checkpoint on token files"},
    {"generate", wh_cmd_generate, "continue a text with a checkpoint"},
    {"tokenize", wh_cmd_tokenize, "turn text files into token files"},
    {"inspect", wh_cmd_inspect, "show what a checkpoint, tensor file or token file holds"},
    {"import", wh_cmd_import, "make a checkpoint from a Hugging Face model folder"},
    {"export", wh_cmd_export, "make a Hugging Face model folder from a checkpoint"},
    {"config", wh_cmd_config, "list the keys of a run configuration, or show one with every value and its source"},
    {"layout", wh_cmd_layout, "show which rank of a run configuration holds and talks to what, without running it"},
    {"bench", wh_cmd_bench, "measure the collectives of this machine's ranks"},
    {"tune", wh_cmd_tune, "measure what this machine's ranks can do, keep it, and compare predictions with times"},
    {"explain", wh_cmd_explain, "show how a collective operation runs, step by step, and what it costs"},
    {"version", wh_cmd_version, "version, compiler and kernels of this program"},
    {"help", cmd_help, "this list, or the help of one command"},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static const struct command *find(const char *name) {
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static void print_commands(FILE *to) {
    fputs("usage: wanhe COMMAND [options]\n\ncommands:\n", to);
    for (int i = 0; i < COMMANDS; i++) fprintf(to, "  %-10s  %s\n", commands[i].name, commands[i].help);
    fputs("\n`wanhe COMMAND --help` shows the options of a command.\n", to);
}

static int unknown(const char *name) {
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
    const char *nearest = wh_text_nearest(name, names, COMMANDS);
    if (nearest) return wh_cli_end(WH_FAIL(WH_USAGE, "unknown command '%s'; did you mean '%s'?", name, nearest));
    return wh_cli_end(WH_FAIL(WH_USAGE, "unknown command '%s'; `wanhe help` lists the commands", name));
}

static int run(const char *name, int argc, char **argv) {
    const struct command *command = find(name);
    if (!command) return unknown(name);
    return command->run(argc, argv);
}

static int cmd_help(int argc, char **argv) {
    if (argc > 1 && argv[1][0] != '-') {
        char *asked[] = {argv[1], "--help", NULL};
        return run(argv[1], 2, asked);
    }
    print_commands(stdout);
    return wh_cli_end(WH_OK);
}

int main(int argc, char **argv) {
    wh_threads_prepare(argv);
    if (argc < 2) {
        print_commands(stderr);
        return wh_status_exit_code(WH_USAGE);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return cmd_help(argc - 1, argv + 1);
    if (strcmp(argv[1], "--version") == 0) argv[1] = "version";
    return run(argv[1], argc - 1, argv + 1);
}

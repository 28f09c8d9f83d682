#include <stdio.h>

#include "base/version.h"
#include "cli/cli.h"
#include "tensor/vec.h"

struct args {
    struct wh_cli_common common;
};

static const struct wh_option options[] = {WH_CLI_COMMON(struct args), {0}};

#if defined __SANITIZE_ADDRESS__
static const char sanitizers[] = "address, undefined";
#else
static const char sanitizers[] = "none";
#endif

#if defined __clang__
static const char compiler[] = "clang " __clang_version__;
#else
static const char compiler[] = "gcc " __VERSION__;
#endif

static const char *const kernel_names[] = {"reference", "avx2", "avx512"};

enum { KERNELS = sizeof kernel_names / sizeof *kernel_names };

/* Compiled in and fit for this processor. */
static bool can_run(int kernel) { return wh_vec_select(kernel_names[kernel]); }

static void print_json(void) {
    json_t *o = wh_cli_json_new("version"), *kernels = json_array();
    for (int i = 0; i < KERNELS; i++)
        if (can_run(i)) json_array_append_new(kernels, json_string(kernel_names[i]));
    json_object_set_new(o, "version", json_string(WH_VERSION));
    json_object_set_new(o, "compiler", json_string(compiler));
    json_object_set_new(o, "sanitizers", json_string(sanitizers));
    json_object_set_new(o, "kernels", kernels);
    wh_cli_json_print(o);
}

static void print_text(void) {
    printf("wanhe %s\ncompiler    %s\nsanitizers  %s\nkernels    ", WH_VERSION, compiler, sanitizers);
    for (int i = 0; i < KERNELS; i++)
        if (can_run(i)) printf(" %s", kernel_names[i]);
    printf("\n");
}

int wh_cmd_version(int argc, char **argv) {
    struct args args = {0};
    int code;
    if (!wh_cli_begin("version", "Version, compiler and kernels of this program.", options, argc, argv, &args,
                      &args.common, &code))
        return code;
    if (wh_cli_json())
        print_json();
    else
        print_text();
    return wh_cli_end(WH_OK);
}

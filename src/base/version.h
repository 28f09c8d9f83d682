/* The version of the program; the file VERSION says the same (test/e2e/cli.sh compares). */
#ifndef WH_BASE_VERSION_H
#define WH_BASE_VERSION_H

#define WH_VERSION "0.1.0"

#endif

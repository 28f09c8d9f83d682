#!/bin/sh
# Small made-up English with a grammar worth learning, for tests: tools/tiny_text.sh [BYTES]. The same bytes everywhere
# (own generator, Park and Miller's, exact in awk's doubles).
LC_ALL=C awk -v limit="${1:-65536}" 'BEGIN {
    nouns = split("king river mountain stone garden shepherd city lamb tower valley servant morning vineyard desert", noun)
    adjs = split("great quiet old bright narrow faithful hidden golden bitter gentle", adj)
    verbs = split("saw remembered crossed followed built praised watched feared left found", verb)
    joins = split("and then,but,and after that,so,for", join, ",")
    seed = 20240601
    while (bytes < limit) {
        n = pick(3) + 1
        line = ""
        for (i = 0; i < n; i++) line = line (i ? " " join[pick(joins) + 1] " the " : "The ") clause()
        line = line ".\n"
        if (bytes + length(line) > limit) line = substr(line, 1, limit - bytes - 1) "\n"
        printf "%s", line
        bytes += length(line)
    }
}
function pick(n) { seed = (seed * 16807) % 2147483647; return seed % n }
function thing() { return (pick(2) ? adj[pick(adjs) + 1] " " : "") noun[pick(nouns) + 1] }
function clause(    subject) { subject = thing(); return subject " " verb[pick(verbs) + 1] " the " thing() }'

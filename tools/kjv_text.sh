#!/bin/sh
# King James Bible as plain text, from Debian's public-domain copy (package bible-kjv):
#
#   tools/kjv_text.sh FOLDER      writes kjv-train.txt and kjv-valid.txt (the last twentieth, whole chapters) there
#
# One verse a line without its number, an empty line between chapters, "[words]" that the translators added without
# brackets.
set -eu
folder=$1
command -v bible >/dev/null || { echo "no 'bible' command; install it with:  sudo apt-get install bible-kjv" >&2; exit 1; }
mkdir -p "$folder"
part=$folder/kjv.part
trap 'rm -f "$part" "$folder"/kjv-*.part' EXIT

# Input lines: "Ge1:1 In the beginning ..."
bible -f gen1:1-rev22:21 | LC_ALL=C awk '{
    split($1, place, ":")
    if (NR > 1 && place[1] != chapter) print ""
    chapter = place[1]
    sub(/^[^ ]* /, "")
    gsub(/[][]/, "")
    gsub(/ +/, " ")
    sub(/ $/, "")
    print
}' >"$part"
bytes=$(wc -c <"$part")
[ "$bytes" -gt 4000000 ] || { echo "the 'bible' command gave only $bytes bytes" >&2; exit 1; }

LC_ALL=C awk -v split_at=$((bytes / 20 * 19)) -v train="$folder/kjv-train.part" -v valid="$folder/kjv-valid.part" '
    BEGIN { out = train }
    { done += length($0) + 1 }
    $0 == "" && out == train && done > split_at { out = valid; next }
    { print > out }' "$part"
mv "$folder/kjv-valid.part" "$folder/kjv-valid.txt"
mv "$folder/kjv-train.part" "$folder/kjv-train.txt"

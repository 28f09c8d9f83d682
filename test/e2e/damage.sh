#!/bin/sh
# Damaged, mixed and missing checkpoints: found, named, never loaded in silence (cases B42 to B45).
. test/e2e/lib/train.sh
set -- --set tokens.train_steps=20 --set checkpoints.checkpoint_interval=10
ends 0 train good "$@"
newest=checkpoints/step-00000020 older=checkpoints/step-00000010
fresh() { rm -rf "$tmp/run" && cp -r "$tmp/good" "$tmp/run"; }
flip() { # FILE: one bit in the middle
    at=$(($(wc -c <"$1") / 2))
    byte=$(od -An -tu1 -j $at -N1 "$1" | tr -d ' ')
    printf "\\$(printf %03o $((byte ^ 4)))" | dd of="$1" bs=1 seek=$at conv=notrunc 2>/dev/null
}
told() { # FILE WHAT: the damage is told, and the run either refused (6) or went on from step 10 to the right numbers
    train run --set tokens.train_steps=20 --set checkpoints.checkpoint_interval=10 --resume >"$tmp/said" 2>&1
    got=$?
    grep -qF "$1" "$tmp/said"
    report $? "$2: names $1"
    if [ $got -eq 0 ]; then
        says "step-00000010, step 10"
        same good run "$2: done again from step 10"
    else
        [ $got -eq 6 ]
        report $? "$2: exit code 6 (got $got)"
        says "step-00000010 is whole: move $tmp/run/$newest away"
        cmp -s "$tmp/good/metrics.jsonl" "$tmp/run/metrics.jsonl"
        report $? "$2: nothing was changed"
    fi
}

for file in weights.safetensors adam_m.safetensors adam_v.safetensors config.json state.json manifest.json; do
    fresh
    truncate -s -1 "$tmp/run/$newest/$file"
    told $file "$file cut short"
    fresh
    flip "$tmp/run/$newest/$file"
    told $file "$file, one bit flipped"
    fresh
    rm "$tmp/run/$newest/$file"
    told $file "$file missing"
done

fresh # done as advised
flip "$tmp/run/$newest/weights.safetensors"
mv "$tmp/run/$newest" "$tmp/run/damaged"
told step-00000010 "damaged folder moved away"

fresh
for file in "$tmp/run/$newest"/*; do : >"$file"; done
told step-00000020 "all files empty"
says "skipped $tmp/run/$newest"
[ ! -e "$tmp/run/$newest.part" ]
report $? "no leftovers"

for file in weights adam_m adam_v; do # parts of two saves (B44)
    fresh
    cp "$tmp/run/$older/$file.safetensors" "$tmp/run/$newest"
    told $file.safetensors "$file of step 10 in step 20"
done
fresh
cp "$tmp/run/$older/manifest.json" "$tmp/run/$newest"
told step-00000020 "manifest of step 10 in step 20"

fresh
for folder in $newest $older; do : >"$tmp/run/$folder/weights.safetensors"; done
ends 6 train run "$@" --resume
says "$newest"
says "$older"
ends 6 train run "$@" --resume-if-present # never from random weights in silence
rm -rf "$tmp/run/checkpoints"
ends 6 train run "$@" --resume # B45
says "holds no checkpoint to resume from"
ends 6 train typo "$@" --resume
[ ! -e "$tmp/typo" ]
report $? "a wrong folder is not made"
ends 3 train good "$@"
says "already holds checkpoints"
ends 2 train good "$@" --resume --resume-if-present
ends 6 "$wanhe" eval "$tmp/good" "$tmp/text.txt" --step 15
says "no checkpoint of step 15"
says "there are steps 10, 20"

# Other numbers than those of the checkpoint are refused, with the values (20 steps are done; 30 are asked for).
set -- --set tokens.train_steps=30 --resume
cp -r "$tmp/good" "$tmp/before"
ends 3 train good "$@" --seed 7 --set model.dtype=bfloat16 --set grain.data=4 --set grain.wire=bfloat16
says "made with general.seed 42, the configuration says 7"
says "grain.data 8, grain.sequence 1; the configuration has 2, 4, 1"
says "was made with grain.wire float32, the configuration says bfloat16"
says "was trained in F32, the configuration says BF16"
ends 3 train good "$@" --set tokens.global_batch_size=16
says "has seen 160 sequences in 20 steps; tokens.global_batch_size is 16"
ends 3 train good "$@" --set model.model_config.hidden_size=64 --set model.model_config.num_hidden_layers=3
says "embed.token.weight"
diff -r "$tmp/before/checkpoints" "$tmp/good/checkpoints" && cmp "$tmp/before/metrics.jsonl" "$tmp/good/metrics.jsonl" &&
    cmp "$tmp/before/config.yaml" "$tmp/good/config.yaml"
report $? "refusals change nothing in the folder"
# What may change is said: here another order of the data.
ends 0 train good "$@" --set data.shuffle=false --set data.seed=7
says "data.shuffle is now false; the run had true"
says "data.seed is now 7; the run had 42"
says "tokens.train_steps is now 30; the run had 20"
silent_about "general.seed"
exit "$failed"

#!/bin/sh
# inspect, import, export: a trained model goes out to a Hugging Face folder and comes back the same to the bit.
. test/e2e/lib/train.sh

for family in llama gpt2; do
    ends 0 train $family --set tokens.train_steps=6 --set checkpoints.checkpoint_interval=6
    run="$tmp/$family"
    for type in f32 bf16 f16; do
        ends 0 "$wanhe" export "$run" "$tmp/$family-$type" --dtype $type --max-shard-bytes 20_000
        ends 0 "$wanhe" import "$tmp/$family-$type" "$tmp/$family-$type-back"
        ends 0 "$wanhe" export "$tmp/$family-$type-back" "$tmp/$family-$type-again" --dtype $type --max-shard-bytes 20000
        diff -r "$tmp/$family-$type" "$tmp/$family-$type-again" >"$tmp/said" 2>&1
        report $? "$family in $type: export, import, export: the same bytes"
    done
    cmp "$run/checkpoints/$(newest $family)/weights.safetensors" "$tmp/$family-f32-back/weights.safetensors" >"$tmp/said" 2>&1
    [ $? -eq 1 ] # only the header differs: step and save id
    report $? "$family: another save"
    for folder in "$run/checkpoints/$(newest $family)" "$tmp/$family-f32-back"; do
        "$wanhe" inspect --json "$folder" | grep -o '"xxh3":"[0-9a-f]*","file":"weights[^}]*' >"$tmp/hashes.$(basename "$folder")"
    done
    [ "$(wc -l <"$tmp/hashes.$family-f32-back")" -gt 10 ] &&
        cmp "$tmp/hashes.$family-f32-back" "$tmp/hashes.$(newest $family)" >"$tmp/said" 2>&1
    report $? "$family: hash of every tensor after export and import"
done

ends 0 "$wanhe" inspect "$tmp/llama"
says "kind: run"
says "newest_complete: $tmp/llama/checkpoints/step-00000006"
ends 0 "$wanhe" inspect --verify "$tmp/llama/checkpoints/step-00000006"
says "kind: checkpoint"
says "verified: yes"
says "moments: yes"
ends 0 "$wanhe" inspect "$tmp/gpt2-bf16"
says "kind: huggingface"
ends 0 "$wanhe" inspect "$tmp/gpt2-bf16/config.json"
says "model.family: gpt2"
ends 0 "$wanhe" inspect --verify --json "$tmp/llama/checkpoints/step-00000006/adam_m.safetensors"
says '"kind":"safetensors"'
ends 1 "$wanhe" inspect "$tmp"
says "nothing known in it"

# A tokenizer and its ids go along, out and back.
ends 0 "$wanhe" tokenize -t train:300 -o "$tmp/words" "$tmp/text.txt"
ends 0 train words --set tokens.train_steps=6 --set tokenizer.tokenizer_name_or_path="$tmp/words_tokenizer.json" \
    --set model.model_config.vocab_size=300
end=$("$wanhe" tokenize -t "$tmp/words_tokenizer.json" -o "$tmp/ends" --json "$tmp/text.txt" 2>/dev/null |
    grep -o '"end_of_text":[0-9]*' | cut -d : -f 2)
for name in words words-back; do
    ends 0 "$wanhe" export "$tmp/$name" "$tmp/$name-hf"
    grep -q "\"bos_token_id\": $end,$" "$tmp/$name-hf/config.json" && grep -q "\"eos_token_id\": $end,$" "$tmp/$name-hf/config.json"
    report $? "$name: ids of the tokenizer (${end:-none})"
    cmp "$tmp/words/tokenizer.json" "$tmp/$name-hf/tokenizer.json"
    report $? "$name: tokenizer.json came along"
    [ -e "$tmp/words-back" ] || ends 0 "$wanhe" import "$tmp/words-hf" "$tmp/words-back"
done
[ ! -e "$tmp/llama-f32/tokenizer.json" ] && grep -q '"eos_token_id": null' "$tmp/llama-f32/config.json"
report $? "bytes: no tokenizer.json, no ids"
ends 0 train ended --set tokens.train_steps=6 --set data.end_of_text=10
ends 0 "$wanhe" export "$tmp/ended" "$tmp/ended-hf"
grep -q '"eos_token_id": 10' "$tmp/ended-hf/config.json"
report $? "data.end_of_text is the end of text for others"

# what is refused, and with which exit code
ends 3 "$wanhe" export "$tmp/llama" "$tmp/llama-f32"
says "is not empty"
ends 6 "$wanhe" export "$tmp/llama" "$tmp/none" --step 7
says "no checkpoint of step 7"
says "there are steps 6"
ends 2 "$wanhe" export "$tmp/llama" "$tmp/none" --dtype f8
ends 3 "$wanhe" export "$tmp/llama" "$tmp/none" --tokenizer "$tmp/words_tokenizer.json"
says "has 300 tokens, the model 256"

ends 1 "$wanhe" import "$tmp/nowhere" "$tmp/none"
rm "$tmp/llama-bf16/model-00002-of-"*
ends 1 "$wanhe" import "$tmp/llama-bf16" "$tmp/none"
says "which is not there"
weights="$tmp/llama/checkpoints/step-00000006/weights.safetensors"
printf 'x' | dd of="$weights" bs=1 seek=6000 conv=notrunc 2>/dev/null
ends 6 "$wanhe" inspect --verify "$tmp/llama/checkpoints/step-00000006"
says "$weights is damaged: the hash of tensor"
ends 6 "$wanhe" export "$tmp/llama" "$tmp/none"
: >"$weights"
ends 6 "$wanhe" export "$tmp/llama" "$tmp/none"
says "has 0 bytes"
[ ! -e "$tmp/none" ]
report $? "nothing was written where something was refused"
exit $failed
